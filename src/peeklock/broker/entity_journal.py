"""The journal of an entity as its readers see it: partitions, positions, and the names of lanes.

Reading goes past the partitions, straight to their stores, in slices that leave the event loop to
others in between: who writes does not notice who reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from peeklock.broker.entities import Queue, Topic
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.commands import DEAD, MAIN, TRANSFER, TRANSFER_DEAD
from peeklock.store.codec.records import chunk_header
from peeklock.store.store import JournalPage, StoreError
from peeklock.turns import TURNS

DEAD_LETTERS: Final = "$DeadLetterQueue"
TRANSFERS: Final = "$Transfer"

# What is copied before others get a turn.
SLICE_BYTES: Final = 256 * 1024

# No journal has got there; who asks from here on is told where it ends.
_BEYOND: Final = 1 << 62


@final
@dataclass(frozen=True, slots=True)
class JournalSpan:
    """What the journal of one partition reaches over now."""

    index: int
    first: int  # the oldest position that is still there
    next: int  # the position behind the last one that rests
    is_available: bool


@final
class EntityJournal:
    """The journals of all partitions of a queue or topic."""

    def __init__(self, entity: Queue | Topic) -> None:
        self._entity = entity
        self._workers: tuple[PartitionDoor, ...] = entity.partitions.workers

    @property
    def path(self) -> str:
        """The entity's name as its owner wrote it."""
        return self._entity.path

    @property
    def kind(self) -> str:
        """Whether it is a queue or a topic."""
        return self._entity.kind

    @property
    def incarnation(self) -> str:
        """What tells it from others that had its name before: their positions mean nothing here."""
        return str(self._entity.place.incarnation)

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(self._workers)

    def lanes(self) -> dict[int, str]:
        """How the lanes are called, below the entity's own path."""
        names = {MAIN: "", DEAD: DEAD_LETTERS, TRANSFER: TRANSFERS}
        names[TRANSFER_DEAD] = f"{TRANSFERS}/{DEAD_LETTERS}"
        if isinstance(self._entity, Topic):
            for subscription in self._entity.subscriptions.values():
                assert subscription.lane >= FIRST_SUBSCRIPTION_LANE
                name = f"Subscriptions/{subscription.definition.name}"
                names[subscription.lane] = name
                names[subscription.lane | DEAD] = f"{name}/{DEAD_LETTERS}"
        return names

    async def spans(self) -> list[JournalSpan]:
        """How far each partition's journal reaches; those out of reach say so."""
        return [await self._span(index) for index in range(self.count)]

    async def _span(self, index: int) -> JournalSpan:
        try:
            page = await self._workers[index].journal(_BEYOND, 1)
        except StoreError:
            return JournalSpan(index, 0, 0, False)
        return JournalSpan(index, page.first, page.next, True)

    async def page(self, index: int, after: int, limit_bytes: int) -> JournalPage:
        """Chunks from a position on, as many as fit, at least one if there is any."""
        worker = self._workers[index]
        page = await worker.journal(after, min(limit_bytes, SLICE_BYTES))
        first = page.first
        position = page.next
        chunks = page.chunks
        left = limit_bytes - _size(chunks)
        while page.chunks and left > 0:
            await TURNS.give_way()
            page = await worker.journal(position, min(left, SLICE_BYTES))
            if page.first > position:
                break  # retention has cut off what is next: the next page tells of the gap
            for chunk in page.chunks:
                if len(chunk) > left:
                    return JournalPage(first, position, chunks)
                chunks.append(chunk)
                position = chunk_header(chunk).end
                left -= len(chunk)
        return JournalPage(first, position, chunks)


def _size(chunks: list[bytes]) -> int:
    return sum(len(chunk) for chunk in chunks)
