"""How records rest: one chunk of bytes for all that one commit adds to one partition.

    chunk    header, table, records
    header   version u8, 3 zero bytes, positions u32, first position u64, instant i64, crc u32
    table    per position: end of its record (counted from the end of the table) u32, crc of its
             head u32, crc u32
    record   kind u8 and what the kind needs; a message is a record of its own
    message  kind u8, flags u8, instant i64, sequence u64, bytes of the id u32, bytes of the
             envelope u32, the address (of some kinds only), what the flags tell of, id, envelope,
             content
    address  bytes u32; of a published one its enqueue sequence u64, lanes and expirations, of a
             transferred one its destination, of one that copies share their sequences, of a
             staged one its stage, which is empty where it goes on from the one before, of one that
             is back its lane u32 and its entry as in a checkpoint

All numbers are little-endian. The header's crc covers header and table, a record's crc covers the
record and is seeded with its position, so that bytes that lie at the wrong place do not fit either.
The head of a message is what replay needs, all before its envelope; any other record is its own
head. So a body can be damaged by itself, and everything else goes on without it.
A position finds its body through the table without the rest of the chunk being read.

The version is the chunk's first byte. A later version adds its own reader and turns what it reads
into today's records; nothing that rests is ever rewritten for a new version. In version 1 the table
had no crc of heads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast, final

from peeklock.entity.message import Message, Traits
from peeklock.entity.records import (
    Enqueued,
    Record,
    Relocated,
    RelocatedCopies,
    Removed,
    Requeued,
    Scheduled,
)
from peeklock.entity.stages.records import Staged
from peeklock.entity.topics.records import Buried, CopiesBuried, Published
from peeklock.entity.transfers.records import Transferring
from peeklock.entity.upkeep.journal_facts import HandedTo
from peeklock.store import checksum
from peeklock.store.codec.facts import decode_fact, encode_burial, encode_fact, pack_buried
from peeklock.store.codec.kinds import (
    ENQUEUED,
    PUBLISHED,
    RELOCATED,
    RELOCATED_COPIES,
    REQUEUED,
    SCHEDULED,
    STAGED,
    TRANSFERRING,
)
from peeklock.store.codec.messages import (
    MESSAGE,
    MESSAGE_BYTES,
    Addresses,
    RecordRuns,
    add_staged_message,
    decode_addressed,
    decode_body,
)
from peeklock.store.codec.packing import (
    pack_entries,
    pack_expirations,
    pack_lanes,
    pack_sequences,
    pack_text,
)
from peeklock.store.codec.traits import pack_traits, unpack_traits
from peeklock.store.store import Corrupt

Buffer: TypeAlias = bytes | memoryview

VERSION: Final = 2

# Messages that tell where they belong.
_ADDRESSED: Final = (PUBLISHED, TRANSFERRING, RELOCATED_COPIES, STAGED, REQUEUED)

# The address of a staged message that goes on from the one before: a text of no bytes.
_SAME_STAGE: Final = bytes(4)

_WORD: Final = 0xFFFFFFFF

# Bound once: compiled code then calls them without looking their names up.
_crc32: Final = checksum.crc32
HEADER: Final = struct.Struct("<B3xIQq")
_word: Final = struct.Struct("<I")
_number: Final = struct.Struct("<Q")
# By version: how many words of the table a position has.
_WIDTHS: Final = {1: 2, 2: 3}

HEADER_BYTES: Final = 28


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
    return b"".join(chunk_parts(first_position, records))


def bodies_size(records: Sequence[Record]) -> int:
    """Return how many bytes the messages have that these records bring."""
    size = 0
    for record in records:
        if isinstance(record, (Enqueued, Scheduled, Staged, Relocated)):
            for message in record.messages:
                size += message.size
        elif isinstance(record, (Published, Transferring, RelocatedCopies, Requeued)):
            size += record.message.size
    return size


def chunk_parts(first_position: int, records: Sequence[Record]) -> list[bytes]:
    """Return the same chunk, not joined yet."""
    chunk = _Chunk(first_position)
    latest = 0
    for record in records:
        at = record.at
        # Some tell of earlier instants; the latest one is the commit's own.
        if at > latest:
            latest = at
        if isinstance(record, Enqueued):
            chunk.add_enqueued(record)
        elif isinstance(record, (Removed, HandedTo)):
            chunk.add(encode_fact(record))
        elif isinstance(record, Scheduled):
            sequence = record.first_sequence
            for message in record.messages:
                chunk.add_message(SCHEDULED, at, sequence, message, b"")
                sequence += 1
        elif isinstance(record, Published):
            address = chunk.address_of(record)
            chunk.add_message(PUBLISHED, at, record.first_sequence, record.message, address)
        elif isinstance(record, Transferring):
            address = pack_text(record.destination)
            chunk.add_message(TRANSFERRING, at, record.first_sequence, record.message, address)
        elif isinstance(record, Staged):
            chunk.add_staged(record)
        elif isinstance(record, Relocated):
            for number, message in zip(record.sequences, record.messages, strict=True):
                chunk.add_message(RELOCATED, at, number, message, b"")
        elif isinstance(record, RelocatedCopies):
            numbers = pack_sequences(record.sequences)
            address = _word.pack(len(numbers)) + numbers
            chunk.add_message(RELOCATED_COPIES, at, 0, record.message, address)
        elif isinstance(record, Requeued):
            entry = _word.pack(record.lane) + pack_entries([record.entry])
            address = _word.pack(len(entry)) + entry
            chunk.add_message(REQUEUED, at, record.entry.sequence, record.message, address)
        elif isinstance(record, CopiesBuried):
            chunk.add_burial(record)
        else:
            chunk.add(encode_fact(record))
    return chunk.finish(latest)


@final
class _Chunk:
    """A chunk being written."""

    __slots__ = (
        "buried",
        "end",
        "expirations",
        "first",
        "lanes",
        "packed",
        "packed_buried",
        "parts",
        "position",
        "table",
    )

    def __init__(self, first: int) -> None:
        # The lanes and expirations of the message before: those of a batch are often the same
        # lists, and a big topic's are packed once.
        self.lanes: list[int] | None = None
        self.expirations: list[int] | None = None
        self.packed: bytes = b""
        # The same of those that are dead letters.
        self.buried: Buried | None = None
        self.packed_buried: bytes = b""
        self.first: int = first
        self.position: int = first
        self.end: int = 0
        self.table: list[int] = []
        self.parts: list[bytes] = []

    def add_enqueued(self, record: Enqueued) -> None:
        """Write a run; what has nothing but envelope and content takes the short way."""
        at = record.at
        sequence = record.first_sequence
        parts = self.parts
        table = self.table
        for message in record.messages:
            if message.traits is None:
                content = message.content
                envelope = message.envelope
                size = len(envelope)
                head: bytes = MESSAGE.pack(ENQUEUED, 0, at, sequence, 0, size)
                parts.append(head)
                position = self.position
                head_crc = _crc32(head, position & _WORD)
                crc = head_crc
                if size:
                    parts.append(envelope)
                    crc = _crc32(envelope, crc)
                parts.append(content)
                end = self.end + MESSAGE_BYTES + size + len(content)
                table.append(end)
                table.append(head_crc)
                table.append(_crc32(content, crc))
                self.end = end
                self.position = position + 1
            else:
                self.add_message(ENQUEUED, at, sequence, message, b"")
            sequence += 1

    def address_of(self, record: Published) -> bytes:
        """Return where the copies of a message go, packed."""
        if record.lanes is not self.lanes or record.expirations is not self.expirations:
            self.lanes = record.lanes
            self.expirations = record.expirations
            self.packed = pack_lanes(record.lanes) + pack_expirations(record.expirations)
        where = _number.pack(record.enqueue_sequence) + self.packed
        return _word.pack(len(where)) + where

    def add_burial(self, record: CopiesBuried) -> None:
        """Write which copies of a message are dead letters."""
        if record.buried is not self.buried:
            self.buried = record.buried
            self.packed_buried = pack_buried(record.buried)
        self.add(encode_burial(record.at, record.first_sequence, self.packed_buried))

    def add_staged(self, record: Staged) -> None:
        """Write a run; only its first message names the stage."""
        sequence = record.first_sequence
        address = pack_text(record.stage)
        for message in record.messages:
            self.add_message(STAGED, record.at, sequence, message, address)
            address = _SAME_STAGE
            sequence += 1

    def add_message(
        self, kind: int, at: int, sequence: int, message: Message, address: bytes
    ) -> None:
        traits = message.traits
        flags, extras = (0, b"") if traits is None else pack_traits(traits)
        extras = address + extras
        message_id = message.message_id.encode()
        envelope = message.envelope
        content = message.content
        head: bytes = MESSAGE.pack(kind, flags, at, sequence, len(message_id), len(envelope))
        head = head + extras + message_id if extras else head + message_id
        position = self.position
        self.position = position + 1
        head_crc = _crc32(head, position & _WORD)
        parts = self.parts
        parts.append(head)
        end = self.end + len(head) + len(content)
        table = self.table
        # The pieces are summed where they lie: joining them first would copy the content.
        crc = head_crc
        if envelope:
            parts.append(envelope)
            end += len(envelope)
            crc = _crc32(envelope, crc)
        parts.append(content)
        self.end = end
        table.append(end)
        table.append(head_crc)
        table.append(_crc32(content, crc))

    def add(self, record: bytes) -> None:
        self.parts.append(record)
        self.end += len(record)
        crc = _crc32(record, self.position & _WORD)
        self.table.append(self.end)
        self.table.append(crc)
        self.table.append(crc)
        self.position += 1

    def finish(self, at: int) -> list[bytes]:
        if self.position == self.first:
            raise ValueError("a chunk needs at least one record")
        if self.end > _WORD:
            raise ValueError(f"a chunk of {self.end} bytes is too big: 4 GiB is the limit")
        header = HEADER.pack(VERSION, self.position - self.first, self.first, at)
        table = struct.pack(f"<{len(self.table)}I", *self.table)
        crc = _word.pack(_crc32(table, _crc32(header)))
        return [header, crc, table, *self.parts]


# ---- reading


def chunk_header(chunk: Buffer) -> ChunkHeader:
    """Read what the chunk says about itself; header and table are checked, no record is."""
    view = memoryview(chunk)
    try:
        version, count, first, at = HEADER.unpack_from(view)
        entry = 4 * table_width(version)
        base = HEADER_BYTES + entry * cast(int, count)
        crc = _crc32(view[HEADER_BYTES:base], _crc32(view[: HEADER.size]))
        if crc != _word.unpack_from(view, HEADER.size)[0]:
            raise Corrupt(f"the head of the chunk at position {first} does not fit its checksum")
        if base + _word.unpack_from(view, base - entry)[0] != len(view):
            raise Corrupt(f"the chunk at position {first} is not as long as its table says")
    except struct.error as error:
        raise Corrupt(f"a chunk of {len(view)} bytes is cut off") from error
    return ChunkHeader(first, first + count, at)


def table_width(version: int) -> int:
    """Return how many words of the table a position has."""
    width = _WIDTHS.get(version)
    if width is None:
        raise Corrupt(f"records of format version {version} are not known here")
    return width


def decode_chunk(chunk: Buffer, bodies: bool) -> tuple[int, list[Record]]:
    """Read all records and check each; runs come back as runs.

    Without bodies the messages have neither envelope nor content, but their size is right; whether
    a body is whole does not matter then.
    """
    header = chunk_header(chunk)
    view = memoryview(chunk)
    first = header.first
    count = header.end - first
    width = table_width(view[0])
    table: Sequence[int] = struct.unpack_from(f"<{width * count}I", view, HEADER_BYTES)
    base = HEADER_BYTES + 4 * width * count
    start = base
    runs = RecordRuns()
    addresses = Addresses()
    for index in range(count):
        at_table = width * index
        end = base + table[at_table]
        record = view[start:end]
        seed = (first + index) & _WORD
        if _crc32(record, seed) != table[at_table + width - 1] and (
            bodies or width < 3 or not _has_whole_head(record, seed, table[at_table + 1])
        ):
            raise Corrupt(f"the record at position {first + index} does not fit its checksum")
        try:
            kind: int = record[0]
            if ENQUEUED <= kind <= RELOCATED:
                _, flags, at, sequence, id_bytes, envelope_bytes = MESSAGE.unpack_from(record)
                message = decode_body(
                    record, MESSAGE_BYTES, flags, id_bytes, envelope_bytes, bodies
                )
                runs.add_message(kind, at, sequence, message)
            elif kind == STAGED:
                add_staged_message(runs, record, bodies)
            elif kind in (PUBLISHED, TRANSFERRING, RELOCATED_COPIES, REQUEUED):
                runs.add_other(decode_addressed(record, kind, bodies, addresses))
            else:
                runs.add_other(decode_fact(record, kind))
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
        version, count, first, _ = HEADER.unpack_from(view)
        entry = 4 * table_width(version)
        base = HEADER_BYTES + entry * cast(int, count)
        for position in positions:
            index = position - cast(int, first)
            if not 0 <= index < count:
                raise Corrupt(f"the chunk at position {first} does not reach {position}")
            # A record begins where the one before it ends; nothing lies before the first one.
            at = HEADER_BYTES + entry * index
            start: int = _word.unpack_from(view, at - entry)[0] if index else 0
            end: int = _word.unpack_from(view, at)[0]
            record = view[base + start : base + end]
            if _crc32(record, position & _WORD) != _word.unpack_from(view, at + entry - 4)[0]:
                raise Corrupt(f"the record at position {position} does not fit its checksum")
            kind, flags, _, _, id_bytes, envelope_bytes = MESSAGE.unpack_from(record)
            offset = MESSAGE_BYTES
            if not ENQUEUED <= kind <= RELOCATED:
                if kind not in _ADDRESSED:
                    raise Corrupt(f"the record at position {position} is no message")
                offset += 4 + cast(int, _word.unpack_from(record, offset)[0])
            message = decode_body(record, offset, flags, id_bytes, envelope_bytes, True)
            messages.append(message)
    except (struct.error, ValueError, IndexError) as error:
        raise Corrupt(f"a chunk of {len(view)} bytes makes no sense") from error
    return messages


def _has_whole_head(record: memoryview, seed: int, crc: int) -> bool:
    """Return whether only the body of a message is damaged, so that replay can go on without it."""
    size = head_size(record)
    return size < len(record) and _crc32(record[:size], seed) == crc


def head_size(record: memoryview) -> int:
    """Count the bytes of a record that replay needs; all of them where it is no message."""
    try:
        kind, flags, _, _, id_bytes, _ = MESSAGE.unpack_from(record)
        offset = MESSAGE_BYTES
        if not ENQUEUED <= kind <= RELOCATED:
            if kind not in _ADDRESSED:
                return len(record)
            offset += 4 + cast(int, _word.unpack_from(record, offset)[0])
        if flags:
            offset = unpack_traits(record, flags, offset, Traits())
    except (struct.error, ValueError, IndexError):
        return len(record)
    return offset + cast(int, id_bytes)
