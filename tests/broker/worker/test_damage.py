"""What is damaged on disk: one message set apart, or one partition closed, and the rest served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.broker.counting import count
from peeklock.broker.entities import Queue
from peeklock.broker.partitioned.reach import AVAILABLE, LIMITED
from peeklock.entity.commands import (
    COMPLETE,
    DEAD,
    MAIN,
    PEEK_LOCK,
    Count,
    Grant,
    OpenReceiver,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.moves.quarantining import DAMAGED_BODY
from peeklock.entity.refusals import INTERNAL
from peeklock.entity.replies import Counted, ReceiverClosed, Refused, SendsAccepted
from peeklock.entity.settlement import Settlement
from peeklock.store.memory import MemoryCatalog, MemoryStore
from tests.broker.broker_harness import (
    BrokerHarness,
    Recorder,
    contents,
    message,
    settle_down,
    token,
)


class DamageHarness:
    """A store and a catalog that outlive their brokers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.catalog = MemoryCatalog()

    def run(
        self, test: Callable[[BrokerHarness], Awaitable[None]], *queues: QueueDefinition
    ) -> None:
        async def whole() -> None:
            self.store = MemoryStore(kept=self.store)
            bench = BrokerHarness(self.store, self.catalog)
            await bench.broker.start()
            for queue in queues:
                await bench.broker.put_queue(queue)
            await test(bench)
            await bench.broker.close()

        asyncio.run(whole())

    def flip(self, path: str, wanted: bytes, *, index: int = 0, behind: int = 0) -> None:
        """Flip a bit of the first chunk of a partition that holds these bytes."""
        (kept,) = [
            kept
            for key, kept in self.store._partitions.items()
            if path in key and key.endswith(f"|{index}")
        ]
        for at, chunk in enumerate(kept.chunks):
            if wanted in chunk:
                damaged = bytearray(chunk)
                damaged[chunk.index(wanted) + behind] ^= 1
                kept.chunks[at] = bytes(damaged)
                return
        raise AssertionError(f"nothing holds {wanted!r}")


def queue_of(bench: BrokerHarness, path: str = "q") -> Queue:
    found = bench.broker.find("ns", path)
    assert isinstance(found, Queue)
    return found


def sending(path: str, *texts: str) -> Callable[[BrokerHarness], Awaitable[None]]:
    async def send(bench: BrokerHarness) -> None:
        sender = Recorder()
        for tag, text in enumerate(texts):
            queue_of(bench, path).submit(SendMany(sender, [tag], [message(text)]))
        await settle_down()
        assert len(sender.take()) == len(texts)

    return send


def test_a_damaged_body_goes_to_the_dead_letters_and_the_others_are_delivered() -> None:
    harness = DamageHarness()
    harness.run(sending("q", "a", "damaged", "c"), QueueDefinition("q"))
    harness.flip("q", b"damaged")

    async def receive(bench: BrokerHarness) -> None:
        queue = queue_of(bench)
        receiver, undertaker = Recorder(), Recorder()
        queue.submit(OpenReceiver(undertaker, DEAD, PEEK_LOCK))
        queue.submit(Grant(undertaker, 10, False))
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 2, False))
        await settle_down()
        held = receiver.deliveries()
        assert contents(held) == ["a", "c"]
        (dead,) = undertaker.deliveries()
        assert dead.details is not None
        assert (dead.sequence, dead.details.reason) == (2, DAMAGED_BODY)
        assert contents([dead]) == ["lost"]
        queue.submit(
            SettleMany(receiver, [1, 2], Settlement(COMPLETE), [token(each) for each in held])
        )
        queue.submit(Count(receiver, 9))
        await settle_down()
        counted = [reply for reply in receiver.take() if isinstance(reply, Counted)]
        assert (counted[0].active, counted[0].dead_letter) == (0, 1)
        assert queue.partitions.availability == AVAILABLE

    harness.run(receive)


async def refused(bench: BrokerHarness, path: str, command: Callable[[Any], Any]) -> str:
    """Ask for something that is refused, soon and not to be tried again; gives the text."""
    asker = Recorder()
    queue_of(bench, path).submit(command(asker))
    await settle_down()
    (reply,) = asker.take()
    assert isinstance(reply, (Refused, ReceiverClosed))
    assert reply.refusal is not None
    assert reply.refusal.kind == INTERNAL
    return reply.refusal.text


@pytest.mark.parametrize("behind", [-1, -26])
def test_a_damaged_record_keeps_its_partition_closed_and_says_so(behind: int) -> None:
    """A flip in the head of a message, and one in the chunk's table before it."""
    harness = DamageHarness()
    harness.run(sending("q", "one"), QueueDefinition("q"), QueueDefinition("other"))
    harness.run(sending("other", "fine"))
    harness.flip("q", b"one", behind=behind)

    async def ask(bench: BrokerHarness) -> None:
        for _ in range(2):
            text = await refused(bench, "q", lambda who: OpenReceiver(who, MAIN, PEEK_LOCK))
            assert "Partition 0 of 'q' is damaged on disk and stays closed" in text
            assert "peeklock store check" in text
            text = await refused(bench, "q", lambda who: SendMany(who, [1], [message("x")]))
            assert "damaged" in text
        assert queue_of(bench).partitions.availability == LIMITED
        # It is not tried again and again.
        epoch = next(kept for key, kept in harness.store._partitions.items() if "|q" in key).epoch
        await bench.advance(60_000)
        assert epoch == next(k for key, k in harness.store._partitions.items() if "|q" in key).epoch
        receiver = Recorder()
        other = queue_of(bench, "other")
        other.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        other.submit(Grant(receiver, 1, False))
        await settle_down()
        assert contents(receiver.deliveries()) == ["fine"]

    harness.run(ask)


def test_the_other_partitions_of_an_entity_go_on() -> None:
    harness = DamageHarness()
    harness.run(sending("q", "one", "two"), QueueDefinition("q", partitions=2))
    damaged = 0
    try:
        harness.flip("q", b"one", index=0, behind=-1)
    except AssertionError:
        damaged = 1
        harness.flip("q", b"one", index=1, behind=-1)

    async def go_on(bench: BrokerHarness) -> None:
        queue = queue_of(bench)
        receiver, sender = Recorder(), Recorder()
        queue.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue.submit(Grant(receiver, 9, False))
        for tag in range(4):
            queue.submit(SendMany(sender, [tag], [message(f"new {tag}")]))
        await settle_down()
        await settle_down()
        assert (
            sum(len(reply.tags) for reply in sender.take() if isinstance(reply, SendsAccepted)) == 4
        )
        got = contents(receiver.deliveries())
        assert sorted(got) == ["new 0", "new 1", "new 2", "new 3", "two"]
        assert queue.partitions.availability == LIMITED
        assert bool(queue.partitions.workers[damaged].damage)

    harness.run(go_on)


def test_a_partition_opens_when_other_files_are_in_place() -> None:
    harness = DamageHarness()
    harness.run(sending("q", "one"), QueueDefinition("q"))
    harness.flip("q", b"one", behind=-1)

    async def mend(bench: BrokerHarness) -> None:
        await refused(bench, "q", lambda who: OpenReceiver(who, MAIN, PEEK_LOCK))
        harness.flip("q", b"one", behind=-1)
        for worker in queue_of(bench).partitions.workers:
            worker.store_back()
        receiver = Recorder()
        queue_of(bench).submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        queue_of(bench).submit(Grant(receiver, 1, False))
        await settle_down()
        assert contents(receiver.deliveries()) == ["one"]
        assert queue_of(bench).partitions.availability == AVAILABLE

    harness.run(mend)


def test_what_a_damaged_queue_holds_is_not_told_as_nothing() -> None:
    """Until somebody opened it, it was counted as empty."""
    harness = DamageHarness()
    harness.run(sending("q", "a", "b"), QueueDefinition("q"))
    (kept,) = harness.store._partitions.values()
    kept.chunks[0] = kept.chunks[0][:20]

    async def look(bench: BrokerHarness) -> None:
        for _ in range(2):
            tally = await count(queue_of(bench))
            assert not tally.is_whole
            assert tally.is_unknown
            await settle_down()

    harness.run(look)
