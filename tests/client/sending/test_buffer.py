"""Back-pressure: what `send_soon` holds is bounded, and nothing is lost for want of room."""

import asyncio

import pytest

from peeklock.amqp.messages.message import decode_message
from peeklock.client.exceptions import ServiceBusError
from peeklock.client.message import ServiceBusMessage
from peeklock.client.sending.batching import WINDOW, SendBatching
from peeklock.client.sending.buffer import Buffered, SendBuffer
from tests.client.engine_broker import turns
from tests.client.sending.test_batching import HOUR_S, Line, batching, buffered, run


async def answer(line: Line) -> None:
    """Answer all that is sent until nothing more comes."""
    await turns()
    while line.waiting:
        line.waiting.pop(0).set_result(None)
        await turns()


def texts(line: Line) -> list[bytes]:
    return [b"".join(decode_message(each).body) for batch in line.sent for each in batch]


def waits(target: SendBatching, message: str) -> "asyncio.Task[object]":
    """Wait for room in a task."""

    async def wait() -> object:
        return await target.put(message, ServiceBusMessage(message).encoded(), None)

    return asyncio.create_task(wait())


@pytest.mark.parametrize("interval_s", [0.0, HOUR_S])
def test_a_full_buffer_is_waited_for(interval_s: float) -> None:
    async def test() -> None:
        line = Line(answers=False)
        buffer = SendBuffer(2, 10_000)
        target = batching(line, interval_s, buffer=buffer)
        first, second = [await each for each in buffered(target, "a", "b")]
        third = waits(target, "c")
        await turns()
        # What was held for company has left: nobody can join it any more.
        assert (third.done(), sum(line.counts), buffer.messages) == (False, 2, 2)
        await answer(line)
        outcome = await third
        assert isinstance(outcome, asyncio.Future)
        target.push()
        await answer(line)
        await asyncio.gather(first, second, outcome)
        assert texts(line) == [b"a", b"b", b"c"]
        assert (buffer.messages, buffer.size) == (0, 0)

    run(test)


def test_bytes_count_as_well_and_one_too_large_goes_alone() -> None:
    async def test() -> None:
        line = Line(answers=False)
        buffer = SendBuffer(1_000, 100)
        target = batching(line, HOUR_S, size_max=1_000, buffer=buffer)
        large, small = buffered(target, "x" * 500, "y")
        await large
        waiting = asyncio.ensure_future(_wait(small))
        await turns()
        assert (line.counts, buffer.messages, waiting.done()) == ([1], 1, False)
        await answer(line)
        await waiting
        await asyncio.gather(target.flush(), answer(line))
        assert buffer.messages == 0

    run(test)


async def _wait(each: Buffered) -> None:
    await each


def test_nothing_is_lost_when_nobody_awaits() -> None:
    async def test() -> None:
        line = Line()
        buffer = SendBuffer(3, 10_000)
        target = batching(line, HOUR_S, buffer=buffer)
        outcomes = [each.outcome for each in buffered(target, *map(str, range(100)))]
        await target.flush()
        assert all(outcome.done() for outcome in outcomes)
        assert texts(line) == [b"%d" % at for at in range(100)]
        assert max(line.counts) <= 3

    run(test)


def test_a_wait_that_is_cancelled_takes_its_message_back() -> None:
    async def test() -> None:
        line = Line(answers=False)
        target = batching(line, HOUR_S, buffer=SendBuffer(1, 10_000))
        buffered(target, "a")
        given_up, next_one = waits(target, "never"), waits(target, "b")
        await turns()
        given_up.cancel()
        await turns()
        assert given_up.cancelled()
        await asyncio.gather(target.flush(), answer(line))
        await next_one
        assert texts(line) == [b"a", b"b"]

    run(test)


def test_failures_make_room_too() -> None:
    async def test() -> None:
        line = Line()
        line.refuses = lambda _: ServiceBusError("no")
        buffer = SendBuffer(2, 10_000)
        target = batching(line, HOUR_S, buffer=buffer)
        outcomes = [await each for each in buffered(target, "a", "b", "c", "d", "e")]
        target.push()
        results = await asyncio.gather(*outcomes, return_exceptions=True)
        assert [type(each) for each in results] == [ServiceBusError] * 5
        assert buffer.messages == 0

    run(test)


def test_what_gives_way_leaves_behind_what_waits_for_room() -> None:
    """R-F2: what is sent comes behind what was given before."""

    async def test() -> None:
        line = Line(answers=False)
        target = batching(line, HOUR_S, buffer=SendBuffer(1, 10_000))
        buffered(target, *"abc")
        giving = asyncio.create_task(target.give_way())
        await turns()
        assert not giving.done()
        for expected in ([1, 1], [1, 1, 1]):
            assert not giving.done()
            line.waiting.pop(0).set_result(None)
            await turns()
            assert line.counts == expected
        await giving
        await answer(line)

    run(test)


def test_a_busy_line_with_a_small_buffer_goes_on_without_the_interval() -> None:
    async def test() -> None:
        line = Line()
        target = batching(line, HOUR_S, buffer=SendBuffer(WINDOW, 10_000))
        async with asyncio.timeout(5):
            for at in range(200):
                await target.put(at, ServiceBusMessage("x").encoded(), None)
            await target.flush()
        assert sum(line.counts) == 200

    run(test)


@pytest.mark.parametrize(("messages", "size"), [(0, 1), (1, 0), (-1, 5)])
def test_a_buffer_without_room_makes_no_sense(messages: int, size: int) -> None:
    with pytest.raises(ValueError, match="max_pending_"):
        SendBuffer(messages, size)
