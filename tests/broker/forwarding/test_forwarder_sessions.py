"""Entities with sessions that forward."""

from __future__ import annotations

import asyncio

from peeklock.entity.definition import QueueDefinition
from tests.broker.broker_harness import settle_down
from tests.broker.forwarding.harness import Network
from tests.broker.forwarding.test_forwarder import forwarding, run, texts


def test_sessions_are_forwarded_each_in_its_order() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a", requires_session=True), QueueDefinition("b"))
        for turn in range(3):
            for name in ("red", "blue", "green"):
                await network.send("a", f"{name}{turn}", session_id=name)
        assert await network.texts("b") == []
        network.configure(forwarding("a", "b", requires_session=True))
        await settle_down()
        await network.send("a", "red3", "red4", session_id="red")
        await network.send("a", "new0", session_id="new")
        await settle_down()
        got = await network.texts("b")
        for name, count in (("red", 5), ("blue", 3), ("green", 3), ("new", 1)):
            assert [each for each in got if each.startswith(name)] == texts(count, name)
        assert len(got) == 12
        assert await network.texts("a") == []
        network["a"].check()
        return network

    run(walk)


def test_what_does_not_leave_goes_back_into_its_session() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a", requires_session=True), QueueDefinition("b"))
        await network.send("a", "x" * 200_000, "x1", session_id="x")
        await network.send("a", *["y" * 200_000 for _ in range(80)], session_id="y")
        network.configure(forwarding("a", "b", requires_session=True))
        await asyncio.sleep(0)
        network.configure(QueueDefinition("a", requires_session=True))
        await network.rest()
        there = await network.texts("b")
        here = await network.texts("a")
        assert len(there) + len(here) == 82
        assert len(here) > 40, "most had no time to leave"
        network["a"].check()
        return network

    run(walk)
