"""Deliveries -> answers: body, content type, `BrokerProperties`, and a header per property."""

import re
from typing import Any, Final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages import properties as place
from peeklock.amqp.messages.properties import (
    LazyProperties,
    application_pairs,
    id_text,
    read_properties,
)
from peeklock.amqp.messages.sections import Sections, split
from peeklock.amqp.values.codec import decode
from peeklock.entity.deliveries import (
    STATE_ACTIVE,
    STATE_CLAIMED,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Delivery,
)
from peeklock.entity.message import NEVER
from peeklock.gateway.amqp.management.lock_tokens import uuid_of
from peeklock.gateway.amqp.messages.envelope import opened
from peeklock.gateway.amqp.messages.translate import partition_key_in, with_details
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.messages.bodies import JSON_TYPE, body_of
from peeklock.gateway.http.messages.custom_properties import write_custom
from peeklock.gateway.http.messages.documents import header_json
from peeklock.gateway.http.messages.instants import http_date

_STATES: Final = {
    STATE_ACTIVE: "Active",
    STATE_DEFERRED: "Deferred",
    STATE_SCHEDULED: "Scheduled",
    STATE_CLAIMED: "Claimed",
}
_TEXTS: Final = (
    ("Label", place.SUBJECT),
    ("To", place.TO),
    ("ReplyTo", place.REPLY_TO),
    ("SessionId", place.GROUP_ID),
    ("ReplyToSessionId", place.REPLY_TO_GROUP_ID),
)
# What the value of a header can be: visible letters of ASCII and blanks between them.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+([ \t]+[\x21-\x7e]+)*")


def received(status: int, delivery: Delivery, location: str) -> Answer:
    """Write a message that was received; the location is that of its lock, or nothing."""
    message = delivery.message
    assert message is not None, "bodies are fetched before a delivery leaves"
    content = message.content
    if delivery.details is not None:
        content = with_details(content, delivery.details)
    sections = split(content)
    properties = read_properties(sections.bare, sections.properties_at)
    body, kind = body_of(sections.bare, sections.body_at)
    said = _broker_properties(delivery, properties, message.envelope, bool(location))
    headers: list[tuple[str, str]] = []
    given = _text(properties, place.CONTENT_TYPE)
    if given is not None and kind != JSON_TYPE and _VISIBLE.fullmatch(given):
        kind = given
    elif given is not None:
        # The body is not what its sender has called it, or was called what no header can hold.
        said["ContentType"] = given
    encoding = _text(properties, place.CONTENT_ENCODING)
    if encoding is not None and _VISIBLE.fullmatch(encoding):
        headers.append(("content-encoding", encoding))
    headers.append(("BrokerProperties", header_json(said)))
    if location:
        headers.append(("location", location))
    if sections.application_properties_at >= 0:
        headers += write_custom(_custom(sections))
    return Answer(status, {}, tuple(headers), content=body, content_type=kind)


def message_id_of(delivery: Delivery) -> str:
    """The id of a message that was looked at."""
    message = delivery.message
    assert message is not None, "bodies are fetched before a delivery leaves"
    sections = split(message.content)
    return _id(read_properties(sections.bare, sections.properties_at), place.MESSAGE_ID) or ""


def _broker_properties(
    delivery: Delivery, properties: LazyProperties, envelope: bytes, is_locked: bool
) -> dict[str, Any]:
    details = delivery.details
    said: dict[str, Any] = {
        # It begins with 1 here, and with 0 on the wire of AMQP.
        "DeliveryCount": delivery.delivery_count + 1,
        "EnqueuedSequenceNumber": (details.enqueue_sequence if details else 0) or delivery.sequence,
        "EnqueuedTimeUtc": http_date(delivery.enqueued_at),
        "SequenceNumber": delivery.sequence,
        "State": _STATES[delivery.state],
    }
    if is_locked:
        said["LockToken"] = str(uuid_of(delivery))
        said["LockedUntilUtc"] = http_date(delivery.locked_until)
    for name, field in (
        ("MessageId", place.MESSAGE_ID),
        ("CorrelationId", place.CORRELATION_ID),
    ):
        text = _id(properties, field)
        if text is not None:
            said[name] = text
    for name, field in _TEXTS:
        text = _text(properties, field)
        if text is not None:
            said[name] = text
    if delivery.expires_at != NEVER:
        life_ms = delivery.expires_at - delivery.enqueued_at
        said["TimeToLive"] = life_ms / 1000 if life_ms % 1000 else life_ms // 1000
    if details is not None:
        if details.scheduled_at:
            said["ScheduledEnqueueTimeUtc"] = http_date(details.scheduled_at)
        if details.source:
            said["DeadLetterSource"] = details.source
    if envelope:
        try:
            key = partition_key_in(opened(envelope).annotations)
        except DecodeError:
            key = None
        if key is not None:
            said["PartitionKey"] = key
    return said


# What is in the bytes may be anything where no entity has looked at it: a value that cannot be
# read, or is not what it should be, is left out rather than keeping the message from its receiver.


def _id(properties: LazyProperties, field: int) -> str | None:
    try:
        return id_text(properties.raw(field), "id")
    except DecodeError:
        return None


def _text(properties: LazyProperties, field: int) -> str | None:
    raw = properties.raw(field)
    value = _decoded(raw) if raw else None
    return str(value) if isinstance(value, str) else None


def _custom(sections: Sections) -> dict[str, Any]:
    try:
        pairs = application_pairs(sections.bare, sections.application_properties_at)
    except DecodeError:
        return {}
    found: dict[str, Any] = {}
    for key, raw in pairs:
        name = _decoded(key)
        if isinstance(name, str):
            found.setdefault(str(name), _decoded(raw))
    return found


def _decoded(raw: bytes) -> Any:
    try:
        return decode(raw)[0]
    except DecodeError:
        return raw
