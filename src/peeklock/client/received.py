"""A message that was received or peeked: its bytes, read when they are asked for."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, final
from uuid import UUID

from peeklock.amqp.dialect import (
    CLAIMED,
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    ENQUEUE_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCKED_UNTIL,
    MESSAGE_STATE,
    PARTITION_ID,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
)
from peeklock.amqp.messages.annotations import drop_annotations, find_annotation, head
from peeklock.amqp.messages.message import (
    DATA_BODY,
    NO_BODY,
    SEQUENCE_BODY,
    VALUE_BODY,
    AmqpMessage,
    decode_message,
)
from peeklock.amqp.messages.properties import (
    LazyProperties,
    read_application_properties,
    read_properties,
)
from peeklock.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    FOOTER,
    PROPERTIES,
    Sections,
    section_at,
    split,
)
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.types import Symbol, Timestamp
from peeklock.client.constants import AmqpMessageBodyType, ServiceBusMessageState
from peeklock.client.message import moment_of
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.clock import SystemClock

_CLOCK: Final = SystemClock()
_TOKEN_SIZE: Final = 16
# What the broker wrote about its own copy, and what has no meaning for the next one.
_NOT_SENT_AGAIN: Final = frozenset(
    (
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        ENQUEUE_SEQUENCE_NUMBER,
        MESSAGE_STATE,
        SCHEDULED_TIME,
        DEAD_LETTER_SOURCE,
        PARTITION_ID,
        CLAIMED,
    )
)
_BODY_TYPES: Final = {
    SEQUENCE_BODY: AmqpMessageBodyType.SEQUENCE,
    VALUE_BODY: AmqpMessageBodyType.VALUE,
}


@final
class ServiceBusReceivedMessage:
    """A message as the broker handed it out; nothing of it is decoded before it is asked for."""

    __slots__ = (
        "_annotations",
        "_application_properties",
        "_cut",
        "_locked_until",
        "_properties",
        "_token",
        "auto_renew_error",
        "delivery",
        "is_deleted",
        "is_peeked",
        "is_settled",
        "link",
        "needs_token",
        "payload",
        "transaction",
    )

    def __init__(
        self,
        payload: bytes,
        *,
        link: ReceiverLink | None = None,
        delivery: IncomingDelivery | None = None,
        lock_token: UUID | None = None,
        is_peeked: bool = False,
        is_deleted: bool = False,
    ) -> None:
        """A delivery of a link has its lock in its tag; others name theirs, if they have one."""
        self.payload = payload
        self.link = link
        self.delivery = delivery
        self._token = lock_token
        self.is_peeked = is_peeked
        # Received and deleted: there is nothing left to settle.
        self.is_deleted = is_deleted
        self.is_settled = is_deleted
        # Its delivery is settled although its lock may live on: only the token settles it.
        self.needs_token = False
        # The transaction that settles the message, while that has not ended.
        self.transaction: object = None
        self.auto_renew_error: Exception | None = None
        self._locked_until: int | None = None
        self._cut: Sections | None = None
        self._properties: LazyProperties | None = None
        self._annotations: dict[bytes, Any] | None = None
        self._application_properties: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no link: whoever gets it settles by the token.
        flags = (self.is_peeked, self.is_deleted, self.is_settled)
        return _rebuilt, (self.payload, self.lock_token, *flags, self._locked_until)

    def __repr__(self) -> str:
        return (
            f"ServiceBusReceivedMessage(sequence_number={self.sequence_number}, "
            f"message_id={self.message_id!r})"
        )

    def __str__(self) -> str:
        kind, body = self._body_kind(), self.body
        if kind in (DATA_BODY, NO_BODY):
            return b"".join(body).decode()
        return str(list(body) if kind == SEQUENCE_BODY else body)

    def __bytes__(self) -> bytes:
        if self._body_kind() not in (DATA_BODY, NO_BODY):
            raise TypeError("the content of this message is a value, not bytes")
        return b"".join(self.body)

    # --- what the sender said

    @property
    def body(self) -> Any:
        """The pieces of the content; of a message whose content is a value, that value."""
        message = self.raw_amqp_message
        if message.body_kind == NO_BODY:
            return iter(())
        if message.body_kind in (DATA_BODY, SEQUENCE_BODY):
            pieces: Iterator[Any] = iter(message.body)
            return pieces
        return message.body

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """What the content is made of; one that is not there counts as bytes."""
        return _BODY_TYPES.get(self._body_kind(), AmqpMessageBodyType.DATA)

    @property
    def raw_amqp_message(self) -> AmqpMessage:
        """The message with all its sections, decoded."""
        return decode_message(self.payload)

    @property
    def message_id(self) -> str | None:
        """What identifies the message."""
        return self._own().message_id

    @property
    def correlation_id(self) -> str | None:
        """What the message answers or belongs to."""
        return self._own().correlation_id

    @property
    def session_id(self) -> str | None:
        """The message session that it belongs to."""
        return self._own().group_id

    @property
    def reply_to_session_id(self) -> str | None:
        """The session that an answer is to be sent to."""
        return self._own().reply_to_group_id

    @property
    def subject(self) -> str | None:
        """What the message is about, in its sender's words."""
        return self._own().subject

    @property
    def content_type(self) -> str | None:
        """The MIME type of the content."""
        return _text(self._own().content_type)

    @property
    def to(self) -> str | None:
        """Where the message is meant to go."""
        return self._own().to

    @property
    def reply_to(self) -> str | None:
        """Where an answer is wanted."""
        return self._own().reply_to

    @property
    def application_properties(self) -> dict[str, Any]:
        """The properties of the application; moments are datetimes again."""
        if self._application_properties is None:
            cut = self._sections()
            found = read_application_properties(cut.bare, cut.application_properties_at)
            self._application_properties = {key: _plain(value) for key, value in found.items()}
        return self._application_properties

    @property
    def time_to_live(self) -> timedelta | None:
        """How long the message is worth something, from when it was enqueued."""
        own = self._own()
        if own.absolute_expiry >= 0 and own.creation_time >= 0:
            return timedelta(milliseconds=own.absolute_expiry - own.creation_time)
        ttl_ms = self._sections().ttl_ms
        return None if ttl_ms < 0 else timedelta(milliseconds=ttl_ms)

    @property
    def partition_key(self) -> str | None:
        """What decided on the partition."""
        return _text(self._annotation(PARTITION_KEY))

    @property
    def scheduled_enqueue_time_utc(self) -> datetime | None:
        """When the message was to be handed out first."""
        return _moment(self._annotation(SCHEDULED_TIME))

    # --- what the broker says

    @property
    def sequence_number(self) -> int | None:
        """The number of the message in its entity."""
        return _number(find_annotation(self._sections().annotations, SEQUENCE_NUMBER))

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The number that the message had where it was enqueued first."""
        return _number(self._annotation(ENQUEUE_SEQUENCE_NUMBER))

    @property
    def enqueued_time_utc(self) -> datetime | None:
        """When the message was enqueued."""
        return _moment(self._annotation(ENQUEUED_TIME))

    @property
    def expires_at_utc(self) -> datetime | None:
        """When the message expires."""
        enqueued, lives = self.enqueued_time_utc, self.time_to_live
        return enqueued + lives if enqueued is not None and lives is not None else None

    @property
    def delivery_count(self) -> int:
        """How many deliveries have failed before this one."""
        return self._sections().delivery_count

    @property
    def state(self) -> ServiceBusMessageState:
        """Where the message is in its life."""
        if self._annotation(CLAIMED):
            return ServiceBusMessageState.CLAIMED
        return ServiceBusMessageState(int(self._annotation(MESSAGE_STATE) or 0))

    @property
    def dead_letter_reason(self) -> str | None:
        """Why the message was dead-lettered, in a word."""
        return _text(self.application_properties.get(DEAD_LETTER_REASON))

    @property
    def dead_letter_error_description(self) -> str | None:
        """Why the message was dead-lettered, in a sentence."""
        return _text(self.application_properties.get(DEAD_LETTER_DESCRIPTION))

    @property
    def dead_letter_source(self) -> str | None:
        """The entity in which the message was dead-lettered before it was forwarded."""
        return _text(self._annotation(DEAD_LETTER_SOURCE))

    @property
    def has_lock(self) -> bool:
        """Whether the message was locked for this receiver when it came."""
        if self.is_deleted:
            return False
        delivery = self.delivery
        return self._token is not None or (
            delivery is not None and len(delivery.tag) == _TOKEN_SIZE
        )

    @property
    def lock_token(self) -> UUID | None:
        """What the lock is known by, None without one."""
        if self._token is None and self.delivery is not None and self.has_lock:
            self._token = UUID(bytes_le=self.delivery.tag)
        return self._token

    @property
    def locked_until_utc(self) -> datetime | None:
        """Until when this receiver alone may settle the message; None without a lock of its own."""
        if self.is_settled or not self.has_lock:
            return None
        instant = self.locked_until_ms
        return None if instant is None else moment_of(instant)

    @property
    def locked_until_ms(self) -> int | None:
        """Until which instant the message is locked, as far as is known; None in a session, which
        is renewed as a whole."""
        if self.link is not None and self.link.session_id is not None:
            return None
        if self._locked_until is None:
            self._locked_until = _number(self._annotation(LOCKED_UNTIL))
        return self._locked_until

    @property
    def is_lock_expired(self) -> bool:
        """Whether the lock has ended by the clock of this machine; a session's is the session's."""
        instant = self.locked_until_ms
        return instant is not None and instant <= _CLOCK.now()

    def lock_renewed(self, until: int) -> None:
        """Take note that the lock lasts longer now."""
        self._locked_until = until

    # --- sending it again

    @property
    def routing_key(self) -> str | None:
        """What all messages of a batch must share where the entity is partitioned."""
        session_id = self.session_id
        return self.partition_key if session_id is None else session_id

    def encoded(self) -> bytes:
        """Write the message as a new one: all that its first sender said, and nothing else."""
        cut = self._sections()
        items, count = drop_annotations(cut.annotations, _NOT_SENT_AGAIN)
        durable = cut.durable
        front = head(
            durable=durable,
            priority=cut.priority,
            ttl_ms=cut.ttl_ms,
            delivery_count=0,
            annotations=items,
            annotations_count=count,
        )
        return front + cut.bare

    # --- reading

    def _sections(self) -> Sections:
        if self._cut is None:
            self._cut = split(self.payload)
        return self._cut

    def _own(self) -> LazyProperties:
        if self._properties is None:
            cut = self._sections()
            self._properties = read_properties(cut.bare, cut.properties_at)
        return self._properties

    def _annotation(self, name: bytes) -> Any:
        if self._annotations is None:
            items = self._sections().annotations
            found: dict[bytes, Any] = {}
            at = 0
            while at < len(items):
                key, at = decode(items, at)
                found[str(key).encode()], at = decode(items, at)
            self._annotations = found
        return self._annotations.get(name)

    def _body_kind(self) -> int:
        cut = self._sections()
        if cut.body_at >= len(cut.bare):
            return NO_BODY
        code = section_at(cut.bare, cut.body_at, len(cut.bare))[0]
        return NO_BODY if code in (PROPERTIES, APPLICATION_PROPERTIES, FOOTER) else code


def _rebuilt(
    payload: bytes,
    lock_token: UUID | None,
    is_peeked: bool,
    is_deleted: bool,
    is_settled: bool,
    locked_until: int | None,
) -> ServiceBusReceivedMessage:
    message = ServiceBusReceivedMessage(
        payload, lock_token=lock_token, is_peeked=is_peeked, is_deleted=is_deleted
    )
    message.is_settled = is_settled
    if locked_until is not None:
        message.lock_renewed(locked_until)
    return message


def _plain(value: Any) -> Any:
    """Return a value in the plainest type that still says what it is."""
    if isinstance(value, Timestamp):
        return moment_of(value)
    if isinstance(value, Symbol):
        return str(value)
    return value


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _moment(value: Any) -> datetime | None:
    return None if value is None else moment_of(int(value))
