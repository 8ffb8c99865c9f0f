"""Entities that are disabled, for one direction or for both, and entities that are full."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from tests.wire.clients import Bus, assert_nothing_comes, bodies, peek_all, receive, receive_one
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side(at_once=16)

LARGE = b"x" * 200_000


def impatient(bus: Bus) -> ServiceBusClient:
    return bus.client(retry_total=0)


def assert_disabled(operation: Callable[[], Any]) -> None:
    with pytest.raises(MessagingEntityDisabledError, match="is currently disabled"):
        operation()


def assert_gives_nothing(receiver: ServiceBusReceiver) -> None:
    """Neither receives nor peeks."""
    assert_disabled(lambda: receiver.receive_messages(max_wait_time=10))
    with pytest.raises(ServiceBusError, match="is currently disabled"):
        receiver.peek_messages()


def test_a_disabled_queue(bus: Bus, queues: Queues) -> None:
    """Nothing goes in, nothing comes out, nothing is shown."""
    queue = queues.take("disabled")
    client = impatient(bus)

    with bus.sender(queue, client=client) as sender:
        assert_disabled(lambda: sender.send_messages(ServiceBusMessage("x")))
        later = datetime.now(UTC) + timedelta(hours=1)
        with pytest.raises(ServiceBusError, match="is currently disabled"):
            sender.schedule_messages(ServiceBusMessage("x"), later)
    with bus.receiver(queue, client=client) as receiver:
        assert_gives_nothing(receiver)
    with bus.dead_letters(queue, client=client) as receiver:
        assert_gives_nothing(receiver)


def test_a_queue_that_takes_nothing(bus: Bus, queues: Queues) -> None:
    """It still gives: receiving and peeking find an empty queue."""
    queue = queues.take("send-disabled")
    client = impatient(bus)

    with bus.sender(queue, client=client) as sender:
        assert_disabled(lambda: sender.send_messages(ServiceBusMessage("x")))
    with bus.receiver(queue, client=client) as receiver:
        assert_nothing_comes(receiver)
        assert peek_all(receiver) == []


def test_a_queue_that_gives_nothing(bus: Bus, queues: Queues) -> None:
    """It still takes: sending, scheduling and cancelling."""
    queue = queues.take("receive-disabled")
    client = impatient(bus)

    with bus.sender(queue, client=client) as sender:
        sender.send_messages(ServiceBusMessage("x"))
        later = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages(ServiceBusMessage("y"), later)
        sender.cancel_scheduled_messages(numbers)
    with bus.receiver(queue, client=client) as receiver:
        assert_gives_nothing(receiver)


def test_topics(bus: Bus, queues: Queues) -> None:
    """A topic's status is about publishing; what its subscriptions have is given out."""
    group = queues.take("topic-statuses")
    client = impatient(bus)

    for name in ("disabled", "send-disabled"):
        with bus.publisher(f"{group}/{name}", client=client) as publisher:
            assert_disabled(partial(publisher.send_messages, ServiceBusMessage("x")))
        with bus.subscriber(f"{group}/{name}", "a", client=client) as receiver:
            assert_nothing_comes(receiver)
    bus.publish(f"{group}/receive-disabled", ServiceBusMessage("x"))
    with bus.subscriber(f"{group}/receive-disabled", "a", client=client) as receiver:
        assert bodies(receive(receiver, 1)) == [b"x"]


def test_subscriptions(bus: Bus, queues: Queues) -> None:
    """A subscription's status is about receiving: none misses what is published meanwhile."""
    group = queues.take("topic-statuses")
    topic = f"{group}/active"
    client = impatient(bus)
    bus.publish(topic, ServiceBusMessage("x"))

    for name in ("active", "send-disabled"):
        with bus.subscriber(topic, name, client=client) as receiver:
            assert bodies(receive(receiver, 1)) == [b"x"]
    for name in ("disabled", "receive-disabled"):
        with bus.subscriber(topic, name, client=client) as receiver:
            assert_gives_nothing(receiver)


def fill(send: Callable[[ServiceBusMessage], None]) -> int:
    """Send until there is no more room, and say how often that went well."""
    for count in range(20):
        try:
            send(ServiceBusMessage(LARGE))
        except ServiceBusQuotaExceededError:
            return count
    raise AssertionError("it never becomes full")


@pytest.mark.plain_only(reason="each partition has room of its own")
def test_a_full_queue(bus: Bus, queues: Queues) -> None:
    """R-T2: refused for as long as it is full; what is received makes room, at once."""
    queue = queues.take("small")
    client = impatient(bus)

    with bus.sender(queue, client=client) as sender, bus.receiver(queue) as receiver:
        assert fill(sender.send_messages) == 5
        # A batch is taken whole or not at all, and small messages still fit.
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages([ServiceBusMessage(LARGE), ServiceBusMessage("small")])
        sender.send_messages(ServiceBusMessage("small"))
        assert len(peek_all(receiver)) == 6
        receiver.complete_message(receive_one(receiver))
        assert fill(sender.send_messages) == 1
        # Dead letters are in the way as well.
        receiver.dead_letter_message(receive_one(receiver))
        assert fill(sender.send_messages) == 0


def test_a_full_topic(bus: Bus, queues: Queues) -> None:
    """A body is counted for as long as one subscription has it."""
    topic = f"{queues.take('small')}/topic"
    client = impatient(bus)

    with bus.publisher(topic, client=client) as publisher:
        count = fill(publisher.send_messages)
        assert count >= 1
        with bus.subscriber(topic, "a") as first, bus.subscriber(topic, "b") as second:
            for receiver in (first, second):
                for each in receive(receiver, count):
                    receiver.complete_message(each)
        assert fill(publisher.send_messages) == count
