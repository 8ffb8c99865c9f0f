"""Wire messages <-> domain messages. Bodies are never decoded; the bare message stays byte-exact.

`Message.content` is the bare message. `Message.envelope` is what a sender wrote around it and wants
to see again at the other end: durable, priority, annotations. It is empty for nearly all messages,
and everything here has a short way for those.
"""

from typing import Any, Final
from uuid import UUID

from peeklock.amqp.codec import encode
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.message import (
    HAS_EXPIRY,
    HAS_MESSAGE_ID,
    Sections,
    check_application_properties,
    delivery_head,
    delivery_head_with,
    drop_annotations,
    find_annotation,
    head,
    lone_data_at,
    merge_application_properties,
    peek_properties,
    read_keys,
    read_properties,
    split,
    with_message_id,
)
from peeklock.amqp.pieces import Pieces
from peeklock.amqp.types import Symbol, Timestamp
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits, traits_of
from peeklock.entity.replies import Delivery, Details
from peeklock.gateway.amqp.envelope import PARTITION_KEY, Envelope, opened
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
_VIA_PARTITION_KEY: Final = b"x-opt-via-partition-key"
_SCHEDULED_KEY: Final = encode(Symbol(_SCHEDULED_TIME.decode("ascii")))
_SOURCE_KEY: Final = encode(Symbol("x-opt-deadletter-source"))
_LOCK_KEY: Final = encode(Symbol("x-opt-lock-token"))
# Descriptor, constructor and size of a wide data section.
_DATA_HEAD_SIZE: Final = 8
_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"

# The service's limits: of an id, a session's name and a partition key in characters, and of a life.
KEY_LENGTH_MAX: Final = 128
LIFE_MAX_MS: Final = 10_675_199 * 86_400_000


def incoming(payload: bytes, now: int, ids: MessageIds, wants_keys: bool) -> Message:
    """Read what a sender sent; whatever cannot be read is a DecodeError.

    `wants_keys`: the entity decides by message id, session or partition key, or by properties.
    """
    bare_at = lone_data_at(payload)
    if bare_at >= 0:
        made = ids.next()
        content = with_message_id(payload[bare_at:], -1, made)
        if wants_keys:
            return Message(b"", content, Traits(message_id=made.decode("ascii")))
        return Message(b"", content)
    sections = split(payload)
    content = sections.bare
    has = peek_properties(content, sections.properties_at)
    time_to_live_ms = sections.ttl_ms
    if has & HAS_EXPIRY:
        time_to_live_ms = _time_to_live(sections, now)
    made = b""
    if not has & HAS_MESSAGE_ID:
        made = ids.next()
        content = with_message_id(content, sections.properties_at, made)
    if (
        sections.annotations_count == 0
        and sections.delivery_annotations_count == 0
        and sections.priority < 0
        and sections.durable != 0
    ):
        message = Message(b"", content, traits_of(time_to_live_ms, NEVER))
    else:
        traits = traits_of(time_to_live_ms, _scheduled_at(sections.annotations))
        message = Message(_envelope(sections), content, traits)
    if wants_keys:
        _read_keys(message, sections, has, made)
    return message


def incoming_run(
    payloads: list[bytes], size_max: int, now: int, ids: MessageIds, wants_keys: bool
) -> list[Message]:
    """Read what a sender sent in a row, up to the first that is too large or cannot be read."""
    messages: list[Message] = []
    # How the message before began, up to its body, if it was nothing but a body: neighbours are
    # alike, and those of one size begin alike.
    begin = b""
    begin_size = -1
    bare_at = -1
    for payload in payloads:
        size = len(payload)
        if size > size_max:
            break
        if size != begin_size or not payload.startswith(begin):
            at = -1 if wants_keys else lone_data_at(payload)
            if at < 0:
                try:
                    messages.append(incoming(payload, now, ids, wants_keys))
                except DecodeError:
                    break
                continue
            bare_at = at
            begin = payload[: at + _DATA_HEAD_SIZE]
            begin_size = size
        messages.append(Message(b"", with_message_id(payload[bare_at:], -1, ids.next())))
    return messages


def outgoing(delivery: Delivery, lock: UUID | None = None) -> tuple[bytes, bytes]:
    """Write a message for a receiver: what the broker says of it, and the message itself.

    `lock` is for a message without a delivery of its own, whose tag would tell the lock.
    """
    message = delivery.message
    assert message is not None, "bodies are fetched before a delivery leaves"
    expires_at = delivery.expires_at
    ttl_ms = -1 if expires_at == NEVER else expires_at - delivery.enqueued_at
    details = delivery.details
    if details is None and not message.envelope and ttl_ms <= UINT_MAX and lock is None:
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
        return _general_head(delivery, message.envelope, ttl_ms, None, lock), message.content
    if ttl_ms < 0:
        ttl_ms = details.time_to_live_ms
    return (
        _general_head(delivery, message.envelope, ttl_ms, details, lock),
        with_details(message.content, details),
    )


def without_body(content: bytes) -> bytes:
    """Leave the body of a bare message out; an empty one stands in, since a message has one."""
    sections = split(content)
    return sections.bare[: sections.body_at] + _EMPTY_DATA


def whole(delivery: Delivery, omit_body: bool) -> Pieces:
    """Write a message for a receiver as one value, with or without its body."""
    head, body = outgoing(delivery)
    return Pieces([head, without_body(body) if omit_body else body])


def with_details(content: bytes, details: Details) -> bytes:
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
    try:
        return merge_application_properties(
            sections.bare, sections.application_properties_at, sections.body_at, changes
        )
    except DecodeError:
        # What its sender wrote there is no map of names, so that nothing can be put into it. The
        # message is handed on as it came rather than never.
        return content


def _time_to_live(sections: Sections, now: int) -> int:
    """Read the life of a message that names its end too; a life beyond 49 days has no other form
    (protocol 4.3)."""
    properties = read_properties(sections.bare, sections.properties_at)
    end = properties.absolute_expiry
    if end < 0:
        return sections.ttl_ms
    begin = properties.creation_time
    life_ms = min(max(0, end - (now if begin < 0 else begin)), LIFE_MAX_MS)
    ttl_ms = sections.ttl_ms
    return life_ms if ttl_ms < 0 or ttl_ms == UINT_MAX else min(ttl_ms, life_ms)


def _scheduled_at(annotations: bytes) -> int:
    value = find_annotation(annotations, _SCHEDULED_TIME)
    if value is None:
        return NEVER
    if not isinstance(value, Timestamp):
        raise DecodeError("x-opt-scheduled-enqueue-time is not a timestamp")
    return max(NEVER, int(value))


def _read_keys(message: Message, sections: Sections, has: int, made: bytes) -> None:
    """Read what the entity decides by, and refuse what it could not decide by."""
    found, session_id = read_keys(sections.bare, sections.properties_at, has)
    message_id = made.decode("ascii") if found is None else found
    if len(message_id) > KEY_LENGTH_MAX:
        raise _too_long("message-id")
    traits = message.known()
    traits.message_id = message_id
    if session_id is not None:
        if len(session_id) > KEY_LENGTH_MAX:
            raise _too_long("group-id")
        traits.session_id = session_id
    if sections.annotations_count:
        partition_key = partition_key_in(sections.annotations)
        if partition_key is not None and len(partition_key) > KEY_LENGTH_MAX:
            raise _too_long("x-opt-partition-key")
        traits.partition_key = partition_key
    # Rules look for properties and a forwarded message may get some: they must be a map.
    check_application_properties(sections.bare, sections.application_properties_at)


def way_of(payload: bytes) -> str | None:
    """Read which partition of another entity a message goes by on its way, as clients say it."""
    if _VIA_PARTITION_KEY not in payload:
        return None  # The cheap answer, and nearly always the right one.
    return _key_in(find_annotation(split(payload).annotations, _VIA_PARTITION_KEY))


def partition_key_in(annotations: bytes) -> str | None:
    """Find the partition key among annotations."""
    value = find_annotation(annotations, PARTITION_KEY)
    key = _key_in(value)
    if key is None and value is not None:
        raise DecodeError("x-opt-partition-key is not a string")
    return key


def _key_in(value: Any) -> str | None:
    """What an annotation says as a key. The official Python client writes the strings of a message
    that it received as bytes when it sends it again."""
    if type(value) is str:
        return value
    if type(value) is not bytes:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _too_long(name: str) -> DecodeError:
    return DecodeError(f"{name} has more than {KEY_LENGTH_MAX} characters")


def _envelope(sections: Sections) -> bytes:
    delivery_items, delivery_count = drop_annotations(sections.delivery_annotations, _OURS)
    items, count = drop_annotations(sections.annotations, _OURS)
    return Envelope(
        sections.durable, sections.priority, delivery_items, delivery_count, items, count
    ).sealed()


def _general_head(
    delivery: Delivery, envelope: bytes, ttl_ms: int, details: Details | None, lock: UUID | None
) -> bytes:
    kept = opened(envelope)
    # Absent means durable here: whatever is accepted is stored.
    durable = 0 if kept.durable == 0 else 1
    priority = kept.priority
    delivery_items = kept.delivery_annotations
    delivery_items_count = kept.delivery_annotations_count
    if lock is not None:
        delivery_items += _LOCK_KEY + encode(lock)
        delivery_items_count += 1
    items = kept.annotations
    count = kept.annotations_count
    enqueue_sequence = 0
    if details is not None:
        enqueue_sequence = details.enqueue_sequence
        if details.scheduled_at:
            items += _SCHEDULED_KEY + encode(Timestamp(details.scheduled_at))
            count += 1
        if details.source:
            items += _SOURCE_KEY + encode(details.source)
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


assert NO_DURATION == -1, "an absent time to live is -1 on the wire side too"
