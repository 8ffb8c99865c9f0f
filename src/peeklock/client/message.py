"""A message to be sent: what is set on it, and its bytes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final, TypeAlias, final
from uuid import UUID

from peeklock.amqp.dialect import PARTITION_KEY, SCHEDULED_TIME, VIA_PARTITION_KEY
from peeklock.amqp.messages.message import AmqpMessage, decode_message
from peeklock.amqp.values.encoder import encode, encode_into
from peeklock.amqp.values.types import Symbol, Timestamp
from peeklock.client.constants import AmqpMessageBodyType
from peeklock.clock import SystemClock

Content: TypeAlias = bytes | str | Sequence[bytes | str] | None

ID_LENGTH_MAX: Final = 128
_TTL_MAX_MS: Final = 0xFFFF_FFFF
_INSTANT_MAX_MS: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CLOCK: Final = SystemClock()

# Sections with the constructors that they are always written with [3.2].
_HEADER_WITH_TTL: Final = b"\x00\x53\x70\xc0\x08\x03\x41\x40\x70"
_PROPERTIES: Final = 0x73
_DATA: Final = b"\x00\x53\x75\xb0"
_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72"
_APPLICATION_PROPERTIES_HEAD: Final = b"\x00\x53\x74"
_NULL: Final = b"\x40"
_UINT32: Final = Struct(">I")
_SCHEDULED: Final = Symbol(SCHEDULED_TIME.decode())
_PARTITION_KEY: Final = Symbol(PARTITION_KEY.decode())
_VIA_PARTITION_KEY: Final = Symbol(VIA_PARTITION_KEY.decode())


@final
class ServiceBusMessage:
    """A message to be sent. Its content is bytes, text, or a list of either."""

    __slots__ = (
        "_body",
        "_message_id",
        "_partition_key",
        "_reply_to_session_id",
        "_session_id",
        "_time_to_live",
        "application_properties",
        "content_type",
        "correlation_id",
        "reply_to",
        "scheduled_enqueue_time_utc",
        "subject",
        "to",
        "transaction_partition_key",
    )

    def __init__(
        self,
        body: Content,
        *,
        application_properties: dict[str, Any] | None = None,
        session_id: str | None = None,
        message_id: str | None = None,
        scheduled_enqueue_time_utc: datetime | None = None,
        time_to_live: timedelta | float | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        subject: str | None = None,
        partition_key: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        reply_to_session_id: str | None = None,
        transaction_partition_key: str | None = None,
    ) -> None:
        self._body = _octets(body)
        self._message_id: str | None = None
        self._session_id: str | None = None
        self._partition_key: str | None = None
        self._reply_to_session_id: str | None = None
        self._time_to_live: timedelta | None = None
        self.application_properties = application_properties
        self.scheduled_enqueue_time_utc = scheduled_enqueue_time_utc
        self.content_type = content_type
        self.correlation_id = correlation_id
        self.subject = subject
        self.to = to
        self.reply_to = reply_to
        self.transaction_partition_key = transaction_partition_key
        if message_id is not None:
            self.message_id = message_id
        if session_id is not None:
            self.session_id = session_id
        if partition_key is not None:
            self.partition_key = partition_key
        if reply_to_session_id is not None:
            self.reply_to_session_id = reply_to_session_id
        if time_to_live is not None:
            self.time_to_live = time_to_live

    def __repr__(self) -> str:
        size = sum(map(len, self._body))
        return f"ServiceBusMessage({size} bytes, message_id={self._message_id!r})"

    def __str__(self) -> str:
        return b"".join(self._body).decode()

    def __bytes__(self) -> bytes:
        return b"".join(self._body)

    @property
    def body(self) -> Iterator[bytes]:
        """The pieces of the content, as the official client gives them; `bytes(message)` joins."""
        return iter(self._body)

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """What the content is made of: bytes, of all that are made here."""
        return AmqpMessageBodyType.DATA

    @property
    def message_id(self) -> str | None:
        """What identifies the message, for its receiver and for duplicate detection."""
        return self._message_id

    @message_id.setter
    def message_id(self, value: str | None) -> None:
        self._message_id = None if value is None else _bounded("message_id", str(value))

    @property
    def session_id(self) -> str | None:
        """The message session that it belongs to."""
        return self._session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        self._session_id = _bounded("session_id", value)
        self._check_keys()

    @property
    def partition_key(self) -> str | None:
        """What decides on the partition; of a message with a session it is the session's id."""
        return self._partition_key

    @partition_key.setter
    def partition_key(self, value: str | None) -> None:
        self._partition_key = _bounded("partition_key", value)
        self._check_keys()

    @property
    def reply_to_session_id(self) -> str | None:
        """The session that an answer is to be sent to."""
        return self._reply_to_session_id

    @reply_to_session_id.setter
    def reply_to_session_id(self, value: str | None) -> None:
        self._reply_to_session_id = _bounded("reply_to_session_id", value)

    @property
    def time_to_live(self) -> timedelta | None:
        """How long the message is worth something; a number means seconds."""
        return self._time_to_live

    @time_to_live.setter
    def time_to_live(self, value: timedelta | float | None) -> None:
        if value is not None and not isinstance(value, timedelta):
            value = timedelta(seconds=value)
        if value is not None and value < timedelta(0):
            raise ValueError(f"time_to_live is before now: {value}")
        self._time_to_live = value

    @property
    def raw_amqp_message(self) -> AmqpMessage:
        """The message with all its sections, as it would be sent now; changes to it are not."""
        return decode_message(self.encoded())

    @property
    def routing_key(self) -> str | None:
        """What all messages of a batch must share where the entity is partitioned."""
        return self._partition_key if self._session_id is None else self._session_id

    def _check_keys(self) -> None:
        if None not in (self._session_id, self._partition_key) and (
            self._session_id != self._partition_key
        ):
            raise ValueError(
                f"partition_key '{self._partition_key}' must be the session_id "
                f"'{self._session_id}' or be left out"
            )

    def encoded(self) -> bytes:
        """Write the message for the wire; only what is set."""
        out = bytearray()
        now = expires_at = 0
        if self._time_to_live is not None:
            ttl_ms = self._time_to_live // _MILLISECOND
            now = _CLOCK.now()
            expires_at = min(now + ttl_ms, _INSTANT_MAX_MS)
            out += _HEADER_WITH_TTL
            out += _UINT32.pack(min(ttl_ms, _TTL_MAX_MS))
        self._write_annotations(out)
        self._write_properties(out, now, expires_at)
        if self.application_properties:
            out += _APPLICATION_PROPERTIES_HEAD
            encode_into(out, wire_properties(self.application_properties))
        for piece in self._body:
            # The wide form even for short contents: the broker knows it at a glance.
            out += _DATA
            out += _UINT32.pack(len(piece))
            out += piece
        return bytes(out)

    def _write_annotations(self, out: bytearray) -> None:
        annotations: dict[Any, Any] = {}
        if self.scheduled_enqueue_time_utc is not None:
            annotations[_SCHEDULED] = Timestamp(instant_ms(self.scheduled_enqueue_time_utc))
        if self._partition_key is not None:
            annotations[_PARTITION_KEY] = self._partition_key
        if self.transaction_partition_key is not None:
            annotations[_VIA_PARTITION_KEY] = self.transaction_partition_key
        if annotations:
            out += _ANNOTATIONS_HEAD
            encode_into(out, annotations)

    def _write_properties(self, out: bytearray, created_at: int, expires_at: int) -> None:
        content_type = self.content_type
        fields = (
            self._message_id,
            None,
            self.to,
            self.subject,
            self.reply_to,
            self.correlation_id,
            None if content_type is None else Symbol(content_type),
            None,
            Timestamp(expires_at) if created_at else None,
            Timestamp(created_at) if created_at else None,
            self._session_id,
            None,
            self._reply_to_session_id,
        )
        count = len(fields)
        while count and fields[count - 1] is None:
            count -= 1
        if count:
            out += properties_section([_field(value) for value in fields[:count]])


def properties_section(fields: list[bytes]) -> bytes:
    """Write a properties section of fields that are encoded already."""
    items = b"".join(fields)
    if len(items) < 255:
        return bytes((0, 0x53, _PROPERTIES, 0xC0, len(items) + 1, len(fields))) + items
    head = bytes((0, 0x53, _PROPERTIES, 0xD0))
    return head + _UINT32.pack(len(items) + 4) + _UINT32.pack(len(fields)) + items


def wire_properties(properties: Mapping[Any, Any]) -> dict[str, Any]:
    """Give application properties with the types that the wire knows."""
    return {
        key.decode() if isinstance(key, bytes) else str(key): _wire_value(value)
        for key, value in properties.items()
    }


def instant_ms(moment: datetime) -> int:
    """Return a moment as an instant; one without a zone is meant in UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def moment_of(instant: int) -> datetime:
    """Return an instant as a moment in UTC; one beyond the calendar is its last."""
    return _EPOCH + timedelta(milliseconds=min(instant, _INSTANT_MAX_MS))


def _field(value: Any) -> bytes:
    if value is None:
        return _NULL
    if type(value) is str:
        octets = value.encode()
        size = len(octets)
        return (b"\xa1" + bytes((size,)) if size < 256 else b"\xb1" + _UINT32.pack(size)) + octets
    return encode(value)


def _wire_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return Timestamp(instant_ms(value))
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if value is None or isinstance(value, (bool, str, int, float, bytes, UUID)):
        return value
    raise TypeError(f"an application property cannot be a {type(value).__name__}")


def _octets(body: Any) -> tuple[bytes, ...]:
    if isinstance(body, bytes):
        return (body,)
    if isinstance(body, str):
        return (body.encode(),)
    if body is None:
        return (b"",)
    if isinstance(body, (bytearray, memoryview)):
        return (bytes(body),)
    if isinstance(body, (list, tuple)):
        return tuple(piece for part in body for piece in _octets(part))
    raise TypeError(f"the content of a message cannot be a {type(body).__name__}")


def _bounded(name: str, value: str | None) -> str | None:
    if value is not None and len(value) > ID_LENGTH_MAX:
        raise ValueError(f"{name} cannot be longer than {ID_LENGTH_MAX} characters")
    return value
