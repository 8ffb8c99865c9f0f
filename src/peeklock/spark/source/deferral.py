"""Claims where the broker does not keep them, as on Azure: messages are deferred with a tag.

Received under a lock, deferred with the reader's name among the application properties, read by
peeking, and settled by receiving them by number. Deferring counts as a delivery, nobody is fenced,
and no attempts are counted; sessions need the broker's own claims.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Uint
from peeklock.client.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
)
from peeklock.spark.entity_client import EntityClient
from peeklock.spark.offsets import partition_of
from peeklock.spark.options import SourceOptions
from peeklock.spark.source.arrow import OWNER_MARK, Parts, number_of
from peeklock.spark.source.claim_keeper import (
    COMPLETED,
    DEFERRAL,
    PEEK_COUNT,
    Backlog,
    ClaimedMessage,
    ClaimPage,
    heads,
    peek_pages,
    walk,
)

_DISPOSE: Final = "com.microsoft:update-disposition"
_BY_NUMBER: Final = "com.microsoft:receive-by-sequence-number"
_DEFERRED: Final = 1
_ACTIVE: Final = 0
_WAIT_MS: Final = 300
_SETTLE_PAGE: Final = 500
_NO_BOUND: Final = 1 << 62
_ABSENT: Final = (MessageNotFoundError, MessagingEntityNotFoundError, MessageLockLostError)


@final
class DeferralClaimKeeper:
    """Claims that are written on the messages themselves."""

    kind: Final = DEFERRAL

    def __init__(self, wire: EntityClient, options: SourceOptions) -> None:
        self._wire = wire
        self._owner = options.consumer_id

    def enter(self) -> None:
        """Nothing can be fenced here: two readers of one name share the claims."""

    def claim(
        self,
        rows: int,
        size: int,
        sessions: int,  # noqa: ARG002 - there are none here
        upto: dict[int, int] | None,
    ) -> list[ClaimedMessage]:
        """Receive under locks, then defer with the tag; what came too late is given back."""
        found: list[ClaimedMessage] = []
        left = size or _NO_BOUND
        while len(found) < rows and left > 0:
            count = min(PEEK_COUNT, rows - len(found))
            deliveries = self._wire.receive(count, _WAIT_MS, deletes=False)
            numbers = [number_of(delivery.payload) or 0 for delivery in deliveries]
            late = [
                delivery
                for delivery, number in zip(deliveries, numbers, strict=True)
                if upto is not None and number > upto.get(partition_of(number), -1)
            ]
            kept = [
                (delivery, number)
                for delivery, number in zip(deliveries, numbers, strict=True)
                if delivery not in late
            ]
            if kept:
                self._dispose([_token(delivery.tag) for delivery, _ in kept], "defered")
            if late:
                self._wire.release(late)
            found += [ClaimedMessage(number, len(delivery.payload)) for delivery, number in kept]
            left -= sum(len(delivery.payload) for delivery, _ in kept)
            if late or len(deliveries) < count:
                break
        return sorted(found, key=lambda claimed: claimed.number)

    def listed(self) -> list[ClaimedMessage]:
        """Walk over everything and keep what has the tag."""
        return [
            ClaimedMessage(number, len(payload))
            for number, payload in walk(self._wire)
            if self._is_mine(payload)
        ]

    def backlog(self) -> Backlog:
        """Walk over everything and count."""
        last: dict[int, int] = {}
        active = 0
        oldest = -1
        for number, payload in walk(self._wire):
            last[partition_of(number)] = number
            annotations = _annotations(payload)
            if annotations.get("x-opt-message-state", _ACTIVE) == _ACTIVE:
                active += 1
                enqueued = int(annotations.get("x-opt-enqueued-time", -1))
                oldest = enqueued if oldest < 0 else min(oldest, enqueued)
        return Backlog(last, active, oldest)

    def fetch(self, numbers: Sequence[int], *, omit_body: bool) -> Iterator[ClaimPage]:
        """Peek, and leave out what is not this reader's any more."""
        for page in peek_pages(self._wire, numbers, omit_body=omit_body):
            yield ClaimPage([one for one in page.payloads if self._is_mine(one)], page.looked_at)

    def heads(self, numbers: Sequence[int], sub_queue: str = "") -> list[bytes]:
        """Peek."""
        return heads(self._wire, numbers, sub_queue)

    def settle(
        self, numbers: Sequence[int], outcome: str, *, note: dict[str, Any] | None = None
    ) -> int:
        """Receive by number; one that is missing fails all of a call, and so do several that are
        too much for one answer, so that those are halved."""
        return sum(
            self._settle(list(numbers[at : at + _SETTLE_PAGE]), outcome, note or {})
            for at in range(0, len(numbers), _SETTLE_PAGE)
        )

    def _settle(self, numbers: list[int], outcome: str, note: dict[str, Any]) -> int:
        deletes = outcome == COMPLETED
        try:
            answer = self._wire.manage(
                _BY_NUMBER,
                {
                    "sequence-numbers": Array(LONG, numbers),
                    "receiver-settle-mode": Uint(0 if deletes else 1),
                },
            )
        except (*_ABSENT, ServiceBusQuotaExceededError) as error:
            if len(numbers) == 1:
                if isinstance(error, ServiceBusQuotaExceededError):
                    raise
                return 0
            half = len(numbers) // 2
            return self._settle(numbers[:half], outcome, note) + self._settle(
                numbers[half:], outcome, note
            )
        messages = answer.get("messages") or []
        if not deletes and messages:
            self._dispose([entry["lock-token"] for entry in messages], outcome, note)
        return len(messages)

    def _dispose(
        self, tokens: list[uuid.UUID], outcome: str, note: dict[str, Any] | None = None
    ) -> None:
        asked: dict[str, Any] = {
            "disposition-status": outcome,
            "lock-tokens": Array(UUID_CODE, tokens),
            **(note or {}),
        }
        if outcome == "defered":
            asked["properties-to-modify"] = {OWNER_MARK: self._owner}
        self._wire.manage(_DISPOSE, asked)

    def _is_mine(self, payload: bytes) -> bool:
        try:
            parts = Parts(payload)
            return (
                parts.annotations.get("x-opt-message-state") == _DEFERRED
                and parts.application.get(OWNER_MARK) == self._owner
            )
        except DecodeError:
            return False  # Nobody could have tagged it.


def _annotations(payload: bytes) -> dict[Any, Any]:
    return Parts(payload).annotations


def _token(tag: bytes) -> uuid.UUID:
    return uuid.UUID(bytes_le=tag)
