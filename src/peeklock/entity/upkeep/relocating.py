"""Relocating bodies to the tail, so that one old message does not pin the chunk it was written in.

A walk over all that is alive finds what lies in sparse blocks; then the bodies are written again at
the tail, a few at a time, each once for all copies that share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.entries import GONE, Entry
from peeklock.entity.message import Message
from peeklock.entity.records import Relocated, RelocatedCopies
from peeklock.entity.state import State
from peeklock.entity.upkeep.live_bodies import BLOCK_BITS
from peeklock.entity.upkeep.live_walk import PART, LivePart, live_parts

# What one step looks at, and what it relocates: bytes beside one body's own, and copies.
SCAN: Final = 4096
STEP_BYTES: Final = 1 << 20
STEP_COPIES: Final = 4096


@final
class Relocating:
    """Decides when relocating is worth it, and does it step by step."""

    __slots__ = (
        "_blocks",
        "_chosen",
        "_dropped_times",
        "_found",
        "_state",
        "_to_relocate",
        "_walk",
    )

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._walk: Iterator[LivePart] | None = None
        self._blocks: list[int] = []  # whose bodies wait to be relocated, the first one last
        # Live entries by block and by the position of the body that they share: while the walk
        # finds them, then those of one block in their order, then while their bodies are fetched.
        self._found: dict[int, dict[int, list[Entry]]] = {}
        self._to_relocate: list[list[Entry]] = []
        self._chosen: dict[int, list[Entry]] = {}
        self._dropped_times: int = 0  # how often lanes and stages were dropped before the walk

    @property
    def is_under_way(self) -> bool:
        """Whether a walk is under way, or what it found waits to be relocated."""
        return self._walk is not None or len(self._to_relocate) > 0 or len(self._blocks) > 0

    def next(self, below: int, count_max: int) -> list[Entry]:
        """Live messages in sparse blocks below a position, one for each body.

        Starts a walk when enough would be freed by it; while that looks for the copies that share
        a body there is nothing to relocate yet.
        """
        if self._dropped_times != self._state.dropped.times:
            self._begin_again()
        if not self.is_under_way:
            blocks = self._state.bodies.sparse_blocks(below)
            if not blocks:
                return []
            self._found = {block: {} for block in blocks}
            self._walk = live_parts(self._state, PART)
        if self._walk is not None and not self._walk_on(self._walk):
            return []
        chosen: list[Entry] = []
        self._chosen = {}
        size = 0
        copies = 0
        while len(chosen) < count_max and size < STEP_BYTES and copies < STEP_COPIES:
            if not self._to_relocate and not self._take_block():
                break
            # By number, because the walk may have met a message twice.
            sharing = {
                each.sequence: each for each in self._to_relocate.pop() if each.place != GONE
            }
            alive = list(sharing.values())
            if alive:
                chosen.append(alive[0])
                self._chosen[alive[0].position] = alive
                size += alive[0].size
                copies += len(alive)
        return chosen

    def _begin_again(self) -> None:
        """Lanes or stages were dropped: nothing tells which of the messages found were theirs."""
        self._dropped_times = self._state.dropped.times
        self._walk = None
        self._blocks = []
        self._found = {}
        self._to_relocate = []
        self._chosen = {}

    def _walk_on(self, walk: Iterator[LivePart]) -> bool:
        """Return one step of the walk; return whether it has found all there is."""
        scanned = 0
        for part in walk:
            scanned += len(part.entries) + 1
            for entry in part.entries:
                position = entry.position
                bodies = self._found.get(position >> BLOCK_BITS)
                if bodies is not None and entry.place != GONE:
                    bodies.setdefault(position, []).append(entry)
            if scanned >= SCAN:
                return False
        self._walk = None
        self._blocks = sorted(self._found, reverse=True)
        return True

    def _take_block(self) -> bool:
        """Line up what the next block holds that holds anything; return whether there was one."""
        while self._blocks:
            bodies = self._found.pop(self._blocks.pop())
            if bodies:
                self._to_relocate = [bodies[position] for position in sorted(bodies, reverse=True)]
                return True
        return False

    def relocate(self, entries: list[Entry], messages: list[Message], now: int) -> None:
        """Write the bodies of those that are still alive again at the tail, each once for all that
        share it."""
        if self._dropped_times != self._state.dropped.times:
            self._begin_again()
            return
        bodies: list[list[Entry]] = []
        relocated: list[Message] = []
        for entry, message in zip(entries, messages, strict=True):
            sharing = self._chosen.pop(entry.position, None)
            if sharing is None:
                sharing = [entry]
            alive = [each for each in sharing if each.place != GONE]
            if alive:
                bodies.append(alive)
                relocated.append(message)
        if bodies:
            write_again(self._state, bodies, relocated, now)


def write_again(state: State, bodies: list[list[Entry]], messages: list[Message], now: int) -> None:
    """Write bodies again at the tail, so that the blocks they lay in can go; each with the
    entries that share it."""
    alone: list[int] = []
    relocated: list[Message] = []
    for entries, message in zip(bodies, messages, strict=True):
        if len(entries) == 1:
            _lay_at_the_tail(state, entries)
            alone.append(entries[0].sequence)
            relocated.append(message)
    if alone:
        state.runs.append(Relocated(now, alone, relocated))
    for entries, message in zip(bodies, messages, strict=True):
        if len(entries) > 1:
            _lay_at_the_tail(state, entries)
            sequences = [entry.sequence for entry in entries]
            state.runs.append(RelocatedCopies(now, sequences, message))


def _lay_at_the_tail(state: State, entries: list[Entry]) -> None:
    """The body that these entries share takes the next position."""
    for entry in entries:
        state.bodies.remove(entry.position, entry.size)
        entry.position = state.next_position
        state.bodies.add(entry.position, entry.size)
    state.next_position += 1
