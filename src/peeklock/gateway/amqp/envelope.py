"""What a sender wrote around a message and wants to see again: durable, priority, annotations.

It rests beside the message as bytes that only this module reads. Nearly every message has none.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, final

from peeklock.amqp.codec import encode
from peeklock.amqp.message import drop_annotations
from peeklock.amqp.types import Symbol

PARTITION_KEY: Final = b"x-opt-partition-key"

# Version, durable (0 absent, 1 false, 2 true), whether there is a priority and which, then count
# and size of the delivery annotations and count of the message annotations; the encoded items of
# both follow. It is stored, so a change of the form needs a new version.
_FORM: Final = Struct(">BBBBIII")
_VERSION: Final = 1

_PARTITION_KEYS: Final = frozenset({PARTITION_KEY})
_PARTITION_KEY_LABEL: Final = encode(Symbol(PARTITION_KEY.decode("ascii")))


@final
@dataclass(slots=True, init=False)
class Envelope:
    """An envelope that was opened: numbers are -1 where absent, annotations are items."""

    durable: Final[int]
    priority: Final[int]
    delivery_annotations: Final[bytes]
    delivery_annotations_count: Final[int]
    annotations: Final[bytes]
    annotations_count: Final[int]

    def __init__(
        self,
        durable: int,
        priority: int,
        delivery_annotations: bytes,
        delivery_annotations_count: int,
        annotations: bytes,
        annotations_count: int,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.delivery_annotations = delivery_annotations
        self.delivery_annotations_count = delivery_annotations_count
        self.annotations = annotations
        self.annotations_count = annotations_count

    def sealed(self) -> bytes:
        """Give the bytes that are kept: none where everything is as it is without."""
        if (
            not (self.delivery_annotations_count or self.annotations_count)
            and self.priority < 0
            and self.durable != 0
        ):
            return b""
        fixed = _FORM.pack(
            _VERSION,
            self.durable + 1,
            self.priority >= 0,
            max(0, self.priority),
            self.delivery_annotations_count,
            len(self.delivery_annotations),
            self.annotations_count,
        )
        return fixed + self.delivery_annotations + self.annotations

    def with_durable(self, durable: int) -> "Envelope":
        """Give the same with another word on durability."""
        return Envelope(
            durable,
            self.priority,
            self.delivery_annotations,
            self.delivery_annotations_count,
            self.annotations,
            self.annotations_count,
        )

    def with_partition_key(self, key: str | None) -> "Envelope":
        """Give the same with another partition key, or with none."""
        items, count = drop_annotations(self.annotations, _PARTITION_KEYS)
        if key is not None:
            items += _PARTITION_KEY_LABEL + encode(key)
            count += 1
        return Envelope(
            self.durable,
            self.priority,
            self.delivery_annotations,
            self.delivery_annotations_count,
            items,
            count,
        )


NOTHING: Final = Envelope(-1, -1, b"", 0, b"", 0)


def opened(raw: bytes) -> Envelope:
    """Read what was sealed."""
    if not raw:
        return NOTHING
    version, durable, has_priority, priority, delivery_count, size, count = _FORM.unpack_from(raw)
    assert version == _VERSION, f"no envelope has the version {version}"
    items_at = _FORM.size + size
    return Envelope(
        durable - 1,
        priority if has_priority else -1,
        raw[_FORM.size : items_at],
        delivery_count,
        raw[items_at:],
        count,
    )
