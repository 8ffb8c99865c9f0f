"""The part of a message that a broker writes itself: header and annotations [3.2.1-3.2.3].

Annotations travel here as *items*: the encoded keys and values of a map, back to back without the
map's head, with the number of pairs beside them.
"""

from struct import Struct
from typing import Any, Final

from peeklock.amqp.codec import decode, encode, skip
from peeklock.amqp.readers import UINT32
from peeklock.amqp.types import Symbol, Uint

SEQUENCE_NUMBER: Final = b"x-opt-sequence-number"
ENQUEUED_TIME: Final = b"x-opt-enqueued-time"
LOCKED_UNTIL: Final = b"x-opt-locked-until"
ENQUEUE_SEQUENCE_NUMBER: Final = b"x-opt-enqueue-sequence-number"
MESSAGE_STATE: Final = b"x-opt-message-state"

_FLAGS: Final = {-1: b"\x40", 0: b"\x42", 1: b"\x41"}
_NULL: Final = b"\x40"
_UINTS: Final = [encode(Uint(number)) for number in range(256)]


def find_annotation(items: bytes, name: bytes) -> Any:
    """Decodes the value under a name, None when it is absent; keys may be symbols or strings."""
    if name not in items:
        return None  # The cheap answer, and nearly always the right one.
    end = len(items)
    at = 0
    while at < end:
        value_at = skip(items, at, end)
        if _key(items, at, value_at) == name:
            return decode(items, value_at, end)[0]
        at = skip(items, value_at, end)
    return None


def drop_annotations(items: bytes, names: frozenset[bytes]) -> tuple[bytes, int]:
    """Leaves out the pairs with these names, and tells how many pairs are left."""
    kept = bytearray()
    count = 0
    end = len(items)
    at = 0
    while at < end:
        value_at = skip(items, at, end)
        after = skip(items, value_at, end)
        if _key(items, at, value_at) not in names:
            kept += items[at:after]
            count += 1
        at = after
    return bytes(kept), count


def head(
    *,
    durable: int,
    priority: int,
    ttl_ms: int,
    delivery_count: int,
    delivery_annotations: bytes = b"",
    delivery_annotations_count: int = 0,
    annotations: bytes = b"",
    annotations_count: int = 0,
) -> bytes:
    """Writes everything that comes before the bare message; -1 stands for null."""
    out = _header(durable, priority, ttl_ms, delivery_count)
    if delivery_annotations_count:
        out += _map_section(0x71, delivery_annotations_count, delivery_annotations)
    if annotations_count:
        out += _map_section(0x72, annotations_count, annotations)
    return out


def delivery_head(
    ttl_ms: int,
    delivery_count: int,
    sequence: int,
    enqueued_at: int,
    locked_until: int,
    enqueue_sequence: int,
    state: int,
) -> bytes:
    """Writes header and annotations of a delivery that has nothing special; -1 means no lock."""
    if locked_until < 0:
        items = _UNLOCKED.pack(
            _SEQUENCE_LABEL,
            sequence,
            _ENQUEUED_LABEL,
            enqueued_at,
            _ENQUEUE_SEQUENCE_LABEL,
            enqueue_sequence,
            _STATE_LABEL,
            state,
        )
    else:
        before, between, behind = locked_head_around(
            ttl_ms, delivery_count, enqueued_at, locked_until, state
        )
        return before + pack_numbers(sequence, between, enqueue_sequence, behind)
    return _plain_header(ttl_ms, delivery_count) + _UNLOCKED_SECTION + items


def locked_head_around(
    ttl_ms: int, delivery_count: int, enqueued_at: int, locked_until: int, state: int
) -> tuple[bytes, bytes, bytes]:
    """Writes the head of a locked delivery that has nothing special around its two numbers: what
    comes before the first, between them, and behind. Neighbours have it in common, as a rule;
    `pack_numbers` puts the numbers in."""
    return (
        _plain_header(ttl_ms, delivery_count) + _LOCKED_SECTION + _SEQUENCE_LABEL,
        _BETWEEN.pack(
            _ENQUEUED_LABEL, enqueued_at, _LOCKED_LABEL, locked_until, _ENQUEUE_SEQUENCE_LABEL
        ),
        _BEHIND.pack(_STATE_LABEL, state),
    )


def delivery_head_with(
    extra_items: bytes,
    extra_count: int,
    ttl_ms: int,
    delivery_count: int,
    sequence: int,
    enqueued_at: int,
    locked_until: int,
    enqueue_sequence: int,
    state: int,
    durable: int = 1,
    priority: int = -1,
) -> bytes:
    """Writes header and annotations of a delivery that carries annotations of its sender too."""
    plain = delivery_head(-1, 0, sequence, enqueued_at, locked_until, enqueue_sequence, state)
    locked = locked_until >= 0
    items = plain[-(_LOCKED_SIZE if locked else _UNLOCKED.size) :] + extra_items
    header = _header(durable, priority, ttl_ms, delivery_count)
    return header + _map_section(0x72, (5 if locked else 4) + extra_count, items)


def _key(items: bytes, at: int, after: int) -> bytes:
    """Gives the text of a symbol or a string; other keys have none."""
    code = items[at]
    if code == 0xA3 or code == 0xA1:
        return items[at + 2 : after]
    if code == 0xB3 or code == 0xB1:
        return items[at + 5 : after]
    return b""


def _uint(number: int) -> bytes:
    if 0 <= number < 256:
        return _UINTS[number]
    return _NULL if number < 0 else b"\x70" + UINT32.pack(number)


def _plain_header(ttl_ms: int, delivery_count: int) -> bytes:
    if ttl_ms < 0 and delivery_count < 256:
        return _PLAIN_HEADERS[delivery_count]
    return _header(1, -1, ttl_ms, delivery_count)


def _header(durable: int, priority: int, ttl_ms: int, delivery_count: int) -> bytes:
    fields = (
        _FLAGS[durable]
        + (_NULL if priority < 0 else bytes((0x50, priority)))
        + _uint(ttl_ms)
        + _NULL
        + _uint(delivery_count)
    )
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, 5)) + fields


def _map_section(code: int, count: int, items: bytes) -> bytes:
    """Writes a section of `count` pairs."""
    if count < 128 and len(items) < 255:
        return bytes((0, 0x53, code, 0xC1, len(items) + 1, 2 * count)) + items
    wide = bytes((0, 0x53, code, 0xD1))
    return wide + UINT32.pack(len(items) + 4) + UINT32.pack(2 * count) + items


def _label(name: bytes, constructor: int) -> bytes:
    """Encodes a key together with the constructor of its value."""
    return encode(Symbol(name.decode("ascii"))) + bytes((constructor,))


_PLAIN_HEADERS: Final = [_header(1, -1, -1, count) for count in range(256)]
_SEQUENCE_LABEL: Final = _label(SEQUENCE_NUMBER, 0x81)
_ENQUEUED_LABEL: Final = _label(ENQUEUED_TIME, 0x83)
_LOCKED_LABEL: Final = _label(LOCKED_UNTIL, 0x83)
_ENQUEUE_SEQUENCE_LABEL: Final = _label(ENQUEUE_SEQUENCE_NUMBER, 0x81)
_STATE_LABEL: Final = _label(MESSAGE_STATE, 0x54)
_UNLOCKED: Final = Struct(
    f">{len(_SEQUENCE_LABEL)}sq{len(_ENQUEUED_LABEL)}sq"
    f"{len(_ENQUEUE_SEQUENCE_LABEL)}sq{len(_STATE_LABEL)}sb"
)
# What a lock adds comes in pieces, around the two numbers of a delivery.
_BETWEEN: Final = Struct(
    f">{len(_ENQUEUED_LABEL)}sq{len(_LOCKED_LABEL)}sq{len(_ENQUEUE_SEQUENCE_LABEL)}s"
)
_BEHIND: Final = Struct(f">{len(_STATE_LABEL)}sb")
_NUMBERED: Final = Struct(f">q{_BETWEEN.size}sq{_BEHIND.size}s")
pack_numbers: Final = _NUMBERED.pack
_LOCKED_SIZE: Final = len(_SEQUENCE_LABEL) + _NUMBERED.size
# The heads of the two maps; both are short enough for the narrow form.
_UNLOCKED_SECTION: Final = bytes((0, 0x53, 0x72, 0xC1, _UNLOCKED.size + 1, 8))
_LOCKED_SECTION: Final = bytes((0, 0x53, 0x72, 0xC1, _LOCKED_SIZE + 1, 10))
