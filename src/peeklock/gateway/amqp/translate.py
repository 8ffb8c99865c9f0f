"""Wire messages <-> domain messages. Bodies are never decoded; the bare message stays byte-exact.

`Message.content` is the bare message. `Message.envelope` is what a sender wrote around it and wants
to see again at the other end: durable, priority, annotations. It is empty for nearly all messages,
and everything here has a short way for those.
"""

from struct import Struct
from typing import Final

from peeklock.amqp.codec import encode
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.message import (
    HAS_EXPIRY,
    HAS_MESSAGE_ID,
    Sections,
    delivery_head,
    delivery_head_with,
    drop_annotations,
    find_annotation,
    head,
    lone_data_at,
    merge_application_properties,
    peek_properties,
    read_properties,
    split,
    with_message_id,
)
from peeklock.amqp.types import Symbol, Timestamp
from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.replies import Delivery, Details
from peeklock.gateway.amqp.outcomes import DESCRIPTION, REASON
from peeklock.gateway.identifiers import MessageIds

UINT_MAX: Final = 0xFFFF_FFFF

_SCHEDULED_TIME: Final = b"x-opt-scheduled-enqueue-time"
# Annotations that the broker writes itself. A received message that is sent again brings those of
# its former life, and they mean nothing any more.
_OURS: Final = frozenset(
    {
        _SCHEDULED_TIME,
        b"x-opt-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-locked-until",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-message-state",
        b"x-opt-lock-token",
        b"x-opt-deadletter-source",
        b"x-opt-partition-id",
    }
)
_SCHEDULED_KEY: Final = encode(Symbol(_SCHEDULED_TIME.decode("ascii")))
_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"

# An envelope: version, durable (0 absent, 1 false, 2 true), whether there is a priority and which,
# then count and size of the delivery annotations and count of the message annotations; the encoded
# items of both follow. It is stored, so a change of the form needs a new version.
_ENVELOPE: Final = Struct(">BBBBIII")
_ENVELOPE_VERSION: Final = 1

_TAG: Final = Struct(">IHHQ")


def incoming(payload: bytes, now: int, ids: MessageIds) -> Message:
    """Read what a sender sent; whatever cannot be read is a DecodeError."""
    bare_at = lone_data_at(payload)
    if bare_at >= 0:
        return Message(b"", with_message_id(payload[bare_at:], -1, ids.next()))
    sections = split(payload)
    content = sections.bare
    has = peek_properties(content, sections.properties_at)
    time_to_live_ms = sections.ttl_ms
    if has & HAS_EXPIRY:
        time_to_live_ms = _time_to_live(sections, now)
    if not has & HAS_MESSAGE_ID:
        content = with_message_id(content, sections.properties_at, ids.next())
    if (
        sections.annotations_count == 0
        and sections.delivery_annotations_count == 0
        and sections.priority < 0
        and sections.durable != 0
    ):
        return Message(b"", content, time_to_live_ms=time_to_live_ms)
    return Message(
        _envelope(sections),
        content,
        time_to_live_ms=time_to_live_ms,
        scheduled_at=_scheduled_at(sections.annotations),
    )


def outgoing(delivery: Delivery) -> tuple[bytes, bytes]:
    """Write a message for a receiver: what the broker says of it, and the message itself."""
    message = delivery.message
    assert message is not None, "bodies are fetched before a delivery leaves"
    expires_at = delivery.expires_at
    ttl_ms = -1 if expires_at == NEVER else expires_at - delivery.enqueued_at
    details = delivery.details
    if details is None and not message.envelope and ttl_ms <= UINT_MAX:
        sequence = delivery.sequence
        return (
            delivery_head(
                ttl_ms,
                delivery.delivery_count,
                sequence,
                delivery.enqueued_at,
                delivery.locked_until or -1,
                sequence,
                delivery.state,
            ),
            message.content,
        )
    if details is None:
        return _general_head(delivery, message.envelope, ttl_ms, 0, 0), message.content
    if ttl_ms < 0:
        ttl_ms = details.time_to_live_ms
    return (
        _general_head(
            delivery, message.envelope, ttl_ms, details.enqueue_sequence, details.scheduled_at
        ),
        _changed(message.content, details),
    )


def without_body(content: bytes) -> bytes:
    """Leave the body of a bare message out; an empty one stands in, since a message has one."""
    sections = split(content)
    return sections.bare[: sections.body_at] + _EMPTY_DATA


def lock_tag(sequence: int, number: int) -> bytes:
    """Write a lock token as a delivery tag: the 16 bytes of its UUID in .NET's mixed order."""
    high = sequence >> 32
    middle = sequence >> 16 & 0xFFFF
    low = sequence & 0xFFFF
    if high:
        high = (high & 0xFF) << 24 | (high & 0xFF00) << 8 | high >> 8 & 0xFF00 | high >> 24 & 0xFF
    return _TAG.pack(high, (middle & 0xFF) << 8 | middle >> 8, (low & 0xFF) << 8 | low >> 8, number)


def _time_to_live(sections: Sections, now: int) -> int:
    """Read the life of a message that names its end too; a life beyond 49 days has no other form
    (protocol 4.3)."""
    properties = read_properties(sections.bare, sections.properties_at)
    end = properties.absolute_expiry
    if end < 0:
        return sections.ttl_ms
    begin = properties.creation_time
    life_ms = max(0, end - (now if begin < 0 else begin))
    ttl_ms = sections.ttl_ms
    return life_ms if ttl_ms < 0 or ttl_ms == UINT_MAX else min(ttl_ms, life_ms)


def _scheduled_at(annotations: bytes) -> int:
    value = find_annotation(annotations, _SCHEDULED_TIME)
    if value is None:
        return NEVER
    if not isinstance(value, Timestamp):
        raise DecodeError("x-opt-scheduled-enqueue-time is not a timestamp")
    return max(NEVER, int(value))


def _envelope(sections: Sections) -> bytes:
    delivery_items, delivery_count = drop_annotations(sections.delivery_annotations, _OURS)
    items, count = drop_annotations(sections.annotations, _OURS)
    if not (delivery_count or count) and sections.priority < 0 and sections.durable != 0:
        return b""
    fixed = _ENVELOPE.pack(
        _ENVELOPE_VERSION,
        sections.durable + 1,
        sections.priority >= 0,
        max(0, sections.priority),
        delivery_count,
        len(delivery_items),
        count,
    )
    return fixed + delivery_items + items


def _general_head(
    delivery: Delivery, envelope: bytes, ttl_ms: int, enqueue_sequence: int, scheduled_at: int
) -> bytes:
    durable = 1
    priority = -1
    delivery_items = b""
    delivery_items_count = 0
    items = b""
    count = 0
    if envelope:
        version, kept_durable, has_priority, kept_priority, delivery_items_count, size, count = (
            _ENVELOPE.unpack_from(envelope)
        )
        assert version == _ENVELOPE_VERSION, f"no envelope has the version {version}"
        # Absent means durable here: whatever is accepted is stored.
        durable = 0 if kept_durable == 1 else 1
        priority = kept_priority if has_priority else -1
        items_at = _ENVELOPE.size + size
        delivery_items = envelope[_ENVELOPE.size : items_at]
        items = envelope[items_at:]
    if scheduled_at:
        items += _SCHEDULED_KEY + encode(Timestamp(scheduled_at))
        count += 1
    ttl_ms = min(ttl_ms, UINT_MAX)
    written = delivery_head_with(
        items,
        count,
        ttl_ms,
        delivery.delivery_count,
        delivery.sequence,
        delivery.enqueued_at,
        delivery.locked_until or -1,
        enqueue_sequence or delivery.sequence,
        delivery.state,
        durable,
        priority,
    )
    if not delivery_items_count:
        return written
    # The delivery annotations stand between the header and the message annotations [3.2].
    header = head(
        durable=durable,
        priority=priority,
        ttl_ms=ttl_ms,
        delivery_count=delivery.delivery_count,
    )
    between = head(
        durable=durable,
        priority=priority,
        ttl_ms=ttl_ms,
        delivery_count=delivery.delivery_count,
        delivery_annotations=delivery_items,
        delivery_annotations_count=delivery_items_count,
    )
    return between + written[len(header) :]


def _changed(content: bytes, details: Details) -> bytes:
    """Set the properties that receivers changed, and the reason of a dead-lettered message."""
    if details.changes is None and details.reason is None and details.description is None:
        return content
    changes: dict[str, bytes] = {}
    if details.changes is not None:
        changes.update(details.changes)
    if details.reason is not None:
        changes[REASON] = encode(details.reason)
    if details.description is not None:
        changes[DESCRIPTION] = encode(details.description)
    sections = split(content)
    return merge_application_properties(
        sections.bare, sections.application_properties_at, sections.body_at, changes
    )


assert NO_DURATION == -1, "an absent time to live is -1 on the wire side too"
