"""The last part of an opening: all records are in, and what they tell of takes its place.

There may be millions of messages, sessions and remembered ids; each step does a part of it, so that
others on the loop have their turn. A subscription that was dropped costs nothing when the records
are read: its messages are left out here, when their turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, final

from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.claim_replay import ClaimsReplayed
from peeklock.entity.commands import MAIN
from peeklock.entity.lane import Entry, Lane
from peeklock.entity.numbers import Sorting
from peeklock.entity.records import CLAIMED, DEFERRED, SCHEDULED, STAGED
from peeklock.entity.stage_replay import StagesReplayed
from peeklock.entity.state import State

# Dictionaries for messages that are many; and how many are kept in one.
SHARDS: Final = 256
ALONE_MAX: Final = 4096
LET_GO_AT_ONCE: Final = 16

# Numbers are dealt out to so many slots, one after the other far apart.
_SLOTS: Final = 1 << 14
_FAR: Final = 162_013  # the golden section of sixteen times as many
_LOW_BITS: Final = (1 << 24) - 1


def _owners() -> bytes:
    """The shard that each slot belongs to: the last one has twice as many as the first. A
    dictionary grows when it is full, and those of one size would all grow in one step."""
    owners = bytearray()
    for shard in range(SHARDS):
        end = int(_SLOTS * (2 ** ((shard + 1) / SHARDS) - 1) + 0.5)
        owners += bytes([shard]) * (end - len(owners))
    return bytes(owners)


_OWNERS: Final[bytes] = _owners()


@final
class Entries:
    """Messages by number, and the lanes of those that are not in the main one.

    Where they are many, they lie in so many dictionaries that none of them is large: one of a
    million grows, and goes, in a step of its own.
    """

    __slots__ = ("_is_alone", "_lanes", "_shards")

    def __init__(self) -> None:
        self._shards: list[dict[int, Entry]] = [{}]
        self._lanes: list[dict[int, int]] = [{}]
        self._is_alone: bool = True

    def get(self, sequence: int) -> Entry | None:
        """The message with this number, if there is one."""
        return self._shards[self._shard_of(sequence)].get(sequence)

    def put(self, entry: Entry) -> None:
        """There is a message, in the lane where one of its number was, or else in the main one."""
        sequence = entry.sequence
        shard = self._shards[self._shard_of(sequence)]
        shard[sequence] = entry
        if self._is_alone and len(shard) > ALONE_MAX:
            self._part()

    def pop(self, sequence: int) -> Entry | None:
        """There is none any more; answers it if there was."""
        shard = self._shard_of(sequence)
        self._lanes[shard].pop(sequence, None)
        return self._shards[shard].pop(sequence, None)

    def lane_of(self, sequence: int) -> int:
        """In which lane a message is."""
        return self._lanes[self._shard_of(sequence)].get(sequence, MAIN)

    def set_lane(self, sequence: int, lane: int) -> None:
        """A message is in this lane."""
        lanes = self._lanes[self._shard_of(sequence)]
        if lane == MAIN:
            lanes.pop(sequence, None)
        else:
            lanes[sequence] = lane

    def _shard_of(self, sequence: int) -> int:
        if self._is_alone:
            return 0
        return _OWNERS[((sequence & _LOW_BITS) * _FAR >> 4) & (_SLOTS - 1)]

    def _part(self) -> None:
        shard, lanes = self._shards[0], self._lanes[0]
        self._is_alone = False
        self._shards = [{} for _ in range(SHARDS)]
        self._lanes = [{} for _ in range(SHARDS)]
        for sequence, entry in shard.items():
            self._shards[self._shard_of(sequence)][sequence] = entry
        for sequence, lane in lanes.items():
            self._lanes[self._shard_of(sequence)][sequence] = lane

    def numbers(self) -> Iterator[int]:
        """All numbers, in no order."""
        for shard in self._shards:
            yield from shard

    def heaps(self) -> list[Iterable[int]]:
        """The same as heaps of numbers, none of them large."""
        return list(self._shards)

    def let_go(self) -> Iterator[int]:
        """All were taken out: what held them goes, a part at a time."""
        for number in range(len(self._shards)):
            self._shards[number] = {}
            self._lanes[number] = {}
            yield number


@final
class Found:
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
        """Whether a message of this lane was dropped with it."""
        if sequence >= self._dropped.get(lane & ~1, 0):
            return False
        late = self._late.get(lane & ~1)
        return late is None or sequence not in late

    def numbers(self) -> list[int]:
        """The numbers of all that live, in no order."""
        entries = self.entries
        numbers = list(entries.numbers())
        return [each for each in numbers if not self.is_gone(each, entries.lane_of(each))]


@final
class Placing:
    """Puts what was found into its place, a part at a time."""

    __slots__ = ("_count", "_found", "_state", "_strays", "_work")

    def __init__(self, state: State, found: Found, count: int) -> None:
        self._state: State = state
        self._found: Found = found
        self._count: int = count  # of what one step does
        self._strays: set[int] = set()
        self._work: Iterator[bool] = self._steps()

    def step(self) -> bool:
        """Do the next part; tells whether that was the last."""
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
        """The states of sessions, and the end of those that nobody has any more."""
        done = 0
        state = self._state
        found = self._found
        for number, states in found.states.items():
            exists = self._exists(number)
            if not exists and states:
                self._strays.add(number)
            book = state.lane(number).book if exists else None
            while states:
                name, (stored, at) = states.popitem()
                if book is not None:
                    book.set_state(book.session(name), stored, at)
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
        """Every entry goes into its line, in the order of their numbers."""
        state = self._state
        found = self._found
        entries = found.entries
        sorting = Sorting(entries.heaps())
        while not sorting.is_done:
            for sequence in sorting.next(self._count):
                number = entries.lane_of(sequence)
                entry = entries.pop(sequence)
                assert entry is not None, "what was counted is there"
                if number != MAIN and found.is_gone(sequence, number):
                    continue
                if self._exists(number):
                    self._place(sequence, entry, state.lane(number))
                else:
                    self._strays.add(number & ~1)
            yield False
        for number in entries.let_go():
            if number % LET_GO_AT_ONCE == 0:
                yield False

    def _look_around(self) -> Iterator[bool]:
        """What falls due next, and which sessions can be had."""
        state = self._state
        done = 0
        for lane in state.lanes.values():
            if lane.claims is not None:
                lane.claims.look_again()
            state.watch(lane)
            done += 1
            if lane.book is not None:
                for session in lane.book.sessions.values():
                    lane.book.offer(session)
                    done += 1
                    if done % self._count == 0:
                        yield False
            if done % self._count == 0:
                yield False

    def _exists(self, number: int) -> bool:
        """Whether a subscription was not deleted while nobody was here to drop its lane."""
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
