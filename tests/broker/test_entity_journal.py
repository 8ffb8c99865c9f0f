"""The journal of an entity, as the broker gives it: who got what, told in time and read aside."""

from __future__ import annotations

import asyncio

from peeklock.broker.entity_journal import SLICE_BYTES, EntityJournal
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    Command,
    Grant,
    OpenReceiver,
    SendMany,
    SettleMany,
    TakeOver,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.deliveries import LockToken
from peeklock.entity.replies import Nobody
from peeklock.entity.settlement import Settlement
from peeklock.entity.upkeep.journal_facts import HandedTo, SettlementsFailed
from peeklock.entity.upkeep.notebook import NOTES_DELAY_MS
from peeklock.store.codec.records import chunk_header, decode_chunk
from peeklock.store.memory import MemoryStore
from peeklock.store.store import PartitionId
from tests.broker.broker_harness import BrokerHarness, Recorder, message, settle_down
from tests.broker.forwarding.harness import Network


async def deliveries(journal: EntityJournal) -> list[HandedTo]:
    found: list[HandedTo] = []
    for span in await journal.spans():
        page = await journal.page(span.index, 0, 1 << 20)
        assert page.next == span.next
        for chunk in page.chunks:
            found += [r for r in decode_chunk(chunk, False)[1] if isinstance(r, HandedTo)]
    return found


async def deliver(bench: BrokerHarness, path: str, count: int) -> None:
    """Send first, so that the delivery alone has nothing to be written with."""
    entity = bench.broker.find("ns", path)
    assert entity is not None
    receiver = Recorder()
    for number in range(count):
        entity.submit(SendMany(Recorder(), [number], [message(f"{number}")]))
    await settle_down()
    entity.submit(OpenReceiver(receiver, MAIN, PEEK_LOCK, "app/link"))
    entity.submit(Grant(receiver, count, False))
    await settle_down()
    assert len(receiver.deliveries()) == count


def test_deliveries_of_a_quiet_queue_are_told_after_a_second() -> None:
    async def whole() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        await bench.broker.put_queue(QueueDefinition("q"))
        await deliver(bench, "q", 2)
        delivered_at = bench.clock.now()
        journal = bench.broker.journal("ns", "Q")
        assert journal is not None
        assert await deliveries(journal) == []
        bench.timers.advance(NOTES_DELAY_MS)
        await settle_down()
        assert await deliveries(journal) == [HandedTo(delivered_at, MAIN, "app/link", [1, 2], [])]
        await bench.broker.close()

    asyncio.run(whole())


def test_a_broker_that_stops_leaves_nothing_untold() -> None:
    async def whole() -> None:
        store = MemoryStore()
        bench = BrokerHarness(store)
        await bench.broker.start()
        await bench.broker.put_queue(QueueDefinition("q"))
        await deliver(bench, "q", 1)
        journal = bench.broker.journal("ns", "q")
        assert journal is not None
        entity = bench.broker.entities("ns")[0]
        await entity.partitions.close()
        (told,) = await deliveries(journal)
        assert (told.consumer, told.sequences) == ("app/link", [1])
        await bench.broker.close()

    asyncio.run(whole())


def test_the_receivers_of_many_partitions_have_one_name() -> None:
    async def whole() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        await bench.broker.put_queue(QueueDefinition("p", partitions=4))
        await deliver(bench, "p", 40)
        bench.timers.advance(NOTES_DELAY_MS)
        await settle_down()
        journal = bench.broker.journal("ns", "p")
        assert journal is not None
        told = await deliveries(journal)
        assert {each.consumer for each in told} == {"app/link"}
        numbers = [number for each in told for number in each.sequences]
        assert len(set(numbers)) == len(numbers) == 40
        assert {number >> 48 for number in numbers} == {0, 1, 2, 3}
        assert bench.broker.journal("ns", "nowhere") is None
        await bench.broker.close()

    asyncio.run(whole())


def test_a_page_ends_where_retention_cuts_while_it_is_read() -> None:
    """A reader finds a gap by where the journal begins, never inside a page."""

    async def whole() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", message_size_max=1 << 20))
        body = "x" * (SLICE_BYTES - 1_000)
        for number in range(4):
            queue.submit(SendMany(Recorder(), [number], [message(body)]))
            await settle_down()
        journal = bench.broker.journal("ns", "q")
        assert journal is not None
        whole_page = await journal.page(0, 0, 8 * SLICE_BYTES)
        firsts = [chunk_header(chunk).first for chunk in whole_page.chunks]
        worker = queue.partitions.workers[0]
        reading = asyncio.ensure_future(journal.page(0, 0, 8 * SLICE_BYTES))
        await asyncio.sleep(0)
        kept = bench.store._partitions[worker.id.key]  # type: ignore[attr-defined]  # a MemoryStore
        at = firsts[2]
        while kept.firsts[0] < at:
            kept.chunks.pop(0)
            kept.firsts.pop(0)
        kept.extent.first = at
        page = await reading
        positions = [chunk_header(chunk).first for chunk in page.chunks]
        ends = [chunk_header(chunk).end for chunk in page.chunks]
        assert positions[1:] == ends[:-1]
        assert page.next == ends[-1]
        assert (await journal.page(0, page.next, SLICE_BYTES)).first == at
        await bench.broker.close()

    asyncio.run(whole())


def test_a_completion_of_the_carrier_that_comes_too_late_is_told_in_its_name() -> None:
    """R-D5."""

    async def whole() -> None:
        network = Network(QueueDefinition("a", forward_to="b"), QueueDefinition("b"))
        destination = network["b"]
        submit = destination.submit

        def be_faster(command: Command) -> None:
            if isinstance(command, TakeOver) and command.numbers:
                (held,) = network["a"].forwarder._lane_forwarders[MAIN]._held.values()
                lock = LockToken(held.sequence, held.lock_number)
                network["a"].worker.submit(SettleMany(Nobody(), [1], Settlement(COMPLETE), [lock]))
            submit(command)

        destination.submit = be_faster  # type: ignore[method-assign]  # it is still a destination
        await network.send("a", "m")
        assert await network.texts("a") == []
        assert await network.texts("b") == ["m"]
        await network.advance(NOTES_DELAY_MS)
        page = await network.store.journal(PartitionId("ns", "a"), 0, 1 << 20)
        records = [each for chunk in page.chunks for each in decode_chunk(chunk, False)[1]]
        failed = [each for each in records if isinstance(each, SettlementsFailed)]
        assert [(each.consumer, each.sequences) for each in failed] == [("$carrier", [1])]
        await network.close()

    asyncio.run(whole())
