"""The partitions of one entity, as far as they can be reached just now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from peeklock.broker.worker.late_replies import LateReplies
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.entity.commands import Command
from peeklock.entity.refusals import INTERNAL, UNAVAILABLE, Refusal
from peeklock.entity.replies import Origin, Refused, Reply

NOWHERE: Final = -1

AVAILABLE: Final = "Available"
LIMITED: Final = "Limited"
UNKNOWN: Final = "Unknown"


def availability(workers: Iterable[PartitionDoor]) -> str:
    """Whether all partitions of an entity are within reach (R-P9)."""
    return AVAILABLE if all(worker.is_available for worker in workers) else LIMITED


@final
class ReachablePartitions:
    """Asks partitions by their index, and answers for them where that needs none of them."""

    __slots__ = ("_late_replies", "_turn", "workers")

    def __init__(self, workers: list[PartitionDoor]) -> None:
        self.workers: list[PartitionDoor] = workers
        self._turn: int = 0
        self._late_replies: Final[LateReplies] = LateReplies(f"entity={workers[0].id.path}")

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(self.workers)

    def ask(self, index: int, command: Command) -> None:
        """Put a command into the mailbox of a partition."""
        self.workers[index].submit(command)

    def can_ask(self, index: int) -> bool:
        """Whether a command to this partition has a chance."""
        return self.workers[index].can_be_asked

    def has(self, index: int) -> bool:
        """Whether there is such a partition."""
        return 0 <= index < len(self.workers)

    def in_turn(self) -> list[int]:
        """All partitions, beginning with the one whose turn it is; the next turn is another's."""
        count = len(self.workers)
        first = self._turn
        self._turn = (first + 1) % count
        return [(first + step) % count for step in range(count)]

    def next_partition(self, tried: Iterable[int] = ()) -> int:
        """Where the next run of messages without a key goes: to the next partition that is
        available, else to one that may be; NOWHERE where nobody is left."""
        fallback = NOWHERE
        count = len(self.workers)
        for step in range(count):
            index = (self._turn + step) % count
            if index in tried:
                continue
            worker = self.workers[index]
            if worker.is_available:
                self._turn = (index + 1) % count
                return index
            if fallback == NOWHERE and worker.can_be_asked:
                fallback = index
        return fallback

    def missing(self, indexes: Iterable[int]) -> Refusal | None:
        """Why not all of these can be asked, by name; None where they can."""
        lost = [index for index in indexes if not self.workers[index].can_be_asked]
        return self.out_of_reach(lost) if lost else None

    def out_of_reach(self, indexes: list[int]) -> Refusal:
        """A refusal that names the partitions that are missing."""
        for index in indexes:
            if self.workers[index].damage:
                return Refusal(INTERNAL, self.workers[index].damage)
        names = ", ".join(str(index) for index in sorted(indexes))
        noun, verb = ("Partition", "is") if len(indexes) == 1 else ("Partitions", "are")
        text = f"{noun} {names} of {len(self.workers)} {verb} out of reach. Try again later."
        return Refusal(UNAVAILABLE, text)

    def answer(self, reply: Reply) -> None:
        """Reply in place of a partition: soon, as a partition would, never while being asked."""
        self._late_replies.add(reply)

    def refuse(self, origin: Origin, tags: list[int], refusal: Refusal) -> None:
        """Decline in place of a partition."""
        self.answer(Refused(origin, tags, refusal))
