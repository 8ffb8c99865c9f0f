"""How records rest: one chunk of bytes for all that one commit adds to one partition.

    chunk    header, table, records
    header   version u8, 3 zero bytes, positions u32, first position u64, instant i64, crc u32
    table    per position: end of its record (counted from the end of the table) u32, crc u32
    record   kind u8 and what the kind needs; a message is a record of its own

All numbers are little-endian. The header's crc covers header and table, a record's crc covers the
record and is seeded with its position, so that bytes that lie at the wrong place do not fit either.
A position finds its body through the table without the rest of the chunk being read.

The version is the chunk's first byte. A later version adds its own reader and turns what it reads
into today's records; nothing that rests is ever rewritten for a new version.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast, final

from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.records import (
    Activated,
    Carried,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    Enqueued,
    HandedOut,
    Record,
    Removed,
    Returned,
    Scheduled,
)
from peeklock.store.packing import (
    pack_changes,
    pack_entries,
    pack_numbers,
    pack_sequences,
    pack_text,
    unpack_changes,
    unpack_entries,
    unpack_numbers,
    unpack_sequences,
    unpack_text,
)
from peeklock.store.store import Corrupt

Buffer: TypeAlias = bytes | memoryview

VERSION: Final = 1

# Kinds of records. They rest on disk: never reuse a number.
_ENQUEUED: Final = 1
_SCHEDULED: Final = 2
_CARRIED: Final = 3
_REMOVED: Final = 4
_HANDED_OUT: Final = 5
_RETURNED: Final = 6
_ACTIVATED: Final = 7
_DEFERRED: Final = 8
_DEAD_LETTERED: Final = 9
_CHANGED: Final = 10
_CHECKPOINT_BEGUN: Final = 11
_CHECKPOINT_SLICE: Final = 12
_CHECKPOINT_ENDED: Final = 13

# What a message has beside its bytes.
_HAS_TIME_TO_LIVE: Final = 1
_HAS_SCHEDULE: Final = 2
_HAS_EXPIRY: Final = 4

_WORD: Final = 0xFFFFFFFF

# Bound once: compiled code then calls them without looking their names up.
_crc32: Final = zlib.crc32
_header: Final = struct.Struct("<B3xIQq")
_word: Final = struct.Struct("<I")
_instant: Final = struct.Struct("<q")
# kind, flags, instant, sequence, bytes of the id, bytes of the envelope; the content is the rest
_message: Final = struct.Struct("<BBqQII")
# kind, instant, lane, why
_fact: Final = struct.Struct("<BqIB")
# kind, instant, a sequence or a position
_mark: Final = struct.Struct("<BqQ")
# the entry before a record's in the table, and its own
_span: Final = struct.Struct("<IIII")

_HEADER_BYTES: Final = 28
_MESSAGE_BYTES: Final = 26
_FACT_BYTES: Final = 14
_MARK_BYTES: Final = 17


@final
@dataclass(slots=True, init=False)
class ChunkHeader:
    """What a chunk says about itself: its positions, `end` excluded, and its commit's instant."""

    first: Final[int]
    end: Final[int]
    at: Final[int]

    def __init__(self, first: int, end: int, at: int) -> None:
        self.first = first
        self.end = end
        self.at = at


# ---- writing


def encode_chunk(first_position: int, records: Sequence[Record]) -> bytes:
    """Write the records of one commit; the first one takes `first_position`."""
    chunk = _Chunk(first_position)
    at = 0
    for record in records:
        at = record.at
        if isinstance(record, Enqueued):
            sequence = record.first_sequence
            for message in record.messages:
                chunk.add_message(_ENQUEUED, at, sequence, message)
                sequence += 1
        elif isinstance(record, Removed):
            head = _fact.pack(_REMOVED, at, record.lane, record.why)
            chunk.add(head + pack_sequences(record.sequences))
        elif isinstance(record, HandedOut):
            head = _fact.pack(_HANDED_OUT, at, record.lane, 0)
            chunk.add(head + pack_sequences(record.sequences))
        elif isinstance(record, Scheduled):
            sequence = record.first_sequence
            for message in record.messages:
                chunk.add_message(_SCHEDULED, at, sequence, message)
                sequence += 1
        elif isinstance(record, Carried):
            for number, message in zip(record.sequences, record.messages, strict=True):
                chunk.add_message(_CARRIED, at, number, message)
        else:
            chunk.add(_encode_rare(record))
    return chunk.finish(at)


@final
class _Chunk:
    """A chunk being written."""

    __slots__ = ("end", "first", "parts", "position", "table")

    def __init__(self, first: int) -> None:
        self.first: int = first
        self.position: int = first
        self.end: int = 0
        self.table: list[int] = []
        self.parts: list[bytes] = []

    def add_message(self, kind: int, at: int, sequence: int, message: Message) -> None:
        flags = 0
        extras = b""
        if message.time_to_live_ms != NO_DURATION:
            flags |= _HAS_TIME_TO_LIVE
            extras += _instant.pack(message.time_to_live_ms)
        if message.scheduled_at != NEVER:
            flags |= _HAS_SCHEDULE
            extras += _instant.pack(message.scheduled_at)
        if message.expires_at != NEVER:
            flags |= _HAS_EXPIRY
            extras += _instant.pack(message.expires_at)
        message_id = message.message_id.encode()
        envelope = message.envelope
        content = message.content
        head: bytes = _message.pack(kind, flags, at, sequence, len(message_id), len(envelope))
        head = head + extras + message_id + envelope if flags else head + message_id + envelope
        self.parts.append(head)
        self.parts.append(content)
        self.end += len(head) + len(content)
        self.table.append(self.end)
        # The two pieces are summed where they lie: joining them first would copy the content.
        self.table.append(_crc32(content, _crc32(head, self.position & _WORD)))
        self.position += 1

    def add(self, record: bytes) -> None:
        self.parts.append(record)
        self.end += len(record)
        self.table.append(self.end)
        self.table.append(_crc32(record, self.position & _WORD))
        self.position += 1

    def finish(self, at: int) -> bytes:
        if self.position == self.first:
            raise ValueError("a chunk needs at least one record")
        if self.end > _WORD:
            raise ValueError(f"a chunk of {self.end} bytes is too big: 4 GiB is the limit")
        header = _header.pack(VERSION, self.position - self.first, self.first, at)
        table = struct.pack(f"<{len(self.table)}I", *self.table)
        crc = _word.pack(_crc32(table, _crc32(header)))
        return b"".join([header, crc, table, *self.parts])


def _encode_rare(record: Record) -> bytes:
    at = record.at
    if isinstance(record, Returned):
        head = _fact.pack(_RETURNED, at, record.lane, record.why)
        return head + pack_sequences(record.sequences) + pack_numbers("I", record.counts)
    if isinstance(record, Activated):
        head = _mark.pack(_ACTIVATED, at, record.first_sequence)
        return head + pack_sequences(record.sequences) + pack_numbers("q", record.expirations)
    if isinstance(record, Deferred):
        head = _fact.pack(_DEFERRED, at, record.lane, 0)
        return head + pack_sequences(record.sequences) + pack_numbers("I", record.counts)
    if isinstance(record, DeadLettered):
        head = _fact.pack(_DEAD_LETTERED, at, record.lane, 0)
        numbers = pack_sequences(record.sequences) + pack_numbers("I", record.counts)
        return head + numbers + pack_text(record.reason) + pack_text(record.description)
    if isinstance(record, Changed):
        return _mark.pack(_CHANGED, at, record.sequence) + pack_changes(record.changes)
    if isinstance(record, CheckpointBegun):
        return _mark.pack(_CHECKPOINT_BEGUN, at, record.next_sequence)
    if isinstance(record, CheckpointSlice):
        head = _fact.pack(_CHECKPOINT_SLICE, at, record.lane, 0)
        return head + pack_entries(record.entries)
    if isinstance(record, CheckpointEnded):
        return _mark.pack(_CHECKPOINT_ENDED, at, record.begun_position)
    raise TypeError(f"{type(record).__name__} is not a record that can be kept")


# ---- reading


def chunk_header(chunk: Buffer) -> ChunkHeader:
    """Read what the chunk says about itself; header and table are checked, no record is."""
    view = memoryview(chunk)
    try:
        version, count, first, at = _header.unpack_from(view)
        if version != VERSION:
            raise Corrupt(f"records of format version {version} are not known here")
        base = _HEADER_BYTES + 8 * cast(int, count)
        crc = _crc32(view[_HEADER_BYTES:base], _crc32(view[: _header.size]))
        if crc != _word.unpack_from(view, _header.size)[0]:
            raise Corrupt(f"the head of the chunk at position {first} does not fit its checksum")
        if base + _word.unpack_from(view, base - 8)[0] != len(view):
            raise Corrupt(f"the chunk at position {first} is not as long as its table says")
    except struct.error as error:
        raise Corrupt(f"a chunk of {len(view)} bytes is cut off") from error
    return ChunkHeader(first, first + count, at)


def decode_chunk(chunk: Buffer, bodies: bool) -> tuple[int, list[Record]]:
    """Read all records and check each; runs come back as runs.

    Without bodies the messages have neither envelope nor content, but their size is right.
    """
    header = chunk_header(chunk)
    view = memoryview(chunk)
    first = header.first
    count = header.end - first
    table: Sequence[int] = struct.unpack_from(f"<{2 * count}I", view, _HEADER_BYTES)
    base = _HEADER_BYTES + 8 * count
    start = base
    runs = _Runs()
    for index in range(count):
        end = base + table[2 * index]
        record = view[start:end]
        if _crc32(record, (first + index) & _WORD) != table[2 * index + 1]:
            raise Corrupt(f"the record at position {first + index} does not fit its checksum")
        try:
            kind: int = record[0]
            if _ENQUEUED <= kind <= _CARRIED:
                _, flags, at, sequence, id_bytes, envelope_bytes = _message.unpack_from(record)
                message = _decode_message(record, flags, id_bytes, envelope_bytes, bodies)
                runs.add_message(kind, at, sequence, message)
            else:
                runs.add_fact(_decode_fact(record, kind))
        except (struct.error, ValueError, IndexError) as error:
            raise Corrupt(f"the record at position {first + index} makes no sense") from error
        start = end
    return first, runs.records


def decode_message(chunk: Buffer, position: int) -> Message:
    """Read the message at that position, with its bytes; nothing else of the chunk is read."""
    return decode_messages(chunk, [position])[0]


def decode_messages(chunk: Buffer, positions: Sequence[int]) -> list[Message]:
    """Read the messages at these positions of the chunk, with their bytes.

    Only their own checksums are looked at: a damaged table leads to bytes that do not fit them.
    """
    view = memoryview(chunk)
    messages: list[Message] = []
    try:
        version, count, first, _ = _header.unpack_from(view)
        if version != VERSION:
            raise Corrupt(f"records of format version {version} are not known here")
        base = _HEADER_BYTES + 8 * cast(int, count)
        for position in positions:
            index = position - cast(int, first)
            if not 0 <= index < count:
                raise Corrupt(f"the chunk at position {first} does not reach {position}")
            # A record begins where the one before it ends; nothing lies before the first one.
            start, _, end, crc = _span.unpack_from(view, _HEADER_BYTES + 8 * index - 8)
            record = view[base + start if index else base : base + end]
            if _crc32(record, position & _WORD) != crc:
                raise Corrupt(f"the record at position {position} does not fit its checksum")
            kind, flags, _, _, id_bytes, envelope_bytes = _message.unpack_from(record)
            if not _ENQUEUED <= kind <= _CARRIED:
                raise Corrupt(f"the record at position {position} is no message")
            messages.append(_decode_message(record, flags, id_bytes, envelope_bytes, True))
    except (struct.error, ValueError, IndexError) as error:
        raise Corrupt(f"a chunk of {len(view)} bytes makes no sense") from error
    return messages


@final
class _Runs:
    """Records being read: a message that goes on where the one before it ended joins its run."""

    __slots__ = ("at", "kind", "messages", "next_sequence", "records", "sequences")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.kind: int = 0
        self.at: int = 0
        self.next_sequence: int = 0
        self.messages: list[Message] = []
        self.sequences: list[int] = []

    def add_fact(self, record: Record) -> None:
        self.kind = 0
        self.records.append(record)

    def add_message(self, kind: int, at: int, sequence: int, message: Message) -> None:
        if kind == self.kind and at == self.at:
            if kind == _CARRIED:
                self.sequences.append(sequence)
                self.messages.append(message)
                return
            if sequence == self.next_sequence:
                self.next_sequence += 1
                self.messages.append(message)
                return
        self.kind = kind
        self.at = at
        self.next_sequence = sequence + 1
        self.messages = [message]
        if kind == _ENQUEUED:
            self.records.append(Enqueued(at, sequence, self.messages))
        elif kind == _SCHEDULED:
            self.records.append(Scheduled(at, sequence, self.messages))
        else:
            self.sequences = [sequence]
            self.records.append(Carried(at, self.sequences, self.messages))


def _decode_message(
    record: memoryview, flags: int, id_bytes: int, envelope_bytes: int, bodies: bool
) -> Message:
    time_to_live_ms = NO_DURATION
    scheduled_at = NEVER
    expires_at = NEVER
    offset = _MESSAGE_BYTES
    if flags & _HAS_TIME_TO_LIVE:
        time_to_live_ms = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_SCHEDULE:
        scheduled_at = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_EXPIRY:
        expires_at = _instant.unpack_from(record, offset)[0]
        offset += 8
    envelope_at = offset + id_bytes
    content_at = envelope_at + envelope_bytes
    size = len(record) - envelope_at
    if envelope_bytes > size:
        raise ValueError("the message is cut off")
    message = Message(
        bytes(record[envelope_at:content_at]) if bodies else b"",
        bytes(record[content_at:]) if bodies else b"",
        message_id=str(record[offset:envelope_at], "utf-8") if id_bytes else "",
        time_to_live_ms=time_to_live_ms,
        scheduled_at=scheduled_at,
    )
    message.expires_at = expires_at
    message.size = size
    return message


def _decode_fact(record: memoryview, kind: int) -> Record:
    if kind == _CHECKPOINT_SLICE:
        _, at, lane, _ = _fact.unpack_from(record)
        entries, _ = unpack_entries(record, _FACT_BYTES)
        return CheckpointSlice(at, lane, entries)
    if kind >= _CHANGED or kind == _ACTIVATED:
        return _decode_mark(record, kind)
    _, at, lane, why = _fact.unpack_from(record)
    sequences, offset = unpack_sequences(record, _FACT_BYTES)
    if kind == _REMOVED:
        return Removed(at, lane, why, sequences)
    if kind == _HANDED_OUT:
        return HandedOut(at, lane, sequences)
    counts, offset = unpack_numbers(record, offset, len(sequences), "I")
    if kind == _RETURNED:
        return Returned(at, lane, why, sequences, counts)
    if kind == _DEFERRED:
        return Deferred(at, lane, sequences, counts)
    if kind == _DEAD_LETTERED:
        reason, offset = unpack_text(record, offset)
        description, _ = unpack_text(record, offset)
        return DeadLettered(at, lane, sequences, counts, reason, description)
    raise ValueError(f"kind {kind} is not known")


def _decode_mark(record: memoryview, kind: int) -> Record:
    _, at, number = _mark.unpack_from(record)
    if kind == _CHANGED:
        changes, _ = unpack_changes(record, _MARK_BYTES)
        return Changed(at, number, changes)
    if kind == _ACTIVATED:
        sequences, offset = unpack_sequences(record, _MARK_BYTES)
        expirations, _ = unpack_numbers(record, offset, len(sequences), "q")
        return Activated(at, number, sequences, expirations)
    if kind == _CHECKPOINT_BEGUN:
        return CheckpointBegun(at, number)
    if kind == _CHECKPOINT_ENDED:
        return CheckpointEnded(at, number)
    raise ValueError(f"kind {kind} is not known")
