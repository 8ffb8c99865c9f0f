"""Our own client when connections break: it reconnects, and settles by token what it held."""

import asyncio
from collections.abc import Iterator

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage, TransportType
from peeklock.client.exceptions import ServiceBusCommunicationError, ServiceBusError
from tests.wire.broker_process import BrokerProcess, free_port
from tests.wire.own_client import bodies, run_with, send, take, take_one
from tests.wire.tcp_proxy import TcpProxy


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[TcpProxy]:
    with TcpProxy(broker.amqp_port) as relay:
        yield relay


def via(proxy: TcpProxy, broker: BrokerProcess) -> str:
    return broker.connection_string.replace(f":{broker.amqp_port};", f":{proxy.port};")


def test_a_sender_goes_on_after_a_cut(broker: BrokerProcess, queue: str, proxy: TcpProxy) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("before"))
            assert proxy.cut() == 1
            await sender.send_messages(ServiceBusMessage("after"))
            assert proxy.cut() == 1
            await sender.send_soon(ServiceBusMessage("soon after")).outcome
        async with client.get_queue_receiver(queue) as receiver:
            assert sorted(bodies(await take(receiver, 3))) == ["after", "before", "soon after"]

    run_with(via(proxy, broker), test)


def test_what_was_received_before_a_cut_is_settled_by_its_token(
    broker: BrokerProcess, queue: str, proxy: TcpProxy
) -> None:
    """R-S8: the token stays good; a lost connection is not a lost lock."""

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b", "c", "d")
        receiver = client.get_queue_receiver(queue)
        done, soon, again, dead = await take(receiver, 4)
        assert proxy.cut() == 1
        await receiver.complete_message(done)
        await receiver.complete_soon(soon)
        await receiver.abandon_message(again, {"tried": 1})
        await receiver.dead_letter_message(dead, "Cut", "off")
        again = await take_one(receiver)
        assert (str(again), again.application_properties) == ("c", {"tried": 1})
        await receiver.complete_message(again)
        assert await receiver.peek_messages(5, sequence_number=1) == []

    run_with(via(proxy, broker), test)


def test_a_receiver_that_waits_reconnects(
    broker: BrokerProcess, queue: str, proxy: TcpProxy
) -> None:
    async def test(client: ServiceBusClient) -> None:
        receiver = client.get_queue_receiver(queue)
        await receiver.open()
        waiting = asyncio.create_task(receiver.receive_messages(1, 30))
        await asyncio.sleep(0.2)
        assert proxy.cut() == 1
        async with ServiceBusClient.from_connection_string(broker.connection_string) as other:
            await send(other, queue, "late")
        [message] = await waiting
        await receiver.complete_message(message)

    run_with(via(proxy, broker), test)


def test_one_connection_is_shared(broker: BrokerProcess, queue: str, proxy: TcpProxy) -> None:
    """R-F5."""

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a")
        async with (
            client.get_queue_receiver(queue) as receiver,
            client.get_queue_receiver(queue) as another,
        ):
            await another.peek_messages()
            await receiver.complete_message(await take_one(receiver))
            assert proxy.cut() == 1

    run_with(via(proxy, broker), test)


def test_a_broker_that_is_not_there() -> None:
    text = (
        f"Endpoint=sb://localhost:{free_port()};SharedAccessKeyName=k;SharedAccessKey=v;"
        "UseDevelopmentEmulator=true;"
    )

    async def test(client: ServiceBusClient) -> None:
        with pytest.raises(ServiceBusCommunicationError):
            await client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
        sender = client.get_queue_sender("q")
        outcomes = [sender.send_soon(ServiceBusMessage("x")).outcome for _ in range(3)]
        results = await asyncio.gather(*outcomes, return_exceptions=True)
        assert all(isinstance(result, ServiceBusError) for result in results)

    run_with(text, test, retry_total=0)


@pytest.mark.parametrize("transport", list(TransportType))
def test_over_tls_and_websockets(
    broker: BrokerProcess, queue: str, transport: TransportType
) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "x" * 100_000)
        async with client.get_queue_receiver(queue) as receiver:
            assert len(str(await take_one(receiver))) == 100_000

    run_with(
        broker.connection_string,
        test,
        transport_type=transport,
        connection_verify=broker.authority,
    )
