"""Deferral: set aside by one receiver, fetched by number by any."""

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import MessageNotFoundError

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    number,
    peek_all,
    receive,
    receive_one,
    together,
)

pytestmark = pytest.mark.side_by_side


def defer_all(receiver: ServiceBusReceiver, count: int) -> list[int]:
    messages = receive(receiver, count)
    for message in messages:
        receiver.defer_message(message)
    return [number(message) for message in messages]


@pytest.mark.smoke
def test_a_deferred_message_is_fetched_by_its_number(bus: Bus, queue: str) -> None:
    """R-S6: with a fresh lock, by any receiver, and settled like any other."""
    bus.send(queue, ServiceBusMessage("later", application_properties={"kept": 1}))

    with bus.receiver(queue) as receiver, bus.receiver(queue) as other:
        numbers = defer_all(receiver, 1)
        assert_nothing_comes(receiver)
        (message,) = other.receive_deferred_messages(numbers)
        assert message.lock_token is not None
        assert message.locked_until_utc is not None
        other.complete_message(message)
        assert peek_all(receiver) == []

    assert (body(message), number(message)) == (b"later", numbers[0])
    assert message.application_properties == {b"kept": 1}
    assert message.delivery_count == 1


def test_a_deferred_message_is_seen_by_peeking(bus: Bus, queue: str) -> None:
    """R-S6: its state says so."""
    bus.send(queue, *together("deferred", "active"))

    with bus.receiver(queue) as receiver:
        [number] = defer_all(receiver, 1)
        states = [(body(message), message.state) for message in peek_all(receiver)]
        (locked,) = receiver.receive_deferred_messages(number)
        assert locked.state == ServiceBusMessageState.DEFERRED
        # Locked it is still a deferred one.
        assert [(body(message), message.state) for message in peek_all(receiver)] == states

    assert states == [
        (b"deferred", ServiceBusMessageState.DEFERRED),
        (b"active", ServiceBusMessageState.ACTIVE),
    ]


def test_several_deferred_messages_in_one_call(bus: Bus, queue: str) -> None:
    """R-S6: in the order in which they were asked for, and an empty list is no error."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(5)])

    with bus.receiver(queue) as receiver:
        numbers = defer_all(receiver, 5)
        assert receiver.receive_deferred_messages([]) == []
        messages = receiver.receive_deferred_messages([numbers[3], numbers[0], numbers[4]])

    assert bodies(messages) == [b"3", b"0", b"4"]


def test_what_is_not_deferred_is_not_found(bus: Bus, queue: str) -> None:
    """R-S6: an unknown number, an active message, one that is locked, and one that is gone."""
    bus.send(queue, *together("deferred", "other", "active"))
    client = bus.client(retry_total=0)

    with bus.receiver(queue, client=client) as receiver:
        deferred, other = defer_all(receiver, 2)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(123_456)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(other + 1)
        (message,) = receiver.receive_deferred_messages(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(deferred)
        receiver.complete_message(message)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(deferred)
        # One that is missing fails the whole call and locks nothing.
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([other, 123_456])
        assert bodies(receiver.receive_deferred_messages(other)) == [b"other"]


def test_a_deferred_message_stays_deferred_until_it_is_settled(bus: Bus, queue: str) -> None:
    """R-S6: abandon and defer leave it where it is and count a delivery."""
    bus.send(queue, ServiceBusMessage("later"))

    with bus.receiver(queue) as receiver:
        (deferred,) = defer_all(receiver, 1)
        receiver.abandon_message(receiver.receive_deferred_messages(deferred)[0])
        assert_nothing_comes(receiver)
        (message,) = receiver.receive_deferred_messages(deferred)
        assert message.delivery_count == 2
        receiver.defer_message(message)
        assert [m.state for m in peek_all(receiver)] == [ServiceBusMessageState.DEFERRED]
        (message,) = receiver.receive_deferred_messages(deferred)
        assert message.delivery_count == 3


def test_a_deferred_message_is_dead_lettered(bus: Bus, queue: str) -> None:
    """R-S5: over `$management`, where reason and description travel in the request."""
    bus.send(queue, ServiceBusMessage("later"))

    with bus.receiver(queue) as receiver:
        (deferred,) = defer_all(receiver, 1)
        (message,) = receiver.receive_deferred_messages(deferred)
        receiver.dead_letter_message(message, reason="Late", error_description="Too late")
        assert peek_all(receiver) == []
    with bus.dead_letters(queue) as dead_letters:
        dead = receive_one(dead_letters)

    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Late", "Too late")


def test_a_deferred_message_is_received_and_deleted(bus: Bus, queue: str) -> None:
    """R-S1: in that mode it is gone when it was fetched."""
    bus.send(queue, ServiceBusMessage("later"))

    with bus.receiver(queue) as receiver:
        (deferred,) = defer_all(receiver, 1)
    with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert bodies(receiver.receive_deferred_messages(deferred)) == [b"later"]
        assert peek_all(receiver) == []
