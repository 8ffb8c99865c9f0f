"""How much an entity holds, asked of its partitions right now (R-P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from peeklock.broker.entities import Entity, Subscription
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.entity.commands import Count
from peeklock.entity.replies import Counted, Reply
from peeklock.store.store import StoreError

# A partition that does not answer within this time counts as out of reach: the clients of those
# who ask wait for a minute, and tell others about an entity that they can see in part.
_ANSWER_S_MAX: Final = 10.0


@final
@dataclass(slots=True)
class Tally:
    """The sums over the partitions that answered; `is_whole` says whether all of them did, and
    `is_unknown` that none did: nothing can be said of what there is."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    claimed: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    bytes: int = 0
    is_whole: bool = True
    is_unknown: bool = True

    def add(self, counted: Counted) -> None:
        """Add what one partition holds."""
        self.is_unknown = False
        self.active += counted.active
        self.dead_letter += counted.dead_letter
        self.scheduled += counted.scheduled
        self.deferred += counted.deferred
        self.claimed += counted.claimed
        self.transfer += counted.transfer
        self.transfer_dead_letter += counted.transfer_dead_letter
        self.bytes += counted.bytes

    @property
    def total(self) -> int:
        """All messages, wherever they are."""
        return (
            self.active
            + self.dead_letter
            + self.scheduled
            + self.deferred
            + self.claimed
            + self.transfer
            + self.transfer_dead_letter
        )


async def count_all(entities: Sequence[Entity]) -> list[Tally]:
    """Count several entities at the same time."""
    return list(await asyncio.gather(*(count(entity) for entity in entities)))


async def count(entity: Entity) -> Tally:
    """Count what an entity holds. Looking is no use: it does not keep an idle entity alive."""
    owner = entity.topic if isinstance(entity, Subscription) else entity
    answers = await asyncio.gather(
        *(_ask(worker, entity.lane) for worker in owner.partitions.workers)
    )
    return _sum(answers)


def _sum(answers: Iterable[Counted | None]) -> Tally:
    tally = Tally()
    for answer in answers:
        if answer is None:
            tally.is_whole = False
        else:
            tally.add(answer)
    return tally


async def _ask(worker: PartitionDoor, lane: int) -> Counted | None:
    """What a partition holds; None where it is out of reach."""
    if not worker.can_be_asked:
        return None
    inquiry = _Inquiry()
    # What was never written to is not opened for this: a namespace may have thousands of those.
    if worker.is_available and worker.is_asleep:
        try:
            has_journal = await worker.has_journal()
        except StoreError:
            return None  # nobody knows what is there
        if not has_journal and worker.is_asleep:
            return Counted(inquiry, 0, 0, 0, 0, 0, 0, 0)
    worker.submit(Count(inquiry, 0, lane))
    await asyncio.wait([inquiry.answered], timeout=_ANSWER_S_MAX)
    reply = inquiry.answered.result() if inquiry.answered.done() else None
    return reply if isinstance(reply, Counted) else None


@final
class _Inquiry:
    """The origin of one question."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def replied(self, reply: Reply) -> None:
        """The partition answers, or refuses."""
        if not self.answered.done():
            self.answered.set_result(reply)

    def flush(self) -> None:
        """Nothing is kept back."""
