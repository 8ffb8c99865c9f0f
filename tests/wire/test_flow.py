"""Flow: credit is honoured exactly, caches are given back, and nothing is lost on the way."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode

from tests.wire.clients import (
    Bus,
    assert_no_gaps,
    bodies,
    body,
    number,
    peek_all,
    receive,
    receive_one,
    send_many,
)

pytestmark = pytest.mark.side_by_side


def test_credit_is_honoured_exactly(bus: Bus, queue: str) -> None:
    """R-F4: who asks for two gets two, the rest is there for others at once."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(5)])

    with bus.receiver(queue) as modest, bus.receiver(queue) as other:
        assert bodies(receive(modest, 2)) == [b"0", b"1"]
        assert bodies(receive(other, 3, within_s=3)) == [b"2", b"3", b"4"]


def test_asking_for_more_than_there_is_loses_nothing(bus: Bus, queue: str) -> None:
    """R-S2: what is there is returned; what comes later is not lost with the credit left over."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(3)])

    with bus.receiver(queue) as receiver:
        started = time.monotonic()
        messages = receiver.receive_messages(max_message_count=10, max_wait_time=10)
        assert time.monotonic() - started < 5
        assert bodies(messages) == [b"0", b"1", b"2"]
        bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(3, 20)])
        messages += receive(receiver, 17)

    assert len({number(message) for message in messages}) == 20
    assert_no_gaps(messages)
    assert [message.delivery_count for message in messages] == [0] * 20


def test_credit_left_over_does_not_hide_messages(bus: Bus, queue: str) -> None:
    """R-S2: a receiver that asked and left gives back what still came, without a count."""
    with bus.receiver(queue) as gone, bus.receiver(queue) as other:
        assert gone.peek_messages(max_message_count=1) == []
        assert gone.receive_messages(max_message_count=10, max_wait_time=0.5) == []
        bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(5)])
        gone.close()
        messages = receive(other, 5, within_s=10)

    assert bodies(messages) == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.delivery_count for message in messages] == [0] * 5


def test_a_waiting_receiver_gets_what_is_sent(bus: Bus, queue: str) -> None:
    """R-S2: at once, not at the next poll."""
    with bus.receiver(queue) as receiver, bus.sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("warm"))
        receiver.complete_message(receive_one(receiver))
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting = pool.submit(receive_one, receiver)
            time.sleep(0.5)
            sent = time.monotonic()
            sender.send_messages(ServiceBusMessage("x"))
            assert body(waiting.result(20)) == b"x"
            assert time.monotonic() - sent < 2


def test_a_cache_takes_receive_and_delete_messages_off(bus: Bus, queue: str) -> None:
    """R-S1, R-F4: prefetched in this mode means gone from the queue."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(20)])

    with bus.receiver(
        queue, prefetch_count=50, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        first = receive_one(receiver)
        with bus.receiver(queue) as other:
            assert peek_all(other) == []
        messages = [first, *receive(receiver, 19)]

    assert bodies(messages) == [f"{index}".encode() for index in range(20)]


@pytest.mark.smoke
def test_messages_are_received_by_iterating(bus: Bus, queue: str) -> None:
    """R-S2: the client's endless loop, which asks for one message after the other."""
    send_many(bus, queue, 30)

    with bus.receiver(queue, max_wait_time=2) as receiver:
        got = []
        for message in receiver:
            got.append(body(message))
            receiver.complete_message(message)
            if len(got) == 30:
                break
        assert peek_all(receiver) == []

    assert got == [f"{index}".encode() for index in range(30)]


def test_many_receivers_drain_one_queue(bus: Bus, queue: str) -> None:
    """R-S2: competing receivers that come and go share the messages without loss or repetition."""
    send_many(bus, queue, 400)
    got: list[ServiceBusReceivedMessage] = []
    guard = threading.Lock()

    def drain(prefetch: int) -> None:
        with bus.receiver(queue, prefetch_count=prefetch) as receiver:
            while messages := receiver.receive_messages(max_message_count=10, max_wait_time=2):
                for message in messages:
                    receiver.complete_message(message)
                with guard:
                    got.extend(messages)

    with ThreadPoolExecutor(max_workers=5) as pool:
        for run in [pool.submit(drain, prefetch) for prefetch in (0, 0, 10, 10, 25)]:
            run.result(60)
    with bus.receiver(queue) as receiver:
        assert peek_all(receiver) == []

    assert len(got) == 400
    assert_no_gaps(got)
