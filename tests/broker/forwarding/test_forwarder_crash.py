"""Forwarding across crashes: cut at every write, before and after it rests, nothing is lost and
nothing doubled (R-T3)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from peeklock.entity.commands import DEAD, MAIN, TRANSFER, TRANSFER_DEAD, TakeOver, Tick
from peeklock.entity.definition import QueueDefinition
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Unavailable
from tests.broker.broker_harness import Recorder, message, settle_down
from tests.broker.forwarding.harness import Network

# So large that only a few are in hand at once: the walk has more steps.
LARGE = 8 << 20

NAMES = [f"m{number}" for number in range(9)]

EXPECTED = {
    ("a", MAIN): [],
    ("a", DEAD): [],
    ("a", TRANSFER): [],
    ("a", TRANSFER_DEAD): ["nowhere"],
    ("b", MAIN): [],
    ("b", DEAD): ["far too long"],
    ("c", MAIN): sorted([*NAMES, "t0", "t1", "t2"]),
    ("grave", MAIN): ["d0", "d1", "d2"],
    ("self", MAIN): [],
    ("self", DEAD): ["s0", "s1"],
}


def definitions(is_forwarding: bool) -> list[QueueDefinition]:
    """A chain, dead letters that go on, and a queue that forwards to itself."""

    def queue(path: str, to: str = "", dead_to: str = "", **properties: Any) -> QueueDefinition:
        return QueueDefinition(
            path,
            forward_to=to if is_forwarding else "",
            forward_dead_letters_to=dead_to if is_forwarding else "",
            batched_store_access=False,  # time passes only when the test says so
            **properties,
        )

    return [
        queue("a", "b", "grave", message_size_max=LARGE),
        queue("b", "c", message_size_max=LARGE),
        queue("c", message_size_max=4),
        queue("grave"),
        queue("self", "self"),
    ]


async def prepare(store: MemoryStore) -> None:
    """What rests in the entities before anything is forwarded."""
    network = Network(*definitions(False), store=store)
    for entity in network.entities.values():
        entity.worker.on_opened = None
    await network.send("a", "d0", "d1", "d2")
    await network.dead_letter("a", 3, "broken")
    await network.send("a", *NAMES[:5], "far too long", *NAMES[5:])
    await network.transfer("a", "c", "t0", "t1", "t2")
    await network.transfer("a", "unknown", "nowhere")
    await network.send("self", "s0", "s1")
    await network.close()


def forwarding(store: MemoryStore) -> Network:
    network = Network(*definitions(True), store=store, seed=11)
    network.open()
    return network


async def check(network: Network) -> None:
    for (path, lane), expected in EXPECTED.items():
        assert sorted(await network.texts(path, lane)) == expected, (path, lane)
    for entity in network.entities.values():
        partition = entity.worker._partition
        assert partition is not None
        partition.check()
    # In order: what the last queue of the chain got from the first.
    arrived = [text for text in await network.texts("c") if text in NAMES]
    assert arrived == NAMES


def check_forgotten(network: Network) -> None:
    """What was taken over before a crash is forgotten after it. Destinations of transfers hear of
    it with the next one, because only that names them."""
    for entity in network.entities.values():
        kept = [each for each in entity.remembered if not each.endswith(f"|{TRANSFER}")]
        assert kept == [], entity.path


class Cut:
    """Lets a number of writes pass; the next one fails, and those after it if the power is off."""

    def __init__(self, store: MemoryStore, at: int, is_after: bool, is_for_good: bool) -> None:
        self.count = 0
        self.at = at
        self.is_for_good = is_for_good
        self.is_off = False
        self.is_after = is_after
        store.before_commit = self.before
        store.after_commit = self.after

    def before(self) -> None:
        if self.is_off and self.is_for_good:
            raise Unavailable("the power is off")
        self.count += 1
        if self.count == self.at and not self.is_after:
            self.fail()

    def after(self) -> None:
        if self.count == self.at and self.is_after and not self.is_off:
            self.fail()

    def fail(self) -> None:
        self.is_off = True
        raise Unavailable("the power goes off")


def restore_power(store: MemoryStore) -> None:
    store.before_commit = store.after_commit = lambda: None


async def cut_once(store: MemoryStore, at: int, is_after: bool) -> bool:
    """Forward until the power goes off at a write; answers whether that many were reached."""
    cut = Cut(store, at, is_after, is_for_good=True)
    network = forwarding(store)
    await settle_down()
    for _ in range(3):
        if not cut.is_off:
            await network.advance(2_000)
    await network.close()
    restore_power(store)
    return cut.is_off


async def writes() -> int:
    """How many writes the whole walk takes when nothing fails."""
    store = MemoryStore()
    await prepare(store)
    cut = Cut(store, 0, False, False)
    network = forwarding(store)
    await network.rest()
    await check(network)
    for entity in network.entities.values():
        assert entity.remembered == {}, entity.path
    await network.close()
    return cut.count


def test_every_write_can_be_cut(caplog: pytest.LogCaptureFixture) -> None:
    """R-T3: the power goes off at a write; workers and forwarders are made anew."""
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        count = await writes()
        assert count > 12
        for at in range(1, count + 1):
            for is_after in (False, True):
                store = MemoryStore()
                await prepare(store)
                await cut_once(store, at, is_after)
                network = forwarding(store)
                await network.rest()
                await check(network)
                check_forgotten(network)
                await network.close()

    asyncio.run(whole())


def test_the_power_may_go_off_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """R-T3."""
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        for step in range(1, 12):
            store = MemoryStore()
            await prepare(store)
            cuts = 0
            # Each life gets a few writes further; opening writes nothing.
            while await cut_once(store, step, is_after=cuts % 2 == 1):
                cuts += 1
                assert cuts < 200, "it comes to an end"
            network = forwarding(store)
            await network.rest()
            await check(network)
            check_forgotten(network)
            await network.close()

    asyncio.run(whole())


@pytest.mark.parametrize("is_after", [False, True])
def test_a_write_may_fail_while_all_goes_on(
    is_after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R-T2: a partition that fails is opened anew; what was in doubt is found out, and what needs
    not be remembered any more is forgotten."""
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        count = await writes()
        for at in range(1, count + 1):
            store = MemoryStore()
            await prepare(store)
            Cut(store, at, is_after, is_for_good=False)
            network = forwarding(store)
            await network.rest()
            await check(network)
            # A later message through every lane resolves what was left in doubt.
            await network.send("a", "last")
            await network.send("self", "last")
            await network.transfer("a", "c", "last")
            await network.rest()
            for path in "bc":
                assert network[path].remembered == {}, (at, path)
            assert network["self"].remembered == {}, at
            await network.close()

    asyncio.run(whole())


def test_a_transfer_tells_its_destination_what_was_taken_before_a_crash() -> None:
    """R-T3: the memory of what was taken over has a bound."""

    async def whole() -> None:
        store = MemoryStore()
        network = Network(QueueDefinition("a"), QueueDefinition("b"), store=store)
        network.open()
        for number in range(4):
            await network.transfer("a", "b", f"t{number}")
            assert sum(len(taken) for taken in network["b"].remembered.values()) >= 1
            # The process ends before anybody was told to forget.
            network = Network(QueueDefinition("a"), QueueDefinition("b"), store=store)
            network.open()
            await settle_down()
        await network.transfer("a", "b", "last")
        assert [len(taken) for taken in network["b"].remembered.values()] == [1]
        await network.rest()
        assert network["b"].remembered == {}
        assert await network.texts("b") == ["t0", "t1", "t2", "t3", "last"]
        await network.close()

    asyncio.run(whole())


def test_a_destination_may_change_while_a_run_is_in_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R-T3: the first destination has stored it and could not say so, the second one is named, and
    the source is opened anew: there is one message, and it is not lost."""
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        store = MemoryStore()
        plain = QueueDefinition("a", batched_store_access=False)
        network = Network(plain, QueueDefinition("b"), QueueDefinition("c"), store=store)
        network.open()
        await network.send("a", "x", "y")
        # The first write says where they go, the second one takes them over.
        Cut(store, 2, is_after=True, is_for_good=False)
        network.configure(QueueDefinition("a", forward_to="b", batched_store_access=False))
        await settle_down()
        assert network["b"].taken_over == [[1, 2]]
        network.configure(QueueDefinition("a", forward_to="c", batched_store_access=False))
        network["a"].worker.store_lost()
        await settle_down()
        network["a"].worker.store_back()
        restore_power(store)
        await network.rest()
        assert await network.texts("b") == ["x", "y"]
        assert await network.texts("c") == []
        assert await network.texts("a") == []
        await network.send("a", "z")
        await network.rest()
        assert await network.texts("c") == ["z"]
        await network.close()

    asyncio.run(whole())


@pytest.mark.parametrize("is_living", [True, False])
def test_a_destination_may_change_and_the_process_end_while_a_run_is_in_doubt(
    caplog: pytest.LogCaptureFixture, is_living: bool
) -> None:
    """R-T3: the change was known as long as the process lived; a crash after it doubled what the
    first destination had, and so did a change while nobody was there."""
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        store = MemoryStore()
        first = QueueDefinition("b")
        plain = QueueDefinition("a", batched_store_access=False)
        network = Network(plain, first, QueueDefinition("c"), store=store)
        network.open()
        await network.send("a", "x", "y")
        Cut(store, 2, is_after=True, is_for_good=False)
        network.configure(QueueDefinition("a", forward_to="b", batched_store_access=False))
        await settle_down()
        changed = QueueDefinition("a", forward_to="c", batched_store_access=False)
        if is_living:
            network.configure(changed)
            await settle_down()
        # The process ends here.
        restore_power(store)
        network = Network(changed, first, QueueDefinition("c"), store=store)
        network.open()
        await network.rest()
        await network.send("a", "z")
        await network.rest()
        assert sorted(await network.texts("b") + await network.texts("c")) == ["x", "y", "z"]
        assert await network.texts("a") == []
        assert "z" in await network.texts("c")
        await network.close()
        # Once nothing is in doubt, nobody is asked any more.
        network = Network(changed, first, QueueDefinition("c"), store=store)
        network.open()
        await network.rest()
        assert ways(network) == {MAIN: ["c"]}
        await network.close()

    asyncio.run(whole())


def test_nothing_goes_to_a_new_destination_before_the_first_one_has_said_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def whole() -> None:
        store = MemoryStore()
        network = Network(QueueDefinition("a", forward_to="b"), QueueDefinition("b"), store=store)
        network.open()
        await network.send("a", "x")
        await network.rest()
        changed = QueueDefinition("a", forward_to="c")
        network = Network(changed, QueueDefinition("b"), QueueDefinition("c"), store=store)
        network["b"].worker.store_lost()
        network["b"].worker.submit(Tick())
        network["b"].worker.store_lost()
        await network.send("a", "y")
        await settle_down()
        network["b"].worker.store_back()
        await network.rest()
        assert await network.texts("b") == ["x"]
        assert await network.texts("c") == ["y"]
        await network.close()
        # One that is gone has nothing, and nobody waits for it.
        network = Network(QueueDefinition("a", forward_to="d"), QueueDefinition("d"), store=store)
        network.open()
        await network.send("a", "z")
        await network.rest()
        assert await network.texts("d") == ["z"]
        await network.close()

    asyncio.run(whole())


def test_a_destination_that_has_nothing_any_more_is_not_asked_again() -> None:
    """It may be damaged: nobody waits for what it cannot say."""

    async def whole() -> None:
        store = MemoryStore()
        plain = QueueDefinition("a", forward_to="b")
        network = Network(plain, QueueDefinition("b"), QueueDefinition("c"), store=store)
        network.open()
        await network.send("a", "x")
        await network.rest()
        assert ways(network) == {MAIN: ["b"]}
        changed = QueueDefinition("a", forward_to="c")
        network.configure(changed)
        await network.rest()
        assert ways(network) == {MAIN: ["c"]}
        await network.send("a", "y")
        await network.rest()
        assert await network.texts("b") == ["x"]
        assert await network.texts("c") == ["y"]
        await network.close()

    asyncio.run(whole())


def ways(network: Network) -> dict[int, list[str]]:
    partition = network["a"].worker._partition
    assert partition is not None
    return partition._state.ways


def test_a_damaged_message_does_not_let_those_behind_it_come_twice() -> None:
    """Both arrived before a crash, and neither was completed; the first one's body is damaged."""

    async def whole() -> None:
        store = MemoryStore()
        network = Network(QueueDefinition("a"), QueueDefinition("b"), store=store)
        await network.send("a", "m1")
        await network.send("a", "m2")
        origin = Recorder()
        source = f"{network['a'].worker.id.key}|{MAIN}"
        texts = [message("m1"), message("m2")]
        await network.ask("b", TakeOver(origin, 1, source, [1, 2], texts, []))
        kept = store._partitions[network["a"].worker.id.key]
        for at, chunk in enumerate(kept.chunks):
            kept.chunks[at] = chunk.replace(b"m1", b"x1")
        network = Network(QueueDefinition("a", forward_to="b"), QueueDefinition("b"), store=store)
        network.open()
        await network.rest()
        assert await network.texts("b") == ["m1", "m2"]
        assert await network.texts("a") == []
        assert [each.sequence for each in await network.peek("a", DEAD)] == [1]
        await network.close()

    asyncio.run(whole())
