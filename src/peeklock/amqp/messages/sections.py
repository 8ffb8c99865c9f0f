"""A message cut into its sections without decoding what the broker does not need [3.2].

The broker reads the header and keeps the annotations apart, because it writes its own into them.
The rest, the *bare* message, goes from sender to receiver byte by byte. Sections may come in any
order: pyamqp puts the delivery annotations last.
"""

from dataclasses import dataclass
from typing import Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.values.codec import decode, skip
from peeklock.amqp.values.readers import READ_ERRORS, UINT32, cut, flag_at, raw_fields, uint_at
from peeklock.amqp.values.types import Symbol, Ulong

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_SYMBOLS: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
# How the value of a section is laid out, by descriptor and constructor: behind a size of one byte,
# behind one of four, empty, or as `skip` finds it. What is not said here is not allowed.
_NARROW: Final = 1
_WIDE: Final = 2
_EMPTY: Final = 3
_OTHER: Final = 4


def _shapes() -> bytes:
    shapes = bytearray(256 * 256)
    shapes[VALUE << 8 : (VALUE + 1) << 8] = bytes((_OTHER,)) * 256
    shapes[DATA << 8 | 0xA0] = _NARROW
    shapes[DATA << 8 | 0xB0] = _WIDE
    for code in (HEADER, PROPERTIES, SEQUENCE, VALUE):
        shapes[code << 8 | 0x45] = _EMPTY
        shapes[code << 8 | 0xC0] = _NARROW
        shapes[code << 8 | 0xD0] = _WIDE
    for code in (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER, VALUE):
        shapes[code << 8 | 0xC1] = _NARROW
        shapes[code << 8 | 0xD1] = _WIDE
    return bytes(shapes)


_SHAPES: Final = _shapes()
# A sender writes the same header again and again, so headers are read once and remembered. None
# that is read without error has more than 25 bytes, and a peer that varies them on purpose only
# makes us read them each time.
_HEADERS_MAX: Final = 512
_NO_HEADER: Final = (-1, -1, -1, -1, 0)
_headers: Final[dict[bytes, tuple[int, int, int, int, int]]] = {}
# A wide data section, behind the header forms that say durable or nothing.
_LONE_DATA: Final = (
    b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0",
    b"\x00\x53\x75\xb0",
    b"\x00\x53\x70\xc0\x03\x01\x56\x01\x00\x53\x75\xb0",
    b"\x00\x53\x70\x45\x00\x53\x75\xb0",
)
# Where such a data section begins behind a header that says durable; behind others it is less.
DURABLE_BEFORE: Final = 7
# A body may come in several sections; a walk over very many of them would be a long step.
BODY_SECTIONS_MAX: Final = 4_096
_BODY_KINDS: Final = (1 << 5, 1 << 6, 1 << 7)
_BODY_MASK: Final = (1 << 5) | (1 << 6) | (1 << 7)


@final
@dataclass(slots=True, init=False)
class Sections:
    """One message in its parts.

    Numbers are -1 where absent, the delivery count is 0. Annotations are the encoded keys and
    values of their map, back to back without the map's head; their count is the number of pairs.
    The offsets point at a section's descriptor, always `00 53 xx`, within `bare`; `body_at` is
    where the body begins or, in a message without one, where it would.
    """

    durable: Final[int]
    priority: Final[int]
    ttl_ms: Final[int]
    first_acquirer: Final[int]
    delivery_count: Final[int]
    delivery_annotations: Final[bytes]
    delivery_annotations_count: Final[int]
    annotations: Final[bytes]
    annotations_count: Final[int]
    bare: Final[bytes]
    properties_at: Final[int]
    application_properties_at: Final[int]
    body_at: Final[int]
    footer_at: Final[int]

    def __init__(
        self,
        durable: int,
        priority: int,
        ttl_ms: int,
        first_acquirer: int,
        delivery_count: int,
        delivery_annotations: bytes,
        delivery_annotations_count: int,
        annotations: bytes,
        annotations_count: int,
        bare: bytes,
        properties_at: int,
        application_properties_at: int,
        body_at: int,
        footer_at: int,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms
        self.first_acquirer = first_acquirer
        self.delivery_count = delivery_count
        self.delivery_annotations = delivery_annotations
        self.delivery_annotations_count = delivery_annotations_count
        self.annotations = annotations
        self.annotations_count = annotations_count
        self.bare = bare
        self.properties_at = properties_at
        self.application_properties_at = application_properties_at
        self.body_at = body_at
        self.footer_at = footer_at


def lone_data_at(payload: bytes) -> int:
    """Return where the bare message begins in one that is a single data section behind a header
    that says nothing but durable, or behind none; -1 for every other message.

    It is what small producers send, and costs a fraction of `split`.
    """
    for prefix in _LONE_DATA:
        if payload.startswith(prefix):
            at = len(prefix)
            if len(payload) >= at + 4 and UINT32.unpack_from(payload, at)[0] == (
                len(payload) - at - 4
            ):
                return at - 4
            return -1
    return -1


def split(payload: bytes) -> Sections:
    """Cut a message into its sections and check that each ends where it should."""
    header = _NO_HEADER
    delivery_annotations, delivery_annotations_count = b"", 0
    annotations, annotations_count = b"", 0
    properties_at, application_properties_at, body_at, footer_at = -1, -1, -1, -1
    end = len(payload)
    at = 0
    bare_at = -1
    seen = 0
    repeated = 0
    while at < end:
        code, value_at, after = section_at(payload, at, end)
        bit = 1 << (code - HEADER)
        if seen & bit:
            if code != DATA and code != SEQUENCE:
                raise DecodeError(f"a message with the section {code:#x} twice")
            repeated += 1
            if repeated >= BODY_SECTIONS_MAX:
                raise DecodeError(f"a message with more than {BODY_SECTIONS_MAX} body sections")
        seen |= bit
        if value_at != at + 3 or (bare_at >= 0 and code < PROPERTIES):
            return split(_tidied(payload))
        if code >= PROPERTIES:
            if bare_at < 0:
                bare_at = at
            if code == PROPERTIES:
                properties_at = at - bare_at
            elif code == APPLICATION_PROPERTIES:
                application_properties_at = at - bare_at
            elif code == FOOTER:
                footer_at = at - bare_at
            elif body_at < 0:
                body_at = at - bare_at
        elif code == HEADER:
            header = _header(payload, value_at, after)
        elif code == MESSAGE_ANNOTATIONS:
            annotations, annotations_count = map_items(payload, value_at, after)
        else:
            delivery_annotations, delivery_annotations_count = map_items(payload, value_at, after)
        at = after
    if seen & _BODY_MASK and seen & _BODY_MASK not in _BODY_KINDS:
        raise DecodeError("a message with two kinds of body")
    bare = b"" if bare_at < 0 else payload[bare_at:]
    if body_at < 0:
        body_at = footer_at if footer_at >= 0 else len(bare)
    return Sections(
        header[0],
        header[1],
        header[2],
        header[3],
        header[4],
        delivery_annotations,
        delivery_annotations_count,
        annotations,
        annotations_count,
        bare,
        properties_at,
        application_properties_at,
        body_at,
        footer_at,
    )


def _tidied(payload: bytes) -> bytes:
    """Put the bare message last, and write each descriptor in its short form.

    Receivers read the code of a section at a fixed place, so the long forms are not handed on.
    """
    front: list[bytes] = []
    bare: list[bytes] = []
    end = len(payload)
    at = 0
    while at < end:
        code, value_at, after = section_at(payload, at, end)
        pieces = bare if code >= PROPERTIES else front
        pieces.append(bytes((0, 0x53, code)))
        pieces.append(payload[value_at:after])
        at = after
    return b"".join(front + bare)


def batch_part(payload: bytes, at: int, count: int, messages: list[bytes]) -> int:
    """Take the messages out of so many sections of a batch envelope, from `at` on; return where the
    next part begins."""
    end = len(payload)
    while at < end and count > 0:
        code, value_at, after = section_at(payload, at, end)
        if code == DATA:
            head = 2 if payload[value_at] == 0xA0 else 5
            messages.append(payload[value_at + head : after])
        elif code in (SEQUENCE, VALUE):
            raise DecodeError("a batch whose body is not data")
        at = after
        count -= 1
    return at


def section_at(payload: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return which section begins here, where its value is, and where the next section begins."""
    try:
        if payload[at] == 0 and payload[at + 1] == 0x53:
            code = payload[at + 2]
            value_at = at + 3
        else:
            code, value_at = _long_descriptor(payload, at, end)
        shape = _SHAPES[code << 8 | payload[value_at]]
        if shape == _NARROW:
            after = value_at + 2 + payload[value_at + 1]
        elif shape == _WIDE:
            after = value_at + 5 + int(UINT32.unpack_from(payload, value_at + 1)[0])
        elif shape == _EMPTY:
            after = value_at + 1
        elif shape == _OTHER:
            after = skip(payload, value_at, end)
        else:
            raise DecodeError(f"{code:#x} is no section of a message, or has a wrong value")
    except READ_ERRORS:
        raise cut() from None
    if after > end:
        raise cut()
    return code, value_at, after


def map_items(buffer: bytes, value_at: int, after: int) -> tuple[bytes, int]:
    """Take the pairs out of an encoded map, each walked over, and tell how many there are."""
    wide = buffer[value_at] == 0xD1
    first = value_at + (9 if wide else 3)
    if first > after:
        raise cut()
    count = int(UINT32.unpack_from(buffer, value_at + 5)[0]) if wide else buffer[value_at + 2]
    if count == 0 and first == after:
        return b"", 0
    if count % 2 or count > after - first:
        raise DecodeError("a map with a key and no value")
    at = first
    for _ in range(count):
        at = skip(buffer, at, after)
    if at != after:
        raise cut()
    return buffer[first:after], count // 2


def list_items(buffer: bytes, value_at: int, after: int) -> tuple[bytes, int]:
    """Take the fields out of an encoded list, unchecked, and tell how many there should be."""
    constructor = buffer[value_at]
    if constructor == 0x45:
        return b"", 0
    wide = constructor == 0xD0
    first = value_at + (9 if wide else 3)
    if first > after:
        raise cut()
    count = int(UINT32.unpack_from(buffer, value_at + 5)[0]) if wide else buffer[value_at + 2]
    if count > after - first:
        raise cut()
    return buffer[first:after], count


def _header(payload: bytes, value_at: int, after: int) -> tuple[int, int, int, int, int]:
    """Read durable, priority, ttl, first-acquirer and delivery-count."""
    raw = payload[value_at:after]
    known = _headers.get(raw)
    if known is None:
        known = _read_header(raw)
        if len(_headers) >= _HEADERS_MAX:
            _headers.clear()
        _headers[raw] = known
    return known


def _read_header(value: bytes) -> tuple[int, int, int, int, int]:
    items, count = list_items(value, 0, len(value))
    if count > 5:
        raise DecodeError("header has more fields than are known")
    raw = raw_fields(items, count, 5)
    durable = flag_at(raw[0], 0, "header.durable")[0] if raw[0] else -1
    priority = -1
    if raw[1]:
        if raw[1][0] != 0x50:
            raise DecodeError("header.priority is not a ubyte")
        priority = raw[1][1]
    ttl_ms = uint_at(raw[2], 0, "header.ttl")[0] if raw[2] else -1
    first_acquirer = flag_at(raw[3], 0, "header.first-acquirer")[0] if raw[3] else -1
    delivery_count = uint_at(raw[4], 0, "header.delivery-count")[0] if raw[4] else 0
    return durable, priority, ttl_ms, first_acquirer, delivery_count


def _long_descriptor(payload: bytes, at: int, end: int) -> tuple[int, int]:
    if payload[at] != 0:
        raise DecodeError("a message section without a descriptor")
    descriptor, value_at = decode(payload, at + 1, end)
    if isinstance(descriptor, Ulong) and descriptor < 256:
        return int(descriptor), value_at
    if isinstance(descriptor, Symbol) and descriptor in _SYMBOLS:
        return _SYMBOLS[descriptor], value_at
    raise DecodeError(f"{descriptor!r} is no section of a message")
