"""The sender against the engine itself: what leaves first, how large, and what is never lost."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.amqp.values.types import Symbol, Ulong
from peeklock.client.exceptions import ServiceBusConnectionError
from peeklock.client.message import ServiceBusMessage
from peeklock.client.sender import ServiceBusSender
from tests.amqp.batches import batch_messages
from tests.client.engine_broker import Bench, turns, until

HOUR_S = 3600.0


class NoToken:
    """A credential that is of no use today, in its own words."""

    async def token(self, audience: str, now: int) -> Any:
        raise LookupError(f"nobody knows {audience} at {now}")


def run(body: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def inside() -> None:
        async with Bench(**options) as bench, asyncio.timeout(10):
            await body(bench)

    asyncio.run(inside())


def arrived(bench: Bench) -> list[bytes]:
    found: list[bytes] = []
    for delivery in bench.broker.arrived:
        payloads = [delivery.payload]
        if delivery.message_format:
            payloads = batch_messages(delivery.payload)
        found += [b"".join(decode_message(payload).body) for payload in payloads]
    return found


@pytest.mark.parametrize("interval_s", [0.0, HOUR_S])
@pytest.mark.parametrize("held", [1, 3])
@pytest.mark.parametrize("is_open", [True, False])
def test_what_is_sent_comes_behind_what_was_given_before(
    interval_s: float, held: int, is_open: bool
) -> None:
    """R-F2."""

    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=interval_s)
        if is_open:
            await sender.send_messages(ServiceBusMessage(b"first"))
            bench.broker.arrived.clear()
        soon = [sender.send_soon(ServiceBusMessage(b"%d" % at)).outcome for at in range(held)]
        await sender.send_messages(ServiceBusMessage(b"last"))
        await asyncio.gather(*soon)
        assert arrived(bench) == [*(b"%d" % at for at in range(held)), b"last"]
        await sender.close()

    run(body)


def test_a_message_alone_in_its_batch_is_not_overtaken_by_the_next_batch() -> None:
    """R-F2."""

    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=HOUR_S)
        await sender.send_messages(ServiceBusMessage(b""))
        bench.broker.arrived.clear()
        large = [b"a" * 200_000, b"b" * 100_000, b"c" * 100_000]
        for content in large:
            sender.send_soon(ServiceBusMessage(content))
        await sender.flush()
        assert arrived(bench) == large
        await sender.close()

    run(body)


@pytest.mark.parametrize("interval_s", [0.0, 0.001])
def test_what_fails_elsewhere_than_at_the_broker_is_told_too(interval_s: float) -> None:
    """R-T7: a failed send always surfaces, whoever made it fail."""

    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=interval_s)
        soon = [sender.send_soon(ServiceBusMessage("x")).outcome for _ in range(3)]
        results = await asyncio.gather(*soon, return_exceptions=True)
        assert [type(result) for result in results] == [LookupError] * 3
        told: list[Exception] = []
        other = ServiceBusSender(
            bench.connection, "q", on_error=lambda _message, error: told.append(error)
        )
        other.send_soon(ServiceBusMessage("x"))
        await other.close()
        assert [type(error) for error in told] == [LookupError]
        await sender.close()

    run(body, credential=NoToken())


def test_a_sender_that_is_closing_takes_nothing_more_and_sends_what_it_has() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=HOUR_S)
        await sender.send_messages(ServiceBusMessage("first"))
        bench.broker.accepts = False
        soon = sender.send_soon(ServiceBusMessage("held")).outcome
        closing = asyncio.ensure_future(sender.close())
        await until(lambda: len(bench.broker.arrived) == 2)
        with pytest.raises(ValueError, match="closed"):
            sender.send_soon(ServiceBusMessage("late"))
        link = bench.broker.links["to q"]
        link.settle([bench.broker.arrived[-1].id], b"\x00\x53\x24\x45")
        bench.broker.flush()
        await soon
        await closing

    run(body)


@pytest.mark.parametrize(
    ("said", "size"), [(None, 262_144), (100_000, 100_000), (10**9, 262_144), (0, 262_144)]
)
def test_batches_may_be_smaller_than_single_messages(said: int | None, size: int) -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage("q", "com.microsoft:any", {})
        if said is not None:
            name = Symbol("com.microsoft:max-message-batch-size")
            bench.broker.link_properties = {name: Ulong(said)}
        sender = ServiceBusSender(bench.connection, "q")
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == size
        await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        with pytest.raises(ValueError, match=f"{size} bytes at most"):
            await sender.create_message_batch(size + 1)
        await sender.close()

    run(body)


def test_anything_that_can_be_iterated_is_several_messages() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q")
        await sender.send_messages(ServiceBusMessage(each) for each in "abc")
        await sender.send_messages({"body": "d"})
        assert arrived(bench) == [b"a", b"b", b"c", b"d"]
        for wrong in ("text", b"bytes", None, 5):
            with pytest.raises(TypeError, match="is not a message"):
                await sender.send_messages(wrong)  # type: ignore[arg-type]  # it is wrong
        await sender.close()

    run(body)


def test_no_time_at_all_is_refused() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q")
        message = ServiceBusMessage("x")
        for wrong in (0, -1.0):
            with pytest.raises(ValueError, match="timeout"):
                await sender.send_messages(message, timeout=wrong)
            with pytest.raises(ValueError, match="timeout"):
                await sender.schedule_messages(message, datetime.now(UTC), timeout=wrong)
            with pytest.raises(ValueError, match="timeout"):
                await sender.cancel_scheduled_messages(5, timeout=wrong)
        await sender.close()

    run(body)


def test_a_message_does_not_leave_after_its_sender_was_closed() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q")
        sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("late")))
        # The token is shown before the link is asked for.
        await until(lambda: bench.brokers and bench.broker.tokens)
        assert "to q" not in bench.broker.links
        await sender.close()
        with pytest.raises((ValueError, ServiceBusConnectionError), match="closed"):
            await sending
        await until(lambda: not bench.broker.links["to q"].attached)
        assert bench.broker.arrived == []

    run(body)


def test_whoever_closes_too_waits_for_what_the_first_one_sends() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=HOUR_S)
        await sender.send_messages(ServiceBusMessage("open"))
        bench.broker.accepts = False
        outcome = sender.send_soon(ServiceBusMessage("soon")).outcome
        first = asyncio.ensure_future(sender.close())
        await until(lambda: arrived(bench) == [b"open", b"soon"])
        second = asyncio.ensure_future(sender.close())
        await turns()
        assert not second.done()
        bench.broker.links["to q"].settle([bench.broker.arrived[-1].id], ACCEPTED)
        bench.broker.flush()
        await outcome
        await first
        await second

    run(body)


def test_a_close_that_was_cancelled_holds_nobody_up() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q", flush_interval=HOUR_S)
        await sender.send_messages(ServiceBusMessage("open"))
        bench.broker.accepts = False
        outcome = sender.send_soon(ServiceBusMessage("soon")).outcome
        first = asyncio.ensure_future(sender.close())
        await until(lambda: arrived(bench) == [b"open", b"soon"])
        first.cancel()
        await sender.close()
        await bench.connection.close()
        with pytest.raises((ValueError, ServiceBusConnectionError)):
            await outcome

    run(body)
