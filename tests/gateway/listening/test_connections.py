"""The skin of a connection and the care for all of them, over real sockets without a port."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from peeklock.amqp.events import Closed, Opened
from peeklock.amqp.frames.termini import Target
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from peeklock.gateway.amqp.protocol import AmqpProtocol
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.listening.connections import AmqpConnections, HttpConnections
from peeklock.gateway.quotas.shared_limits import SharedLimits
from tests.broker.broker_harness import settle_down, until
from tests.gateway.amqp.amqp_harness import AmqpHarness, serve
from tests.gateway.callers import Caller
from tests.gateway.sockets import connected


async def call(connections: AmqpConnections) -> Caller:
    return Caller(*await connected(connections.protocol))


def run(test: Callable[[AmqpHarness], Awaitable[None]], **options: Any) -> None:
    async def limited(bus: AmqpHarness) -> None:
        await asyncio.wait_for(test(bus), 10)

    serve(limited, **options)


def test_a_connection_opens_over_a_socket() -> None:
    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts)
        caller = await call(connections)
        opened = await caller.until(Opened)
        assert opened.open.container_id == "the-broker"
        assert connections.count == 1
        caller.writer.close()
        await caller.writer.wait_closed()

    run(talk)


def test_an_unauthenticated_connection_whose_place_is_needed_is_told_so() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(
            bus.namespace_contexts, shared_limits=SharedLimits(unauthenticated_max=1)
        )
        first = await call(connections)
        await first.until(Opened)
        second = await call(connections)
        await second.until(Opened)
        closed = await first.until(Closed)
        assert closed.error.condition == "amqp:connection:forced"
        with suppress(ConnectionError):  # its answer may find nobody
            await first.until_closed()
        second.writer.close()
        await second.writer.wait_closed()

    run(talk)


def test_the_timer_closes_a_connection_without_a_token() -> None:
    """The clock stands still; the time allowed is none."""

    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts)
        caller = await call(connections)
        closed = await caller.until(Closed)
        assert closed.error.condition == "amqp:connection:forced"
        await caller.until_closed()
        caller.writer.close()
        await caller.writer.wait_closed()

    run(talk, limits=GatewayLimits(token_timeout_ms=0))


def test_a_stop_sees_every_client_off() -> None:
    """R-S8: each is told why; one that does not answer is not waited for."""

    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts)
        caller = await call(connections)
        await caller.until(Opened)
        stopping = asyncio.ensure_future(connections.stop())
        closed = await caller.until(Closed)
        assert closed.error.condition == "amqp:connection:forced"
        await stopping
        assert connections.count == 0
        caller.writer.close()
        await caller.writer.wait_closed()

    run(talk)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """What waits for it in memory has a limit."""

    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts, output_bytes_max=1_000)
        protocols: list[AmqpProtocol] = []

        def made() -> AmqpProtocol:
            protocols.append(AmqpProtocol(bus.namespace_contexts, connections))
            return protocols[-1]

        _, writer = await connected(made)
        for _ in range(64):
            protocols[0].write(bytes(65_536))
        while connections.count:
            await settle_down()
        writer.transport.abort()

    run(talk)


def test_reading_is_held_and_resumed() -> None:
    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts)
        caller = await call(connections)
        session = caller.machine.begin_session()
        session.attach_sender("l", Target(address="$cbs"))
        await caller.until(Opened)
        (protocol,) = connections._connections
        protocol.hold_reading()
        protocol.pause_writing()
        protocol.resume_writing()
        protocol.resume_reading()
        caller.machine.close()
        await caller.until(Closed)
        await caller.until_closed()
        caller.writer.close()
        await caller.writer.wait_closed()

    run(talk)


class Asked:
    """A connection with so many grants; counts what is looked at."""

    def __init__(self, grants: int) -> None:
        self.grants = grants
        self.begun = 0
        self.looked = 0

    def rights_changed(self) -> int:
        self.begun += 1
        return self.grants

    def review(self, count: int) -> None:
        self.looked += count


def test_rights_are_reviewed_in_short_steps_and_in_turn() -> None:
    """Steady changes began anew with the same connections each time."""

    async def talk(bus: AmqpHarness) -> None:
        connections = AmqpConnections(bus.namespace_contexts)
        asked = [Asked(10_000 if number < 3 else number % 3) for number in range(300)]
        for each in asked:
            connections.joined(each)  # type: ignore[arg-type]  # what is counted here
        assert bus.namespace_contexts.on_keys_changed is not None
        longest = 0
        before = 0
        for _ in range(150):
            bus.namespace_contexts.on_keys_changed()
            await asyncio.sleep(0)
            looked = sum(each.looked for each in asked)
            longest = max(longest, looked - before)
            before = looked
        assert longest <= 512
        assert all(each.begun for each in asked)
        assert sum(each.looked == each.grants * each.begun for each in asked) >= 299
        await until(lambda: all(each.looked == each.grants * each.begun for each in asked))

    run(talk)


def test_the_limits_that_are_given_hold_although_nobody_is_there_yet() -> None:
    connection_quota = HttpConnectionQuota(connections_max=5)
    assert (
        HttpConnections(Health(), connection_quota=connection_quota).connection_quota
        is connection_quota
    )
