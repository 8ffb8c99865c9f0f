"""Requests to send -> domain messages. The body becomes one data section, byte by byte.

An AMQP receiver finds everything where an AMQP sender would have put it (protocol 4.3).
"""

from struct import Struct
from typing import Any, Final

from peeklock.amqp.dialect import VIA_PARTITION_KEY
from peeklock.amqp.messages import properties as place
from peeklock.amqp.messages.properties import with_fields, with_message_id
from peeklock.amqp.messages.sections import APPLICATION_PROPERTIES
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Timestamp, Ulong
from peeklock.entity.message import Message, traits_of
from peeklock.gateway.amqp.messages.envelope import NOTHING
from peeklock.gateway.amqp.messages.translate import UINT_MAX
from peeklock.gateway.amqp.nodes.batches import BATCH_COUNT_MAX
from peeklock.gateway.http.messages import broker_properties
from peeklock.gateway.http.messages.broker_properties import BrokerProperties
from peeklock.gateway.http.messages.custom_properties import (
    BROKER_PROPERTIES,
    header_text,
    read_custom,
    read_custom_object,
)
from peeklock.gateway.http.messages.documents import read_json
from peeklock.gateway.http.messages.entries import entries_of
from peeklock.gateway.http.messages.malformed import MalformedRequest
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.identifiers import MessageIds
from peeklock.turns import TURNS

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"

_DATA_HEAD: Final = Struct(">4sI")
_DATA: Final = b"\x00\x53\x75\xb0"
_VIA_PARTITION_KEY: Final = encode(Symbol(VIA_PARTITION_KEY.decode("ascii")))
# Where the properties of a message hold those of BrokerProperties.
_FIELDS: Final = (
    ("CorrelationId", place.CORRELATION_ID),
    ("SessionId", place.GROUP_ID),
    ("Label", place.SUBJECT),
    ("To", place.TO),
    ("ReplyTo", place.REPLY_TO),
    ("ReplyToSessionId", place.REPLY_TO_GROUP_ID),
)


def is_batch(request: HttpRequest) -> bool:
    """Tell whether a request brings several messages."""
    kind = request.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == BATCH_TYPE


def read_message(request: HttpRequest, now: int, ids: MessageIds, wants_keys: bool) -> Message:
    """Read the one message of a request: its body and its headers."""
    given: BrokerProperties | None = None
    for name, raw in request.named:
        if name.lower() == BROKER_PROPERTIES.encode():
            if given is not None:
                raise MalformedRequest("The header BrokerProperties is given twice.")
            given = broker_properties.read_header(header_text(raw))
    custom = read_custom(request.named)
    headers = request.headers
    return _message(
        request.body,
        given or broker_properties.NONE,
        custom,
        headers.get("content-type", ""),
        headers.get("content-encoding", ""),
        now,
        ids,
        wants_keys,
    )


def read_batch(request: HttpRequest, now: int, ids: MessageIds, wants_keys: bool) -> list[Message]:
    """Read the messages of a request: a JSON array of objects."""
    messages: list[Message] = []
    for entry in entries_of(request.body):
        if entry is not None:
            messages.append(_at_place(len(messages), entry, now, ids, wants_keys))
    return messages


async def read_long_batch(
    request: HttpRequest, now: int, ids: MessageIds, wants_keys: bool
) -> list[Message]:
    """The same, and what is long keeps nobody waiting: it is read in parts."""
    messages: list[Message] = []
    for entry in entries_of(request.body):
        if entry is None:
            await TURNS.give_way()
        else:
            messages.append(_at_place(len(messages), entry, now, ids, wants_keys))
    return messages


def _at_place(place: int, entry: bytes, now: int, ids: MessageIds, wants_keys: bool) -> Message:
    if place == BATCH_COUNT_MAX:
        raise MalformedRequest(
            f"A batch has at most {BATCH_COUNT_MAX} messages; send it in several."
        )
    try:
        if not entry.startswith(b"{"):
            raise MalformedRequest("It must be a JSON object.")
        return _entry(read_json(entry, "It"), now, ids, wants_keys)
    except MalformedRequest as error:
        raise MalformedRequest(f"The message at place {place} of the batch: {error}") from error


def _entry(entry: dict[str, Any], now: int, ids: MessageIds, wants_keys: bool) -> Message:
    body = entry.get("Body")
    if not isinstance(body, str):
        raise MalformedRequest("Body must be a string.")
    custom = entry.get("UserProperties")
    given = entry.get("BrokerProperties")
    return _message(
        _utf8(body),
        broker_properties.NONE if given is None else broker_properties.read_properties(given),
        {} if custom is None else read_custom_object(custom),
        "",
        "",
        now,
        ids,
        wants_keys,
    )


def _message(
    body: bytes,
    given: BrokerProperties,
    custom: dict[str, Any],
    content_type: str,
    content_encoding: str,
    now: int,
    ids: MessageIds,
    wants_keys: bool,
) -> Message:
    bare = _DATA_HEAD.pack(_DATA, len(body)) + body
    try:
        if custom:
            bare = encode(Described(Ulong(APPLICATION_PROPERTIES), custom)) + bare
        message_id = given.texts.get("MessageId") or ids.next().decode("ascii")
        fields = _fields(given, content_type, content_encoding, now)
        if fields:
            fields[place.MESSAGE_ID] = encode(message_id)
            content = with_fields(bare, -1, fields)
        else:
            content = with_message_id(bare, -1, message_id.encode())
        envelope = _envelope(given)
    except UnicodeEncodeError:
        raise MalformedRequest(
            "A text has half a surrogate pair, which no message can hold."
        ) from None
    message = Message(envelope, content, traits_of(given.time_to_live_ms, given.scheduled_at))
    if wants_keys:
        traits = message.known()
        traits.message_id = message_id
        traits.session_id = given.session_id
        traits.partition_key = given.partition_key
    return message


def _fields(
    given: BrokerProperties, content_type: str, content_encoding: str, now: int
) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    texts = given.texts
    if texts:
        for name, field in _FIELDS:
            if name in texts:
                fields[field] = encode(texts[name])
    kind = content_type or texts.get("ContentType", "")
    if kind:
        fields[place.CONTENT_TYPE] = _symbol(kind)
    if content_encoding:
        fields[place.CONTENT_ENCODING] = _symbol(content_encoding)
    life_ms = given.time_to_live_ms
    if life_ms > UINT_MAX:
        # A life beyond 49 days has no other form.
        fields[place.CREATION_TIME] = encode(Timestamp(now))
        fields[place.ABSOLUTE_EXPIRY_TIME] = encode(Timestamp(now + life_ms))
    return fields


def _symbol(text: str) -> bytes:
    return encode(Symbol(text) if text.isascii() else text)


def _envelope(given: BrokerProperties) -> bytes:
    texts = given.texts
    if not texts:
        return b""
    via = texts.get("ViaPartitionKey")
    envelope = NOTHING
    if via is not None:
        envelope = NOTHING.with_annotation(_VIA_PARTITION_KEY + encode(via))
    if given.partition_key is not None:
        envelope = envelope.with_partition_key(given.partition_key)
    return envelope.sealed()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedRequest(
            "A text has half a surrogate pair, which no message can hold."
        ) from None
