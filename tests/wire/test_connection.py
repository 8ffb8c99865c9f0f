"""Connections: many of them, chopped, broken, and outlived by the clients that use them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from azure.servicebus import ServiceBusMessage

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    number,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import Queues
from tests.wire.tcp_proxy import TcpProxy

pytestmark = pytest.mark.side_by_side


def test_many_links_at_once(bus: Bus, queues: Queues) -> None:
    """R-T3: twenty senders and twenty receivers; closing some leaves the others alone."""
    names = queues.take_many("plain", 4)
    with ExitStack() as stack:
        senders = [stack.enter_context(bus.sender(names[i % 4])) for i in range(20)]
        receivers = [stack.enter_context(bus.receiver(names[i % 4])) for i in range(20)]
        with ThreadPoolExecutor(max_workers=10) as pool:
            list(pool.map(lambda sender: sender.send_messages(ServiceBusMessage("x")), senders))
            messages = list(pool.map(receive_one, receivers))
            for half in (senders[::2], receivers[::2]):
                list(pool.map(lambda handler: handler.close(), half))
            pairs = list(zip(receivers, messages, strict=True))[1::2]
            list(pool.map(lambda pair: pair[0].complete_message(pair[1]), pairs))
            stayed = senders[1::2]
            list(pool.map(lambda sender: sender.send_messages(ServiceBusMessage("y")), stayed))

    left = 0
    for name in names:
        with bus.receiver(name) as receiver:
            left += len(peek_all(receiver))
    # Ten completed, ten left locked by receivers that closed, ten sent by the senders that stayed.
    assert left == 20


@pytest.mark.parametrize("piece", [7, 1460], ids=["seven bytes", "one packet"])
def test_frames_may_come_in_any_pieces(
    bus: Bus, broker: BrokerProcess, queue: str, piece: int
) -> None:
    """R-T1: a frame begins and ends anywhere in what is read, in both directions."""
    size = 3_000 if piece < 100 else 200_000
    with TcpProxy(broker.amqp_port, piece=piece) as proxy:
        client = bus.client(sas.connection_string(proxy.port))
        with (
            bus.sender(queue, client=client) as sender,
            bus.receiver(queue, client=client) as receiver,
        ):
            sender.send_messages(ServiceBusMessage(b"x" * size))
            sender.send_messages([ServiceBusMessage(f"{index}") for index in range(10)])
            large, *small = receive(receiver, 11)
            for message in (large, *small):
                receiver.complete_message(message)
            assert peek_all(receiver) == []

    assert len(body(large)) == size
    assert bodies(small) == [f"{index}".encode() for index in range(10)]


@pytest.mark.parametrize("how", ["complete", "abandon", "defer", "dead-letter"])
def test_a_message_is_settled_after_its_connection_broke(
    bus: Bus, broker: BrokerProcess, queue: str, how: str
) -> None:
    """R-S8: the client comes back on a new connection and settles by the lock token."""
    bus.send(queue, ServiceBusMessage("x"))
    with TcpProxy(broker.amqp_port) as proxy:
        client = bus.client(sas.connection_string(proxy.port), retry_backoff_factor=0.1)
        with bus.receiver(queue, client=client) as receiver:
            message = receive_one(receiver)
            assert proxy.cut() == 1
            match how:
                case "complete":
                    receiver.complete_message(message)
                case "abandon":
                    receiver.abandon_message(message)
                case "defer":
                    receiver.defer_message(message)
                case _:
                    receiver.dead_letter_message(message, reason="r", error_description="d")

    with bus.receiver(queue) as receiver:
        match how:
            case "complete":
                assert peek_all(receiver) == []
            case "abandon":
                assert receive_one(receiver).delivery_count == 1
            case "defer":
                assert bodies(receiver.receive_deferred_messages(number(message))) == [b"x"]
            case _:
                with bus.dead_letters(queue) as dead_letters:
                    assert receive_one(dead_letters).dead_letter_reason == "r"


def test_a_queue_may_unlock_what_a_broken_connection_held(
    bus: Bus, broker: BrokerProcess, queues: Queues
) -> None:
    """R-S8: as the articles have it, where the queue asks for it; nobody has to wait."""
    queue = queues.take("unlock-on-disconnect")
    bus.send(queue, ServiceBusMessage("x"))
    with TcpProxy(broker.amqp_port) as proxy, bus.receiver(queue) as other:
        client = bus.client(sas.connection_string(proxy.port), retry_total=0)
        with bus.receiver(queue, client=client) as receiver:
            receive_one(receiver)
            assert_nothing_comes(other)
            assert proxy.cut() == 1
            assert body(receive_one(other, within_s=5)) == b"x"


def test_a_client_outlives_its_connections(bus: Bus, broker: BrokerProcess, queue: str) -> None:
    """R-S8: sender and receiver go on after each cut; what was locked stays locked."""
    with TcpProxy(broker.amqp_port) as proxy:
        client = bus.client(sas.connection_string(proxy.port), retry_backoff_factor=0.1)
        with (
            bus.sender(queue, client=client) as sender,
            bus.receiver(queue, client=client) as receiver,
        ):
            got = []
            for turn in range(3):
                sender.send_messages(ServiceBusMessage(f"{turn}"))
                got.append(receive_one(receiver))
                assert proxy.cut() == 2
            # Long enough for the client to notice the cut and to come back.
            assert_nothing_comes(receiver, within_s=4)
            for message in got:
                receiver.complete_message(message)
            assert peek_all(receiver) == []

    assert bodies(got) == [b"0", b"1", b"2"]
    assert [message.delivery_count for message in got] == [0, 0, 0]
