"""Our own client under load: implicit batches, bounded sends, prefetch, failures that surface."""

import asyncio
import gc
from typing import Any

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import ServiceBusError
from peeklock.client.receiving.prefetch import PREFETCH_BYTES_MAX
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import Queues
from tests.wire.frame_counter import DISPOSITION, TRANSFER, FrameCounter
from tests.wire.own_client import DONE_WITHIN_S, RECEIVE_WITHIN_S, run_with, send, take

COUNT = 200


def run_counted(broker: BrokerProcess, test: Any, **options: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(DONE_WITHIN_S), FrameCounter(broker.amqp_port) as counter:
            text = counter.via(broker.connection_string)
            async with ServiceBusClient.from_connection_string(text, **options) as client:
                await test(client, counter)

    asyncio.run(run())


def test_sends_and_completes_that_nobody_waits_for_travel_together(
    broker: BrokerProcess, queue: str
) -> None:
    """R-F2: seen on the wire, as few transfers and dispositions instead of hundreds."""

    async def test(client: ServiceBusClient, counter: FrameCounter) -> None:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("first"))
        counter.counts.clear()
        outcomes = [sender.send_soon(ServiceBusMessage(str(at))).outcome for at in range(COUNT)]
        await asyncio.gather(*outcomes)
        assert counter.counts[TRANSFER] == 1

        receiver = client.get_queue_receiver(queue)
        messages = await take(receiver, COUNT + 1)
        counter.counts.clear()
        await asyncio.gather(*(receiver.complete_soon(message) for message in messages))
        assert counter.counts[DISPOSITION] <= 5
        assert await receiver.peek_messages(sequence_number=1) == []

    run_counted(broker, test)


def test_an_interval_of_zero_is_off(broker: BrokerProcess, queue: str) -> None:
    """R-F2."""

    async def test(client: ServiceBusClient, counter: FrameCounter) -> None:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("first"))
        counter.counts.clear()
        for at in range(10):
            sender.send_soon(ServiceBusMessage(str(at)))
        await sender.flush()
        assert counter.counts[TRANSFER] == 10

    run_counted(broker, test, flush_interval=0)


def test_batches_are_held_for_the_interval(broker: BrokerProcess, queue: str) -> None:
    """R-F2: on a line with nothing under way."""

    async def test(client: ServiceBusClient, counter: FrameCounter) -> None:
        sender = client.get_queue_sender(queue, flush_interval=1.0)
        await sender.send_messages(ServiceBusMessage("first"))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await sender.send_soon(ServiceBusMessage("held")).outcome
        assert loop.time() - begun >= 0.99
        # What is awaited does not wait, and what is held goes before it.
        outcome = sender.send_soon(ServiceBusMessage("held again")).outcome
        begun = loop.time()
        await sender.send_messages(ServiceBusMessage("at once"))
        assert loop.time() - begun < 0.9
        await outcome
        assert counter.counts[TRANSFER] >= 4

    run_counted(broker, test)


def test_a_large_burst_fills_batches_and_keeps_its_order(broker: BrokerProcess, queue: str) -> None:
    """R-F2: on a busy line batches fill without waiting."""

    async def test(client: ServiceBusClient, counter: FrameCounter) -> None:
        sender = client.get_queue_sender(queue)
        for at in range(3_000):
            sender.send_soon(ServiceBusMessage(str(at).ljust(1_000), partition_key="k"))
        await sender.flush()
        assert counter.counts[TRANSFER] < 60
        receiver = client.get_queue_receiver(queue, prefetch_count=300)
        messages = await take(receiver, 3_000)
        assert [int(str(message)) for message in messages] == list(range(3_000))

    run_counted(broker, test)


def test_one_bad_message_does_not_fail_its_neighbours(
    broker: BrokerProcess, queues: Queues
) -> None:
    """A message without a session is refused by a session queue; those beside it are not."""
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        good = [sender.send_soon(ServiceBusMessage("x", session_id="s")).outcome for _ in range(3)]
        bad = sender.send_soon(ServiceBusMessage("x")).outcome
        good += [sender.send_soon(ServiceBusMessage("x", session_id="t")).outcome for _ in range(3)]
        await asyncio.gather(*good)
        with pytest.raises(ServiceBusError):
            await bad
        receiver = client.get_queue_receiver(queue, session_id="s")
        assert len(await take(receiver, 3)) == 3

    run_with(broker.connection_string, test)


def test_a_failed_send_that_nobody_awaits_is_reported(
    broker: BrokerProcess, queues: Queues
) -> None:
    """R-T7: to the callback, or to the loop and by flush and close."""
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        failed: list[Any] = []
        message = ServiceBusMessage("no session")
        sender = client.get_queue_sender(queue, on_error=lambda sent, _: failed.append(sent))
        sender.send_soon(message)
        await sender.close()
        assert failed == [message]
        assert told == []

        sender = client.get_queue_sender(queue)
        sender.send_soon(message)
        while not told:
            gc.collect()
            await asyncio.sleep(0.01)
        assert "SessionId" in str(told[0]["exception"])
        with pytest.raises(ServiceBusError, match="SessionId"):
            await sender.flush()
        await sender.flush()
        sender.send_soon(message)
        with pytest.raises(ServiceBusError, match="SessionId"):
            await sender.close()

    run_with(broker.connection_string, test)


def test_sends_in_flight_are_bounded(broker: BrokerProcess, queue: str) -> None:
    """R-T7: a semaphore of 10, and a hundred sends at once."""

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue, max_in_flight=10)
        await sender.send_messages(ServiceBusMessage("first"))
        link = sender._link
        assert link is not None
        sending = asyncio.gather(
            *(sender.send_messages(ServiceBusMessage("x")) for _ in range(100))
        )
        most = 0
        while not sending.done():
            most = max(most, link.pending_count)
            await asyncio.sleep(0)
        await sending
        assert most == 10
        with pytest.raises(ValueError, match="at least 1"):
            client.get_queue_sender(queue, max_in_flight=0)

    run_with(broker.connection_string, test)


def test_prefetch_keeps_to_256_kb(broker: BrokerProcess, queue: str) -> None:
    """R-F4: the cache size or 256 KB, whichever is smaller; locked when it comes."""

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        for _ in range(40):
            await sender.send_messages(ServiceBusMessage(b"x" * 30_000))
        receiver = client.get_queue_receiver(queue, prefetch_count=100)
        taken, most = 0, 0
        while taken < 40:
            [message] = await receiver.receive_messages(1, RECEIVE_WITHIN_S)
            link = receiver._link
            assert link is not None
            most = max(most, link.buffered + link.credit)
            await receiver.complete_message(message)
            taken += 1
        assert 4 <= most <= PREFETCH_BYTES_MAX // 30_000

    run_with(broker.connection_string, test)


def test_small_messages_fill_the_cache(broker: BrokerProcess, queue: str) -> None:
    """R-F4: what is prefetched is locked; closing gives it back as if it had not come."""

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        await sender.send_messages([ServiceBusMessage("x", partition_key="k") for _ in range(50)])
        receiver = client.get_queue_receiver(queue, prefetch_count=50)
        first = await take(receiver, 2)
        second = await take(receiver, 2)
        link = receiver._link
        assert link is not None
        assert link.buffered + link.credit >= 20
        other = client.get_queue_receiver(queue)
        await receiver.complete_messages(first + second)
        await receiver.close()
        rest = await take(other, 46)
        assert {message.delivery_count for message in rest} == {0}

    run_with(broker.connection_string, test)


def test_an_entity_that_takes_one_key_per_batch_gets_one_key_per_batch(
    broker: BrokerProcess, queues: Queues
) -> None:
    """A partitioned entity refuses mixed batches; the sender learns it from the first."""
    queue = queues.take("partitioned")

    async def test(client: ServiceBusClient, counter: FrameCounter) -> None:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("first"))
        counts = []
        for _ in range(2):
            counter.counts.clear()
            for at in range(40):
                sender.send_soon(ServiceBusMessage(str(at), partition_key=str(at % 4)))
            await sender.flush()
            counts.append(counter.counts[TRANSFER])
        # The first batch is refused and its messages go singly; then there is one for each key.
        assert counts == [41, 4]
        assert len(await take(client.get_queue_receiver(queue), 81)) == 81

    run_counted(broker, test)


def test_prefetch_begins_with_the_first_receive(broker: BrokerProcess, queue: str) -> None:
    """R-F4: not before it, and not with the second one."""

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, *("x" * 100 for _ in range(50)))
        receiver = client.get_queue_receiver(queue, prefetch_count=20)
        await receiver.open()
        link = receiver._link
        assert link is not None
        await asyncio.sleep(0.2)
        assert (link.buffered, link.credit) == (0, 0)
        [first] = await take(receiver, 1)
        async with asyncio.timeout(5):
            while link.buffered < 19:  # noqa: ASYNC110  what is waited for is the broker's
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert link.buffered == 19
        receiver.complete_soon(first)
        for message in await take(receiver, 49):
            receiver.complete_soon(message)
        await receiver.close()
        assert await client.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)


def test_a_full_buffer_is_waited_for(broker: BrokerProcess, queue: str) -> None:
    """R-F2: what `send_soon` holds is bounded by number and size, and nothing is lost."""

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue, max_pending_messages=100, max_pending_bytes=20_000)
        buffer = sender._batching._buffer
        most = size = 0
        for at in range(3_000):
            await sender.send_soon(ServiceBusMessage(str(at).ljust(300), partition_key="k"))
            most, size = max(most, buffer.messages), max(size, buffer.size)
        await sender.close()
        assert 30 < most <= 100
        assert 10_000 < size <= 20_000
        receiver = client.get_queue_receiver(queue, prefetch_count=300)
        found = [int(str(message)) for message in await take(receiver, 3_000)]
        assert found == list(range(3_000))

    run_with(broker.connection_string, test)
