"""The properties and application properties of a bare message, read and changed where they lie.

What is not changed stays byte-exact, and what is not asked for is not decoded. The offsets are
those of `sections.Sections`.
"""

from typing import Any, Final, final
from uuid import UUID

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.sections import list_items, map_items, section_at
from peeklock.amqp.values.codec import decode, skip
from peeklock.amqp.values.constructors import SIZED8, STRING8, WIDTHS
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.readers import UINT32, cut, raw_fields, uint_at

# The places of the fields in the list [3.2.4].
MESSAGE_ID: Final = 0
USER_ID: Final = 1
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
CORRELATION_ID: Final = 5
CONTENT_TYPE: Final = 6
CONTENT_ENCODING: Final = 7
ABSOLUTE_EXPIRY_TIME: Final = 8
CREATION_TIME: Final = 9
GROUP_ID: Final = 10
GROUP_SEQUENCE: Final = 11
REPLY_TO_GROUP_ID: Final = 12
_FIELDS: Final = 13

# What `peek_properties` tells, one bit each.
HAS_MESSAGE_ID: Final = 1
HAS_GROUP_ID: Final = 2
HAS_EXPIRY: Final = 4

_NULLS: Final = [b"\x40" * count for count in range(_FIELDS + 1)]
_BITS: Final = [HAS_MESSAGE_ID, 0, 0, 0, 0, 0, 0, 0, HAS_EXPIRY, 0, HAS_GROUP_ID, 0, 0]


@final
class LazyProperties:
    """The properties of one message, each field decoded when it is asked for."""

    __slots__ = ("_raw",)

    def __init__(self, raw: list[bytes]) -> None:
        self._raw = raw

    def raw(self, field: int) -> bytes:
        """Return a field as it is encoded, empty when it is null."""
        return self._raw[field]

    @property
    def message_id(self) -> str | None:
        """The message-id as text, whatever its type."""
        return id_text(self._raw[MESSAGE_ID], "message-id")

    @property
    def correlation_id(self) -> str | None:
        """The correlation-id as text, whatever its type."""
        return id_text(self._raw[CORRELATION_ID], "correlation-id")

    @property
    def user_id(self) -> bytes | None:
        """Who the sender says to be."""
        value = _value(self._raw[USER_ID])
        if value is None or type(value) is bytes:
            return value
        raise _wrong("user-id")

    @property
    def to(self) -> str | None:
        """Where the message is meant to go."""
        return _text(self._raw[TO], "to")

    @property
    def subject(self) -> str | None:
        """What the message is about."""
        return _text(self._raw[SUBJECT], "subject")

    @property
    def reply_to(self) -> str | None:
        """Where an answer is wanted."""
        return _text(self._raw[REPLY_TO], "reply-to")

    @property
    def content_type(self) -> str | None:
        """The MIME type of the body."""
        return _text(self._raw[CONTENT_TYPE], "content-type")

    @property
    def content_encoding(self) -> str | None:
        """How the body is packed."""
        return _text(self._raw[CONTENT_ENCODING], "content-encoding")

    @property
    def absolute_expiry(self) -> int:
        """The instant after which the message is worthless, -1 for never."""
        return _instant(self._raw[ABSOLUTE_EXPIRY_TIME], "absolute-expiry-time")

    @property
    def creation_time(self) -> int:
        """The instant at which the message was made, -1 when it does not say."""
        return _instant(self._raw[CREATION_TIME], "creation-time")

    @property
    def group_id(self) -> str | None:
        """The message session that the message belongs to."""
        return _text(self._raw[GROUP_ID], "group-id")

    @property
    def group_sequence(self) -> int:
        """The place within the group, -1 when it does not say."""
        raw = self._raw[GROUP_SEQUENCE]
        return uint_at(raw, 0, "properties.group-sequence")[0] if raw else -1

    @property
    def reply_to_group_id(self) -> str | None:
        """The message session for an answer."""
        return _text(self._raw[REPLY_TO_GROUP_ID], "reply-to-group-id")


def peek_properties(bare: bytes, properties_at: int) -> int:
    """Tell by bits which of message-id, group-id and expiry a message has, and nothing else."""
    if properties_at < 0:
        return 0
    value_at = properties_at + 3
    constructor = bare[value_at]
    if constructor == 0xC0:
        after = value_at + 2 + bare[value_at + 1]
        count = bare[value_at + 2]
        at = value_at + 3
    elif constructor == 0x45:
        return 0
    else:
        if value_at + 9 > len(bare):
            raise cut()
        after = value_at + 5 + int(UINT32.unpack_from(bare, value_at + 1)[0])
        count = UINT32.unpack_from(bare, value_at + 5)[0]
        at = value_at + 9
    if count == 0 and at == after:
        return 0
    if count > _FIELDS or at >= after or after > len(bare):
        raise cut()
    found = 0
    if bare[at] != 0x40:
        found = HAS_MESSAGE_ID
        at = skip(bare, at, after)
    else:
        at += 1
    if after - at == count - 1 and bare[at:after] == _NULLS[count - 1]:
        return found
    for field in range(1, count):
        if at >= after:
            raise cut()
        code = bare[at]
        if code == 0x40:
            at += 1
            continue
        found |= _BITS[field]
        # Nearly every field is a short text; a size that points too far is noticed at the end.
        if WIDTHS[code] == SIZED8 and at + 1 < after:
            at += 2 + bare[at + 1]
        else:
            at = skip(bare, at, after)
    if at != after:
        raise cut()
    return found


def read_properties(bare: bytes, properties_at: int) -> LazyProperties:
    """Cut the properties into their fields; a message without the section has none of them."""
    if properties_at < 0:
        return LazyProperties([b""] * _FIELDS)
    items, count = _list_of(bare, properties_at)
    return LazyProperties(raw_fields(items, count, _FIELDS))


def read_keys(bare: bytes, properties_at: int, found: int) -> tuple[str | None, str | None]:
    """Decode message-id and group-id and walk over the rest; `found` is what `peek_properties` has
    told, so that the section is known to be sound."""
    if not found & (HAS_MESSAGE_ID | HAS_GROUP_ID):
        return None, None
    at = properties_at + (6 if bare[properties_at + 3] == 0xC0 else 12)
    end = len(bare)
    after = skip(bare, at, end)
    message_id = id_text(bare[at:after], "message-id") if found & HAS_MESSAGE_ID else None
    if not found & HAS_GROUP_ID:
        return message_id, None
    for _ in range(GROUP_ID - 1):
        code = bare[after]
        if code == 0x40:
            after += 1
        elif WIDTHS[code] == SIZED8:
            after += 2 + bare[after + 1]
        else:
            after = skip(bare, after, end)
    return message_id, _text(bare[after : skip(bare, after, end)], "group-id")


def id_text(raw: bytes, name: str) -> str | None:
    """Return an encoded id as text, whatever its type: a uuid with dashes, binary in hex."""
    if raw and raw[0] == STRING8:
        return _short_text(raw)
    value = _value(raw)
    if value is None:
        return None
    if isinstance(value, (str, int, UUID)):
        return str(value)
    if type(value) is bytes:
        return value.hex()
    raise _wrong(name)


def with_fields(bare: bytes, properties_at: int, fields: dict[int, bytes]) -> bytes:
    """Set fields of the properties to encoded values, empty for null; the others keep theirs."""
    raw: list[bytes] = [b""] * _FIELDS
    after = 0
    if properties_at >= 0:
        _, _, after = section_at(bare, properties_at, len(bare))
        items, count = _list_of(bare, properties_at)
        raw = raw_fields(items, count, _FIELDS)
    for field, value in fields.items():
        raw[field] = value
    count = _FIELDS
    while count and not raw[count - 1]:
        count -= 1
    section = _section(0x73, 0xC0, count, b"".join([field or b"\x40" for field in raw[:count]]))
    return bare[: max(0, properties_at)] + section + bare[after:]


# A properties section with nothing but a message-id of 32 bytes, which follow.
_PROPERTIES_WITH_ID: Final = b"\x00\x53\x73\xc0\x23\x01\xa1\x20"


def with_message_id(bare: bytes, properties_at: int, message_id: bytes) -> bytes:
    """Return the bare message a message-id (UTF-8) and leaves every other byte as it is."""
    text = message_id
    size = len(text)
    if size == 32 and properties_at < 0:
        return _PROPERTIES_WITH_ID + text + bare
    field = (bytes((0xA1, size)) if size < 256 else b"\xb1" + UINT32.pack(size)) + text
    if properties_at < 0:
        return _section(0x73, 0xC0, 1, field) + bare
    if bare[properties_at + 3] == 0x45:  # rhea's messages have empty properties and no id
        section = _section(0x73, 0xC0, 1, field)
        return bare[:properties_at] + section + bare[properties_at + 4 :]
    _, _, after = section_at(bare, properties_at, len(bare))
    items, count = _list_of(bare, properties_at)
    if count:
        field += items[skip(items, 0, len(items)) :]
    return bare[:properties_at] + _section(0x73, 0xC0, count or 1, field) + bare[after:]


def read_application_properties(bare: bytes, application_properties_at: int) -> dict[str, Any]:
    """Decode the application properties, whose keys are texts."""
    if application_properties_at < 0:
        return {}
    value, _ = decode(bare, application_properties_at + 3)
    if not isinstance(value, dict):
        raise _wrong("application-properties")
    for key in value:
        if not isinstance(key, str):
            raise DecodeError("an application property whose name is not a text")
    return {str(key): item for key, item in value.items()}


def check_application_properties(bare: bytes, application_properties_at: int) -> None:
    """Make sure that the application properties are pairs, whatever these hold."""
    if application_properties_at >= 0:
        _, value_at, after = section_at(bare, application_properties_at, len(bare))
        map_items(bare, value_at, after)


def application_pairs(bare: bytes, application_properties_at: int) -> list[tuple[bytes, bytes]]:
    """Cut the application properties into names and values, both still encoded."""
    if application_properties_at < 0:
        return []
    _, value_at, after = section_at(bare, application_properties_at, len(bare))
    items, count = map_items(bare, value_at, after)
    pairs: list[tuple[bytes, bytes]] = []
    end = len(items)
    at = 0
    for _ in range(count):
        value_at = skip(items, at, end)
        after = skip(items, value_at, end)
        pairs.append((items[at:value_at], items[value_at:after]))
        at = after
    return pairs


def with_application_pairs(
    bare: bytes,
    application_properties_at: int,
    body_at: int,
    pairs: list[tuple[bytes, bytes]],
) -> bytes:
    """Let the message have these application properties instead of its own."""
    start = after = body_at
    if application_properties_at >= 0:
        start = application_properties_at
        _, _, after = section_at(bare, start, len(bare))
    items = b"".join([name + value for name, value in pairs])
    return bare[:start] + _section(0x74, 0xC1, 2 * len(pairs), items) + bare[after:]


def merge_application_properties(
    bare: bytes, application_properties_at: int, body_at: int, changes: dict[str, bytes]
) -> bytes:
    """Set application properties to encoded values; the others keep bytes and order."""
    if not changes:
        return bare
    start = after = body_at
    items, count = b"", 0
    if application_properties_at >= 0:
        start = application_properties_at
        _, value_at, after = section_at(bare, start, len(bare))
        items, count = map_items(bare, value_at, after)
    left = dict(changes)
    out = bytearray()
    at = 0
    for _ in range(count):
        value_at = skip(items, at, len(items))
        next_at = skip(items, value_at, len(items))
        out += items[at:value_at]
        changed = left.pop(_key_text(items, at), None)
        out += items[value_at:next_at] if changed is None else changed
        at = next_at
    for key, value in left.items():
        out += encode(key)
        out += value
    section = _section(0x74, 0xC1, 2 * (count + len(left)), bytes(out))
    return bare[:start] + section + bare[after:]


def _list_of(bare: bytes, properties_at: int) -> tuple[bytes, int]:
    _, value_at, after = section_at(bare, properties_at, len(bare))
    items, count = list_items(bare, value_at, after)
    if count > _FIELDS:
        raise DecodeError("properties has more fields than are known")
    return items, count


def _section(code: int, narrow: int, count: int, items: bytes) -> bytes:
    """Write a section that is a list or a map; the wide constructor is 16 above the narrow."""
    if count < 256 and len(items) < 255:
        return bytes((0, 0x53, code, narrow, len(items) + 1, count)) + items
    head = bytes((0, 0x53, code, narrow + 16))
    return head + UINT32.pack(len(items) + 4) + UINT32.pack(count) + items


def _key_text(items: bytes, at: int) -> str:
    key, _ = decode(items, at)
    if not isinstance(key, str):
        raise DecodeError("an application property whose name is not a text")
    return str(key)


def _value(raw: bytes) -> Any:
    return decode(raw)[0] if raw else None


def _text(raw: bytes, name: str) -> str | None:
    if raw and raw[0] == STRING8:
        return _short_text(raw)
    value = _value(raw)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(name)


def _short_text(raw: bytes) -> str:
    """Decode what nearly every text is, without the way through the codec."""
    try:
        return str(raw[2:], "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a text that is not UTF-8") from None


def _instant(raw: bytes, name: str) -> int:
    if not raw:
        return -1
    if raw[0] != 0x83:
        raise _wrong(name)
    return int(_value(raw))


def _wrong(name: str) -> DecodeError:
    return DecodeError(f"properties.{name} has the wrong type")
