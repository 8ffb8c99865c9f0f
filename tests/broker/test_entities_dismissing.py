"""An entity that goes takes its links with it, however many there are."""

from __future__ import annotations

import asyncio

from peeklock.broker.entities import DISMISSED_AT_ONCE, AttachedLinks
from peeklock.clock import ManualClock
from peeklock.entity.refusals import ENTITY_NOT_FOUND, Refusal


class Link:
    def __init__(self) -> None:
        self.told: list[Refusal] = []

    def dismiss(self, refusal: Refusal) -> None:
        self.told.append(refusal)


def test_many_links_are_dismissed_some_at_a_time() -> None:
    async def scenario() -> None:
        attached_links = AttachedLinks(ManualClock())
        links = [Link() for _ in range(3 * DISMISSED_AT_ONCE + 1)]
        for link in links:
            attached_links.add(link)
        refusal = Refusal(ENTITY_NOT_FOUND, "gone")
        attached_links.dismiss(refusal)
        assert len(attached_links) == 0
        turns = 1
        while not all(link.told for link in links):
            assert sum(len(link.told) for link in links) == turns * DISMISSED_AT_ONCE
            await asyncio.sleep(0)
            turns += 1
        assert turns == 4
        assert all(link.told == [refusal] for link in links)

    asyncio.run(scenario())
