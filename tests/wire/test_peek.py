"""Peek: looking without touching."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.wire.clients import (
    Bus,
    assert_no_gaps,
    bodies,
    number,
    peek_all,
    place,
    receive,
    receive_one,
    together,
)

pytestmark = pytest.mark.side_by_side


@pytest.mark.smoke
def test_peeking_changes_nothing(bus: Bus, queue: str) -> None:
    """R-S2: no lock is taken and no delivery counted, however often it is done."""
    bus.send(queue, ServiceBusMessage("x", application_properties={"a": 1}, subject="s"))

    with bus.receiver(queue) as receiver:
        for _ in range(3):
            (peeked,) = receiver.peek_messages(max_message_count=5, sequence_number=1)
            assert bodies([peeked]) == [b"x"]
            assert (peeked.application_properties, peeked.subject) == ({b"a": 1}, "s")
            assert peeked.delivery_count == 0
            assert peeked.enqueued_time_utc is not None
        message = receive_one(receiver)

    assert message.delivery_count == 0


def test_an_empty_queue_has_nothing_to_see(bus: Bus, queue: str) -> None:
    """Nothing is an answer, not an error."""
    with bus.receiver(queue) as receiver:
        assert receiver.peek_messages(max_message_count=10) == []
        bus.send(queue, ServiceBusMessage("x"))
        (only,) = receiver.peek_messages(max_message_count=10)
        behind = number(only) + 1
        assert receiver.peek_messages(max_message_count=10, sequence_number=behind) == []


def test_a_receiver_remembers_where_it_was(bus: Bus, queue: str) -> None:
    """Without a number peeking goes on behind the last message; with one it starts there."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(6)])

    with bus.receiver(queue) as receiver:
        first, second = receiver.peek_messages(max_message_count=2)
        assert bodies([first, second]) == [b"0", b"1"]
        assert bodies(receiver.peek_messages(max_message_count=3)) == [b"2", b"3", b"4"]
        assert bodies(receiver.peek_messages(max_message_count=3)) == [b"5"]
        assert receiver.peek_messages(max_message_count=3) == []
        third = number(second) + 1
        again = receiver.peek_messages(max_message_count=2, sequence_number=third)
        assert bodies(again) == [b"2", b"3"]


def test_every_state_is_seen(bus: Bus, queue: str) -> None:
    """R-S6: active, locked, deferred and scheduled messages, in the order of their numbers."""
    bus.send(queue, *together("deferred", "locked", "active"))

    with bus.receiver(queue) as receiver, bus.sender(queue) as sender:
        deferred, _ = receive(receiver, 2)
        receiver.defer_message(deferred)
        sender.schedule_messages(together("scheduled"), datetime.now(UTC) + timedelta(hours=1))
        messages = peek_all(receiver)

    assert bodies(messages) == [b"deferred", b"locked", b"active", b"scheduled"]
    assert [message.state for message in messages] == [
        ServiceBusMessageState.DEFERRED,
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.SCHEDULED,
    ]
    assert [place(message) for message in messages] == [1, 2, 3, 4]


def test_peeking_walks_through_a_long_queue(bus: Bus, queue: str) -> None:
    """One call may give fewer than asked for; going on from there misses nothing."""
    with bus.sender(queue) as sender:
        for start in range(0, 600, 200):
            sender.send_messages(
                [ServiceBusMessage(b"x" * 1000, message_id=f"{start + i}") for i in range(200)]
            )

    with bus.receiver(queue) as receiver:
        first_page = receiver.peek_messages(max_message_count=600)
        assert 1 <= len(first_page) <= 600
        found = peek_all(receiver)

    numbers = [number(message) for message in found]
    assert len(numbers) == 600
    assert numbers == sorted(numbers)
    assert_no_gaps(found)


def test_a_large_message_is_seen_whole(bus: Bus, queue: str) -> None:
    """The answer takes as many frames as it needs; at least one message is always in it."""
    bus.send(queue, ServiceBusMessage(b"x" * 250_000), ServiceBusMessage(b"y" * 250_000))

    with bus.receiver(queue) as receiver:
        messages = peek_all(receiver)

    assert [len(content) for content in bodies(messages)] == [250_000, 250_000]
