"""What only the asynchronous client does: many operations under way on one link."""

import asyncio
from collections.abc import Awaitable, Callable

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import LoopThread, number, place

MANY = 300


def run(
    loop: LoopThread, broker: BrokerProcess, work: Callable[[ServiceBusClient], Awaitable[None]]
) -> None:
    async def inside() -> None:
        async with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            await work(client)

    loop.call(inside)


def test_sends_overlap_within_a_bound(loop: LoopThread, broker: BrokerProcess, queue: str) -> None:
    """R-T7: ten at a time, every one acknowledged, none lost."""

    async def work(client: ServiceBusClient) -> None:
        # One sender of this client serves one send at a time, so ten of them are the bound.
        senders = [client.get_queue_sender(queue) for _ in range(10)]
        idle: asyncio.Queue[ServiceBusSender] = asyncio.Queue()
        for sender in senders:
            idle.put_nowait(sender)

        async def send(index: int) -> None:
            free = await idle.get()
            await free.send_messages(ServiceBusMessage(f"{index}", message_id=f"{index}"))
            idle.put_nowait(free)

        await asyncio.gather(*[send(index) for index in range(100)])
        await asyncio.gather(*[sender.close() for sender in senders])
        async with client.get_queue_receiver(queue) as receiver:
            messages = await receiver.peek_messages(max_message_count=100)
            assert sorted(int(m.message_id or -1) for m in messages) == list(range(100))

    run(loop, broker, work)


def test_hundreds_of_renewals_at_once(loop: LoopThread, broker: BrokerProcess, queue: str) -> None:
    """R-L2: over one management link; each answer finds its question."""

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(MANY)])
        async with client.get_queue_receiver(queue, prefetch_count=MANY) as receiver:
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < MANY:
                messages += await receiver.receive_messages(MANY - len(messages), max_wait_time=10)
            before = [message.locked_until_utc for message in messages]
            await asyncio.sleep(0.5)
            await asyncio.gather(*[receiver.renew_message_lock(m) for m in messages])
            for message, earlier in zip(messages, before, strict=True):
                assert earlier is not None
                assert message.locked_until_utc is not None
                assert message.locked_until_utc > earlier
            await asyncio.gather(*[receiver.complete_message(m) for m in messages])
            assert await receiver.peek_messages(sequence_number=1) == []

    run(loop, broker, work)


def test_peeks_at_once_get_their_own_answers(
    loop: LoopThread, broker: BrokerProcess, queue: str
) -> None:
    """R-S2: ten questions about ten different numbers."""

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(1, 11)])
        async with client.get_queue_receiver(queue) as receiver:
            numbers = [number(m) for m in await receiver.peek_messages(10)]
            pages = await asyncio.gather(
                *[receiver.peek_messages(1, sequence_number=each) for each in numbers]
            )
            assert [place(m) for page in pages for m in page] == list(range(1, 11))
            assert [len(page) for page in pages] == [1] * 10

    run(loop, broker, work)


def test_a_cancelled_receive_loses_nothing(
    loop: LoopThread, broker: BrokerProcess, queue: str
) -> None:
    """R-S2: the next one gets what the cancelled one had asked for, and no delivery is counted."""

    async def work(client: ServiceBusClient) -> None:
        async with (
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
        ):
            waiting = asyncio.ensure_future(receiver.receive_messages(5, max_wait_time=30))
            await asyncio.sleep(0.5)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(5)])
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < 5:
                messages += await receiver.receive_messages(5 - len(messages), max_wait_time=20)
            assert sorted(place(m) for m in messages) == [1, 2, 3, 4, 5]
            assert [m.delivery_count for m in messages] == [0] * 5

    run(loop, broker, work)
