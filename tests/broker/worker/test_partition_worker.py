"""The worker: stores before it replies, and starts again when storing fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from peeklock.broker.entities import Queue
from peeklock.entity.commands import (
    COMPLETE,
    DEFER,
    MAIN,
    PEEK_LOCK,
    Count,
    Grant,
    OpenReceiver,
    Peek,
    SendBatch,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.records import Enqueued, Record
from peeklock.entity.refusals import BUSY, INTERNAL, UNAVAILABLE
from peeklock.entity.replies import (
    Counted,
    Delivered,
    ReceiverClosed,
    Refused,
    SendsAccepted,
    Settled,
)
from peeklock.entity.settlement import Settlement
from peeklock.store.memory import MemoryStore
from peeklock.store.store import PartitionId, Store, StoreError, Unavailable
from tests.broker.broker_harness import (
    BrokerHarness,
    Recorder,
    contents,
    message,
    settle_down,
    token,
    until,
)


def run(test: Callable[[BrokerHarness], Awaitable[None]], store: MemoryStore | None = None) -> None:
    async def whole() -> None:
        bench = BrokerHarness(store)
        await bench.broker.start()
        await bench.broker.put_queue(QueueDefinition("q"))
        await test(bench)
        await bench.broker.close()

    asyncio.run(whole())


def test_a_message_walks_down_once_and_up_once() -> None:
    """R-T1, R-S2, R-S3: sent, stored, answered, delivered, completed."""

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("NS", "Q")
        assert queue is not None
        sender, receiver = Recorder(), Recorder()
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 10, False))
        queue.submit(SendMany(sender, [1, 2], [message("a"), message("b")]))
        await settle_down()
        assert sender.take() == [SendsAccepted(sender, [1, 2])]
        assert sender.flushes == 1
        deliveries = receiver.deliveries()
        assert contents(deliveries) == ["a", "b"]
        receiver.take()
        queue.submit(
            SettleMany(receiver, [5, 6], Settlement(COMPLETE), [token(d) for d in deliveries])
        )
        queue.submit(Count(sender, 9))
        await settle_down()
        assert receiver.take() == [Settled(receiver, [5, 6], COMPLETE)]
        assert sender.take() == [Counted(sender, 9, 0, 0, 0, 0, 0, 0)]

    run(walk)


def test_no_reply_leaves_before_its_record_rests() -> None:
    """R-T1: while the store has not answered, neither sender nor receiver hears anything."""
    store = MemoryStore()
    sender, receiver = Recorder(), Recorder()
    heard_before_commit: list[int] = []

    def look() -> None:
        heard_before_commit.append(len(sender.replies) + len(receiver.replies))

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        store.before_commit = look
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 10, False))
        queue.submit(SendMany(sender, [1], [message("a")]))
        await settle_down()
        assert heard_before_commit == [0]
        assert [type(reply) for reply in receiver.replies] == [Delivered]
        assert sender.replies == [SendsAccepted(sender, [1])]

    run(walk, store)


def test_a_failed_append_refuses_and_opens_anew() -> None:
    """R-T2: what could not be stored is refused; what was stored before is still there."""
    store = MemoryStore()

    def fail() -> None:
        store.before_commit = lambda: None
        raise Unavailable("the disk is gone")

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        sender, receiver = Recorder(), Recorder()
        queue.submit(SendMany(sender, [1], [message("kept")]))
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        await settle_down()
        sender.take()
        store.before_commit = fail
        queue.submit(SendBatch(sender, 2, [message("lost")]))
        await settle_down()
        [refused] = sender.take()
        assert isinstance(refused, Refused)
        assert (refused.tags, refused.refusal.kind) == ([2], UNAVAILABLE)
        [closed] = receiver.take()
        assert isinstance(closed, ReceiverClosed)
        queue.submit(SendMany(sender, [3], [message("later")]))
        queue.submit(Peek(sender, 4, MAIN, 1, 10, 1 << 20))
        await settle_down()
        assert sender.replies[0] == SendsAccepted(sender, [3])
        assert contents(sender.deliveries()) == ["kept", "later"]

    run(walk, store)


def test_a_store_out_of_reach_is_told_at_once() -> None:
    """R-T2: nobody waits for a store that does not open; a later try finds it again."""
    store = MemoryStore()

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        sender = Recorder()
        queue.submit(SendMany(sender, [1], [message("a")]))
        await settle_down()
        sender.take()

        def fail() -> None:
            raise RuntimeError("a fault of ours")

        store.before_commit = fail
        queue.submit(SendMany(sender, [2], [message("b")]))
        await settle_down()
        [refused] = sender.take()
        assert isinstance(refused, Refused)
        assert refused.refusal.kind == INTERNAL

    run(walk, store)


def test_a_nearly_full_disk_refuses_sends_but_settles() -> None:
    """R-T2: the condition is retryable, and settlements go on."""
    store = MemoryStore()

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        sender, receiver = Recorder(), Recorder()
        queue.submit(SendMany(sender, [1], [message("a")]))
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 10, False))
        await settle_down()
        [delivery] = receiver.deliveries()
        sender.take(), receiver.take()
        store.full = True
        queue.submit(SendMany(sender, [2], [message("b")]))
        queue.submit(SettleMany(receiver, [1], Settlement(COMPLETE), [token(delivery)]))
        await settle_down()
        [refused] = sender.take()
        assert isinstance(refused, Refused)
        assert refused.refusal.kind == BUSY
        assert receiver.take() == [Settled(receiver, [1], COMPLETE)]
        store.full = False
        queue.submit(SendMany(sender, [3], [message("c")]))
        await settle_down()
        assert sender.take() == [SendsAccepted(sender, [3])]

    run(walk, store)


def test_the_timer_returns_a_message_whose_lock_is_over() -> None:
    """R-L3: nobody has to ask; the waiting receiver gets it again with one delivery counted."""

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        sender, receiver = Recorder(), Recorder()
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 10, False))
        queue.submit(SendMany(sender, [1], [message("a")]))
        await settle_down()
        receiver.take()
        await bench.advance(59_999)
        assert receiver.take() == []
        await bench.advance(1)
        [again] = receiver.deliveries()
        assert (again.delivery_count, contents([again])) == (1, ["a"])

    run(walk)


def test_a_restart_brings_back_what_was_not_completed() -> None:
    """R-L4: locks are lost with the process, messages are not."""
    store = MemoryStore()

    async def whole() -> None:
        bench = BrokerHarness(store)
        await bench.broker.start()
        await bench.broker.put_queue(QueueDefinition("q"))
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        origin = Recorder()
        texts = [f"m{number}" for number in range(100)]
        queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
        queue.submit(Grant(origin, 50, False))
        queue.submit(SendMany(origin, list(range(100)), [message(text) for text in texts]))
        await settle_down()
        done = origin.deliveries()[:20]
        origin.take()
        queue.submit(
            SettleMany(origin, list(range(20)), Settlement(COMPLETE), [token(d) for d in done])
        )
        await until(origin.has_replies)

        later = BrokerHarness(store, bench.catalog)
        await later.broker.start()
        queue = later.broker.find("ns", "q")
        assert queue is not None
        other = Recorder()
        queue.submit(Peek(other, 1, MAIN, 1, 200, 1 << 20))
        await settle_down()
        assert contents(other.deliveries()) == texts[20:]
        assert other.deliveries()[0].sequence == 21

    asyncio.run(whole())


def test_many_messages_leave_a_short_journal() -> None:
    """Checkpoints and trim: what is completed does not stay, what is deferred does not pin it."""
    store = MemoryStore()

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        origin = Recorder()
        queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
        queue.submit(Grant(origin, 10**9, False))
        queue.submit(SendMany(origin, [1], [message("old")]))
        await settle_down()
        [old] = origin.deliveries()
        queue.submit(SettleMany(origin, [1], Settlement(DEFER), [token(old)]))
        await settle_down()
        origin.take()
        for _ in range(60):
            queue.submit(SendMany(origin, list(range(1000)), [message("x" * 200)] * 1000))
            await settle_down()
            done = origin.deliveries()
            origin.take()
            tags = list(range(len(done)))
            queue.submit(SettleMany(origin, tags, Settlement(COMPLETE), [token(d) for d in done]))
            await settle_down()
            await bench.advance(1_000)
        await bench.advance(4_000_000)
        for _ in range(30):
            await bench.advance(1_000)
        assert isinstance(queue, Queue)
        page = await store.journal(queue.partitions.workers[0].id, 0, 1 << 30)
        assert page.first > 40_000
        with pytest.raises(StoreError):
            await store.payloads(queue.partitions.workers[0].id, [0])
        queue.submit(Peek(origin, 1, MAIN, 1, 10, 1 << 20))
        await settle_down()
        assert contents(origin.deliveries()) == ["old"]

    run(walk, store)


def test_a_settlement_shares_the_write_of_the_next_send() -> None:
    """R-F3: while sends are flowing a settlement alone does not cost a write of its own."""
    store = MemoryStore()
    commits: list[int] = []

    async def walk(bench: BrokerHarness) -> None:
        queue = bench.broker.find("ns", "q")
        assert queue is not None
        origin = Recorder()
        queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
        queue.submit(Grant(origin, 10, False))
        queue.submit(SendMany(origin, [1], [message("a")]))
        await settle_down()
        [delivery] = origin.deliveries()
        origin.take()
        store.before_commit = lambda: commits.append(1)
        queue.submit(SettleMany(origin, [2], Settlement(COMPLETE), [token(delivery)]))
        queue.submit(SendMany(origin, [3], [message("b")]))
        await settle_down()
        assert len(commits) == 1
        assert Settled(origin, [2], COMPLETE) in origin.replies
        assert SendsAccepted(origin, [3]) in origin.replies

    run(walk, store)


def test_a_settlement_alone_is_carried_out_soon() -> None:
    """R-F3: nobody sends any more, and the settlement does not wait for ever; off means never."""

    async def walk(bench: BrokerHarness) -> None:
        for path, batched in (("on", True), ("off", False)):
            definition = QueueDefinition(path, batched_store_access=batched)
            queue = await bench.broker.put_queue(definition)
            origin = Recorder()
            queue.submit(OpenReceiver(origin, MAIN, PEEK_LOCK))
            queue.submit(Grant(origin, 10, False))
            queue.submit(SendMany(origin, [1], [message("a")]))
            await settle_down()
            [delivery] = origin.deliveries()
            origin.take()
            queue.submit(SettleMany(origin, [2], Settlement(COMPLETE), [token(delivery)]))
            await settle_down()
            if batched:
                await until(origin.has_replies)
            assert origin.take() == [Settled(origin, [2], COMPLETE)]

    run(walk)


class SlowStore:
    """A store whose commits take as long as a test says: 10 ms by the loop's clock."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.sizes: list[int] = []
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> int:
        sends = [len(record.messages) for record in records if isinstance(record, Enqueued)]
        self.sizes.append(sum(sends))
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.010, done.set_result, None)
        await done
        return await self._store.append(partition, epoch, first_position, records, replay_from)


class LoneSender(Recorder):
    """Sends its next message as soon as it was answered."""

    def __init__(self, queue: Queue, count: int) -> None:
        super().__init__()
        self.queue = queue
        self.left = count

    def replied(self, reply: Any) -> None:
        super().replied(reply)
        asyncio.get_running_loop().call_later(0.001, self.send)

    def send(self) -> None:
        if self.left:
            self.left -= 1
            self.queue.submit(SendMany(self, [self.left], [message("x")]))


@pytest.mark.parametrize("batched", [False, True])
def test_lone_senders_on_a_slow_store_share_its_writes(batched: bool) -> None:
    """R-F3: two halves that would miss each other's writes are brought together; off: never."""

    async def whole() -> None:
        store = SlowStore()
        bench = BrokerHarness(cast(Store, store))
        await bench.broker.start()
        definition = QueueDefinition("q", batched_store_access=batched)
        queue = await bench.broker.put_queue(definition)
        senders = [LoneSender(queue, 6) for _ in range(10)]
        for at, sender in enumerate(senders):
            # Half of them come while the first half is being written.
            asyncio.get_running_loop().call_later(0.003 if at % 2 else 0.0, sender.send)
        await until(lambda: all(len(sender.replies) == 6 for sender in senders))
        whole_writes = [size for size in store.sizes if size == 10]
        assert sum(store.sizes) == 60
        assert bool(whole_writes) is batched, store.sizes
        await bench.broker.close()

    asyncio.run(whole())
