"""Decisions in stints: what falls due together and what is published to many keeps nobody else
waiting, and takes the memory of what is there, not of what is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from tests.pressure.abused_broker import AbusedBroker, is_fast
from tests.pressure.conftest import StartBroker
from tests.wire.own_client import take

MB = 1 << 20


def run(broker: AbusedBroker, work: Callable[[ServiceBusClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            await work(client)

    asyncio.run(whole())


def topic(name: str, subscriptions: int) -> dict[str, Any]:
    names = [{"Name": f"s{number}", "Properties": {}} for number in range(subscriptions)]
    return {"Name": name, "Properties": {}, "Subscriptions": names}


async def send_batches(
    client: ServiceBusClient, name: str, count: int, expires_at: datetime | None = None
) -> None:
    """Small messages, a thousand in each batch; all of them may expire at one instant."""
    async with client.get_queue_sender(name) as sender:
        for first in range(0, count, 1000):
            life = None if expires_at is None else expires_at - datetime.now(UTC)
            batch = await sender.create_message_batch()
            for _ in range(min(1000, count - first)):
                batch.add_message(ServiceBusMessage(b"x", time_to_live=life))
            await sender.send_messages(batch)


async def active(client: ServiceBusClient, path: str, expected: int) -> None:
    """Wait until the last of so many dead letters can be seen."""
    async with client.get_queue_receiver(path, sub_queue="deadletter") as receiver:
        while True:
            seen = await receiver.peek_messages(1, sequence_number=expected)
            if seen:
                return
            await asyncio.sleep(0.05)


def due_together(broker: AbusedBroker, count: int, size: int, **bounds: Any) -> None:
    due = datetime.now(UTC) + timedelta(seconds=(5 if is_fast() else 8) * count / 150)

    async def schedule(client: ServiceBusClient) -> None:
        async with client.get_topic_sender("topic") as sender:
            for _ in range(count):
                one = ServiceBusMessage(b"x" * size, scheduled_enqueue_time_utc=due)
                await sender.send_messages(one)

    async def read(client: ServiceBusClient) -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_subscription_receiver("topic", "s0", receive_mode=mode) as receiver:
            await take(receiver, count)

    run(broker, schedule)
    assert datetime.now(UTC) < due, "all of them are scheduled before the first is due"
    with broker.pressed(**bounds):
        run(broker, read)


def test_large_messages_of_a_topic_that_fall_due_together(start_broker: StartBroker) -> None:
    """They were one decision: all bodies in memory, and everybody waited for all of them."""
    broker = start_broker(topics=[topic("topic", 1)])
    due_together(broker, 150, 200_000, grows_at_most=64 * MB, at_least_s=3.0)


def publish_to_many(broker: AbusedBroker, count: int, subscriptions: int, **bounds: Any) -> None:
    async def publish(client: ServiceBusClient) -> None:
        async with client.get_topic_sender("topic") as sender:
            batch = await sender.create_message_batch()
            for number in range(count):
                batch.add_message(ServiceBusMessage(str(number)))
            await sender.send_messages(batch)
        last = f"s{subscriptions - 1}"
        async with client.get_subscription_receiver("topic", last) as receiver:
            found = await take(receiver, count)
        assert [str(each) for each in found] == [str(number) for number in range(count)]

    with broker.pressed(**bounds):
        run(broker, publish)


def test_a_batch_for_many_subscriptions(start_broker: StartBroker) -> None:
    """It was one decision of all copies."""
    broker = start_broker(topics=[topic("topic", 300)])
    publish_to_many(broker, 1000, 300, grows_at_most=160 * MB)


@pytest.mark.torture
def test_a_batch_for_as_many_subscriptions_as_there_can_be(start_broker: StartBroker) -> None:
    broker = start_broker(topics=[topic("topic", 2000)])
    publish_to_many(broker, 1000, 2000, grows_at_most=800 * MB)


def bury_at_publish(
    broker: AbusedBroker, batches: int, count: int, subscriptions: int, **bounds: Any
) -> None:
    values = {"num": 1, "zero": 0}

    async def publish(client: ServiceBusClient) -> None:
        async with client.get_topic_sender("topic") as sender:
            for _ in range(batches):
                batch = [
                    ServiceBusMessage(b"x", application_properties=values) for _ in range(count)
                ]
                await sender.send_messages(batch)
        last = f"s{subscriptions - 1}"
        async with client.get_subscription_receiver(
            "topic", last, sub_queue="deadletter"
        ) as receiver:
            await take(receiver, batches * count)

    with broker.pressed(**bounds):
        run(broker, publish)


def failing_topic(subscriptions: int) -> dict[str, Any]:
    described = topic("topic", subscriptions)
    fails = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "num / zero > 1"}}
    for subscription in described["Subscriptions"]:
        subscription["Rules"] = [{"Name": "r", "Properties": fails}]
    return described


def test_a_filter_that_fails_for_many_subscriptions(start_broker: StartBroker) -> None:
    """It counted as one filter, and a batch as one decision; then each turn of everybody else's
    requests had a part of it, and they took 40 to 90 ms."""
    broker = start_broker(topics=[failing_topic(400)])
    # Its copies are 240,000 dead letters.
    bounds = {"grows_at_most": 128 * MB, "at_least_s": 0.0, "others_wait_ms": 40.0}
    bury_at_publish(broker, 3, 200, 400, **bounds)


@pytest.mark.torture
def test_a_filter_that_fails_for_as_many_subscriptions_as_there_can_be(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(topics=[failing_topic(2000)])
    bury_at_publish(broker, 3, 200, 2000, grows_at_most=800 * MB)


def expire_together(broker: AbusedBroker, count: int, **bounds: Any) -> None:
    end = datetime.now(UTC) + timedelta(seconds=(5 if is_fast() else 12) * count / 60_000)
    run(broker, lambda client: send_batches(client, "q", count, end))
    assert datetime.now(UTC) < end, "all of them are there before the first is gone"
    with broker.pressed(**bounds):
        run(broker, lambda client: active(client, "q", count))


def test_messages_that_expire_together(start_broker: StartBroker) -> None:
    """They were one decision, and so were their dead letters."""
    broker = start_broker(queues={"q": {"DeadLetteringOnMessageExpiration": True}})
    expire_together(broker, 60_000, grows_at_most=128 * MB, at_least_s=3.0)


@pytest.mark.torture
def test_a_million_messages_that_expire_together(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {"DeadLetteringOnMessageExpiration": True}})
    expire_together(broker, 1_000_000, grows_at_most=800 * MB, at_least_s=20.0)
