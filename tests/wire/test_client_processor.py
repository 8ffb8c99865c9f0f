"""The processor of our own client: bounded calls, settled by what becomes of them (R-F5)."""

import asyncio
from typing import Any

import pytest

from peeklock.client import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from peeklock.client.connections.connection_string import parse_connection_string
from peeklock.client.credentials import SasKey, Token
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, Queues
from tests.wire.own_client import run_with, send, take


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110  what is waited for is the broker's, not the loop's
        await asyncio.sleep(0.01)


def test_calls_are_bounded_and_messages_completed(broker: BrokerProcess, queue: str) -> None:
    """R-F5."""

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(str(n)) for n in range(60)])
        running, most, seen = 0, 0, []

        async def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1
            seen.append(str(message))

        async with client.get_queue_processor(queue, handle, max_concurrent_calls=5) as processor:
            was_running = processor.is_running
            await until(lambda: len(seen) == 60)
        assert most == 5
        assert sorted(seen, key=int) == [str(n) for n in range(60)]
        assert (was_running, processor.is_running) == (True, False)
        assert await client.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)


def test_a_handler_that_fails_has_its_message_abandoned(
    broker: BrokerProcess, queues: Queues
) -> None:
    queue = queues.take("three-deliveries")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "good", "bad")
        told: list[tuple[str, str]] = []

        async def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
            if str(message) == "bad":
                raise RuntimeError("no good")

        def on_error(message: Any, error: Exception) -> None:
            told.append((str(message), str(error)))

        async with client.get_queue_processor(queue, handle, on_error=on_error):
            await until(lambda: len(told) == 3)
            dead = client.get_queue_receiver(queue, sub_queue="deadletter")
            [message] = await take(dead, 1)
        assert str(message) == "bad"
        assert told == [("bad", "no good")] * 3
        assert await client.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)


def test_a_handler_whose_wait_was_cancelled_has_failed(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "one")
        told: list[tuple[str, str]] = []
        counts: list[int] = []

        async def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
            counts.append(message.delivery_count)
            if len(counts) == 1:
                waited_for = asyncio.get_running_loop().create_future()
                waited_for.cancel()
                await waited_for

        def on_error(message: Any, error: Exception) -> None:
            told.append((str(message), str(error)))

        async with client.get_queue_processor(queue, handle, on_error=on_error):
            await until(lambda: len(counts) == 2)
        assert counts == [0, 1]
        assert told == [("one", "what the handler waited for was cancelled")]

    run_with(broker.connection_string, test)


def test_nothing_but_a_stop_ends_the_processing(broker: BrokerProcess, queue: str) -> None:
    class Moody:
        """A credential that raises what it likes, the first time that it is asked."""

        def __init__(self, key: SasKey) -> None:
            self.asked = 0
            self._key = key

        async def token(self, audience: str, now: int) -> Token:
            self.asked += 1
            if self.asked == 1:
                raise LookupError("the identity service is asleep")
            return await self._key.token(audience, now)

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "one")
        told: list[str] = []
        seen: list[str] = []

        async def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
            seen.append(str(message))

        given = parse_connection_string(broker.connection_string)
        moody = ServiceBusClient(
            f"{given.host}:{given.port}",
            Moody(SasKey(given.rule_name, given.key)),
            use_tls=False,
        )
        async with (
            moody,
            moody.get_queue_processor(
                queue, handle, on_error=lambda _message, error: told.append(str(error))
            ),
        ):
            await until(lambda: seen)
        assert (told, seen) == (["the identity service is asleep"], ["one"])

    run_with(broker.connection_string, test)


def test_without_auto_complete_the_handler_settles(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b")
        done = 0

        async def handle(message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
            nonlocal done
            done += 1
            if str(message) == "a":
                await receiver.complete_message(message)

        async with client.get_queue_processor(
            queue, handle, auto_complete=False, max_auto_lock_renewal_duration=0
        ):
            await until(lambda: done == 2)
        [left] = await client.get_queue_receiver(queue).peek_messages(5)
        assert str(left) == "b"

    run_with(broker.connection_string, test)


def test_locks_are_renewed_while_a_handler_works(broker: BrokerProcess, queues: Queues) -> None:
    """R-L2: longer than the lock lasts."""
    queue = queues.take("short-lock")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "slow")
        calls, ended = 0, asyncio.Event()

        async def handle(
            _message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver
        ) -> None:
            nonlocal calls
            calls += 1
            await asyncio.sleep(LOCK_SHORT_S * 1.6)
            ended.set()

        async with client.get_queue_processor(queue, handle, max_concurrent_calls=2):
            await ended.wait()
        assert calls == 1
        assert await client.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)


def test_stopping_waits_for_handlers_and_leaves_the_rest(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, *(str(n) for n in range(10)))
        begun, ended = asyncio.Event(), 0

        async def handle(
            _message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver
        ) -> None:
            nonlocal ended
            begun.set()
            await asyncio.sleep(0.3)
            ended += 1

        processor = client.get_queue_processor(queue, handle, max_concurrent_calls=3)
        await processor.start()
        await begun.wait()
        await processor.stop()
        assert 1 <= ended <= 3
        rest = await take(client.get_queue_receiver(queue), 10 - ended)
        assert {message.delivery_count for message in rest} == {0}
        # It can begin again.
        await processor.start()
        await processor.stop()

    run_with(broker.connection_string, test)


def test_sessions_are_worked_on_side_by_side_and_in_order(
    broker: BrokerProcess, queues: Queues
) -> None:
    """R-F5: so many sessions at a time, each one message after another."""
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            for session in range(6):
                await sender.send_messages(
                    [ServiceBusMessage(str(n), session_id=str(session)) for n in range(5)]
                )
        seen: dict[str, list[str]] = {}
        working: set[str] = set()
        most = 0

        async def handle(message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
            nonlocal most
            session_id = receiver.session.session_id
            assert session_id == message.session_id
            assert session_id not in working
            working.add(session_id)
            most = max(most, len(working))
            await asyncio.sleep(0.02)
            working.discard(session_id)
            seen.setdefault(session_id, []).append(str(message))

        async with client.get_queue_processor(
            queue, handle, max_concurrent_sessions=3, session_idle_timeout=0.2
        ):
            await until(lambda: sum(map(len, seen.values())) == 30)
        assert most == 3
        assert seen == {str(session): [str(n) for n in range(5)] for session in range(6)}

    run_with(broker.connection_string, test)


def test_an_entity_that_is_not_there_is_told_and_asked_for_again(broker: BrokerProcess) -> None:
    async def test(client: ServiceBusClient) -> None:
        told: list[Exception] = []

        async def handle(
            _message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver
        ) -> None:
            raise AssertionError("nothing can come")

        async with client.get_queue_processor(
            "no-such-queue", handle, on_error=lambda _, error: told.append(error)
        ):
            await until(lambda: len(told) == 2)

    run_with(broker.connection_string, test)


@pytest.mark.parametrize("sessions", [0, 1])
def test_a_handler_cannot_wait_for_itself(
    broker: BrokerProcess, queues: Queues, sessions: int
) -> None:
    """Neither by stopping its processor nor by closing the client; whoever else does it may."""
    queue = queues.take("session" if sessions else "plain")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "one", **({"session_id": "s"} if sessions else {}))
        refusals: list[str] = []

        async def handle(
            _message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver
        ) -> None:
            for end in (processor.stop, client.close):
                with pytest.raises(RuntimeError) as refused:
                    await end()
                refusals.append(str(refused.value))

        processor = client.get_queue_processor(queue, handle, max_concurrent_sessions=sessions)
        async with processor:
            await until(lambda: len(refusals) == 2)
        text = "a handler cannot stop its processor: it would wait for itself"
        assert refusals == [text, text]
        assert await client.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)


def test_a_stop_that_is_cancelled_is_waited_for_by_the_next(
    broker: BrokerProcess, queue: str
) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "one", "two")
        begun, go_on, ended = asyncio.Event(), asyncio.Event(), []

        async def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
            begun.set()
            await go_on.wait()
            ended.append(str(message))

        processor = client.get_queue_processor(queue, handle)
        await processor.start()
        await begun.wait()
        for _ in range(2):
            stopping = asyncio.ensure_future(processor.stop())
            await asyncio.sleep(0.05)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
        assert not processor.is_running
        starting = asyncio.ensure_future(processor.start())
        await asyncio.sleep(0.05)
        assert (starting.done(), ended) == (False, [])
        go_on.set()
        await starting
        await until(lambda: ended == ["one", "two"])
        await processor.stop()

    run_with(broker.connection_string, test)
