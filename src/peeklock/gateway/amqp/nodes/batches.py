"""Batches: one delivery with many messages, taken apart in passes and bounded in their number."""

from typing import Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.sections import batch_part, split
from peeklock.entity.message import Message
from peeklock.gateway.amqp.messages.translate import incoming, via_key_of
from peeklock.gateway.amqp.passes import Pass
from peeklock.gateway.identifiers import MessageIds

# A batch is one decision, whole or not at all. The service takes 4,500 messages, and in its premium
# tier about 15,900.
BATCH_COUNT_MAX: Final = 16_000
# Beside its messages an envelope may have each other kind of section once.
_SECTIONS_MAX: Final = BATCH_COUNT_MAX + 8


@final
class BatchReading:
    """What was read of a batch so far."""

    __slots__ = ("_at", "_payload", "_sections", "messages", "via_keys")

    def __init__(self, payload: bytes) -> None:
        self._payload: Final = payload
        self._at = 0
        self._sections = 0
        self.messages: Final[list[Message]] = []
        # Which partition of another entity each message goes by, where somebody wants to know.
        self.via_keys: Final[list[str | None]] = []

    def read(
        self, work: Pass, now: int, ids: MessageIds, *, wants_keys: bool, wants_via_keys: bool
    ) -> bool:
        """Read as much as the pass has left, and tell whether nothing is left to be read; a batch
        that cannot be read is a DecodeError."""
        count = max(1, min(work.left, _SECTIONS_MAX - self._sections))
        parts: list[bytes] = []
        self._at = batch_part(self._payload, self._at, count, parts)
        is_whole = self._at >= len(self._payload)
        self._sections += count
        work.left -= len(parts) + 1 if is_whole else count
        for part in parts:
            self.messages.append(incoming(part, now, ids, wants_keys))
            if wants_via_keys:
                self.via_keys.append(via_key_of(part))
        if not is_whole:
            return self._sections >= _SECTIONS_MAX
        if not self.messages:
            _check_empty(self._payload)
        return True

    @property
    def is_too_long(self) -> bool:
        """Whether it has more messages than one batch may have; it is not read to its end then."""
        return len(self.messages) > BATCH_COUNT_MAX or self._at < len(self._payload)


def _check_empty(payload: bytes) -> None:
    """JavaScript's client sends an empty list too; it is no wish at all."""
    sections = split(payload)
    if sections.body_at != len(sections.bare):
        raise DecodeError("a batch without messages")
