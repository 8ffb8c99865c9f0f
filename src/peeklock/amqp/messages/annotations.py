"""The part of a message that a broker writes itself: header and annotations [3.2.1-3.2.3].

Annotations travel here as *items*: the encoded keys and values of a map, back to back without the
map's head, with the number of pairs beside them.
"""

from struct import Struct
from typing import Any, Final

from peeklock.amqp.dialect import (
    CLAIMED,
    ENQUEUE_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    SEQUENCE_NUMBER,
)
from peeklock.amqp.messages.sections import FOOTER, map_items, section_at
from peeklock.amqp.values.codec import decode, skip
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.readers import UINT32
from peeklock.amqp.values.types import Symbol, Uint

_FLAGS: Final = {-1: b"\x40", 0: b"\x42", 1: b"\x41"}
_NULL: Final = b"\x40"
_UINTS: Final = [encode(Uint(number)) for number in range(256)]


def find_annotation(items: bytes, name: bytes) -> Any:
    """Decode the value under a name, None when it is absent; keys may be symbols or strings."""
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
    """Leave out the pairs with these names, and tell how many pairs are left."""
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


def with_symbols(items: bytes) -> bytes:
    """Write the keys that are strings as symbols, which all keys of annotations are [3.2.10]; a
    text beyond ASCII has no symbol and stays."""
    kept: bytearray | None = None
    end = len(items)
    at = 0
    while at < end:
        value_at = skip(items, at, end)
        code = items[at]
        if (code == 0xA1 or code == 0xB1) and _key(items, at, value_at).isascii():
            if kept is None:
                kept = bytearray(items)
            kept[at] = code + 2  # both forms have the same layout
        at = skip(items, value_at, end)
    return items if kept is None else bytes(kept)


def with_symbols_in_footer(bare: bytes, footer_at: int) -> bytes:
    """Write the keys of a footer as symbols, which changes no length."""
    code, value_at, after = section_at(bare, footer_at, len(bare))
    assert code == FOOTER, "the caller has found the footer"
    items, _ = map_items(bare, value_at, after)
    written = with_symbols(items)
    if written is items:
        return bare
    items_at = after - len(items)
    return bare[:items_at] + written + bare[after:]


def head(
    *,
    durable: int,
    priority: int,
    ttl_ms: int,
    delivery_count: int,
    first_acquirer: int = -1,
    annotations: bytes = b"",
    annotations_count: int = 0,
) -> bytes:
    """Write everything that comes before the bare message; -1 stands for null."""
    out = header(durable, priority, ttl_ms, first_acquirer, delivery_count)
    if annotations_count:
        out += _map_head(0x72, annotations_count, len(annotations)) + annotations
    return out


def header(
    durable: int, priority: int, ttl_ms: int, first_acquirer: int, delivery_count: int
) -> bytes:
    """Write a header; -1 stands for null."""
    if (
        ttl_ms < 0
        and priority < 0
        and durable < 0
        and first_acquirer < 0
        and delivery_count < len(_PLAIN_HEADERS)
    ):
        return _PLAIN_HEADERS[delivery_count]
    return _header(durable, priority, ttl_ms, first_acquirer, delivery_count)


def locked_around(
    begin: bytes, noted: bytes, noted_count: int, enqueued_at: int, rest: bytes, rest_count: int
) -> tuple[bytes, bytes, bytes]:
    """Write the head of a delivery under a lock around its lock token and its sequence number: what
    comes before the token, between the two, and behind. Neighbours have it in common, as a rule;
    `locked_pack` puts token and number in.

    `noted` are delivery annotations beside the token, `rest` are annotations behind the number.
    """
    return (
        begin + _map_head(0x71, 1 + noted_count, _TOKEN_SIZE + len(noted)) + _TOKEN_LABEL,
        noted
        + _map_head(0x72, 2 + rest_count, _NUMBERED_SIZE + len(rest))
        + _ENQUEUED.pack(_ENQUEUED_LABEL, enqueued_at, _SEQUENCE_LABEL),
        rest,
    )


def unlocked_around(
    begin: bytes, noted: bytes, noted_count: int, enqueued_at: int, rest: bytes, rest_count: int
) -> tuple[bytes, bytes]:
    """Write the head of a delivery without a lock around its sequence number."""
    return (
        begin
        + _map_head(0x71, noted_count, len(noted))
        + noted
        + _map_head(0x72, 2 + rest_count, _NUMBERED_SIZE + len(rest))
        + _ENQUEUED.pack(_ENQUEUED_LABEL, enqueued_at, _SEQUENCE_LABEL),
        rest,
    )


def locked_pack(before: bytes, between: bytes, behind: bytes) -> Any:
    """Return what packs a head: (before, number and lock number of the token, between, sequence
    number, behind)."""
    return _packer(f">{len(before)}sQQ{len(between)}sq{len(behind)}s")


def unlocked_pack(before: bytes, behind: bytes) -> Any:
    """Return what packs a head: (before, sequence number, behind)."""
    return _packer(f">{len(before)}sq{len(behind)}s")


def locked_until_item(instant: int) -> bytes:
    """Write until when a lock lasts."""
    return _LOCKED.pack(_LOCKED_LABEL, instant)


def enqueue_sequence_item(number: int) -> bytes:
    """Write the number that a message had where it was enqueued first."""
    return _FIRST_NUMBER.pack(_ENQUEUE_SEQUENCE_LABEL, number)


def state_item(state: int) -> bytes:
    """Write the state of a message."""
    return _STATE_ITEMS[state]


def claimed_item() -> bytes:
    """Write that a message is claimed by somebody."""
    return _CLAIMED_ITEM


def _key(items: bytes, at: int, after: int) -> bytes:
    """Return the text of a symbol or a string; other keys have none."""
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


def _header(
    durable: int, priority: int, ttl_ms: int, first_acquirer: int, delivery_count: int
) -> bytes:
    fields = (
        _FLAGS[durable]
        + (_NULL if priority < 0 else bytes((0x50, priority)))
        + _uint(ttl_ms)
        + _FLAGS[first_acquirer]
        + _uint(delivery_count)
    )
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, 5)) + fields


def _map_head(code: int, count: int, size: int) -> bytes:
    """Write what stands before `count` pairs that have `size` bytes."""
    if count < 128 and size < 255:
        return bytes((0, 0x53, code, 0xC1, size + 1, 2 * count))
    wide = bytes((0, 0x53, code, 0xD1))
    return wide + UINT32.pack(size + 4) + UINT32.pack(2 * count)


def _packer(form: str) -> Any:
    found = _packers.get(form)
    if found is None:
        found = Struct(form).pack
        if len(_packers) >= _PACKERS_MAX:
            _packers.clear()
        _packers[form] = found
    return found


def _label(name: bytes, constructor: int) -> bytes:
    """Encode a key together with the constructor of its value."""
    return encode(Symbol(name.decode("ascii"))) + bytes((constructor,))


# More lengths of a head than senders give to neighbours; who varies them on purpose only makes us
# find them anew.
_PACKERS_MAX: Final = 512
_packers: Final[dict[str, Any]] = {}
_PLAIN_HEADERS: Final = [_header(-1, -1, -1, -1, count) for count in range(256)]
_TOKEN_LABEL: Final = _label(LOCK_TOKEN, 0x98)
_TOKEN_SIZE: Final = len(_TOKEN_LABEL) + 16
_SEQUENCE_LABEL: Final = _label(SEQUENCE_NUMBER, 0x81)
_ENQUEUED_LABEL: Final = _label(ENQUEUED_TIME, 0x83)
_LOCKED_LABEL: Final = _label(LOCKED_UNTIL, 0x83)
_ENQUEUE_SEQUENCE_LABEL: Final = _label(ENQUEUE_SEQUENCE_NUMBER, 0x81)
_ENQUEUED: Final = Struct(f">{len(_ENQUEUED_LABEL)}sq{len(_SEQUENCE_LABEL)}s")
_NUMBERED_SIZE: Final = _ENQUEUED.size + 8
_LOCKED: Final = Struct(f">{len(_LOCKED_LABEL)}sq")
_FIRST_NUMBER: Final = Struct(f">{len(_ENQUEUE_SEQUENCE_LABEL)}sq")
_STATE_ITEMS: Final = [_label(MESSAGE_STATE, 0x54) + bytes((state,)) for state in range(3)]
_CLAIMED_ITEM: Final = _label(CLAIMED, 0x41)  # true
