"""Scheduling: messages that wait for their time, seen, cancelled or delivered."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side(at_once=24)

# Long enough that a client has opened its links by then, beside many others.
SOON_S = 6


def soon(seconds: float = SOON_S) -> datetime:
    """A whole second in the near future, as an application would write it."""
    return datetime.fromtimestamp(int(time.time() + seconds + 0.999), UTC)


def test_a_scheduled_message_comes_at_its_time(bus: Bus, queues: Queues) -> None:
    """R-T1: not before; it counts as enqueued at that time, and as never delivered."""
    queue = queues.take("plain")
    due = soon()
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        numbers = sender.schedule_messages(ServiceBusMessage("later", message_id="m"), due)
        assert len(numbers) == 1
        peeked = receiver.peek_messages(max_message_count=5)
        assert [(m.state, m.sequence_number) for m in peeked] == [
            (ServiceBusMessageState.SCHEDULED, numbers[0])
        ]
        assert_nothing_comes(receiver)
        message = receive_one(receiver)
        assert datetime.now(UTC) >= due
        receiver.complete_message(message)
        assert peek_all(receiver) == []

    assert (body(message), message.message_id, message.delivery_count) == (b"later", "m", 0)
    assert message.scheduled_enqueue_time_utc == due
    assert message.enqueued_time_utc is not None
    assert timedelta(0) <= message.enqueued_time_utc - due < timedelta(seconds=1)
    # It stays so on delivery, as the service has it.
    assert message.state == ServiceBusMessageState.SCHEDULED


def test_several_are_scheduled_at_once(bus: Bus, queues: Queues) -> None:
    """R-T1: numbers come back in the order of the messages; they are delivered in it too."""
    queue = queues.take("plain")
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        numbers = sender.schedule_messages(
            [ServiceBusMessage(f"{index}") for index in range(5)], soon()
        )
        assert len(set(numbers)) == 5
        assert numbers == sorted(numbers)
        assert sender.schedule_messages([], soon()) == []
        assert bodies(receive(receiver, 5)) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_ordinary_send_may_name_a_time(bus: Bus, queues: Queues) -> None:
    """R-T1: the annotation is enough; alone and inside a batch."""
    queue = queues.take("plain")
    due = soon()
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("alone", scheduled_enqueue_time_utc=due))
        sender.send_messages(
            [
                ServiceBusMessage("now"),
                ServiceBusMessage("batched", scheduled_enqueue_time_utc=due),
            ]
        )
        assert body(receive_one(receiver)) == b"now"
        assert_nothing_comes(receiver)
        messages = receive(receiver, 2)
        assert datetime.now(UTC) >= due

    assert sorted(bodies(messages)) == [b"alone", b"batched"]
    for message in messages:
        assert message.state == ServiceBusMessageState.SCHEDULED
        assert message.scheduled_enqueue_time_utc == due


def test_a_time_in_the_past_means_now(bus: Bus, queues: Queues) -> None:
    queue = queues.take("plain")
    past = datetime.now(UTC) - timedelta(hours=1)
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("sent", scheduled_enqueue_time_utc=past))
        sender.schedule_messages(ServiceBusMessage("scheduled"), past)
        messages = receive(receiver, 2, within_s=2)

    assert sorted(bodies(messages)) == [b"scheduled", b"sent"]
    for message in messages:
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc > past + timedelta(minutes=59)


def test_a_cancelled_message_never_comes(bus: Bus, queues: Queues) -> None:
    """R-T1: by its number; the others come."""
    queue = queues.take("plain")
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        numbers = sender.schedule_messages(
            [ServiceBusMessage(f"{index}") for index in range(4)], soon()
        )
        sender.cancel_scheduled_messages(numbers[0])
        sender.cancel_scheduled_messages(numbers[2:])
        sender.cancel_scheduled_messages([])
        assert [message.sequence_number for message in peek_all(receiver)] == [numbers[1]]
        assert body(receive_one(receiver)) == b"1"
        assert_nothing_comes(receiver)


def test_what_is_not_scheduled_cannot_be_cancelled(bus: Bus, queues: Queues) -> None:
    """R-T2: unknown, cancelled before, or delivered already."""
    queue = queues.take("plain")
    client = bus.client(retry_total=0)
    with bus.sender(queue, client=client) as sender, bus.receiver(queue) as receiver:
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(123_456)
        cancelled = sender.schedule_messages(ServiceBusMessage("x"), soon(60))
        sender.cancel_scheduled_messages(cancelled)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(cancelled)
        delivered = sender.schedule_messages(ServiceBusMessage("y"), soon(1))
        receive_one(receiver)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(delivered)


def test_a_schedule_does_not_delay_others(bus: Bus, queues: Queues) -> None:
    """R-T1: due in the order of their times, not of their numbers; without a time, at once."""
    queue = queues.take("plain")
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        sender.schedule_messages(ServiceBusMessage("second"), soon(SOON_S + 4))
        sender.schedule_messages(ServiceBusMessage("first"), soon(SOON_S))
        sender.send_messages(ServiceBusMessage("now"))
        assert bodies([receive_one(receiver) for _ in range(3)]) == [b"now", b"first", b"second"]
