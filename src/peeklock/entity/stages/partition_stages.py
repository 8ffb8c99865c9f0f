"""Stages as a partition keeps them: messages in no line, in the order they came, and the memory of
the writers that publish them."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.entries import Entry
from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.records import STAGED

STAGE_TIMEOUT_MS: Final = 86_400_000
"""A stage to which no message came for so long is dropped: whoever made it does not come back."""

STAGE_GRACE_MS: Final = 3_600_000
"""So long after an opening no stage is dropped: its writer may have waited for the partition."""

WRITERS_MAX: Final = 10_000
"""So many writers are remembered by a partition; the one that published longest ago goes first."""


@final
class StageLine:
    """The messages of one stage, as they came."""

    __slots__ = ("entries", "name", "touched_at")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.touched_at: int = NEVER  # when messages last came
        self.entries: list[Entry] = []


@final
class StageWriter:
    """What a writer published last, and whether all of that is done.

    The stages are those of that batch, kept as long as the batch may come again with others.
    """

    __slots__ = ("batch", "is_done", "name", "published_at", "stages")

    def __init__(
        self, name: str, batch: int, stages: list[str], is_done: bool, published_at: int
    ) -> None:
        self.name: str = name
        self.batch: int = batch
        self.stages: list[str] = stages
        self.is_done: bool = is_done
        self.published_at: int = published_at


@final
class PartitionStages:
    """All stages and writers of a partition. Both are in the order in which they were last heard
    of, so that the first is always the one to go next."""

    __slots__ = ("_unfinished", "count", "grace_until", "lines", "resume_at", "writers")

    def __init__(self) -> None:
        self.lines: dict[str, StageLine] = {}
        self.count: int = 0  # the messages of all stages
        self.writers: dict[str, StageWriter] = {}
        self._unfinished: dict[str, StageWriter] = {}
        self.grace_until: int = NEVER  # known from the first tick on
        self.resume_at: int = NEVER  # when to look at batches that are published in part

    def touch(self, name: str, now: int) -> StageLine:
        """Return the stage with this name, which lives on for a whole timeout from now."""
        line = self.lines.pop(name, None)
        if line is None:
            line = StageLine(name)
        self.lines[name] = line
        line.touched_at = now
        return line

    def forget_if_empty(self, line: StageLine) -> None:
        """A stage without messages is none."""
        if not line.entries:
            self.lines.pop(line.name, None)

    def remember(self, writer: StageWriter) -> None:
        """A writer published something."""
        self.recall(writer)
        if len(self.writers) > WRITERS_MAX:
            del self.writers[next(iter(self.writers))]

    def recall(self, writer: StageWriter) -> None:
        """Take in what was written down of a writer, perhaps before others that came earlier."""
        writers = self.writers
        writers.pop(writer.name, None)
        writers[writer.name] = writer
        self._unfinished.pop(writer.name, None)
        if not writer.is_done:
            self._unfinished[writer.name] = writer

    def recalled(self) -> None:
        """All that was written down is in: put the writers into the order in which they published;
        the oldest that are too many were forgotten before."""
        writers = sorted(self.writers.values(), key=_published_at)
        self.writers = {writer.name: writer for writer in writers[-WRITERS_MAX:]}

    def is_under_way(self, name: str, batch: int) -> bool:
        """Return whether a part of that batch was published, and its stages are known."""
        writer = self._unfinished.get(name)
        return writer is not None and writer.batch == batch and len(writer.stages) > 0

    def unfinished(self) -> list[StageWriter]:
        """Return the writers whose batch is published in part."""
        return list(self._unfinished.values())

    def held(self) -> set[str]:
        """Return the stages of batches that are published in part: they may neither go nor
        change."""
        return {name for writer in self._unfinished.values() for name in writer.stages}

    def next_deadline(self) -> int:
        """Return when the next stage is stale or a batch is to be gone on with; 0 while there is
        none."""
        if not self.lines:
            return NEVER
        stale_at = next(iter(self.lines.values())).touched_at + STAGE_TIMEOUT_MS
        stale_at = max(stale_at, self.grace_until)
        if self._unfinished and self.resume_at != NEVER:
            return min(stale_at, self.resume_at)
        return stale_at

    def lengthen(self, duration_ms: int) -> None:
        """Let all stages live so much longer."""
        for line in self.lines.values():
            line.touched_at += duration_ms
        if self.grace_until != NEVER:
            self.grace_until += duration_ms

    def entries(self) -> list[Entry]:
        """Return all staged messages."""
        return [entry for line in self.lines.values() for entry in line.entries]


def _published_at(writer: StageWriter) -> int:
    return writer.published_at


def staged_entry(sequence: int, position: int, at: int, message: Message, seen: str) -> Entry:
    """Return the entry of a message that was just staged, without its body."""
    entry = Entry(sequence, position, at, NEVER, message.size, None)
    entry.place = STAGED
    entry.session_id = message.session_id
    is_later = message.scheduled_at > at
    if is_later or seen or message.time_to_live_ms != NO_DURATION or message.has_past:
        details = entry.detailed()
        details.remember(message)
        details.scheduled_at = message.scheduled_at if is_later else NEVER
        details.time_to_live_ms = message.time_to_live_ms
        details.seen = seen
    return entry


def leave_stage(entry: Entry, sequence: int, at: int) -> None:
    """Give an entry its number at publishing, and leave nothing of the stage in it: it is like one
    that was sent at that instant."""
    entry.sequence = sequence
    entry.enqueued_at = at
    details = entry.details
    if details is None:
        return
    if details.scheduled_at > at:
        entry.detailed().seen = ""
    elif details.hops or details.enqueue_sequence or details.source:
        details = entry.detailed()
        details.scheduled_at = NEVER
        details.time_to_live_ms = NO_DURATION
        details.seen = ""
    else:
        entry.details = None
