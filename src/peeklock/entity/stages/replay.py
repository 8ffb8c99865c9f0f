"""Stages while a partition is opened: what the records tell of them and of their writers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import final

from peeklock.entity.entries import Entry
from peeklock.entity.message import NEVER
from peeklock.entity.records import READY, SCHEDULED
from peeklock.entity.stages.partition_stages import (
    StageLine,
    StageWriter,
    leave_stage,
    staged_entry,
)
from peeklock.entity.stages.records import Staged, StageDropped, StageKept, StagesPublished
from peeklock.entity.state import State


@final
class StagesReplayed:
    """Which message is in which stage; known by number only while opening."""

    __slots__ = ("_dropped", "_names", "_state", "_touched")

    def __init__(self, state: State) -> None:
        self._state: State = state
        # Of all that were staged; whether one still is, its entry knows.
        self._names: dict[int, str] = {}
        # Stages that were dropped as a whole: what they have below these numbers is gone.
        self._dropped: dict[str, int] = {}
        self._touched: dict[str, int] = {}

    def staged(self, record: Staged, position: int) -> list[Entry]:
        """Messages came to a stage; answers their entries."""
        self._touch(record.stage, record.at)
        state = self._state
        entries: list[Entry] = []
        sequence = record.first_sequence
        for message in record.messages:
            seen = state.seen_of(message)
            entries.append(staged_entry(sequence, position, record.at, message, seen))
            self._names[sequence] = record.stage
            sequence += 1
            position += 1
        return entries

    def kept(self, record: StageKept) -> None:
        """A checkpoint tells of a part of a stage."""
        self._touch(record.stage, record.touched_at)
        for kept in record.entries:
            self._names[kept.sequence] = record.stage

    def published(self, record: StagesPublished) -> None:
        """A writer published something."""
        stages = record.stages
        known = self._state.stages.writers.get(record.writer)
        if not stages and not record.is_done and known is not None and known.batch == record.batch:
            stages = known.stages  # a step that goes on does not name them again
        self._state.stages.recall(
            StageWriter(record.writer, record.batch, stages, record.is_done, record.at)
        )

    def dropped(self, record: StageDropped) -> None:
        """A stage is gone, with all that it had so far."""
        self._dropped[record.stage] = record.next_sequence

    def left(self, sequence: int) -> None:
        """A message is in no stage any more."""
        self._names.pop(sequence, None)

    def has(self, entry: Entry) -> bool:
        """Return whether a staged message was not dropped with its stage."""
        return entry.sequence >= self._dropped.get(self._names[entry.sequence], 0)

    def place(self, entry: Entry) -> None:
        """Put a staged message behind those of its stage that came before it."""
        name = self._names.pop(entry.sequence)
        lines = self._state.stages.lines
        line = lines.get(name)
        if line is None:
            line = self._state.stages.touch(name, self._touched[name])
        line.entries.append(entry)
        self._state.stages.count += 1

    def finish(self, count: int) -> Iterator[bool]:
        """Put the stages into the order in which messages last came to them, so many in a step."""
        stages = self._state.stages
        stages.recalled()
        lines = list(stages.lines.values())
        parts: list[list[StageLine]] = []
        for begin in range(0, len(lines), count):
            parts.append(sorted(lines[begin : begin + count], key=_touched_at))
            yield False
        for done, line in enumerate(heapq.merge(*parts, key=_touched_at)):
            stages.touch(line.name, line.touched_at)
            if done % count == count - 1:
                yield False

    def _touch(self, name: str, at: int) -> None:
        self._touched[name] = max(at, self._touched.get(name, NEVER))


def _touched_at(line: StageLine) -> int:
    return line.touched_at


def replay_publishing(entry: Entry, sequence: int, expires_at: int, at: int) -> None:
    """An entry left its stage for the main lane, as the record says."""
    leave_stage(entry, sequence, at)
    details = entry.details
    entry.place = SCHEDULED if details is not None and details.scheduled_at > at else READY
    entry.expires_at = expires_at
