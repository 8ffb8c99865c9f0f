"""Requests that take longer than their clients allow hear so, while the store hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

import pytest

from peeklock.amqp.messages.message import AmqpMessage, decode_message
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int, Uint
from peeklock.entity.records import Record
from peeklock.gateway.amqp.management.timeouts import RequestTimeouts, wait_ms_of
from peeklock.gateway.amqp.nodes.cbs import CREDIT
from peeklock.gateway.amqp.nodes.transactions import NO_DEADLINE
from peeklock.store.memory import MemoryStore
from peeklock.store.store import PartitionId
from tests.gateway.amqp.amqp_harness import AmqpHarness, plain, request, serve
from tests.gateway.amqp.management.test_node import ManagementLinks, tokens
from tests.store.failing import FailingStore

NAMES = ("com.microsoft:server-timeout", "server-timeout")


@final
class HangingStore(FailingStore):
    """Appends wait while it hangs."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        return self._append(partition, epoch, first_position, records, replay_from)

    async def _append(self, *given: Any) -> int:
        await self.goes_on.wait()
        return await self.store.append(*given)


class HangingNode(ManagementLinks):
    """A client at the management node of a queue whose store hangs."""

    def post(self, operation: str, body: Any, **properties: Any) -> None:
        name = {"operation": f"com.microsoft:{operation}"}
        self.client.post(self.links[0], request(name | properties, body, "id-1"))

    def schedule(self, **properties: Any) -> None:
        """Ask for what is written down: a message is scheduled."""
        entry = {"message-id": "m", "message": plain("later")}
        self.post("schedule-message", {"messages": [entry]}, **properties)

    def answers(self) -> list[AmqpMessage]:
        return [decode_message(each.payload) for each in self.client.arrived(self.links[1])]

    def statuses(self) -> list[int]:
        return [(each.application_properties or {})["statusCode"] for each in self.answers()]

    async def wait(self, duration_ms: int) -> None:
        await self.bus.advance(self.client, duration_ms)


def hanging(test: Callable[[AmqpHarness, HangingStore], Awaitable[None]]) -> None:
    """Run a test with a store that can hang."""
    store = HangingStore()
    serve(lambda bus: test(bus, store), store=store)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_is_answered_in_the_time_that_its_client_allows(name: str) -> None:
    """Python, Java and Go say how long, each a second less than they wait themselves."""

    async def talk(bus: AmqpHarness, store: HangingStore) -> None:
        node = await HangingNode.open(bus, "a")
        store.goes_on.clear()
        node.schedule(**{name: Uint(1_500)})
        await node.wait(1_499)
        assert node.answers() == []
        await node.wait(1)
        [answer] = node.answers()
        assert answer.properties is not None
        assert answer.properties.correlation_id == "id-1"
        told = answer.application_properties or {}
        assert (told["statusCode"], told["errorCondition"]) == (408, "com.microsoft:timeout")
        assert "within the allotted timeout of 00:00:01.5000000." in told["statusDescription"]
        # It was done nevertheless, and its reply is nobody's.
        store.goes_on.set()
        await node.wait(0)
        assert node.answers() == []
        assert len(await node.peeked()) == 2

    hanging(talk)


@pytest.mark.parametrize("more", [{}, {NAMES[0]: Uint(0)}, {NAMES[0]: True}, {NAMES[0]: "1"}])
def test_a_client_that_allows_no_time_waits_for_the_answer(more: dict[str, Any]) -> None:
    """Who has less than a second left says 0, and would have given up before."""

    async def talk(bus: AmqpHarness, store: HangingStore) -> None:
        node = await HangingNode.open(bus, "a")
        store.goes_on.clear()
        node.schedule(**more)
        await node.wait(200_000)
        assert node.answers() == []
        store.goes_on.set()
        await node.wait(0)
        assert node.statuses() == [200]

    hanging(talk)


def test_what_is_deleted_by_the_asking_is_answered_however_late() -> None:
    """R-S1: a message that was received and deleted is in that answer only."""

    async def talk(bus: AmqpHarness, store: HangingStore) -> None:
        node = await HangingNode.open(bus, "a")
        link = await node.client.receiver(credit=1)
        [delivery] = node.client.arrived(link)
        await node.ask(
            "update-disposition", disposition_status="defered", lock_tokens=tokens(delivery)
        )
        store.goes_on.clear()
        wish = {"sequence-numbers": Array(LONG, [1]), "receiver-settle-mode": Uint(0)}
        node.post("receive-by-sequence-number", wish, **{NAMES[0]: Uint(1_000)})
        await node.wait(5_000)
        assert node.answers() == []
        store.goes_on.set()
        await node.wait(0)
        assert node.statuses() == [200]

    hanging(talk)


def test_requests_that_were_given_up_count_as_under_way_until_the_reply() -> None:
    """A client cannot pile up work at a store that hangs by allowing a millisecond."""

    async def talk(bus: AmqpHarness, store: HangingStore) -> None:
        node = await HangingNode.open(bus, "a")
        store.goes_on.clear()
        for _ in range(CREDIT):
            node.schedule(**{NAMES[0]: Uint(1)})
        await node.wait(1)
        assert node.statuses() == [408] * CREDIT
        assert node.links[0].credit == 0
        store.goes_on.set()
        await node.wait(0)
        assert node.links[0].credit == CREDIT
        assert node.answers() == []

    hanging(talk)


@final
class Waiting:
    """Requests by their tags."""

    def __init__(self) -> None:
        self.tags: set[int] = set()
        self.late: list[tuple[int, int]] = []

    def is_waiting(self, tag: int) -> bool:
        return tag in self.tags

    def timed_out(self, tag: int, waited_ms: int) -> None:
        self.late.append((tag, waited_ms))


def test_those_that_were_answered_are_not_kept() -> None:
    timeouts, node = RequestTimeouts(), Waiting()
    node.tags.add(7)
    for tag in range(100_000):
        timeouts.begin(node, tag, 60_000)
        assert timeouts.next_due(tag) == (60_000 if tag < 64 else 60_007)
        assert len(timeouts._heap) <= 65
    timeouts.clear()
    assert timeouts.next_due(0) == NO_DEADLINE


def test_very_many_are_told_in_several_passes() -> None:
    timeouts, node = RequestTimeouts(), Waiting()
    for tag in range(250):
        node.tags.add(tag)
        timeouts.begin(node, tag, 500 - tag)
    assert timeouts.next_due(0) == 251
    passes = 0
    while timeouts.next_due(500) <= 500:
        timeouts.expire(500)
        passes += 1
    assert passes == 3
    assert node.late == [(tag, 500 - tag) for tag in reversed(range(250))]


def test_the_time_is_read() -> None:
    assert wait_ms_of({NAMES[0]: Uint(7), NAMES[1]: 8}) == 7
    assert wait_ms_of({NAMES[1]: Int(8)}) == 8
    assert wait_ms_of({NAMES[0]: -1}) == 0
