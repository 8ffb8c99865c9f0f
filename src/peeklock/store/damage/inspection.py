"""A store looked at without its engine: what of it is damaged, and what that means for whom.

Nothing is changed here. `repair.py` writes down what this found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.message import BodyBudget
from peeklock.entity.opening.restore import Restoring
from peeklock.entity.records import (
    Activated,
    CheckpointEnded,
    Enqueued,
    Record,
    Removed,
    Requeued,
    Scheduled,
    width,
)
from peeklock.entity.stages.records import Staged, StagesPublished
from peeklock.entity.state import State
from peeklock.entity.stint import Stint
from peeklock.entity.topics.records import Published
from peeklock.entity.transfers.records import Transferring
from peeklock.store.codec.records import decode_chunk
from peeklock.store.damage.pages import Pages, refuse_lost
from peeklock.store.damage.salvage import BODY, LOST, WHOLE, Salvage, lost_chunk
from peeklock.store.entries import CHUNK_KEY, DROPPED, ENTRY_KEY, PARTITION, PartitionEntry
from peeklock.store.replay import records_from
from peeklock.store.segments.contents import Chunks, Contents
from peeklock.store.segments.index import FORMAT as SEGMENTS_FORMAT
from peeklock.store.segments.index_copy import newest_copy
from peeklock.store.segments.moving import SEGMENTED, has_segments
from peeklock.store.store import Corrupt

# Numbers that a lost record may have given away: more than any decision gives.
NUMBERS_SKIPPED: Final = 1 << 20

# Bytes of a name that may be damaged and still tell which it was.
_FLIPPED_MAX: Final = 2


@final
class ChunkFindings:
    """A chunk of the journal, or the place of one that is missing."""

    def __init__(self, first: int, end: int, chunk: memoryview | None, salvage: Salvage | None):
        self.first = first
        self.end = end
        self.raw = chunk
        self._salvage = salvage

    @property
    def is_whole(self) -> bool:
        """Whether the engine's reader can read all but perhaps some bodies."""
        return self._salvage is not None and self._salvage.is_whole

    @property
    def at(self) -> int:
        """The instant of its commit; 0 where nobody knows it."""
        return self._salvage.at if self._salvage is not None and self.is_whole else 0

    def holes(self) -> list[tuple[int, int]]:
        """Return what of it is lost: from, up to (excluded)."""
        if self._salvage is None:
            return [(self.first, self.end)]
        return [(each, each + 1) for each in self._salvage.positions(LOST)]

    def damaged_bodies(self) -> int:
        """Return how many bodies cannot be read although all else can."""
        return 0 if self._salvage is None else len(self._salvage.positions(BODY))

    def has_body(self, position: int) -> bool:
        """Return whether the message at a position can be read."""
        salvage = self._salvage
        return salvage is not None and salvage.states[position - self.first] == WHOLE

    def is_needed(self, replay_from: int) -> bool:
        """Return whether anything would be missed without it."""
        return self._salvage is not None or self.end > replay_from

    def healed(self, at: int, next_sequence: int) -> bytes | memoryview:
        """The chunk as it can be read, with what is lost given up."""
        if self._salvage is None or self.raw is None:
            return lost_chunk(self.first, self.end, at, next_sequence)
        return self.raw if self._salvage.is_whole else self._salvage.healed(next_sequence)


@final
class PartitionFindings:
    """One partition: what is damaged, and what that leaves open."""

    def __init__(self, number: int, entry: PartitionEntry) -> None:
        self.number = number
        self.entry = entry
        # Sentences for people: each of them keeps it closed.
        self.problems: list[str] = []
        self.stretches: list[ChunkFindings] = []
        # Positions that replay needs and that cannot be read: from, up to (excluded).
        self.holes: list[tuple[int, int]] = []
        # Numbers of messages that live and whose bodies cannot be read.
        self.damaged_bodies: list[int] = []
        self.live: list[int] = []
        self.may_come_again: list[int] = []
        # Numbers, from and up to (included; None: nobody knows).
        self.may_be_missing: list[tuple[int, int | None]] = []
        self.next_sequence = 0
        self.end = entry.end
        self.at = 0
        # Whether it cannot be repaired: nothing of it is damaged, and it makes no sense.
        self.is_hopeless = False

    @property
    def name(self) -> str:
        """The partition's name, or its number where the name is lost."""
        return self.entry.name or f"partition {self.number}"

    @property
    def is_closed(self) -> bool:
        """Whether it cannot be opened as it is."""
        return bool(self.holes or self.problems)


@final
class StoreFindings:
    """One store: its tree, its partitions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problems: list[str] = []
        self.entries: dict[bytes, bytes] = {}  # of what is known, whole or not
        self.is_segmented = False  # it has segments, or was made of them by a repair
        self.is_index_damaged = False  # that of segments
        self.partitions: list[PartitionFindings] = []

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.problems and not any(
            each.is_closed or each.damaged_bodies for each in self.partitions
        )


def inspect_store(directory: Path, data: Path, names: Iterable[str] = ()) -> StoreFindings:
    """Look at all of a store; `names` are those that the catalog knows.

    Raises Corrupt where it cannot be told what is lost: journals may go on behind their entries.
    """
    findings = StoreFindings(directory)
    chunks: Chunks | None = None
    try:
        chunks = _read_store(findings, data)
        problem = "it is damaged" if findings.is_index_damaged else ""
    except (Corrupt, FileNotFoundError) as error:
        if not has_segments(directory):
            raise
        problem = str(error)
    if problem:
        # What an index of segments says stands in them as well.
        try:
            chunks = _read_segments(findings, problem)
        except Corrupt:
            if chunks is None:
                raise
    assert chunks is not None
    entries, problems = _entries(findings.entries, chunks, set(names))
    for number in sorted(entries):
        found = _examine(number, entries[number], chunks.get(number, []))
        found.problems += problems.get(number, [])
        if not found.entry.name:
            # It cannot be given to anybody, nor be given up without a word.
            found.problems.append("the catalog knows no name that is missing here")
            found.is_hopeless = True
        findings.partitions.append(found)
    return findings


def _read_store(findings: StoreFindings, data: Path) -> Chunks:
    """Read all chunks, as the engine's tree tells of them."""
    pages = Pages(data)
    if pages.missing_bytes:
        findings.problems.append(f"the file is {pages.missing_bytes} bytes shorter than it was")
    findings.entries = {key: bytes(value) for key, value in pages.entries(b"meta")}
    chunks: Chunks = {}
    if b"format" not in findings.entries and has_segments(findings.directory):
        raise Corrupt("; ".join(["its format cannot be read", *pages.problems]))
    form = findings.entries.get(b"format", b"").decode(errors="replace")
    findings.is_segmented = form == SEGMENTS_FORMAT or SEGMENTED in findings.entries
    if form == SEGMENTS_FORMAT:
        places = list(pages.entries(b"values"))
        contents = Contents(findings.directory, findings.entries, places)
        chunks = contents.chunks
        is_short = pages.missing_bytes > 0 or bool(pages.problems)
        findings.is_index_damaged = is_short or contents.is_index_damaged
        findings.problems += contents.problems
    else:
        for key, value in pages.entries(b"values"):
            if len(key) == CHUNK_KEY.size:
                number, first = CHUNK_KEY.unpack(key)
                chunks.setdefault(number, []).append((first, value))
    refuse_lost(pages, "values")
    findings.problems += pages.problems
    return chunks


def _read_segments(findings: StoreFindings, problem: str) -> Chunks:
    """Read all chunks without the index: its last copy and the segments say the same."""
    contents = Contents(findings.directory, newest_copy(findings.directory), None)
    findings.entries = contents.entries
    findings.is_segmented = True
    told = "; ".join(findings.problems[:3]) or problem
    text = f"the index cannot be used ({told}): what it said is taken from the segments"
    findings.problems = [text, *contents.problems]
    return contents.chunks


def _entries(
    meta: dict[bytes, bytes], chunks: Chunks, names: set[str]
) -> tuple[dict[int, PartitionEntry], dict[int, list[str]]]:
    """What is known of each partition; what is damaged of it is guessed."""
    entries: dict[int, PartitionEntry] = {}
    problems: dict[int, list[str]] = {}
    for key, value in meta.items():
        if key[:1] != PARTITION or len(key) != 1 + ENTRY_KEY.size:
            continue
        number = ENTRY_KEY.unpack(key[1:])[0]
        entry = entries[number] = PartitionEntry(number, "")
        try:
            entry.decode(memoryview(value))
        except Corrupt as error:
            entry.name = ""
            problems[number] = [str(error)]
    gone = {
        ENTRY_KEY.unpack(key[1:])[0]
        for key in meta
        if key[:1] == DROPPED and len(key) == 1 + ENTRY_KEY.size
    }
    for number in chunks:
        if number not in entries and number not in gone:
            entries[number] = PartitionEntry(number, "")
            problems[number] = ["what is known of it is missing"]
    nameless = [number for number in sorted(entries) if not entries[number].name]
    unclaimed = sorted(names - {entry.name for entry in entries.values()})
    for number in nameless:
        raw = meta.get(PARTITION + ENTRY_KEY.pack(number), b"")
        name = _name_like(raw, unclaimed)
        if not name and len(nameless) == 1 and len(unclaimed) == 1:
            name = unclaimed[0]
        _guess(entries, number, name, chunks.get(number, []))
    return entries, problems


def _name_like(raw: bytes, names: list[str]) -> str:
    """Return the name that an entry ends with but for a few flipped bits; nothing where none
    does."""
    found: list[str] = []
    for name in names:
        end = raw[-len(name.encode()) :]
        distance = sum(one != other for one, other in zip(end, name.encode(), strict=False))
        if len(end) == len(name.encode()) and distance <= _FLIPPED_MAX:
            found.append(name)
    return found[0] if len(found) == 1 else ""


def _guess(
    entries: dict[int, PartitionEntry],
    number: int,
    name: str,
    chunks: list[tuple[int, memoryview]],
) -> None:
    """Make an entry from what there is: a name that nobody else has, and the chunks."""
    entry = entries[number]
    entry.name = name
    # Above all that were in force, so that every older owner stays fenced.
    entry.epoch = max(each.epoch for each in entries.values()) + 1
    first = chunks[0][0] if chunks else 0
    entry.replay_from = entry.extent.first = _begin_of_replay(chunks, first)
    entry.extent.first = first
    entry.extent.size = sum(len(chunk) for _, chunk in chunks)
    entry.end = 0


def _begin_of_replay(chunks: list[tuple[int, memoryview]], first: int) -> int:
    """Return where the last complete checkpoint begins; where the journal does, if there is
    none."""
    begin = first
    for _, chunk in chunks:
        try:
            records = decode_chunk(chunk, bodies=False)[1]
        except Corrupt:
            continue
        for record in records:
            if isinstance(record, CheckpointEnded):
                begin = record.begun_position
    return begin


def _examine(
    number: int, entry: PartitionEntry, chunks: list[tuple[int, memoryview]]
) -> PartitionFindings:
    found = PartitionFindings(number, entry)
    expected = entry.replay_from
    for index, (first, chunk) in enumerate(chunks):
        following = chunks[index + 1][0] if index + 1 < len(chunks) else None
        if first > expected:
            # Before the start of replay chunks may be missing: nobody needed them.
            found.stretches.append(ChunkFindings(expected, first, None, None))
        salvage = _salvage(chunk, first, following)
        end = salvage.end if salvage is not None else following or max(entry.end, first + 1)
        found.stretches.append(ChunkFindings(first, end, chunk, salvage))
        if end > entry.replay_from:
            expected = end
    if expected < entry.end:
        found.stretches.append(ChunkFindings(expected, entry.end, None, None))
    found.end = max(expected, entry.end)
    for stretch in found.stretches:
        found.at = max(found.at, stretch.at)
        if stretch.end > entry.replay_from:
            holes = stretch.holes()
            found.holes += holes
            if not stretch.is_whole and not holes:
                text = f"the head of the chunk at position {stretch.first} is damaged"
                found.problems.append(text)
    _replay(found)
    return found


def _salvage(chunk: memoryview, first: int, following: int | None) -> Salvage | None:
    try:
        salvage = Salvage(chunk, first)
    except Corrupt:
        return None
    if not salvage.is_whole and following not in (None, salvage.end):
        return None  # the count in its head is damaged
    return salvage


def _replay(found: PartitionFindings) -> None:
    """Open the partition as it would be without what is lost, and see what that leaves open."""
    name, _, index = found.entry.name.rpartition("|")
    blueprint = queue_blueprint(QueueDefinition(name or "unknown"))
    state = State(blueprint, int(index or 0), BodyBudget(0), lambda: 1, Stint())
    restoring = Restoring(state)
    replay_from = found.entry.replay_from
    history: list[tuple[int, list[Record]]] = []
    try:
        for stretch in found.stretches:
            first, records = decode_chunk(stretch.healed(found.at, 0), bodies=False)
            history.append((first, records))
            if stretch.end > replay_from:
                begin, rest = records_from(replay_from, first, records)
                restoring.apply(begin, rest)
    except Exception as error:  # noqa: BLE001 - whatever it is, it keeps the partition closed
        found.problems.append(f"its journal makes no sense: {error}")
        found.is_hopeless = not found.holes
    found.live = restoring.numbers()
    found.next_sequence = restoring.next_sequence + (NUMBERS_SKIPPED if found.holes else 0)
    positions = restoring.positions()
    firsts = [stretch.first for stretch in found.stretches]
    for number, position in positions.items():
        at = bisect_right(firsts, position) - 1
        stretch = found.stretches[at]
        if at < 0 or position >= stretch.end or not stretch.has_body(position):
            found.damaged_bodies.append(number)
    if found.holes:
        last = found.holes[-1][0]
        found.may_come_again = sorted(n for n, position in positions.items() if position < last)
        _judge_missing(found, history)


def _judge_missing(found: PartitionFindings, history: list[tuple[int, list[Record]]]) -> None:
    """Which numbers may have been in what is lost: those that nobody else tells of."""
    given: list[tuple[int, int, int]] = []  # position, and the numbers given there
    # What came back after it was removed: no new numbers, but alive again.
    returned: list[tuple[int, int, int]] = []
    removed: set[int] = set()
    checkpoint_end = 0
    for first, records in history:
        position = first
        for record in records:
            numbers = _given(record)
            if numbers is not None:
                given.append((position, *numbers))
            elif isinstance(record, Removed):
                removed.update(record.sequences)
            elif isinstance(record, Requeued):
                number = record.entry.sequence
                returned.append((position, number, number))
                removed.discard(number)
            elif isinstance(record, CheckpointEnded) and not checkpoint_end:
                is_ours = record.begun_position >= found.entry.replay_from
                checkpoint_end = position if is_ours else 0
            position += width(record)
    for first, end in found.holes:
        before = max((high for at, _, high in given if at < first), default=0)
        after = min((low for at, low, _ in given if at >= end), default=None)
        if after is None or after > before + 1:
            found.may_be_missing.append((before + 1, None if after is None else after - 1))
    begins = found.entry.replay_from
    if begins and (not checkpoint_end or found.holes[0][0] < checkpoint_end):
        # A part of the checkpoint may be lost: whoever came before it may have been in there.
        live = set(found.live)
        for position, low, high in given + returned:
            if position < begins:
                for number in range(low, high + 1):
                    if number not in live and number not in removed:
                        found.may_be_missing.append((number, number))
    found.may_be_missing = sorted(set(found.may_be_missing), key=lambda each: each[0])


def _given(record: Record) -> tuple[int, int] | None:
    """Return the first and the last number that a record gives to messages."""
    if isinstance(record, (Enqueued, Scheduled, Staged)):
        count = len(record.messages)
    elif isinstance(record, (Activated, StagesPublished)):
        count = len(record.sequences)
    elif isinstance(record, Published):
        count = len(record.lanes)
    elif isinstance(record, Transferring):
        count = 1
    else:
        return None
    return (record.first_sequence, record.first_sequence + count - 1) if count else None
