"""The last part of an opening: all records are in, and what they tell of takes its place.

There may be millions of messages, sessions and remembered ids; each step does a part of it, so that
others on the loop have their turn. A subscription that was dropped costs nothing when the records
are read: its messages are left out here, when their turn comes.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.claims.replay import ClaimsReplayed
from peeklock.entity.commands import MAIN
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.records import CLAIMED, DEFERRED, SCHEDULED, STAGED
from peeklock.entity.stages.replay import StagesReplayed
from peeklock.entity.state import State

# Messages in one block, at most.
BLOCK_MAX: Final = 1024
# A block in which fewer than a quarter are left is made smaller, unless it is small.
_SMALL: Final = 64


@final
class Block:
    """Some messages in the order of their numbers; None stands where one is gone."""

    __slots__ = ("entries", "first", "lanes", "last", "left", "numbers")

    def __init__(self) -> None:
        # Arrays: numbers as objects would take more than all else, and leave holes behind.
        self.numbers: array[int] = array("q")
        self.lanes: array[int] = array("q")
        self.entries: list[Entry | None] = []
        self.left: int = 0
        self.first: int = 0
        self.last: int = 0

    def append(self, entry: Entry, lane: int) -> None:
        """Take in one behind all others."""
        self.last = entry.sequence
        if not self.entries:
            self.first = self.last
        self.numbers.append(self.last)
        self.lanes.append(lane)
        self.entries.append(entry)
        self.left += 1

    def find(self, sequence: int) -> int:
        """Return the place of a number, or of the first above it. Most come in a row."""
        numbers = self.numbers
        place = sequence - self.first
        if 0 <= place < len(self.entries) and numbers[place] == sequence:
            return place
        return bisect_left(numbers, sequence)

    def insert(self, place: int, entry: Entry) -> None:
        """Take in one where it belongs."""
        self.numbers.insert(place, entry.sequence)
        self.lanes.insert(place, MAIN)
        self.entries.insert(place, entry)
        self.left += 1
        self.first = min(self.first, entry.sequence)

    def pour_into(self, other: Block, begin: int = 0) -> None:
        """Add all that is left from a place on to another block."""
        for place in range(begin, len(self.entries)):
            entry = self.entries[place]
            if entry is not None:
                other.append(entry, self.lanes[place])


@final
class Entries:
    """Messages by number, and in which lanes they are.

    They lie in blocks in the order of their numbers: nothing large grows in one step, nothing has
    to be sorted, and little is needed beside them. One dictionary of a million grows in 30 ms, and
    its keys take as much again as its messages for as long as these live.
    """

    __slots__ = ("_block", "_blocks", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._lasts: list[int] = []  # the last number of each
        self._block: Block = Block()  # the one that was asked last: the next one is there, mostly

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._blocks

    def get(self, sequence: int) -> Entry | None:
        """Return the message with this number, if there is one."""
        place = self._seek(sequence)
        return None if place < 0 else self._block.entries[place]

    def put(self, entry: Entry) -> None:
        """There is a message, in the lane where one of its number was, or else in the main one."""
        sequence = entry.sequence
        blocks = self._blocks
        if not blocks or sequence > self._lasts[-1]:
            if not blocks or len(blocks[-1].entries) >= BLOCK_MAX:
                blocks.append(Block())
                self._lasts.append(sequence)
            blocks[-1].append(entry, MAIN)
            self._lasts[-1] = sequence
            return
        at = bisect_left(self._lasts, sequence)
        block = blocks[at]
        place = block.find(sequence)
        if block.numbers[place] == sequence:
            if block.entries[place] is None:
                block.left += 1
            block.entries[place] = entry
            return
        block.insert(place, entry)
        if len(block.entries) > BLOCK_MAX:
            self._part(at)

    def pop(self, sequence: int) -> Entry | None:
        """There is none any more; return it if there was."""
        place = self._seek(sequence)
        if place < 0:
            return None
        block = self._block
        entry = block.entries[place]
        if entry is not None:
            block.entries[place] = None
            block.lanes[place] = MAIN
            block.left -= 1
            size = len(block.entries)
            if block.left == 0 or (size > _SMALL and block.left * 4 < size):
                self._shrink(block)
        return entry

    def lane_of(self, sequence: int) -> int:
        """In which lane a message is."""
        place = self._seek(sequence)
        return MAIN if place < 0 else self._block.lanes[place]

    def set_lane(self, sequence: int, lane: int) -> None:
        """A message is in this lane."""
        place = self._seek(sequence)
        if place >= 0:
            self._block.lanes[place] = lane

    def _seek(self, sequence: int) -> int:
        """Find the block and the place of a number that is or was there; -1 where none is."""
        block = self._block
        if not block.first <= sequence <= block.last:
            at = bisect_left(self._lasts, sequence)
            if at == len(self._lasts):
                return -1
            block = self._block = self._blocks[at]
        place = block.find(sequence)
        return place if place < len(block.entries) and block.numbers[place] == sequence else -1

    def _part(self, at: int) -> None:
        """A block is full: what is left of it becomes two."""
        whole = self._blocks[at]
        half = Block()
        rest = Block()
        whole.pour_into(half)
        half.pour_into(rest, len(half.entries) // 2)
        for each in (half.numbers, half.lanes):
            del each[len(half.entries) // 2 :]
        del half.entries[len(half.entries) // 2 :]
        half.left = len(half.entries)
        half.last = half.numbers[-1]
        self._blocks[at : at + 1] = [half, rest]
        self._lasts[at : at + 1] = [half.last, rest.last]
        self._block = Block()

    def _shrink(self, block: Block) -> None:
        """Little is left of a block: it goes, and what is left joins the one before if that has
        room."""
        at = bisect_left(self._lasts, block.last)
        self._block = Block()
        if block.left == 0:
            del self._blocks[at]
            del self._lasts[at]
            return
        before = self._blocks[at - 1] if at else block
        if at and len(before.entries) + block.left <= BLOCK_MAX:
            block.pour_into(before)
            self._lasts[at - 1] = before.last
            del self._blocks[at]
            del self._lasts[at]
            return
        smaller = Block()
        block.pour_into(smaller)
        self._blocks[at] = smaller
        self._lasts[at] = smaller.last

    def numbers(self) -> Iterator[int]:
        """Return all numbers, in order."""
        for block in self._blocks:
            for place, entry in enumerate(block.entries):
                if entry is not None:
                    yield block.numbers[place]

    def take_first(self) -> Block:
        """Return the block with the lowest numbers, which is out then."""
        block = self._blocks[0]
        del self._blocks[0]
        del self._lasts[0]
        self._block = Block()
        return block


@final
class ReplayedMessages:
    """What the records told of, by number. It exists only while opening."""

    __slots__ = ("_dropped", "_late", "claims", "entries", "forsaken", "stages", "states")

    def __init__(self, state: State) -> None:
        self.entries: Entries = Entries()
        # The states of sessions, by lane and name, and those whose lane was dropped.
        self.states: dict[int, dict[str, tuple[bytes, int]]] = {}
        self.forsaken: list[dict[str, tuple[bytes, int]]] = []
        self.claims: ClaimsReplayed = ClaimsReplayed()
        self.stages: StagesReplayed = StagesReplayed(state)
        # Lanes that were dropped: numbers below these are gone, but for those that came later.
        self._dropped: dict[int, int] = {}
        self._late: dict[int, set[int]] = {}

    def drop_lane(self, lane: int, next_sequence: int) -> None:
        """A subscription is gone, with all that it had so far."""
        self._dropped[lane] = next_sequence
        self._late.pop(lane, None)
        self.claims.lane_dropped(lane)
        states = self.states.pop(lane, None)
        if states is not None:
            self.forsaken.append(states)

    def keep(self, entry: Entry, lane: int) -> None:
        """A message is in this lane, whatever was told of it before."""
        sequence = entry.sequence
        self.entries.put(entry)
        self.entries.set_lane(sequence, lane)
        if sequence < self._dropped.get(lane & ~1, 0):
            # Another subscription has the lane by now, and got back what it had before.
            self._late.setdefault(lane & ~1, set()).add(sequence)

    def is_gone(self, sequence: int, lane: int) -> bool:
        """Return whether a message of this lane was dropped with it."""
        if sequence >= self._dropped.get(lane & ~1, 0):
            return False
        late = self._late.get(lane & ~1)
        return late is None or sequence not in late

    def numbers(self) -> list[int]:
        """Return the numbers of all that live, in no order."""
        entries = self.entries
        numbers = list(entries.numbers())
        return [each for each in numbers if not self.is_gone(each, entries.lane_of(each))]


@final
class Placing:
    """Puts what was found into its place, a part at a time."""

    __slots__ = ("_count", "_found", "_state", "_strays", "_work")

    def __init__(self, state: State, found: ReplayedMessages, count: int) -> None:
        self._state: State = state
        self._found: ReplayedMessages = found
        self._count: int = count  # of what one step does
        self._strays: set[int] = set()
        self._work: Iterator[bool] = self._steps()

    def step(self) -> bool:
        """Do the next part; return whether that was the last."""
        return next(self._work, True)

    @property
    def strays(self) -> list[int]:
        """Lanes that the journal still tells of although their subscriptions are gone."""
        return sorted(self._strays)

    def _steps(self) -> Iterator[bool]:
        yield from self._bring_states()
        self._bring_owners()
        yield from self._place_entries()
        yield from self._found.stages.finish(self._count)
        done = 0
        for looked in self._state.seen.remembered():
            done += looked
            if done >= self._count:
                done = 0
                yield False
        yield from self._look_around()

    def _bring_states(self) -> Iterator[bool]:
        """Return the states of sessions, and the end of those that nobody has any more."""
        done = 0
        state = self._state
        found = self._found
        for number, states in found.states.items():
            exists = self._exists(number)
            if not exists and states:
                self._strays.add(number)
            lane_sessions = state.lane(number).sessions if exists else None
            while states:
                name, (stored, at) = states.popitem()
                if lane_sessions is not None:
                    lane_sessions.set_state(lane_sessions.session(name), stored, at)
                done += 1
                if done % self._count == 0:
                    yield False
        for states in found.forsaken:
            while states:
                states.popitem()
                done += 1
                if done % self._count == 0:
                    yield False

    def _bring_owners(self) -> None:
        for number in self._found.claims.lanes():
            if self._exists(number):
                self._found.claims.bring_owners(self._state.lane(number))
            else:
                self._strays.add(number & ~1)

    def _place_entries(self) -> Iterator[bool]:
        """Put every entry into its line, in the order of their numbers."""
        entries = self._found.entries
        done = 0
        while not entries.is_empty:
            block = entries.take_first()
            for place, entry in enumerate(block.entries):
                if entry is not None:
                    self._place_in(entry, block.lanes[place])
            done += len(block.entries)
            if done >= self._count:
                done = 0
                yield False

    def _place_in(self, entry: Entry, number: int) -> None:
        sequence = entry.sequence
        if number != MAIN and self._found.is_gone(sequence, number):
            return
        if self._exists(number):
            self._place(sequence, entry, self._state.lane(number))
        else:
            self._strays.add(number & ~1)

    def _look_around(self) -> Iterator[bool]:
        """Return what falls due next, and which sessions can be had."""
        state = self._state
        done = 0
        for lane in state.lanes.values():
            if lane.claims is not None:
                lane.claims.look_again()
            state.watch(lane)
            done += 1
            if lane.sessions is not None:
                for session in lane.sessions.by_id.values():
                    lane.sessions.offer(session)
                    done += 1
                    if done % self._count == 0:
                        yield False
            if done % self._count == 0:
                yield False

    def _exists(self, number: int) -> bool:
        """Return whether a subscription was not deleted while nobody was here to drop its lane."""
        return number < FIRST_SUBSCRIPTION_LANE or number & ~1 in self._state.blueprint.lanes

    def _place(self, sequence: int, entry: Entry, lane: Lane) -> None:
        state = self._state
        if entry.place == STAGED and not self._found.stages.has(entry):
            return
        state.bodies.add(entry.position, entry.size)
        if entry.details is not None:
            state.bodies.detail_bytes += entry.details.weigh()
        if entry.place == STAGED:
            self._found.stages.place(entry)
            return
        if entry.place == SCHEDULED:
            lane.set_aside(entry)
            heapq.heappush(lane.schedules, (entry.detailed().scheduled_at, sequence))
            return
        if entry.place == CLAIMED:
            self._found.claims.place(lane, entry)
            return
        line = state.line(lane, entry.session_id)
        if entry.place == DEFERRED:
            line.defer(entry)
            return
        line.ready.append(entry)
        line.count_ready(1)
        if entry.expires_at and not lane.is_dead_letter:
            heapq.heappush(lane.expirations, (entry.expires_at, sequence, entry, line))
