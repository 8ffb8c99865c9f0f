"""How messages are read that rest in records; those that went in together become one run again."""

from __future__ import annotations

import struct
from typing import Final, cast, final

from peeklock.entity.message import Message, Traits
from peeklock.entity.records import (
    Enqueued,
    Record,
    Relocated,
    RelocatedCopies,
    Requeued,
    Scheduled,
)
from peeklock.entity.stages.records import Staged
from peeklock.entity.topics.records import Published
from peeklock.entity.transfers.records import Transferring
from peeklock.store.codec.kinds import (
    ENQUEUED,
    RELOCATED,
    RELOCATED_COPIES,
    REQUEUED,
    SCHEDULED,
    STAGED,
    TRANSFERRING,
)
from peeklock.store.codec.packing import (
    unpack_entries,
    unpack_expirations,
    unpack_lanes,
    unpack_sequences,
    unpack_text,
)
from peeklock.store.codec.traits import unpack_traits

# Bound once: compiled code then calls them without looking their names up.
# kind, flags, instant, sequence, bytes of the id, bytes of the envelope; the content is the rest
MESSAGE: Final = struct.Struct("<BBqQII")
MESSAGE_BYTES: Final = 26
_word: Final = struct.Struct("<I")
_number: Final = struct.Struct("<Q")


@final
class RecordRuns:
    """Records being read: a message that goes on where the one before it ended joins its run."""

    __slots__ = ("at", "kind", "messages", "next_sequence", "records", "sequences")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.kind: int = 0
        self.at: int = 0
        self.next_sequence: int = 0
        self.messages: list[Message] = []
        self.sequences: list[int] = []

    def add_other(self, record: Record) -> None:
        """Take in what is no run."""
        self.kind = 0
        self.records.append(record)

    def add_staged(self, at: int, sequence: int, message: Message, stage: str) -> None:
        """Take in a staged message; without a stage it goes on from the one before."""
        if stage:
            self.kind = STAGED
            self.next_sequence = sequence
            self.messages = []
            self.records.append(Staged(at, sequence, self.messages, stage))
        elif self.kind != STAGED or sequence != self.next_sequence:
            raise ValueError("a stage has a name")
        self.next_sequence += 1
        self.messages.append(message)

    def add_message(self, kind: int, at: int, sequence: int, message: Message) -> None:
        """Take in a message of a run."""
        if kind == self.kind and at == self.at:
            if kind == RELOCATED:
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
        if kind == ENQUEUED:
            self.records.append(Enqueued(at, sequence, self.messages))
        elif kind == SCHEDULED:
            self.records.append(Scheduled(at, sequence, self.messages))
        else:
            self.sequences = [sequence]
            self.records.append(Relocated(at, self.sequences, self.messages))


def decode_body(
    record: memoryview,
    offset: int,
    flags: int,
    id_bytes: int,
    envelope_bytes: int,
    bodies: bool,
) -> Message:
    """Read a message whose flags tell what lies at the offset."""
    traits: Traits | None = None
    if flags or id_bytes:
        traits = Traits()
        offset = unpack_traits(record, flags, offset, traits)
        traits.message_id = str(record[offset : offset + id_bytes], "utf-8")
    envelope_at = offset + id_bytes
    content_at = envelope_at + envelope_bytes
    size = len(record) - envelope_at
    if envelope_bytes > size:
        raise ValueError("the message is cut off")
    message = Message(
        bytes(record[envelope_at:content_at]) if bodies else b"",
        bytes(record[content_at:]) if bodies else b"",
        traits,
    )
    message.size = size
    return message


def add_staged_message(runs: RecordRuns, record: memoryview, bodies: bool) -> None:
    """Read a staged message into its run."""
    _, flags, at, sequence, id_bytes, envelope_bytes = MESSAGE.unpack_from(record)
    stage, offset = unpack_text(record, MESSAGE_BYTES)
    message = decode_body(record, offset, flags, id_bytes, envelope_bytes, bodies)
    runs.add_staged(at, sequence, message, stage or "")


@final
class Addresses:
    """Where published messages belong. Those of a batch mostly have the same lanes, which may be
    thousands: they are read once, and their records share them."""

    __slots__ = ("_expirations", "_lanes", "_raw")

    def __init__(self) -> None:
        self._raw: bytes = b""
        self._lanes: list[int] = []
        self._expirations: list[int] = []

    def read(self, record: memoryview, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Return the lanes, and when their copies expire."""
        raw = bytes(record[begin:end])
        if raw != self._raw or not raw:
            self._lanes, offset = unpack_lanes(record, begin)
            self._expirations, _ = unpack_expirations(record, offset, len(self._lanes))
            self._raw = raw
        return self._lanes, self._expirations


def decode_addressed(record: memoryview, kind: int, bodies: bool, addresses: Addresses) -> Record:
    """Return a record of one message that says where it belongs."""
    _, flags, at, sequence, id_bytes, envelope_bytes = MESSAGE.unpack_from(record)
    end = MESSAGE_BYTES + 4 + cast(int, _word.unpack_from(record, MESSAGE_BYTES)[0])
    message = decode_body(record, end, flags, id_bytes, envelope_bytes, bodies)
    if kind == TRANSFERRING:
        destination, _ = unpack_text(record, MESSAGE_BYTES)
        if destination is None:
            raise ValueError("a destination has a name")
        return Transferring(at, sequence, message, destination)
    if kind == RELOCATED_COPIES:
        sequences, _ = unpack_sequences(record, MESSAGE_BYTES + 4)
        return RelocatedCopies(at, sequences, message)
    if kind == REQUEUED:
        lane: int = _word.unpack_from(record, MESSAGE_BYTES + 4)[0]
        entries, _ = unpack_entries(record, MESSAGE_BYTES + 8)
        if len(entries) != 1:
            raise ValueError("a message has one entry")
        return Requeued(at, lane, entries[0], message)
    enqueue_sequence: int = _number.unpack_from(record, MESSAGE_BYTES + 4)[0]
    lanes, expirations = addresses.read(record, MESSAGE_BYTES + 12, end)
    return Published(at, sequence, message, lanes, expirations, enqueue_sequence)
