"""What our own client does with settlements that were refused, or are not answered."""

import asyncio

import pytest

from peeklock.client import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    blocking,
)
from peeklock.client.exceptions import MessageLockLostError, OperationTimeoutError, ServiceBusError
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import PARTITIONED, Queues
from tests.wire.own_client import bodies, run_with, send, take, take_one
from tests.wire.tcp_proxy import TcpProxy

KINDS = ("partitioned",) if PARTITIONED else ("plain", "partitioned")
WAYS = ("complete", "abandon", "many", "transaction", "link")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def message(body: str, session: str | None = None) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session, partition_key=session or "home")


async def settle(
    client: ServiceBusClient,
    receiver: ServiceBusReceiver,
    raw: ServiceBusReceivedMessage,
    way: str,
) -> None:
    if way == "abandon":
        await receiver.abandon_message(raw)
        raw = await take_one(receiver)
        assert raw.delivery_count == 1
    elif way == "transaction":
        async with client.transaction() as transaction:
            await receiver.complete_message(raw, transaction=transaction)
        return
    elif way == "many":
        await receiver.complete_messages([raw])
        return
    elif way == "link":
        # As other clients do, which know only the link.
        raw.needs_token = False
    await receiver.complete_message(raw)


@pytest.mark.parametrize(
    ("way", "session"), [*((way, None) for way in WAYS), ("complete", "s"), ("transaction", "s")]
)
def test_a_refused_settlement_is_done_again(
    broker: BrokerProcess, kind: str, queues: Queues, way: str, session: str | None
) -> None:
    here = queues.take("session" if session else kind)
    there = queues.take(kind)

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(here) as sender:
            await sender.send_messages(message("in", session))
        receiver = client.get_queue_receiver(here, session_id=session)
        raw = await take_one(receiver)

        async def refused() -> None:
            async with client.transaction() as transaction:
                sender = client.get_queue_sender(there)
                await sender.send_messages(message("out"), transaction=transaction)
                await receiver.complete_message(raw, transaction=transaction)

        with pytest.raises(ServiceBusError, match="same AMQP session"):
            await refused()
        async with asyncio.timeout(10):
            await settle(client, receiver, raw, way)
        assert await receiver.peek_messages() == []

    run_with(broker.connection_string, test)


def test_one_more_than_a_transaction_takes(
    broker: BrokerProcess, kind: str, queues: Queues
) -> None:
    queue = queues.take(kind)

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            batch = [ServiceBusMessage(str(n), partition_key="home") for n in range(102)]
            await sender.send_messages(batch)
        receiver = client.get_queue_receiver(queue)
        messages = await take(receiver, 102)

        async def refused() -> None:
            async with client.transaction() as transaction:
                for each in messages:
                    await receiver.complete_message(each, transaction=transaction)

        with pytest.raises(ServiceBusError, match="100"):
            await refused()
        async with asyncio.timeout(10):
            await receiver.complete_messages(messages)
        assert bodies(await receiver.peek_messages(10)) == []

    run_with(broker.connection_string, test)


def test_blocking(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    here, there = queues.take_many(kind, 2)
    with blocking.ServiceBusClient.from_connection_string(broker.connection_string) as client:
        client.get_queue_sender(here).send_messages(ServiceBusMessage("in"))
        receiver, sender = client.get_queue_receiver(here), client.get_queue_sender(there)
        [raw] = receiver.receive_messages(1, 10)

        def refused() -> None:
            with client.transaction() as transaction:
                sender.send_messages(message("out"), transaction=transaction)
                receiver.complete_message(raw, transaction=transaction)

        with pytest.raises(ServiceBusError, match="same AMQP session"):
            refused()
        receiver.complete_message(raw)
        assert receiver.peek_messages() == []


@pytest.mark.parametrize("way", ["complete", "many"])
def test_a_settlement_without_an_answer_ends(
    broker: BrokerProcess, queues: Queues, way: str
) -> None:
    queue = queues.take("plain")

    async def test(direct: ServiceBusClient) -> None:
        await send(direct, queue, "in")
        with TcpProxy(broker.amqp_port) as proxy:
            text = broker.connection_string.replace(f":{broker.amqp_port}", f":{proxy.port}")
            async with ServiceBusClient.from_connection_string(text, try_timeout=1) as client:
                receiver = client.get_queue_receiver(queue)
                raw = await take_one(receiver)
                proxy.is_mute = True
                with pytest.raises(OperationTimeoutError, match="nobody can tell whether"):
                    await settle(client, receiver, raw, way)
                proxy.is_mute = False
                assert not raw.is_settled
                # It was carried out: whoever asks again hears of that.
                with pytest.raises(MessageLockLostError):
                    await settle(client, receiver, raw, way)
        assert await direct.get_queue_receiver(queue).peek_messages() == []

    run_with(broker.connection_string, test)
