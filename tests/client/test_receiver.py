"""The receiver against the engine itself: closing while others use it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peeklock.amqp.values.composites import ACCEPTED, RELEASED
from peeklock.client.exceptions import ServiceBusConnectionError
from peeklock.client.message import ServiceBusMessage
from peeklock.client.receiver import ServiceBusReceiver
from tests.client.engine_broker import Bench, turns, until


def run(body: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def inside() -> None:
        async with Bench(**options) as bench, asyncio.timeout(10):
            await body(bench)

    asyncio.run(inside())


@pytest.mark.parametrize("count", [1, 5])
def test_what_comes_to_a_receiver_that_is_closing_goes_back(count: int) -> None:
    async def body(bench: Bench) -> None:
        receiver = ServiceBusReceiver(bench.connection, "q")
        waiting = asyncio.ensure_future(receiver.receive_messages(count))
        await until(lambda: bench.brokers and "from q" in bench.broker.links)
        link = bench.broker.links["from q"]
        await until(lambda: link.credit == count and not link.drain)
        closing = asyncio.ensure_future(receiver.close())
        # It was on its way when the credit was taken back.
        bench.broker.deliver(link, ServiceBusMessage("x").encoded())
        bench.broker.flush()
        with pytest.raises((ValueError, ServiceBusConnectionError), match="closed"):
            await waiting
        await closing
        assert [event.outcome for event in bench.broker.settled] == [RELEASED]

    run(body)


def test_a_receiver_that_is_closing_settles_what_it_has_and_takes_nothing_more() -> None:
    async def body(bench: Bench) -> None:
        receiver = ServiceBusReceiver(bench.connection, "q", flush_interval=3600)
        await receiver.open()
        bench.broker.stock = [ServiceBusMessage(each).encoded() for each in "ab"]
        first, second = await receiver.receive_messages(2, 1)
        bench.broker.answers_settlements = None
        outcome = receiver.complete_soon(first)
        closing = asyncio.ensure_future(receiver.close())
        await until(lambda: bench.broker.settled)
        with pytest.raises(ValueError, match="closed"):
            receiver.complete_soon(second)
        also = asyncio.ensure_future(receiver.close())
        await turns()
        assert not also.done()
        [event] = bench.broker.settled
        event.link.settle([delivery.id for delivery in event.deliveries], ACCEPTED)
        bench.broker.flush()
        await outcome
        await closing
        await also

    run(body)


def test_a_link_that_was_being_opened_when_its_receiver_was_closed_does_not_stay() -> None:
    async def body(bench: Bench) -> None:
        receiver = ServiceBusReceiver(bench.connection, "q")
        waiting = asyncio.ensure_future(receiver.receive_messages(1))
        # The token is shown before the link is asked for.
        await until(lambda: bench.brokers and bench.broker.tokens)
        assert "from q" not in bench.broker.links
        await receiver.close()
        with pytest.raises((ValueError, ServiceBusConnectionError), match="closed"):
            await waiting
        await until(lambda: not bench.broker.links["from q"].attached)

    run(body)


def test_a_message_that_is_given_twice_is_refused_and_stays_as_it_is() -> None:
    async def body(bench: Bench) -> None:
        receiver = ServiceBusReceiver(bench.connection, "q")
        await receiver.open()
        bench.broker.stock = [ServiceBusMessage("x").encoded()]
        [message] = await receiver.receive_messages(1, 1)
        with pytest.raises(ValueError, match="given twice"):
            await receiver.complete_messages([message, message])
        with pytest.raises(ValueError, match="given twice"):
            receiver.release_messages([message, message])
        await receiver.complete_messages([message])
        await receiver.close()

    run(body)
