"""Messages as the wire has them, made into Arrow batches of the columns that were asked for.

What is not asked for is not decoded. A message that cannot be read is a row with an error, never
an exception, unless the reader wants one.
"""

import json
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, final

import pyarrow as pa

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.properties import (
    LazyProperties,
    read_application_properties,
    read_properties,
)
from peeklock.amqp.messages.sections import (
    DATA,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Sections,
    section_at,
    split,
)
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.types import Array, Described, Timestamp
from peeklock.spark.offsets import partition_of
from peeklock.spark.properties import as_text, to_json
from peeklock.spark.schema import Columns

# Earlier brokers gave what is claimed a state of its own.
_STATES: Final = {0: "active", 1: "deferred", 2: "scheduled", 3: "claimed"}
_SECTIONS: Final = {DATA: "data", VALUE: "value", SEQUENCE: "sequence"}

# How our broker writes its own annotations where a message is looked at [translate.peeked], each
# label with the constructor of its value: instant, number, number, state; and claimed or not.
_FIRST: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_SEQUENCE: Final = b"\xa3\x15x-opt-sequence-number\x81"
_PLACE: Final = b"\xa3\x1dx-opt-enqueue-sequence-number\x81"
_STATE: Final = b"\xa3\x13x-opt-message-state\x54"
_KNOWN: Final = Struct(f">{len(_FIRST)}sq{len(_SEQUENCE)}sq{len(_PLACE)}sq{len(_STATE)}sb")
_CLAIMED: Final = b"\xa3\x14com.peeklock:claimed\x41"
_NUMBER: Final = Struct(">q")
# Behind a header and delivery annotations, which are short, the number is here.
_NUMBER_WITHIN: Final = 120
_DATA8: Final = b"\x00\x53\x75\xa0"
_DATA32: Final = b"\x00\x53\x75\xb0"
# What readers of claims write among the application properties: from whose batch a message was
# given back, and who has deferred it where there are no claims.
BATCH_MARK: Final = "peeklock-spark-batch"
OWNER_MARK: Final = "peeklock-claimed-by"
OWN: Final = frozenset((BATCH_MARK, OWNER_MARK))
# The last millisecond of the year 9999, beyond which Spark has no instants to show.
_INSTANT_MAX: Final = 253_402_300_799_999
_PROBLEMS: Final = (DecodeError, UnicodeDecodeError, ValueError, TypeError)


class BadRecord(Exception):
    """A message that cannot be decoded, where the reader was told to fail on such."""


@final
class Parts:
    """One message, each part of it read when a column asks for it."""

    def __init__(self, payload: bytes) -> None:
        self.sections: Sections = split(payload)
        self._annotations: dict[Any, Any] | None = None
        self._properties: LazyProperties | None = None
        self._application: dict[str, Any] | None = None
        self._body: tuple[int, list[Any]] | None = None

    @property
    def annotations(self) -> dict[Any, Any]:
        """What broker and sender noted on the message."""
        if self._annotations is None:
            self._annotations = _annotations(self.sections.annotations)
        return self._annotations

    @property
    def properties(self) -> LazyProperties:
        """The message's own fields."""
        if self._properties is None:
            self._properties = read_properties(self.sections.bare, self.sections.properties_at)
        return self._properties

    @property
    def application(self) -> dict[str, Any]:
        """What the application added."""
        if self._application is None:
            sections = self.sections
            self._application = read_application_properties(
                sections.bare, sections.application_properties_at
            )
        return self._application

    @property
    def body(self) -> tuple[int, list[Any]]:
        """The kind of the body, 0 if there is none, and its sections."""
        if self._body is None:
            self._body = _body(self.sections.bare, self.sections.body_at)
        return self._body


def _annotations(items: bytes) -> dict[Any, Any]:
    """Read annotations; what our broker writes comes first, in one order, and is read at once."""
    pairs: dict[Any, Any] = {}
    at = 0
    if items.startswith(_FIRST) and len(items) >= _KNOWN.size:
        _, enqueued, number_label, number, place_label, place, state_label, state = (
            _KNOWN.unpack_from(items)
        )
        if number_label == _SEQUENCE and place_label == _PLACE and state_label == _STATE:
            pairs["x-opt-sequence-number"] = number
            pairs["x-opt-enqueued-time"] = enqueued
            pairs["x-opt-enqueue-sequence-number"] = place
            pairs["x-opt-message-state"] = state
            at = _KNOWN.size
            if items.startswith(_CLAIMED, at):
                pairs["com.peeklock:claimed"] = True
                at += len(_CLAIMED)
    end = len(items)
    while at < end:
        key, at = decode(items, at, end)
        pairs[key], at = decode(items, at, end)
    return pairs


def _body(bare: bytes, at: int) -> tuple[int, list[Any]]:
    kind = 0
    found: list[Any] = []
    end = len(bare)
    # Nearly every body is one section of data, up to the end.
    if bare.startswith(_DATA8, at) and end > at + 5 and end == at + 5 + bare[at + 4]:
        return DATA, [bare[at + 5 :]]
    wide = bare.startswith(_DATA32, at) and end > at + 8
    if wide and end == at + 8 + int.from_bytes(bare[at + 4 : at + 8], "big"):
        return DATA, [bare[at + 8 :]]
    while at < end:
        code, value_at, after = section_at(bare, at, end)
        if code in _SECTIONS:
            kind = code
            found.append(decode(bare, value_at, after)[0])
        at = after
    return kind, found


# --- one function for each column


def _instant(value: Any) -> int | None:
    if value is None or value < 0 or value > _INSTANT_MAX:
        return None
    return int(value) * 1000


def _expires(parts: Parts) -> int | None:
    ttl_ms = parts.sections.ttl_ms
    enqueued = parts.annotations.get("x-opt-enqueued-time")
    if ttl_ms >= 0 and enqueued is not None:
        return _instant(int(enqueued) + ttl_ms)
    return _instant(parts.properties.absolute_expiry)


def _bytes(parts: Parts) -> bytes | None:
    """Return the body as bytes: data as it is, a text as UTF-8, any other value as JSON."""
    kind, found = parts.body
    if kind == 0:
        return None
    if kind == DATA:
        return found[0] if len(found) == 1 else b"".join(found)
    if kind == SEQUENCE:
        return _json([value for part in found for value in part])
    (value,) = found
    if value is None:
        return None
    if isinstance(value, bytes):
        return bytes(value)
    return value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        value = value.items
    if isinstance(value, Described):
        value = value.value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(as_text(key)): _plain(one) for key, one in value.items()}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, Timestamp):
        return value
    return as_text(value)


def _text(parts: Parts) -> str | None:
    body = _bytes(parts)
    return None if body is None else body.decode("utf-8")


def _map(parts: Parts) -> list[tuple[str, str | None]]:
    return [(name, as_text(value)) for name, value in _applications(parts).items()]


def _applications(parts: Parts) -> dict[str, Any]:
    """Return what the application added, without what this reader wrote on the message."""
    properties = parts.application
    if properties.keys().isdisjoint(OWN):
        return properties
    return {name: value for name, value in properties.items() if name not in OWN}


def _noted(name: str) -> Callable[[Parts], str | None]:
    return lambda parts: as_text(parts.annotations.get(name))


def _added(name: str) -> Callable[[Parts], str | None]:
    return lambda parts: as_text(parts.application.get(name))


def _state(parts: Parts) -> str | None:
    noted = parts.annotations
    if noted.get("com.peeklock:claimed"):
        return "claimed"
    return _STATES.get(noted.get("x-opt-message-state", 0))


def _sequence(parts: Parts) -> int | None:
    number = parts.annotations.get("x-opt-sequence-number")
    return None if number is None else int(number)


def _partition(parts: Parts) -> int | None:
    number = parts.annotations.get("x-opt-sequence-number")
    return None if number is None else partition_of(int(number))


_EXTRACT: Final[dict[str, Callable[[Parts], Any]]] = {
    "sequence_number": _sequence,
    "enqueued_time": lambda parts: _instant(parts.annotations.get("x-opt-enqueued-time")),
    "message_id": lambda parts: parts.properties.message_id,
    "session_id": lambda parts: parts.properties.group_id,
    "partition_key": _noted("x-opt-partition-key"),
    "subject": lambda parts: parts.properties.subject,
    "correlation_id": lambda parts: parts.properties.correlation_id,
    "content_type": lambda parts: parts.properties.content_type,
    "to": lambda parts: parts.properties.to,
    "reply_to": lambda parts: parts.properties.reply_to,
    "body": _bytes,
    "application_properties": _map,
    "delivery_count": lambda parts: parts.sections.delivery_count,
    "state": _state,
    "expires_at": _expires,
    "scheduled_enqueue_time": lambda parts: _instant(
        parts.annotations.get("x-opt-scheduled-enqueue-time")
    ),
    "dead_letter_reason": _added("DeadLetterReason"),
    "dead_letter_description": _added("DeadLetterErrorDescription"),
    "dead_letter_source": _noted("x-opt-deadletter-source"),
    "partition_id": _partition,
    "body_section": lambda parts: _SECTIONS.get(parts.body[0]),
    "properties_json": lambda parts: to_json(_applications(parts)),
}


@final
class Decoder:
    """Makes batches of one set of columns, and keeps the numbers of what it could not read."""

    def __init__(
        self, columns: Columns, entity: str, *, bad_records: str, include_body: bool = True
    ) -> None:
        self._columns = columns
        self._entity = entity
        self._bad_records = bad_records
        self._extract = [_extractor(name, columns, include_body) for name in columns.names]
        # What is to be dead-lettered: number and what is wrong.
        self.bad: list[tuple[int, str]] = []

    def batch(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """Make one batch of messages, in their order."""
        extracts = self._extract
        rows: list[list[Any]] = []
        for payload in payloads:
            try:
                parts = Parts(payload)
                rows.append([extract(parts) for extract in extracts])
            except _PROBLEMS as problem:
                self._troubled(payload, str(problem), rows)
        schema = self._columns.arrow
        columns: Sequence[Sequence[Any]] = (
            list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        )
        arrays = [
            pa.repeat(pa.scalar(self._entity, pa.string()), len(rows))
            if field.name == "entity"
            else pa.array(column, type=field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _troubled(self, payload: bytes, problem: str, rows: list[list[Any]]) -> None:
        number = number_of(payload)
        if self._bad_records == "fail":
            raise BadRecord(f"message {number} of '{self._entity}' cannot be decoded: {problem}")
        if self._bad_records == "deadletter" and number is not None:
            self.bad.append((number, problem))
            return
        row = self._salvaged(payload, number)
        row["error"] = problem
        rows.append([row.get(name) for name in self._columns.names])

    def _salvaged(self, payload: bytes, number: int | None) -> dict[str, Any]:
        """Read of a bad message what can be read; what cannot is null."""
        row: dict[str, Any] = {"sequence_number": number}
        if number is not None:
            row["partition_id"] = partition_of(number)
        try:
            parts = Parts(payload)
        except _PROBLEMS:
            # Nothing is known of it, so that the whole of it is shown.
            if self._columns.kinds.get("body") == "binary":
                row["body"] = payload
            return row
        for name, extract in zip(self._columns.names, self._extract, strict=True):
            try:
                row[name] = extract(parts)
            except _PROBLEMS:
                row[name] = None
        return row


def _extractor(name: str, columns: Columns, include_body: bool) -> Callable[[Parts], Any]:
    if name == "body":
        if not include_body:
            return _nothing
        return _text if columns.kinds["body"] == "string" else _bytes
    if name == "body_section" and not include_body:
        return _nothing
    return _EXTRACT.get(name, _nothing)


def _nothing(_parts: Parts) -> None:
    return None


def wants_body(columns: Columns, include_body: bool) -> bool:
    """Return whether bodies must travel at all."""
    return include_body and ("body" in columns or "body_section" in columns)


def number_of(payload: bytes) -> int | None:
    """Find the sequence number even of a message whose rest cannot be read."""
    known = payload.find(_SEQUENCE, 0, _NUMBER_WITHIN)
    if known >= 0 and len(payload) >= known + len(_SEQUENCE) + 8:
        return int(_NUMBER.unpack_from(payload, known + len(_SEQUENCE))[0])
    at = 0
    end = len(payload)
    try:
        while at < end:
            code, value_at, after = section_at(payload, at, end)
            if code == MESSAGE_ANNOTATIONS:
                number = decode(payload, value_at, after)[0].get("x-opt-sequence-number")
                return None if number is None else int(number)
            at = after
    except DecodeError:
        return None
    return None
