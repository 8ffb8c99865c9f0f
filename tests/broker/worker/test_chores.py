"""What a worker does for nobody in particular, while somebody always waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from peeklock.broker.entities import Queue
from peeklock.broker.forwarding.lane_forwarder import BEYOND
from peeklock.broker.worker.chores import TRIM_BYTES, Chores
from peeklock.broker.worker.mailbox import Mailbox
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.commands import (
    DEFER,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    Commit,
    Grant,
    OpenReceiver,
    Peek,
    ReceiveDeferred,
    Schedule,
    SendBatch,
    SendMany,
    SettleMany,
    TransactionWork,
    TransferMessage,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.records import Record, Relocated
from peeklock.entity.settlement import Settlement
from peeklock.entity.upkeep.checkpoint import TAIL_BYTES_MIN
from peeklock.store.memory import MemoryStore
from peeklock.store.retention import Retention
from peeklock.store.store import PartitionId, Store, Unavailable
from tests.broker.broker_harness import BrokerHarness, Recorder, message, token, until
from tests.store.failing import FailingStore

MB = 1 << 20
BODY = 40_000


class BusyStore:
    """A store whose commits take a turn of the loop; remembers the largest chunk, and how much was
    kept at most."""

    def __init__(self, bytes_max: int) -> None:
        self.store = MemoryStore(Retention(age_ms=10**9, bytes_max=bytes_max))
        self.full = False
        self.written = 0
        self.kept = 0
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> int:
        await asyncio.sleep(0)
        size = await self.store.append(partition, epoch, first_position, records, replay_from)
        self.written += size
        self.largest = max(self.largest, size)
        chunks = sum(
            len(chunk) for kept in self.store._partitions.values() for chunk in kept.chunks
        )
        self.kept = max(self.kept, chunks)
        return size


class Waiting(Recorder):
    """Sends its next message as soon as it was answered, without end."""

    def __init__(self, queue: Queue, size: int) -> None:
        super().__init__()
        self.queue = queue
        self.size = size
        self.sent = 0
        self.goes_on = True

    def replied(self, reply: Any) -> None:
        if self.goes_on:
            self.send()

    def send(self) -> None:
        self.sent += 1
        self.queue.submit(SendMany(self, [self.sent], [message("x" * self.size)]))


def test_the_journal_is_trimmed_although_there_is_always_somebody_who_waits() -> None:
    """R-T2: 0 trims in 300 rounds, until the disk was nearly full."""

    async def whole() -> None:
        store = BusyStore(1 * MB)
        bench = BrokerHarness(cast(Store, store))
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        reader = Recorder()
        queue.submit(OpenReceiver(reader, MAIN, RECEIVE_AND_DELETE))
        queue.submit(Grant(reader, 10**9, False))
        senders = [Waiting(queue, BODY) for _ in range(20)]
        for sender in senders:
            sender.send()
        await until(lambda: store.written > 100 * MB)
        # Retention, what is written between two looks, what a checkpoint waits for.
        assert store.kept < 1 * MB + TRIM_BYTES + TAIL_BYTES_MIN + 4 * MB
        assert store.largest < 4 * MB
        for sender in senders:
            sender.goes_on = False
        await bench.broker.close()

    asyncio.run(whole())


def test_old_bodies_are_relocated_although_there_is_always_somebody_who_waits() -> None:
    """R-T2: one message that is set aside does not pin the block that it lies in."""

    async def whole() -> None:
        store = BusyStore(64 << 10)
        bench = BrokerHarness(cast(Store, store))
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        origin = Recorder()
        queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
        queue.submit(Grant(origin, 1, False))
        queue.submit(SendMany(origin, [1], [message("old")]))
        await until(origin.deliveries)
        [old] = origin.deliveries()
        queue.submit(SettleMany(origin, [1], Settlement(DEFER), [token(old)]))
        reader = Recorder()
        queue.submit(OpenReceiver(reader, MAIN, RECEIVE_AND_DELETE))
        queue.submit(Grant(reader, 10**9, False))
        senders = [Waiting(queue, 4_000) for _ in range(20)]
        for sender in senders:
            sender.send()
        worker = queue.partitions.workers[0]
        assert isinstance(worker, PartitionWorker)
        partition = worker._partition
        assert partition is not None
        await until(lambda: 0 not in partition.live_blocks())
        origin.take()
        queue.submit(ReceiveDeferred(origin, 7, MAIN, [old.sequence], 0))
        await until(origin.deliveries)
        for sender in senders:
            sender.goes_on = False
        await bench.broker.close()

    asyncio.run(whole())


def test_a_round_takes_commands_until_their_messages_are_large_together() -> None:
    """No commit above 4 MB beside one message's own size."""
    mailbox = Mailbox()
    origin = Recorder()
    for number in range(10):
        mailbox.put(SendMany(origin, [number], [message("x" * 300_000)]))
    mailbox.put(Grant(origin, FIRST_SUBSCRIPTION_LANE, False))
    assert [len(mailbox.take(1024, MB, 100)) for _ in range(3)] == [4, 4, 3]
    assert mailbox.commands == []


def test_a_round_takes_commands_until_they_bring_many_messages() -> None:
    """Tiny ones cost more than their bytes."""
    mailbox = Mailbox()
    origin = Recorder()
    for number in range(10):
        mailbox.put(SendBatch(origin, number, [message("x")] * 40))
    assert [len(mailbox.take(1024, MB, 100)) for _ in range(4)] == [3, 3, 3, 1]
    for number in range(5):
        mailbox.put(Peek(origin, number, MAIN, 0, 250, MB))
    assert len(mailbox.take(1024, MB, 2000)) == 2
    assert mailbox.is_cut  # others have their turn before the next round
    assert [len(mailbox.take(1024, MB, 2000)) for _ in range(2)] == [2, 1]
    assert not mailbox.is_cut


def test_a_round_weighs_transactions() -> None:
    """Each is carried out as a whole, so no more comes behind one that is large."""
    mailbox = Mailbox()
    origin = Recorder()
    large = message("x" * 300_000)
    sends: list[TransactionWork] = [SendMany(origin, [0], [large]), Schedule(origin, 0, [large])]
    for number in range(4):
        mailbox.put(Commit(origin, number, [*sends, TransferMessage("to", large)]))
    assert [len(mailbox.take(1024, MB, 100)) for _ in range(2)] == [2, 2]


def test_a_damaged_body_under_a_lock_is_left_alone_until_the_next_trim() -> None:
    """Whoever holds it has its body. The others are relocated, and nobody walks without a pause."""

    async def whole() -> None:
        store = MemoryStore()
        bench = BrokerHarness(store)
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        origin = Recorder()
        queue.submit(SendMany(origin, [1, 2], [message("held"), message("kept")]))
        queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
        queue.submit(Grant(origin, 2, False))
        await until(origin.deliveries)
        worker = queue.partitions.workers[0]
        assert isinstance(worker, PartitionWorker)
        partition = worker._partition
        assert partition is not None
        kept = store._partitions[worker.id.key]
        kept.chunks = [chunk.replace(b"held", b"hexd") for chunk in kept.chunks]
        chores = Chores(worker.id, lambda: None)
        chores.journal_first = BEYOND

        async def walk() -> tuple[list[list[int]], bool]:
            """Relocate until a pause; gives the numbers that were written again, and whether a trim
            follows at once."""
            chores._is_relocation_due, chores.trim_due = True, False
            found: list[list[int]] = []
            while chores._is_relocation_due:
                decision = await chores.step(store, partition, 0, 0.0)
                for record in [] if decision is None else decision.records:
                    assert isinstance(record, Relocated)
                    found.append(record.sequences)
            return found, chores.trim_due

        assert await walk() == ([[2]], True)
        assert await walk() == ([], False)
        await bench.broker.close()

    asyncio.run(whole())


def test_a_trim_that_failed_is_done_with_the_next_round() -> None:
    """On a full disk nobody writes anything before room was made."""

    async def scenario() -> None:
        store = FailingStore(MemoryStore())
        identity = PartitionId("here", "orders", 0)
        chores = Chores(identity, lambda: None)
        store.failure = lambda: Unavailable("full")
        await chores._trim(store, 1, [], 5)
        assert chores.has_written

    asyncio.run(scenario())


def test_a_trim_that_goes_on_failing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store = FailingStore(MemoryStore())
        chores = Chores(PartitionId("here", "orders", 0), lambda: None)

        async def trims(count: int) -> int:
            caplog.clear()
            for _ in range(count):
                await chores._trim(store, 1, [], 5)
            return sum("trim-failed" in record.message for record in caplog.records)

        store.failure = lambda: Unavailable("full")
        assert await trims(5) == 1
        store.failure = None
        assert await trims(1) == 0
        store.failure = lambda: Unavailable("full again")
        assert await trims(2) == 1

    asyncio.run(scenario())


def test_a_partition_opened_on_a_full_disk_is_trimmed_with_the_next_round() -> None:
    """Its turn among the quiet ones comes once a minute."""

    async def scenario() -> None:
        store = MemoryStore()
        chores = Chores(PartitionId("here", "orders", 0), lambda: None)
        chores.opened(store)
        assert not chores.has_written
        store.full = True
        chores.opened(store)
        assert chores.has_written

    asyncio.run(scenario())
