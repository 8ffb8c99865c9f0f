"""Peek: looking without touching."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.wire.clients import Bus, bodies, number, peek_all, receive, receive_one

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
        assert receiver.peek_messages(max_message_count=10, sequence_number=2) == []


def test_a_receiver_remembers_where_it_was(bus: Bus, queue: str) -> None:
    """Without a number peeking goes on behind the last message; with one it starts there."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(6)])

    with bus.receiver(queue) as receiver:
        assert bodies(receiver.peek_messages(max_message_count=2)) == [b"0", b"1"]
        assert bodies(receiver.peek_messages(max_message_count=3)) == [b"2", b"3", b"4"]
        assert bodies(receiver.peek_messages(max_message_count=3)) == [b"5"]
        assert receiver.peek_messages(max_message_count=3) == []
        assert bodies(receiver.peek_messages(max_message_count=2, sequence_number=3)) == [
            b"2",
            b"3",
        ]


def test_every_state_is_seen(bus: Bus, queue: str) -> None:
    """R-S6: active, locked, deferred and scheduled messages, in the order of their numbers."""
    bus.send(queue, *[ServiceBusMessage(text) for text in ("deferred", "locked", "active")])

    with bus.receiver(queue) as receiver, bus.sender(queue) as sender:
        deferred, _ = receive(receiver, 2)
        receiver.defer_message(deferred)
        sender.schedule_messages(
            ServiceBusMessage("scheduled"), datetime.now(UTC) + timedelta(hours=1)
        )
        messages = peek_all(receiver)

    assert bodies(messages) == [b"deferred", b"locked", b"active", b"scheduled"]
    assert [message.state for message in messages] == [
        ServiceBusMessageState.DEFERRED,
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.ACTIVE,
        ServiceBusMessageState.SCHEDULED,
    ]
    assert [number(message) for message in messages] == [1, 2, 3, 4]


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
        assert [number(message) for message in peek_all(receiver)] == list(range(1, 601))


def test_a_large_message_is_seen_whole(bus: Bus, queue: str) -> None:
    """The answer takes as many frames as it needs; at least one message is always in it."""
    bus.send(queue, ServiceBusMessage(b"x" * 250_000), ServiceBusMessage(b"y" * 250_000))

    with bus.receiver(queue) as receiver:
        messages = peek_all(receiver)

    assert [len(content) for content in bodies(messages)] == [250_000, 250_000]
