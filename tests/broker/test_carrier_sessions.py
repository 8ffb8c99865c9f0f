"""Entities with sessions that forward."""

from __future__ import annotations

import asyncio

from peeklock.entity.definition import QueueDefinition
from tests.broker.bench import settle_down
from tests.broker.test_carrier import forwarding, run, texts
from tests.broker.town import Town


def test_sessions_are_forwarded_each_in_its_order() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a", requires_session=True), QueueDefinition("b"))
        for turn in range(3):
            for name in ("red", "blue", "green"):
                await town.send("a", f"{name}{turn}", session_id=name)
        assert await town.texts("b") == []
        town.configure(forwarding("a", "b", requires_session=True))
        await settle_down()
        await town.send("a", "red3", "red4", session_id="red")
        await town.send("a", "new0", session_id="new")
        await settle_down()
        got = await town.texts("b")
        for name, count in (("red", 5), ("blue", 3), ("green", 3), ("new", 1)):
            assert [each for each in got if each.startswith(name)] == texts(count, name)
        assert len(got) == 12
        assert await town.texts("a") == []
        town["a"].check()
        return town

    run(walk)


def test_what_does_not_leave_goes_back_into_its_session() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a", requires_session=True), QueueDefinition("b"))
        await town.send("a", "x" * 200_000, "x1", session_id="x")
        await town.send("a", *["y" * 200_000 for _ in range(80)], session_id="y")
        town.configure(forwarding("a", "b", requires_session=True))
        await asyncio.sleep(0)
        town.configure(QueueDefinition("a", requires_session=True))
        await town.rest()
        there = await town.texts("b")
        here = await town.texts("a")
        assert len(there) + len(here) == 82
        assert len(here) > 40, "most had no time to leave"
        town["a"].check()
        return town

    run(walk)
