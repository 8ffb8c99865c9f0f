"""Claims of an entity with several partitions: claimed here and there, listed and settled as one.

A partition that is out of reach is gone round when messages are claimed or listed, so that a
reader goes on with the others; to fetch or to settle what it has is refused until it is back.
"""

from __future__ import annotations

from typing import Any, Final, final

from peeklock.broker.partitioned.answer_join import AnswerJoin
from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import ClaimMessages, FetchClaims, ListClaims, SettleClaims
from peeklock.entity.deliveries import Delivery
from peeklock.entity.refusals import UNAVAILABLE, Refusal
from peeklock.entity.replies import (
    ClaimsFetched,
    ClaimsListed,
    ClaimsMade,
    Numbered,
    Refused,
    Reply,
)
from peeklock.entity.routing import partition_of_sequence

# A fetch goes from partition to partition in the order asked. One that jumps between them more
# often than this ends early, and whoever asks goes on from there.
RUNS_MAX: Final = 256


@final
class ClaimWalk:
    """Claims messages of one partition after the other, a fair share of each.

    Each claim begins at another partition, and what one could not give the others may: they are
    asked again for the rest. A message that failed before makes the whole claim small, wherever it
    is; where it does not fit into this one, it is the first of a later one.
    """

    __slots__ = (
        "_bytes_left",
        "_command",
        "_has_answer",
        "_is_done",
        "_left",
        "_limit",
        "_reach",
        "_sequences",
        "_session_ids",
        "_sessions",
        "_sizes",
        "_turn",
    )

    def __init__(self, command: ClaimMessages, reach: ReachablePartitions, first: int) -> None:
        self._command: Final[ClaimMessages] = command
        self._reach: Final[ReachablePartitions] = reach
        # Whose turn it is now, and who comes after that.
        turns = [(first + step) % reach.count for step in range(reach.count)]
        self._left: list[int] = [index for index in turns if reach.can_ask(index)]
        self._turn: list[int] = []
        self._bytes_left: int = command.bytes_max
        self._limit: int = command.count_max
        self._sequences: list[int] = []
        self._sizes: list[int] = []
        self._session_ids: list[str | None] | None = None
        self._sessions: set[str | None] = set()
        self._has_answer: bool = False
        self._is_done: bool = False

    def start(self) -> None:
        """Ask the first partition that can be asked."""
        if not self._ask():
            everywhere = list(range(self._reach.count))
            refusal = self._reach.out_of_reach(everywhere)
            self._reach.refuse(self._command.origin, [self._command.tag], refusal)

    def replied(self, reply: Reply) -> None:
        """Add what was claimed, and go on where there is room for more."""
        command = self._command
        if isinstance(reply, Refused):
            if reply.refusal.kind != UNAVAILABLE:
                self._answer(Refused(command.origin, [command.tag], reply.refusal))
                return
        else:
            assert isinstance(reply, ClaimsMade)
            self._take(reply)
        if not self._ask():
            self._answer(self._result())

    def flush(self) -> None:
        """Write out the answer, once it is there."""
        if self._is_done:
            self._is_done = False
            self._command.origin.flush()

    def _take(self, made: ClaimsMade) -> None:
        self._has_answer = True
        self._sequences += made.sequences
        self._sizes += made.sizes
        if made.session_ids is not None:
            self._session_ids = (self._session_ids or []) + made.session_ids
            self._sessions.update(made.session_ids)
        if self._command.bytes_max:
            self._bytes_left -= sum(made.sizes)
        self._limit = min(self._limit, made.limit)

    def _ask(self) -> bool:
        """Ask the next one for its share; answers whether somebody was asked."""
        command = self._command
        taken = len(self._sequences)
        room = self._limit - taken
        sessions = command.session_count - len(self._sessions)
        if room <= 0 or sessions <= 0 or (command.bytes_max and taken and self._bytes_left <= 0):
            return False
        if not self._left:
            # Once more round: those that gave all of their share may have more.
            self._left, self._turn = self._turn, []
            if not self._left:
                return False
        index = self._left.pop(0)
        waiting = len(self._left) + 1
        share = (room + waiting - 1) // waiting
        self._reach.ask(
            index,
            ClaimMessages(
                ClaimShare(self, index, share),
                0,
                command.lane,
                command.owner,
                command.epoch,
                command.count_max,
                max(1, self._bytes_left) if command.bytes_max else 0,
                command.timeout_ms,
                command.upto,
                sessions,
                share,
                taken,
            ),
        )
        return True

    def gave_all(self, index: int) -> None:
        """A partition gave as much as it was asked for."""
        self._turn.append(index)

    def _result(self) -> ClaimsMade | Refused:
        command = self._command
        if not self._has_answer:
            refusal = self._reach.out_of_reach(list(range(self._reach.count)))
            return Refused(command.origin, [command.tag], refusal)
        return ClaimsMade(
            command.origin,
            command.tag,
            self._sequences,
            self._sizes,
            self._session_ids,
            self._limit,
        )

    def _answer(self, reply: ClaimsMade | Refused) -> None:
        self._is_done = True
        self._command.origin.replied(reply)


@final
class ClaimShare:
    """The origin of one partition's share of a claim."""

    __slots__ = ("_count", "_index", "_walk")

    def __init__(self, walk: ClaimWalk, index: int, count: int) -> None:
        self._walk: Final[ClaimWalk] = walk
        self._index: Final[int] = index
        self._count: Final[int] = count

    def replied(self, reply: Reply) -> None:
        """Take the one reply to this share."""
        if isinstance(reply, ClaimsMade) and len(reply.sequences) >= self._count:
            self._walk.gave_all(self._index)
        self._walk.replied(reply)

    def flush(self) -> None:
        """All replies of this round are there."""
        self._walk.flush()


@final
class FetchWalk:
    """Fetches claimed messages in the order asked, a run of one partition's at a time."""

    __slots__ = (
        "_bytes_left",
        "_command",
        "_found",
        "_is_done",
        "_looked_at",
        "_reach",
        "_run",
        "_runs",
    )

    def __init__(self, command: FetchClaims, reach: ReachablePartitions) -> None:
        self._command: Final[FetchClaims] = command
        self._reach: Final[ReachablePartitions] = reach
        self._bytes_left: int = command.bytes_max
        self._found: list[Delivery] = []
        self._looked_at: int = 0
        self._run: int = 0  # how many numbers were asked for last
        self._runs: int = 0
        self._is_done: bool = False

    def start(self) -> None:
        """Ask for the first run; none is asked for where a partition is missing."""
        by_partition = {partition_of_sequence(sequence) for sequence in self._command.sequences}
        refusal = self._reach.missing(
            [
                partition_index
                for partition_index in by_partition
                if self._reach.has(partition_index)
            ]
        )
        if refusal is not None:
            self._reach.refuse(self._command.origin, [self._command.tag], refusal)
        elif not self._ask():
            self._reach.answer(self._result())

    def replied(self, reply: Reply) -> None:
        """Add what was fetched, and go on where there is room for more."""
        command = self._command
        if isinstance(reply, Refused):
            self._answer(Refused(command.origin, [command.tag], reply.refusal))
            return
        assert isinstance(reply, ClaimsFetched)
        for delivery in reply.deliveries:
            self._bytes_left -= 0 if delivery.message is None else delivery.message.size
        self._found += reply.deliveries
        self._looked_at += reply.looked_at
        if reply.looked_at < self._run or not self._ask():
            self._answer(self._result())

    def flush(self) -> None:
        """Write out the answer, once it is there."""
        if self._is_done:
            self._is_done = False
            self._command.origin.flush()

    def _ask(self) -> bool:
        """Ask for the next run of numbers; answers whether there is one and room for it."""
        sequences = self._command.sequences
        if self._runs >= RUNS_MAX or (self._found and self._bytes_left <= 0):
            return False
        while self._looked_at < len(sequences):
            partition_index = partition_of_sequence(sequences[self._looked_at])
            end = self._looked_at + 1
            while end < len(sequences) and partition_of_sequence(sequences[end]) == partition_index:
                end += 1
            run = sequences[self._looked_at : end]
            if self._reach.has(partition_index):
                command = self._command
                self._run = len(run)
                self._runs += 1
                size = max(1, self._bytes_left)
                fetch = FetchClaims(self, 0, command.lane, command.owner, run, size)
                self._reach.ask(partition_index, fetch)
                return True
            self._looked_at = end  # no partition gave these numbers to anybody
        return False

    def _result(self) -> ClaimsFetched:
        command = self._command
        return ClaimsFetched(command.origin, command.tag, self._found, self._looked_at)

    def _answer(self, reply: ClaimsFetched | Refused) -> None:
        self._is_done = True
        self._command.origin.replied(reply)


def list_claims(command: ListClaims, reach: ReachablePartitions) -> None:
    """What an owner has in all partitions that can be asked, and which cannot: who must know all
    that it has asks again."""
    asked = [index for index in range(reach.count) if reach.can_ask(index)]
    if not asked:
        refusal = reach.out_of_reach(list(range(reach.count)))
        reach.refuse(command.origin, [command.tag], refusal)
        return

    def join(answers: list[Any]) -> Reply | None:
        listed: list[ClaimsListed] = []
        heard: set[int] = set()
        refusal: Refusal | None = None
        for at, answer in enumerate(answers):
            if isinstance(answer, ClaimsListed):
                listed.append(answer)
                heard.add(asked[at])
            elif refusal is None or refusal.kind == UNAVAILABLE:
                refusal = answer.refusal
        # One that has gone meanwhile is gone round like those that were not asked.
        if refusal is not None and (not listed or refusal.kind != UNAVAILABLE):
            return Refused(command.origin, [command.tag], refusal)
        missing = [index for index in range(reach.count) if index not in heard]
        return _joined(command, listed, missing)

    answer_join = AnswerJoin(command.origin, command.tag, len(asked), join)
    for at, index in enumerate(asked):
        reach.ask(
            index,
            ListClaims(
                answer_join.part(at),
                0,
                command.lane,
                command.owner,
                command.epoch,
                command.from_sequence,
                command.count_max,
            ),
        )


def _joined(command: ListClaims, listed: list[ClaimsListed], missing: list[int]) -> ClaimsListed:
    """One list of several, which are in the order of the partitions and so of the numbers."""
    sequences: list[int] = []
    sizes: list[int] = []
    attempts: list[int] = []
    session_ids: list[str | None] = []
    last: list[int] = []
    for each in listed:
        sequences += each.sequences
        sizes += each.sizes
        attempts += each.attempts
        session_ids += each.session_ids or []
        last += each.last_sequences
    count_max = command.count_max
    oldest = [each.oldest_enqueued_at for each in listed if each.oldest_enqueued_at]
    return ClaimsListed(
        command.origin,
        command.tag,
        max([each.epoch for each in listed]),
        sequences[:count_max],
        sizes[:count_max],
        attempts[:count_max],
        None if listed[0].session_ids is None else session_ids[:count_max],
        last,
        sum([each.active for each in listed]),
        min(oldest) if oldest else 0,
        missing,
    )


def settle_claims(command: SettleClaims, reach: ReachablePartitions) -> None:
    """End claims, each in its partition; numbers of none are ignored like all that are unknown."""
    by_partition: dict[int, list[int]] = {}
    for sequence in command.sequences:
        partition_index = partition_of_sequence(sequence)
        if reach.has(partition_index):
            by_partition.setdefault(partition_index, []).append(sequence)
    if not by_partition:
        by_partition = {0: []}
    refusal = reach.missing(by_partition)
    if refusal is not None:
        reach.refuse(command.origin, [command.tag], refusal)
        return

    def join(answers: list[Any]) -> Reply | None:
        refused = answer_join.refused(answers)
        if refused is not None:
            return refused
        settled = sum([each.numbers[0] for each in answers])
        return Numbered(command.origin, command.tag, [settled])

    answer_join = AnswerJoin(command.origin, command.tag, len(by_partition), join)
    for at, (partition_index, sequences) in enumerate(by_partition.items()):
        reach.ask(
            partition_index,
            SettleClaims(
                answer_join.part(at),
                0,
                command.lane,
                command.owner,
                command.epoch,
                sequences,
                command.settlement,
            ),
        )
