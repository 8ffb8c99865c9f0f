"""What a sender wrote around a message and wants to see again: header and annotations.

It rests beside the message as bytes that only this module reads. Most messages have none.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, final

from peeklock.amqp.dialect import PARTITION_KEY
from peeklock.amqp.messages.annotations import drop_annotations, with_symbols
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Symbol

AS_IT_LIVES: Final = -2
"""The ttl of the header is the life that the message was given, or absent with it."""

# It is stored, so a change of the form needs a new version. The first byte tells which it is.
#
# 2: a byte of flags, then what they tell of: priority (a byte), ttl (u32), and of the annotations
# the count and size of those of the delivery, and the count of those of the message; the encoded
# items of both follow.
_VERSION: Final = 2
_DURABLE: Final = 0x01
_IS_DURABLE: Final = 0x02
_FIRST_ACQUIRER: Final = 0x04
_IS_FIRST_ACQUIRER: Final = 0x08
_PRIORITY: Final = 0x10
_NO_TTL: Final = 0x20
_TTL: Final = 0x40
_ANNOTATIONS: Final = 0x80
_UINT: Final = Struct(">I")
_COUNTS: Final = Struct(">III")
# 1: version, durable (0 absent, 1 false, 2 true), whether there is a priority and which, then count
# and size of the delivery annotations and count of the message annotations; the items follow, and
# their keys may still be strings.
_FORM_1: Final = Struct(">BBBBIII")

_PARTITION_KEYS: Final = frozenset({PARTITION_KEY})
_PARTITION_KEY_LABEL: Final = encode(Symbol(PARTITION_KEY.decode("ascii")))


@final
@dataclass(slots=True, init=False)
class Envelope:
    """An envelope that was opened: numbers are -1 where absent, annotations are items."""

    durable: Final[int]
    priority: Final[int]
    ttl_ms: Final[int]
    first_acquirer: Final[int]
    delivery_annotations: Final[bytes]
    delivery_annotations_count: Final[int]
    annotations: Final[bytes]
    annotations_count: Final[int]

    def __init__(
        self,
        *,
        durable: int = -1,
        priority: int = -1,
        ttl_ms: int = AS_IT_LIVES,
        first_acquirer: int = -1,
        delivery_annotations: bytes = b"",
        delivery_annotations_count: int = 0,
        annotations: bytes = b"",
        annotations_count: int = 0,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms
        self.first_acquirer = first_acquirer
        self.delivery_annotations = delivery_annotations
        self.delivery_annotations_count = delivery_annotations_count
        self.annotations = annotations
        self.annotations_count = annotations_count

    def sealed(self) -> bytes:
        """Give the bytes that are kept: none where everything is as it is without."""
        flags = _flags(self.durable, _DURABLE, _IS_DURABLE)
        flags |= _flags(self.first_acquirer, _FIRST_ACQUIRER, _IS_FIRST_ACQUIRER)
        rest = b""
        if self.priority >= 0:
            flags |= _PRIORITY
            rest += bytes((self.priority,))
        if self.ttl_ms >= 0:
            flags |= _TTL
            rest += _UINT.pack(self.ttl_ms)
        elif self.ttl_ms != AS_IT_LIVES:
            flags |= _NO_TTL
        if self.delivery_annotations_count or self.annotations_count:
            flags |= _ANNOTATIONS
            rest += _COUNTS.pack(
                self.delivery_annotations_count,
                len(self.delivery_annotations),
                self.annotations_count,
            )
            rest += self.delivery_annotations + self.annotations
        return bytes((_VERSION, flags)) + rest if flags else b""

    def with_header(self, durable: int, ttl_ms: int) -> "Envelope":
        """Give the same with another word on durability and on the life in the header."""
        return self._with(durable, ttl_ms, self.annotations, self.annotations_count)

    def with_annotation(self, item: bytes) -> "Envelope":
        """Give the same with one annotation more."""
        items = self.annotations + item
        return self._with(self.durable, self.ttl_ms, items, self.annotations_count + 1)

    def with_partition_key(self, key: str | None) -> "Envelope":
        """Give the same with another partition key, or with none."""
        items, count = drop_annotations(self.annotations, _PARTITION_KEYS)
        if key is not None:
            items += _PARTITION_KEY_LABEL + encode(key)
            count += 1
        return self._with(self.durable, self.ttl_ms, items, count)

    def _with(self, durable: int, ttl_ms: int, items: bytes, count: int) -> "Envelope":
        return Envelope(
            durable=durable,
            priority=self.priority,
            ttl_ms=ttl_ms,
            first_acquirer=self.first_acquirer,
            delivery_annotations=self.delivery_annotations,
            delivery_annotations_count=self.delivery_annotations_count,
            annotations=items,
            annotations_count=count,
        )


def opened(raw: bytes) -> Envelope:
    """Read what was sealed."""
    if not raw:
        return NOTHING
    if raw[0] == 1:
        return _opened_first(raw)
    assert raw[0] == _VERSION, f"no envelope has the version {raw[0]}"
    flags = raw[1]
    at = 2
    priority = -1
    if flags & _PRIORITY:
        priority = raw[at]
        at += 1
    ttl_ms = -1 if flags & _NO_TTL else AS_IT_LIVES
    if flags & _TTL:
        ttl_ms = _UINT.unpack_from(raw, at)[0]
        at += _UINT.size
    delivery_count = size = count = 0
    if flags & _ANNOTATIONS:
        delivery_count, size, count = _COUNTS.unpack_from(raw, at)
        at += _COUNTS.size
    return Envelope(
        durable=_flag(flags, _DURABLE, _IS_DURABLE),
        priority=priority,
        ttl_ms=ttl_ms,
        first_acquirer=_flag(flags, _FIRST_ACQUIRER, _IS_FIRST_ACQUIRER),
        delivery_annotations=raw[at : at + size],
        delivery_annotations_count=delivery_count,
        annotations=raw[at + size :],
        annotations_count=count,
    )


def _opened_first(raw: bytes) -> Envelope:
    _, durable, has_priority, priority, delivery_count, size, count = _FORM_1.unpack_from(raw)
    items_at = _FORM_1.size + size
    return Envelope(
        durable=durable - 1,
        priority=priority if has_priority else -1,
        delivery_annotations=with_symbols(raw[_FORM_1.size : items_at]),
        delivery_annotations_count=delivery_count,
        annotations=with_symbols(raw[items_at:]),
        annotations_count=count,
    )


def _flags(value: int, has: int, true: int) -> int:
    if value < 0:
        return 0
    return has | true if value else has


def _flag(flags: int, has: int, true: int) -> int:
    if not flags & has:
        return -1
    return 1 if flags & true else 0


NOTHING: Final = Envelope()
DURABLE: Final = Envelope(durable=1).sealed()
