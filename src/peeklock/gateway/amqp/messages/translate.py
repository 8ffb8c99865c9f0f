"""Wire messages <-> domain messages. Bodies are never decoded; the bare message stays byte-exact.

`Message.content` is the bare message. `Message.envelope` is what a sender wrote around it and wants
to see again at the other end: header and annotations. It is empty or the same for nearly all
messages, and everything here has a short way for those.
"""

from typing import Any, Final

from peeklock.amqp.dialect import (
    CLAIMED,
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    ENQUEUE_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    PARTITION_ID,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    VIA_PARTITION_KEY,
)
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.annotations import (
    claimed_item,
    drop_annotations,
    enqueue_sequence_item,
    find_annotation,
    header,
    locked_around,
    locked_pack,
    locked_until_item,
    state_item,
    unlocked_around,
    unlocked_pack,
    with_symbols,
    with_symbols_in_footer,
)
from peeklock.amqp.messages.properties import (
    HAS_EXPIRY,
    HAS_MESSAGE_ID,
    check_application_properties,
    merge_application_properties,
    peek_properties,
    read_keys,
    read_properties,
    with_message_id,
)
from peeklock.amqp.messages.sections import DURABLE_BEFORE, Sections, lone_data_at, split
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.pieces import Pieces
from peeklock.amqp.values.types import Symbol, Timestamp
from peeklock.entity.deliveries import (
    STATE_ACTIVE,
    STATE_CLAIMED,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Delivery,
    Details,
)
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits, traits_of
from peeklock.gateway.amqp.management.lock_tokens import pack_tag, tag_begin, turned
from peeklock.gateway.amqp.messages.envelope import AS_IT_LIVES, DURABLE, Envelope, opened
from peeklock.gateway.identifiers import MessageIds

UINT_MAX: Final = 0xFFFF_FFFF

# Annotations that the broker writes itself. A received message that is sent again brings those of
# its former life, and they mean nothing any more.
_OURS: Final = frozenset(
    {
        SCHEDULED_TIME,
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        ENQUEUE_SEQUENCE_NUMBER,
        MESSAGE_STATE,
        LOCK_TOKEN,
        DEAD_LETTER_SOURCE,
        PARTITION_ID,
        CLAIMED,
    }
)
_SCHEDULED_KEY: Final = encode(Symbol(SCHEDULED_TIME.decode("ascii")))
_SOURCE_KEY: Final = encode(Symbol(DEAD_LETTER_SOURCE.decode("ascii")))
# Descriptor, constructor and size of a wide data section.
_DATA_HEAD_SIZE: Final = 8

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
        envelope = DURABLE if bare_at >= DURABLE_BEFORE else b""
        if wants_keys:
            return Message(envelope, content, Traits(message_id=made.decode("ascii")))
        return Message(envelope, content)
    sections = split(payload)
    content = sections.bare
    if sections.footer_at >= 0:
        content = with_symbols_in_footer(content, sections.footer_at)
    has = peek_properties(content, sections.properties_at)
    time_to_live_ms = sections.ttl_ms
    if has & HAS_EXPIRY:
        time_to_live_ms = _time_to_live(sections, now)
    made = b""
    if not has & HAS_MESSAGE_ID:
        made = ids.next()
        content = with_message_id(content, sections.properties_at, made)
    scheduled_at = NEVER
    if sections.annotations_count:
        scheduled_at = _scheduled_at(sections.annotations)
    message = Message(
        _envelope(sections, time_to_live_ms), content, traits_of(time_to_live_ms, scheduled_at)
    )
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
    envelope = b""
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
            envelope = DURABLE if at >= DURABLE_BEFORE else b""
        messages.append(Message(envelope, with_message_id(payload[bare_at:], -1, ids.next())))
    return messages


def outgoing_run(
    deliveries: list[Delivery], tags: list[bytes], heads: list[bytes], bodies: list[bytes]
) -> int:
    """Write messages for a receiver in a row: for each its lock token as a delivery tag, what the
    broker says of it, and the message itself; tells how many bytes these are."""
    size = 0
    # Neighbours are alike: what the head before had around its numbers, and by what. They are all
    # for one receiver: each has a lock, or none has one.
    envelope = b""
    count = enqueued_at = locked_until = ttl_ms = -1
    before = between = behind = b""
    pack: Any = None
    # The upper bits of the number before, and how its tag began.
    above = -1
    tag = b""
    for delivery in deliveries:
        sequence = delivery.sequence
        number = delivery.number
        message = delivery.message
        assert message is not None, "bodies are fetched before a delivery leaves"
        if sequence >> 16 != above:
            above = sequence >> 16
            tag = tag_begin(sequence)
        if delivery.details is None and delivery.state == STATE_ACTIVE:
            # What `outgoing` does for such a message.
            traits = message.traits
            life_ms = -1 if traits is None else traits.time_to_live_ms
            if (
                delivery.enqueued_at != enqueued_at
                or delivery.locked_until != locked_until
                or delivery.delivery_count != count
                or life_ms != ttl_ms
                or message.envelope != envelope
            ):
                count = delivery.delivery_count
                enqueued_at = delivery.enqueued_at
                locked_until = delivery.locked_until
                ttl_ms = life_ms
                envelope = message.envelope
                before, between, behind, pack = _around(delivery, message, None, False)
            if number:
                head = pack(before, sequence, number, between, sequence, behind)
            else:
                head = pack(before, sequence, behind)
            body = message.content
        else:
            head, body = outgoing(delivery)
        size += len(head) + len(body)
        tags.append(pack_tag(tag, turned(sequence), number))
        heads.append(head)
        bodies.append(body)
    return size


def outgoing(delivery: Delivery, is_peeked: bool = False) -> tuple[bytes, bytes]:
    """Write a message for a receiver, or for one who only looks at it: what the broker says of it,
    and the message itself."""
    message = delivery.message
    assert message is not None, "bodies are fetched before a delivery leaves"
    details = delivery.details
    sequence = delivery.sequence
    number = delivery.number
    before, between, behind, pack = _around(delivery, message, details, is_peeked)
    if number:
        head: bytes = pack(before, sequence, number, between, sequence, behind)
    else:
        head = pack(before, sequence, behind)
    return head, message.content if details is None else with_details(message.content, details)


def without_body(content: bytes) -> bytes:
    """Leave the body of a bare message out; everything else stays."""
    sections = split(content)
    bare = sections.bare
    return bare[: sections.body_at] + (
        bare[sections.footer_at :] if sections.footer_at >= 0 else b""
    )


def peeked(delivery: Delivery, omit_body: bool) -> Pieces:
    """Write a message as one value for one who looks at it, with or without its body."""
    head, body = outgoing(delivery, True)
    return Pieces([head, without_body(body) if omit_body else body])


def with_details(content: bytes, details: Details) -> bytes:
    """Set the properties that receivers changed, and the reason of a dead-lettered message."""
    if details.changes is None and details.reason is None and details.description is None:
        return content
    changes: dict[str, bytes] = {}
    if details.changes is not None:
        changes.update(details.changes)
    if details.reason is not None:
        changes[DEAD_LETTER_REASON] = encode(details.reason)
    if details.description is not None:
        changes[DEAD_LETTER_DESCRIPTION] = encode(details.description)
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
    value = find_annotation(annotations, SCHEDULED_TIME)
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
            raise _too_long(PARTITION_KEY.decode("ascii"))
        traits.partition_key = partition_key
    # Rules look for properties and a forwarded message may get some: they must be a map.
    check_application_properties(sections.bare, sections.application_properties_at)


def via_key_of(payload: bytes) -> str | None:
    """Read which partition of another entity a message goes by on its way, as clients say it."""
    if VIA_PARTITION_KEY not in payload:
        return None  # The cheap answer, and nearly always the right one.
    return _key_in(find_annotation(split(payload).annotations, VIA_PARTITION_KEY))


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


def _envelope(sections: Sections, time_to_live_ms: int) -> bytes:
    ttl_ms = sections.ttl_ms
    if (
        sections.annotations_count == 0
        and sections.delivery_annotations_count == 0
        and sections.priority < 0
        and sections.first_acquirer < 0
        and sections.durable != 0
        and ttl_ms == time_to_live_ms
    ):
        # Nearly all say no more than this.
        return b"" if sections.durable < 0 else DURABLE
    delivery_items, delivery_count = drop_annotations(sections.delivery_annotations, _OURS)
    items, count = drop_annotations(sections.annotations, _OURS)
    return Envelope(
        durable=sections.durable,
        priority=sections.priority,
        # A life that only the properties tell of is not in the header.
        ttl_ms=AS_IT_LIVES if ttl_ms == time_to_live_ms else ttl_ms,
        first_acquirer=sections.first_acquirer,
        delivery_annotations=with_symbols(delivery_items),
        delivery_annotations_count=delivery_count,
        annotations=with_symbols(items),
        annotations_count=count,
    ).sealed()


def _around(
    delivery: Delivery, message: Message, details: Details | None, is_peeked: bool
) -> tuple[bytes, bytes, bytes, Any]:
    """Write the head of a message around its numbers, and give what packs them in. Without a lock
    nothing comes between."""
    kept = opened(message.envelope)
    begin = header(
        kept.durable,
        kept.priority,
        header_ttl(kept, message),
        kept.first_acquirer,
        delivery.delivery_count,
    )
    rest = b""
    count = kept.annotations_count
    if delivery.locked_until != NEVER:
        rest += locked_until_item(delivery.locked_until)
        count += 1
    first = 0 if details is None else details.enqueue_sequence
    if first or is_peeked:
        rest += enqueue_sequence_item(first or delivery.sequence)
        count += 1
    scheduled_at = NEVER if details is None else details.scheduled_at
    state = delivery.state
    if not is_peeked and state == STATE_ACTIVE and (scheduled_at or was_scheduled(kept)):
        state = STATE_SCHEDULED  # and stays so on delivery, as the service has it
    if is_peeked or state in (STATE_DEFERRED, STATE_SCHEDULED):
        # A claimed message is active, as one is that somebody has locked.
        rest += state_item(STATE_ACTIVE if state == STATE_CLAIMED else state)
        count += 1
    if state == STATE_CLAIMED:
        rest += claimed_item()
        count += 1
    if details is not None:
        if scheduled_at:
            rest += scheduled_item(scheduled_at)
            count += 1
        if details.source:
            rest += _SOURCE_KEY + encode(details.source)
            count += 1
    rest += kept.annotations
    noted = kept.delivery_annotations
    noted_count = kept.delivery_annotations_count
    enqueued_at = delivery.enqueued_at
    if delivery.number:
        before, between, behind = locked_around(begin, noted, noted_count, enqueued_at, rest, count)
        return before, between, behind, locked_pack(before, between, behind)
    before, behind = unlocked_around(begin, noted, noted_count, enqueued_at, rest, count)
    return before, b"", behind, unlocked_pack(before, behind)


def header_ttl(kept: Envelope, message: Message) -> int:
    """The life of a message as its sender's header has it, -1 where it says none."""
    if kept.ttl_ms != AS_IT_LIVES:
        return kept.ttl_ms
    return min(message.time_to_live_ms, UINT_MAX)


def was_scheduled(kept: Envelope) -> bool:
    """Whether a message was scheduled in an entity before this one: senders cannot say so."""
    return find_annotation(kept.annotations, SCHEDULED_TIME) is not None


def scheduled_item(instant: int) -> bytes:
    """Write for when a message was scheduled."""
    return _SCHEDULED_KEY + encode(Timestamp(instant))


assert NO_DURATION == -1, "an absent time to live is -1 on the wire side too"
