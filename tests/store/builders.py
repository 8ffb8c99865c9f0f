"""Records of every kind, drawn or written down, and a form of them that can be compared."""

from __future__ import annotations

import zlib
from typing import Any

from hypothesis import strategies as st

from peeklock.entity.claims.records import Claimed, OwnerHeard, Unclaimed
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits
from peeklock.entity.records import (
    CLAIMED,
    DEFERRED,
    READY,
    SCHEDULED,
    Activated,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    DuplicatesDropped,
    Enqueued,
    Kept,
    Lost,
    Record,
    Relocated,
    RelocatedCopies,
    Remembered,
    Removed,
    Requeued,
    Reserved,
    Returned,
    Scheduled,
)
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages.records import (
    Staged,
    StageDropped,
    StageKept,
    StagesDropped,
    StagesPublished,
)
from peeklock.entity.topics.records import Buried, CopiesBuried, LaneDropped, Published
from peeklock.entity.transfers.records import DestinationsNoted, TakenOver, Transferring
from peeklock.entity.upkeep.journal_facts import (
    HandedTo,
    LocksReleased,
    LocksRenewed,
    Note,
    SessionLockNoted,
    SettlementsFailed,
)

instants = st.integers(0, 1 << 42)
sequences = st.one_of(
    st.integers(1, 300), st.integers(1, (1 << 48) - 1000), st.just((65535 << 48) + 7)
)
lanes = st.integers(0, 65535)
counts = st.integers(0, 1 << 31)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe_texts = st.none() | texts
changes = st.dictionaries(texts, st.binary(max_size=20), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Some are nothing but their content, which takes a way of its own into a chunk."""
    envelope = draw(st.just(b"") | st.binary(max_size=30))
    return Message(envelope, draw(st.binary(max_size=60)), draw(st.none() | traits()))


@st.composite
def traits(draw: st.DrawFn) -> Traits:
    drawn = Traits(
        message_id=draw(texts),
        time_to_live_ms=draw(st.just(NO_DURATION) | st.integers(0, 1 << 40)),
        scheduled_at=draw(st.just(NEVER) | instants),
        session_id=draw(maybe_texts),
        partition_key=draw(maybe_texts),
        hops=draw(st.just(0) | st.integers(1, 4)),
        enqueue_sequence=draw(st.just(0) | sequences),
        dead_letter_source=draw(st.just("") | texts),
    )
    drawn.expires_at = draw(st.just(NEVER) | instants)
    return drawn


@st.composite
def kept(draw: st.DrawFn) -> Kept:
    entry = Kept()
    entry.sequence = draw(sequences)
    entry.position = draw(st.integers(0, 1 << 60))
    entry.place = draw(st.sampled_from([READY, DEFERRED, SCHEDULED, CLAIMED]))
    if entry.place == CLAIMED:
        entry.owner = draw(texts)
    entry.enqueued_at = draw(instants)
    entry.expires_at = draw(instants)
    entry.delivery_count = draw(counts)
    entry.size = draw(st.integers(0, 1 << 40))
    entry.enqueue_sequence = draw(st.just(0) | sequences)
    entry.scheduled_at = draw(st.just(NEVER) | instants)
    entry.time_to_live_ms = draw(st.just(NO_DURATION) | instants)
    entry.reason = draw(maybe_texts)
    entry.description = draw(maybe_texts)
    entry.changes = draw(st.none() | changes)
    entry.session_id = draw(maybe_texts)
    entry.hops = draw(st.just(0) | st.integers(1, 4))
    entry.destination = draw(st.just("") | texts)
    entry.source = draw(st.just("") | texts)
    return entry


@st.composite
def numbers(draw: st.DrawFn) -> list[int]:
    """Lists as they come: single numbers, runs, and both mixed, in any order."""
    runs = draw(st.lists(st.tuples(sequences, st.integers(1, 40)), max_size=5))
    return [first + step for first, count in runs for step in range(count)]


@st.composite
def lane_lists(draw: st.DrawFn) -> list[int]:
    """Lanes as a router names them: at equal distances, scattered, or both, in any order."""
    strides = st.integers(-3, 300)
    runs = draw(st.lists(st.tuples(lanes, strides, st.integers(1, 40)), max_size=5))
    return [max(0, first + stride * step) for first, stride, count in runs for step in range(count)]


@st.composite
def published(draw: st.DrawFn) -> Published:
    lane_list = draw(lane_lists())
    size = len(lane_list)
    few = draw(st.lists(st.just(NEVER) | instants, min_size=1, max_size=3))
    drawn = st.sampled_from(few) if draw(st.booleans()) else instants
    expirations = draw(st.lists(drawn, min_size=size, max_size=size))
    message = draw(messages())
    return Published(
        draw(instants), draw(sequences), message, lane_list, expirations, draw(sequences)
    )


@st.composite
def counted(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    sequence_list = draw(numbers())
    size = len(sequence_list)
    return sequence_list, draw(st.lists(counts, min_size=size, max_size=size))


@st.composite
def records(draw: st.DrawFn) -> Record:
    at = draw(instants)
    runs = st.lists(messages(), min_size=1, max_size=4)
    rare = draw(st.integers(0, 15))
    if rare < 2:
        return draw(claim_facts(at))
    if rare < 4:
        return draw(stage_facts(at))
    build = draw(st.sampled_from(range(29)))
    if build == 0:
        return Enqueued(at, draw(sequences), draw(runs))
    if build == 1:
        return Scheduled(at, draw(sequences), draw(runs))
    if build == 2:
        contained = draw(runs)
        size = len(contained)
        return Relocated(at, draw(st.lists(sequences, min_size=size, max_size=size)), contained)
    if build == 3:
        return Removed(at, draw(lanes), draw(st.integers(0, 4)), draw(numbers()))
    if build == 4:
        return HandedTo(at, draw(lanes), "", draw(numbers()), [])
    if build == 5:
        return Changed(at, draw(sequences), draw(changes))
    if build == 6:
        return CheckpointBegun(at, draw(sequences))
    if build == 7:
        return CheckpointSlice(at, draw(lanes), draw(st.lists(kept(), max_size=4)))
    if build == 8:
        return CheckpointEnded(at, draw(st.integers(0, 1 << 60)))
    if build >= 13:
        return draw(later_records(at, build))
    sequence_list, count_list = draw(counted())
    if build == 9:
        return Activated(at, draw(sequences), sequence_list, count_list)
    if build == 10:
        return Returned(at, draw(lanes), draw(st.integers(0, 1)), sequence_list, count_list)
    if build == 11:
        return Deferred(at, draw(lanes), sequence_list, count_list)
    lane, reason, description = draw(lanes), draw(maybe_texts), draw(maybe_texts)
    return DeadLettered(at, lane, sequence_list, count_list, reason, description)


@st.composite
def later_records(draw: st.DrawFn, at: int, build: int) -> Record:
    """The kinds that came with sessions, topics, duplicates, transfers and transactions."""
    if build == 13:
        return draw(published())
    if build == 14:
        return Transferring(at, draw(sequences), draw(messages()), draw(texts))
    if build == 15:
        state = draw(st.none() | st.binary(max_size=40))
        return SessionStateSet(at, draw(lanes), draw(texts), state)
    if build == 16:
        return DuplicatesDropped(at, draw(st.lists(texts, max_size=5)))
    if build == 17:
        seen = draw(st.dictionaries(texts, instants, max_size=5))
        return Remembered(at, list(seen), list(seen.values()))
    if build == 18:
        return TakenOver(at, draw(texts), draw(numbers()), draw(numbers()))
    if build == 19 and draw(st.booleans()):
        return DestinationsNoted(at, draw(lanes), draw(st.lists(texts, max_size=3)))
    if build == 19:
        return Reserved(at, draw(sequences)) if draw(st.booleans()) else Lost(at, draw(sequences))
    if build == 20:
        return RelocatedCopies(at, draw(numbers()), draw(messages()))
    if build == 28:
        return draw(burials(at))
    if build == 27:
        return Requeued(at, draw(lanes), draw(kept()), draw(messages()))
    return draw(notes(at, build)) if build > 21 else LaneDropped(at, draw(lanes))


@st.composite
def burials(draw: st.DrawFn, at: int) -> CopiesBuried:
    """Copies that were dead letters from the beginning."""
    notes = draw(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
    dead = draw(st.dictionaries(st.integers(0, 4000), lanes, max_size=5))
    whys = [draw(st.integers(0, len(notes) - 1)) for _ in dead]
    reasons, descriptions = [each[0] for each in notes], [each[1] for each in notes]
    buried = Buried(list(dead), list(dead.values()), whys, reasons, descriptions)
    return CopiesBuried(at, draw(sequences), buried)


@st.composite
def notes(draw: st.DrawFn, at: int, build: int) -> Note:
    """The kinds that only the journal asks for."""
    lane, who, why = draw(lanes), draw(texts), draw(st.integers(0, 255))
    if build == 22:
        sequence_list, count_list = draw(counted())
        return HandedTo(at, lane, who, sequence_list, count_list if draw(st.booleans()) else [])
    if build == 23:
        return LocksRenewed(at, lane, who, draw(numbers()))
    if build == 24:
        return LocksReleased(at, lane, why, who, draw(numbers()))
    if build == 25:
        return SettlementsFailed(at, lane, why, who, draw(numbers()))
    return SessionLockNoted(at, lane, why, who, draw(texts))


@st.composite
def claim_facts(draw: st.DrawFn, at: int) -> Record:
    """What is told about claims."""
    build = draw(st.integers(0, 2))
    if build == 0:
        return Claimed(at, draw(lanes), draw(texts), draw(numbers()))
    if build == 1:
        return Unclaimed(at, draw(lanes), draw(st.integers(0, 2)), draw(texts), draw(numbers()))
    epoch, timeout_ms = draw(st.integers(1, (1 << 63) - 1)), draw(st.integers(1, (1 << 32) - 1))
    return OwnerHeard(at, draw(lanes), draw(texts), epoch, timeout_ms)


@st.composite
def stage_facts(draw: st.DrawFn, at: int) -> Record:
    """What is told about stages."""
    build = draw(st.integers(0, 4))
    stage = draw(texts.filter(bool))
    if build == 0:
        run = draw(st.lists(messages(), min_size=1, max_size=4))
        return Staged(at, draw(sequences), run, stage)
    if build == 1:
        return StagesDropped(at, draw(st.integers(0, 2)), draw(numbers()))
    if build == 4:
        return StageDropped(at, draw(st.integers(0, 2)), stage, draw(sequences))
    if build == 2:
        entries = draw(st.lists(kept(), min_size=1, max_size=4))
        seen = draw(st.just([]) | st.just([stage] * len(entries)))
        return StageKept(at, stage, draw(instants), entries, seen)
    moved = draw(numbers())
    ends = draw(st.lists(st.just(NEVER) | instants, min_size=len(moved), max_size=len(moved)))
    batch = draw(st.integers(0, (1 << 63) - 1))
    names = draw(st.lists(texts, max_size=3))
    facts = (names, draw(st.booleans()), draw(sequences), moved, ends)
    return StagesPublished(at, stage, batch, *facts, draw(numbers()))


def message_of(number: int, size: int = 100) -> Message:
    """A message that can be told from every other; every third is nothing but its content."""
    content = f"content {number} ".encode().ljust(size, b".")
    if number % 3 == 0:
        return Message(b"", content)
    return Message(b"envelope", content, Traits(message_id=f"id-{number}"))


def enqueued(at: int, first_sequence: int, count: int, size: int = 100) -> Enqueued:
    run = [message_of(first_sequence + step, size) for step in range(count)]
    return Enqueued(at, first_sequence, run)


MESSAGE_FIELDS = (
    "envelope",
    "content",
    "message_id",
    "time_to_live_ms",
    "scheduled_at",
    "expires_at",
    "session_id",
    "partition_key",
    "hops",
    "enqueue_sequence",
    "dead_letter_source",
    "size",
)
KEPT_FIELDS = (
    "sequence",
    "position",
    "place",
    "enqueued_at",
    "expires_at",
    "delivery_count",
    "size",
    "enqueue_sequence",
    "scheduled_at",
    "time_to_live_ms",
    "reason",
    "description",
    "changes",
    "session_id",
    "hops",
    "destination",
    "source",
    "owner",
)


def messages_in(record: Record) -> list[Message]:
    """The messages in a record, one for each of its positions; none in a fact."""
    if isinstance(record, (Enqueued, Scheduled, Relocated, Staged)):
        return record.messages
    if isinstance(record, (Published, Transferring, RelocatedCopies, Requeued)):
        return [record.message]
    return []


def shown(value: Message | Kept, bodies: bool = True) -> dict[str, Any]:
    """Show all that a message or an entry holds."""
    fields: tuple[str, ...] = MESSAGE_FIELDS if isinstance(value, Message) else KEPT_FIELDS
    if not bodies:
        fields = tuple(name for name in fields if name not in ("envelope", "content"))
    return {name: getattr(value, name) for name in fields}


def told(record_list: list[Record], bodies: bool = True) -> list[Any]:
    """Tell records as plain values, one for each position, so that runs do not matter."""
    result: list[Any] = []
    for record in record_list:
        if isinstance(record, (Enqueued, Scheduled)):
            for step, message in enumerate(record.messages):
                sequence = record.first_sequence + step
                result.append((type(record), record.at, sequence, shown(message, bodies)))
        elif isinstance(record, Staged):
            for step, message in enumerate(record.messages):
                sequence = record.first_sequence + step
                one = (record.at, sequence, shown(message, bodies))
                result.append((Staged, *one, record.stage))
        elif isinstance(record, StageKept):
            entries = [shown(entry) for entry in record.entries]
            one = (record.at, record.touched_at, {"stage": record.stage, "seen": record.seen})
            result.append((StageKept, *one, entries))
        elif isinstance(record, Relocated):
            for sequence, message in zip(record.sequences, record.messages, strict=True):
                result.append((Relocated, record.at, sequence, shown(message, bodies)))
        elif isinstance(record, Published):
            way = (record.lanes, record.expirations, record.enqueue_sequence)
            one = (record.at, record.first_sequence, shown(record.message, bodies))
            result.append((Published, *one, *way))
        elif isinstance(record, Transferring):
            one = (record.at, record.first_sequence, shown(record.message, bodies))
            result.append((Transferring, *one, record.destination))
        elif isinstance(record, RelocatedCopies):
            one = (record.at, 0, shown(record.message, bodies))
            result.append((RelocatedCopies, *one, record.sequences))
        elif isinstance(record, Requeued):
            one = (record.at, record.lane, shown(record.message, bodies))
            result.append((Requeued, *one, shown(record.entry)))
        elif isinstance(record, CheckpointSlice):
            entries = [shown(entry) for entry in record.entries]
            result.append((CheckpointSlice, record.at, record.lane, entries))
        else:
            result.append(record)
    return result


def first_form(chunk: bytes) -> bytes:
    """The same records as version 1 of the format wrote them: its table has no crc of heads."""
    count = int.from_bytes(chunk[4:8], "little")
    end = 28 + 12 * count
    table = b"".join(chunk[at : at + 4] + chunk[at + 8 : at + 12] for at in range(28, end, 12))
    header = b"\x01" + chunk[1:24]
    crc = zlib.crc32(table, zlib.crc32(header))
    return header + crc.to_bytes(4, "little") + table + chunk[end:]
