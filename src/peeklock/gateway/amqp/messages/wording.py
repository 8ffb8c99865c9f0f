"""Messages read and written where no connection is near: for rules, their actions, forwarding.

The broker knows messages as bytes; this is how it gets at what is in them. Bodies are never
decoded, and of the rest only what is asked for. What reached an entity that looks at nothing may
hold anything, so that nothing here fails on a value that cannot be read: such a value is there, and
equals nothing.
"""

from typing import Any, Final, final
from uuid import UUID

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages import properties as place
from peeklock.amqp.messages.message import DATA_BODY, encode_message
from peeklock.amqp.messages.message import AmqpMessage as WholeMessage
from peeklock.amqp.messages.properties import (
    LazyProperties,
    application_pairs,
    id_text,
    read_properties,
    with_application_pairs,
    with_fields,
)
from peeklock.amqp.messages.sections import Sections, split
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Encoded, Symbol, Timestamp
from peeklock.entity.deliveries import STATE_ACTIVE, Delivery, Details
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits
from peeklock.entity.rules.action import Changes, Reset
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import (
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_COUNT,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    FORCE_PERSISTENCE,
    LABEL,
    MESSAGE_ID,
    MISSING,
    PARTITION_KEY,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    SIZE,
    STATE,
    SYSTEM_PROPERTIES,
    TIME_TO_LIVE,
    TO,
    DurationValue,
    InstantValue,
    Missing,
    StepBudget,
    Value,
    fold,
    id_by,
    no_system_property,
)
from peeklock.gateway.amqp.management.rule_values import TICKS_PER_MS, rule_value, wire_value
from peeklock.gateway.amqp.messages.envelope import AS_IT_LIVES, opened
from peeklock.gateway.amqp.messages.translate import (
    LIFE_MAX_MS,
    header_ttl,
    partition_key_in,
    scheduled_item,
    was_scheduled,
    with_details,
)
from peeklock.gateway.identifiers import RandomSource, hex_digits

# Where the properties of the bare message hold those of a rule.
_FIELDS: Final[dict[str, int]] = {
    MESSAGE_ID: place.MESSAGE_ID,
    CORRELATION_ID: place.CORRELATION_ID,
    SESSION_ID: place.GROUP_ID,
    TO: place.TO,
    REPLY_TO: place.REPLY_TO,
    REPLY_TO_SESSION_ID: place.REPLY_TO_GROUP_ID,
    LABEL: place.SUBJECT,
    CONTENT_TYPE: place.CONTENT_TYPE,
}
_INSTANT_MAX: Final = (1 << 63) - 1


@final
class AmqpWording:
    """Reads and writes messages for the broker."""

    __slots__ = ("_random_source",)

    def __init__(self, random_source: RandomSource) -> None:
        self._random_source: RandomSource = random_source

    def reader(self, message: Message, now: int) -> "MessageReader":
        """Give what rules may ask of a message."""
        return MessageReader(message, now, self._random_source)

    def changed(self, message: Message, changes: Changes) -> Message:
        """Write what an action makes of a message; its schedule stays as it was.

        A FilterError means that a value has no form in a message.
        """
        copy = _copy_of(self.keyed(message))
        try:
            if changes.user:
                copy.content = _with_user_changes(copy.content, changes)
            if changes.system:
                self._change_system(copy, changes.system)
        except (TypeError, ValueError) as wrong:
            raise FilterError(f"a value cannot be written into a message: {wrong}") from wrong
        copy.size = len(copy.envelope) + len(copy.content)
        return copy

    def lost(self) -> bytes:
        """Write the content of a message that has lost its own: an empty body of data."""
        return encode_message(WholeMessage(body_kind=DATA_BODY, body=[b""]))

    def keyed(self, message: Message) -> Message:
        """Give the message with the keys that its bytes hold: message id, session, partition."""
        if message.message_id:
            return message
        sections = split(message.content)
        properties = read_properties(sections.bare, sections.properties_at)
        message_id = _id_of(properties)
        session_id = _text_of(properties, place.GROUP_ID)
        partition_key = _partition_key_of(message.envelope)
        if not message_id and session_id is None and partition_key is None:
            return message
        copy = _copy_of(message)
        traits = copy.known()
        traits.expires_at = message.expires_at
        traits.message_id = message_id
        traits.session_id = session_id
        traits.partition_key = partition_key
        return copy

    def forwarded(self, delivery: Delivery, source: str) -> Message:
        """Write a message as it goes on to another entity, one hop older."""
        message = delivery.message
        assert message is not None, "bodies are fetched before a message goes on"
        details = delivery.details or Details()
        copy = _copy_of(self.keyed(message))
        copy.content = with_details(copy.content, details)
        traits = copy.known()
        traits.scheduled_at = NEVER
        traits.hops = max(message.hops, details.hops) + 1
        # It starts a new life in the other entity, as long as the one it had here.
        traits.time_to_live_ms = (
            NO_DURATION
            if delivery.expires_at == NEVER
            else max(0, delivery.expires_at - delivery.enqueued_at)
        )
        copy.envelope = _envelope_of_forwarded(message, details, traits.time_to_live_ms)
        copy.size = len(copy.envelope) + len(copy.content)
        traits.enqueue_sequence = details.enqueue_sequence or delivery.sequence
        traits.dead_letter_source = source or details.source or message.dead_letter_source
        return copy

    def _change_system(self, copy: Message, changes: dict[str, Any]) -> None:
        """Write system properties into a copy that nobody else has yet."""
        fields: dict[int, bytes] = {}
        traits = copy.known()
        envelope = opened(copy.envelope)
        for name in changes:
            change = changes[name]
            value = None if isinstance(change, Reset) else change
            if name == MESSAGE_ID:
                # No message is without an id: one is made, as for a sender that gave none.
                traits.message_id = hex_digits(self._random_source) if value is None else str(value)
                fields[place.MESSAGE_ID] = encode(traits.message_id)
            elif name == SESSION_ID:
                traits.session_id = None if value is None else str(value)
                fields[place.GROUP_ID] = _encoded_text(value)
            elif name == CONTENT_TYPE:
                fields[place.CONTENT_TYPE] = _encoded_content_type(value)
            elif name in _FIELDS:
                fields[_FIELDS[name]] = _encoded_text(value)
            elif name == TIME_TO_LIVE:
                traits.time_to_live_ms = _life_of(value)
                envelope = envelope.with_header(envelope.durable, AS_IT_LIVES)
                _end_with(traits.time_to_live_ms, copy.content, fields)
            elif name == PARTITION_KEY:
                traits.partition_key = None if value is None else str(value)
                envelope = envelope.with_partition_key(traits.partition_key)
            elif name == FORCE_PERSISTENCE:
                durable = -1 if value is None else int(value)
                envelope = envelope.with_header(durable, envelope.ttl_ms)
            else:
                # A subscription does not schedule: the message is due already (protocol 12.3).
                assert name == SCHEDULED_ENQUEUE_TIME, f"{name} cannot be changed"
        if fields:
            sections = split(copy.content)
            copy.content = with_fields(sections.bare, sections.properties_at, fields)
        copy.envelope = envelope.sealed()


@final
class MessageReader:
    """Reads the properties of one message, each when it is first asked for."""

    __slots__ = (
        "_by_folded_name",
        "_by_name",
        "_message",
        "_now",
        "_properties",
        "_random_source",
        "_sections",
        "_steps",
        "_system",
        "_user",
    )

    def __init__(self, message: Message, now: int, random_source: RandomSource) -> None:
        self._message: Message = message
        self._now: int = now
        self._random_source: RandomSource = random_source
        self._sections: Sections | None = None
        self._properties: LazyProperties | None = None
        # Most messages meet no rule that needs it.
        self._steps: StepBudget | None = None
        # The encoded values of all user properties, once one was asked for.
        self._by_name: dict[str, bytes] | None = None
        self._by_folded_name: dict[str, bytes] | None = None
        # What was answered already.
        self._user: dict[str, Any] = {}
        self._system: dict[str, Any] = {}

    def user(self, name: str) -> Value | Missing:
        """Give an application property by its name; the exact one wins, then case is no matter."""
        known = self._user
        if name not in known:
            raw = self._raw_user(name)
            known[name] = MISSING if raw is None else rule_value(_decoded(raw))
        value: Value | Missing = known[name]
        return value

    def system(self, name: str) -> Value | Missing:
        """Give a property of `SYSTEM_PROPERTIES`; any other name is a FilterError."""
        known = self._system
        if name not in known:
            known[name] = self._read_system(name)
        value: Value | Missing = known[name]
        return value

    def user_names(self) -> set[str]:
        """Give the names of all application properties, folded."""
        return set(self._all_folded(self._all_named()))

    def spend(self, steps: int) -> None:
        """Pay for work that grows with the values, from what all rules may do with a message."""
        if self._steps is None:
            self._steps = StepBudget()
        self._steps.spend(steps)

    def new_id(self) -> UUID:
        """Make a random id."""
        return id_by(self._random_source)

    def _raw_user(self, name: str) -> bytes | None:
        by_name = self._all_named()
        found = by_name.get(name)
        if found is not None or not by_name:
            return found
        return self._all_folded(by_name).get(fold(name))

    def _all_named(self) -> dict[str, bytes]:
        by_name = self._by_name
        if by_name is None:
            sections = self._cut()
            by_name = {}
            for key, raw in _named_pairs(_pairs_of(sections)):
                if key is not None:
                    by_name[key] = raw
            self._by_name = by_name
        return by_name

    def _all_folded(self, by_name: dict[str, bytes]) -> dict[str, bytes]:
        folded = self._by_folded_name
        if folded is None:
            folded = {}
            for key in by_name:
                folded.setdefault(fold(key), by_name[key])
            self._by_folded_name = folded
        return folded

    def _read_system(self, name: str) -> Any:
        message = self._message
        # A message with an id has all its keys read out.
        if name == MESSAGE_ID and message.message_id:
            return message.message_id
        if name == SESSION_ID and message.message_id:
            return MISSING if message.session_id is None else message.session_id
        field = _FIELDS.get(name, -1)
        if field >= 0:
            return self._field(field)
        if name == PARTITION_KEY:
            key = message.partition_key or _partition_key_of(message.envelope)
            return MISSING if key is None else key
        if name == TIME_TO_LIVE:
            life_ms = message.time_to_live_ms
            return MISSING if life_ms < 0 else DurationValue(life_ms * TICKS_PER_MS)
        if name == SCHEDULED_ENQUEUE_TIME:
            at = message.scheduled_at
            return MISSING if at == NEVER else InstantValue(at * TICKS_PER_MS)
        if name == ENQUEUED_TIME:
            return InstantValue(self._now * TICKS_PER_MS)
        if name == ENQUEUED_SEQUENCE_NUMBER:
            return message.enqueue_sequence or MISSING
        if name == FORCE_PERSISTENCE:
            # Absent means durable here: whatever is accepted is stored.
            return opened(message.envelope).durable != 0
        if name == SIZE:
            return message.size
        if name == DELIVERY_COUNT:
            return 0
        if name == STATE:
            return STATE_ACTIVE
        if name not in SYSTEM_PROPERTIES:
            raise no_system_property(name)
        return MISSING  # the sequence number, which is given after the rules were asked

    def _field(self, field: int) -> Any:
        properties = self._properties
        if properties is None:
            sections = self._cut()
            properties = read_properties(sections.bare, sections.properties_at)
            self._properties = properties
        raw = properties.raw(field)
        if not raw:
            return MISSING
        try:
            if field in (place.MESSAGE_ID, place.CORRELATION_ID):
                return id_text(raw, "id")
            value = decode(raw)[0]
        except DecodeError:
            return Encoded(raw)
        return str(value) if isinstance(value, str) else Encoded(raw)

    def _cut(self) -> Sections:
        sections = self._sections
        if sections is None:
            sections = split(self._message.content)
            self._sections = sections
        return sections


# --- what is in the bytes


def _decoded(raw: bytes) -> Any:
    """Decode a value; one that cannot be read stays as it is encoded."""
    try:
        return decode(raw)[0]
    except DecodeError:
        return Encoded(raw)


def _pairs_of(sections: Sections) -> list[tuple[bytes, bytes]]:
    try:
        return application_pairs(sections.bare, sections.application_properties_at)
    except DecodeError:
        return []  # not even a map, so that it has no names


def _named_pairs(pairs: list[tuple[bytes, bytes]]) -> list[tuple[str | None, bytes]]:
    """Give each value with its name; a name that is no text, or there before, is None."""
    named: list[tuple[str | None, bytes]] = []
    seen: set[str] = set()
    for key, raw in pairs:
        name = _decoded(key)
        if isinstance(name, str) and name not in seen:
            seen.add(str(name))
            named.append((str(name), raw))
        else:
            named.append((None, raw))
    return named


def _id_of(properties: LazyProperties) -> str:
    try:
        return properties.message_id or ""
    except DecodeError:
        return ""


def _text_of(properties: LazyProperties, field: int) -> str | None:
    value = _decoded(properties.raw(field)) if properties.raw(field) else None
    return str(value) if isinstance(value, str) else None


def _partition_key_of(envelope: bytes) -> str | None:
    if not envelope:
        return None
    try:
        return partition_key_in(opened(envelope).annotations)
    except DecodeError:
        return None


# --- what is written


def _copy_of(message: Message) -> Message:
    return Message(
        message.envelope,
        message.content,
        Traits(
            message_id=message.message_id,
            time_to_live_ms=message.time_to_live_ms,
            scheduled_at=message.scheduled_at,
            session_id=message.session_id,
            partition_key=message.partition_key,
            hops=message.hops,
            enqueue_sequence=message.enqueue_sequence,
            dead_letter_source=message.dead_letter_source,
        ),
    )


def _envelope_of_forwarded(message: Message, details: Details, life_ms: int) -> bytes:
    """Write what the sender wrote: its header does not change by a life that entities gave to the
    message, and what was scheduled once is known by that to its receiver."""
    if life_ms == message.time_to_live_ms and details.scheduled_at == NEVER:
        return message.envelope
    envelope = opened(message.envelope)
    if life_ms != message.time_to_live_ms:
        envelope = envelope.with_header(envelope.durable, header_ttl(envelope, message))
    if details.scheduled_at != NEVER and not was_scheduled(envelope):
        envelope = envelope.with_annotation(scheduled_item(details.scheduled_at))
    return envelope.sealed()


def _with_user_changes(content: bytes, changes: Changes) -> bytes:
    """Write user properties; those that stay keep their bytes and their order."""
    sections = split(content)
    before = _pairs_of(sections)
    named = _named_pairs(before)
    # The values as they are encoded, because nothing has to know them.
    present: dict[str, Any] = {name: Encoded(raw) for name, raw in named if name is not None}
    after: dict[str, Any] = dict(changes.applied_to(present))
    pairs: list[tuple[bytes, bytes]] = []
    for (key, raw), (name, _) in zip(before, named, strict=True):
        if name is None:
            pairs.append((key, raw))
        elif name in after:
            pairs.append((key, encode(wire_value(after.pop(name)))))
    for name, value in after.items():
        pairs.append((encode(name), encode(wire_value(value))))
    if not pairs and sections.application_properties_at < 0:
        return content
    return with_application_pairs(
        sections.bare, sections.application_properties_at, sections.body_at, pairs
    )


def _encoded_text(value: Any) -> bytes:
    return b"" if value is None else encode(str(value))


def _encoded_content_type(value: Any) -> bytes:
    """Write a content type, which is a symbol wherever that is possible."""
    if value is None:
        return b""
    return encode(Symbol(value) if value.isascii() else str(value))


def _life_of(value: Any) -> int:
    if value is None:
        return NO_DURATION
    assert isinstance(value, DurationValue), "actions give a life as a duration"
    return min(max(0, value.ticks // TICKS_PER_MS), LIFE_MAX_MS)


def _end_with(life_ms: int, content: bytes, fields: dict[int, bytes]) -> None:
    """Move the end that a message names itself; clients believe it more than the header."""
    sections = split(content)
    properties = read_properties(sections.bare, sections.properties_at)
    if not properties.raw(place.ABSOLUTE_EXPIRY_TIME):
        return
    begin = _decoded(properties.raw(place.CREATION_TIME) or b"\x40")
    fields[place.ABSOLUTE_EXPIRY_TIME] = (
        encode(Timestamp(min(int(begin) + life_ms, _INSTANT_MAX)))
        if life_ms >= 0 and isinstance(begin, Timestamp)
        else b""
    )
