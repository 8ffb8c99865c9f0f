"""Receivers that wait by REST: as long as they say, and nothing is lost with one that hangs up."""

from __future__ import annotations

import asyncio

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.entity.definition import QueueDefinition
from tests.broker.broker_harness import settle_down, until
from tests.gateway.http.messages.rest_harness import RestHarness, queue, serve


@pytest.mark.parametrize("timeout", ["-1", "x", "", "1.5", "9999999999", "%D9%A3"])
def test_a_wrong_timeout_is_refused(timeout: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask("POST", f"/q/messages/head?timeout={timeout}")
        assert answered.status == 400
        assert "timeout" in answered.detail

    serve(scenario)


@pytest.mark.parametrize("definition", [queue(), queue(partitions=4)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_receiver_waits_for_a_message(method: str, definition: QueueDefinition) -> None:
    async def scenario(rest: RestHarness) -> None:
        # The longest wait is the default, and more is taken for it.
        for query in ("", "?timeout=999999", "?api-version=2015-01&Timeout=60"):
            caller = await rest.connect()
            caller.write(method, f"/q/messages/head{query}")
            await settle_down()
            await rest.send(b"late")
            answered = await caller.answer()
            assert answered.status == (201 if method == "POST" else 200)
            assert answered.body == b"late"
            await caller.close()

    serve(scenario, definition)


@pytest.mark.parametrize("definition", [queue(), queue(partitions=4)], ids=["plain", "partitioned"])
def test_a_receiver_waits_as_long_as_it_says(definition: QueueDefinition) -> None:
    async def scenario(rest: RestHarness) -> None:
        began = asyncio.get_running_loop().time()
        assert (await rest.ask("DELETE", "/q/messages/head?timeout=1")).status == 204
        assert 0.9 < asyncio.get_running_loop().time() - began < 3
        # And has left nothing behind that would take a message.
        await rest.send(b"x")
        assert (await rest.take()).properties["DeliveryCount"] == 1

    serve(scenario, definition)


@pytest.mark.parametrize("definition", [queue(), queue(partitions=4)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("way", ["close", "abort", "half"])
def test_nothing_is_lost_with_a_client_that_hangs_up(
    way: str, method: str, definition: QueueDefinition
) -> None:
    """R-S1: what was not handed over is there for the next one, and was not counted."""

    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.write(method, "/q/messages/head")
        await until(lambda: any(each._task for each in rest.connections))
        await settle_down()
        if way == "close":
            caller.writer.close()
        elif way == "abort":
            caller.writer.transport.abort()
        else:
            caller.writer.write_eof()
            assert (await caller.answer()).status == 204
        await until(lambda: not rest.connections)
        await rest.send(b"x")
        taken = await rest.take()
        assert (taken.body, taken.properties["DeliveryCount"]) == (b"x", 1)
        await caller.close()

    serve(scenario, definition)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_message_that_comes_for_a_client_that_is_just_gone_is_given_back(method: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.write(method, "/q/messages/head")
        await until(lambda: any(each._task for each in rest.connections))
        await settle_down()
        (connection,) = rest.connections
        assert connection._caller is not None
        # The message is on its way to the receiver when the client leaves.
        client = await rest.bus.authorized()
        link = await client.sender()
        client.post(link, encode_message(AmqpMessage(body_kind=DATA_BODY, body=[b"x"])))
        client.peer.receive(client.connection.take_output(), rest.clock.now())
        connection._caller.left()
        assert (await caller.answer()).status == 204
        taken = await rest.take()
        assert (taken.body, taken.properties["DeliveryCount"]) == (b"x", 1)
        await caller.close()

    serve(scenario)


def test_a_client_may_ask_for_more_while_it_waits() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.write("DELETE", "/q/messages/head")
        for _ in range(3):
            caller.write("POST", "/t/messages", bytes(60_000))
        await settle_down()
        await rest.send(b"x")
        assert (await caller.answer()).body == b"x"
        for _ in range(3):
            assert (await caller.answer()).status == 201
        assert (await rest.counted("t/subscriptions/s")).active == 3
        await caller.close()

    serve(scenario)


def test_a_receiver_is_told_when_its_entity_goes() -> None:
    async def scenario(rest: RestHarness) -> None:
        for path, status in (("q", 410), ("t/subscriptions/s", 410)):
            caller = await rest.connect()
            caller.write("POST", f"/{path}/messages/head")
            await until(lambda: any(each._task for each in rest.connections))
            await settle_down()
            await rest.broker.remove(path)
            answered = await caller.answer()
            assert answered.status == status
            assert answered.detail
            await caller.close()
            await until(lambda: not rest.connections)
            assert (await rest.ask("POST", f"/{path}/messages/head")).status == 404

    serve(scenario)


def test_a_receiver_whose_entity_changes_may_ask_again() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.write("POST", "/q/messages/head")
        await until(lambda: any(each._task for each in rest.connections))
        await settle_down()
        await rest.broker.put_queue(queue(status="ReceiveDisabled"))
        assert (await caller.answer()).status == 204
        answered = await caller.ask("POST", "/q/messages/head")
        assert answered.status == 400
        assert "disabled" in answered.detail
        await caller.close()

    serve(scenario)


def test_many_wait_without_a_thread() -> None:
    """R-N5"""

    async def scenario(rest: RestHarness) -> None:
        callers = [await rest.connect() for _ in range(50)]
        for caller in callers:
            caller.write("DELETE", "/q/messages/head")
        await until(lambda: all(each._task for each in rest.connections))
        await settle_down()
        for number in range(50):
            await rest.send(b"%d" % number)
        got = {(await caller.answer()).body for caller in callers}
        assert got == {b"%d" % number for number in range(50)}
        for caller in callers:
            await caller.close()

    serve(scenario)


@pytest.mark.parametrize("definition", [queue(), queue(partitions=4)], ids=["plain", "partitioned"])
def test_a_broker_that_stops_tells_those_who_wait(definition: QueueDefinition) -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.write("DELETE", "/q/messages/head")
        caller.write("POST", "/q/messages", b"not any more")
        await until(lambda: any(each._task for each in rest.connections))
        await settle_down()
        idle = await rest.connect()
        for connection in list(rest.connections):
            connection.shut_down()
        assert (await caller.answer()).status == 204
        for each in (caller, idle):
            assert await each.reader.read() == b""
            await each.close()
        assert (await rest.counted()).active == 0

    serve(scenario, definition)


def test_nothing_is_handed_to_a_client_that_does_not_read() -> None:
    async def scenario(rest: RestHarness) -> None:
        size = 200_000
        for _ in range(30):
            await rest.send(bytes(size))
        caller = await rest.connect()
        for _ in range(30):
            caller.write("DELETE", "/q/messages/head?timeout=0")
        # More than any socket takes; the rest is ours to hold, or not to hand out.
        await until(lambda: any(each._is_choked for each in rest.connections))
        await settle_down()
        assert (await rest.counted()).active > 10
        for _ in range(30):
            assert len((await caller.answer()).body) == size
        assert (await rest.counted()).active == 0
        # And what comes while nobody reads is bounded too.
        caller.write("DELETE", "/q/messages/head?timeout=0")
        assert (await caller.answer()).status == 204
        await caller.close()

    serve(scenario)
