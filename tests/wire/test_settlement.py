"""Settlement: the four answers to a message, and what the broker says when they cannot be given."""

import copy
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError

from tests.wire.clients import (
    Bus,
    assert_no_gaps,
    assert_nothing_comes,
    bodies,
    body,
    number,
    peek_all,
    place,
    receive,
    receive_one,
    together,
)
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side

SETTLEMENTS = ("complete", "abandon", "defer", "dead-letter")


def settle(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, how: str) -> None:
    match how:
        case "complete":
            receiver.complete_message(message)
        case "abandon":
            receiver.abandon_message(message)
        case "defer":
            receiver.defer_message(message)
        case _:
            receiver.dead_letter_message(message, reason="a reason", error_description="why")


@pytest.mark.smoke
def test_a_completed_message_is_gone(bus: Bus, queue: str) -> None:
    """R-S3: and only this one."""
    bus.send(queue, ServiceBusMessage("done"), ServiceBusMessage("open"))

    with bus.receiver(queue) as receiver:
        done, still_open = receive(receiver, 2)
        receiver.complete_message(done)
        assert [number(message) for message in peek_all(receiver)] == [number(still_open)]
        receiver.complete_message(still_open)
        assert peek_all(receiver) == []


@pytest.mark.smoke
def test_an_abandoned_message_comes_back_first(bus: Bus, queue: str) -> None:
    """R-S4: at once, before the messages behind it, with one more delivery."""
    bus.send(queue, *together("a", "b", "c"))

    with bus.receiver(queue) as receiver:
        first, second = receive(receiver, 2)
        receiver.abandon_message(second)
        receiver.abandon_message(first)
        messages = receive(receiver, 3)

    assert bodies(messages) == [b"a", b"b", b"c"]
    assert [message.delivery_count for message in messages] == [1, 1, 0]
    assert [place(message) for message in messages] == [1, 2, 3]
    assert messages[0].lock_token != first.lock_token


@pytest.mark.smoke
def test_ten_abandons_end_in_the_dead_letter_queue(bus: Bus, queue: str) -> None:
    """R-S7: ten deliveries by default, counted from zero, and no eleventh."""
    bus.send(queue, ServiceBusMessage("unwanted", application_properties={"kept": 1}))

    with bus.receiver(queue) as receiver:
        for turn in range(10):
            message = receive_one(receiver)
            assert message.delivery_count == turn
            receiver.abandon_message(message)
        assert_nothing_comes(receiver)

    with bus.dead_letters(queue) as dead_letters:
        dead = receive_one(dead_letters)
    assert body(dead) == b"unwanted"
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.dead_letter_error_description == (
        "Message could not be consumed after 10 delivery attempts."
    )
    assert dead.application_properties is not None
    assert dead.application_properties[b"kept"] == 1
    assert dead.delivery_count == 10


def test_a_queue_may_ask_for_fewer_deliveries(bus: Bus, queues: Queues) -> None:
    """R-S7: the count is the queue's property."""
    queue = queues.take("three-deliveries")
    bus.send(queue, ServiceBusMessage("unwanted"))

    with bus.receiver(queue) as receiver:
        for _ in range(3):
            receiver.abandon_message(receive_one(receiver))
        assert_nothing_comes(receiver)

    with bus.dead_letters(queue) as dead_letters:
        assert receive_one(dead_letters).dead_letter_reason == "MaxDeliveryCountExceeded"


@pytest.mark.smoke
def test_a_dead_lettered_message_tells_why(bus: Bus, queue: str) -> None:
    """R-S5: reason and description are readable from the dead-letter queue."""
    bus.send(queue, ServiceBusMessage("bad", message_id="m", application_properties={"kept": "x"}))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.dead_letter_message(message, reason="Broken", error_description="It has no wheels")
        assert peek_all(receiver) == []
    with bus.dead_letters(queue) as dead_letters:
        dead = receive_one(dead_letters)
        dead_letters.complete_message(dead)
        assert peek_all(dead_letters) == []

    assert (body(dead), dead.message_id) == (b"bad", "m")
    assert dead.dead_letter_reason == "Broken"
    assert dead.dead_letter_error_description == "It has no wheels"
    assert dead.application_properties is not None
    assert dead.application_properties[b"kept"] == b"x"
    assert dead.sequence_number == message.sequence_number


def test_a_message_may_be_dead_lettered_without_a_reason(bus: Bus, queue: str) -> None:
    """R-S5: the client then sends nulls."""
    bus.send(queue, ServiceBusMessage("bad"))

    with bus.receiver(queue) as receiver:
        receiver.dead_letter_message(receive_one(receiver))
    with bus.dead_letters(queue) as dead_letters:
        dead = receive_one(dead_letters)

    assert body(dead) == b"bad"
    assert not dead.dead_letter_reason
    assert not dead.dead_letter_error_description


def test_a_deferred_message_is_set_aside(bus: Bus, queue: str) -> None:
    """R-S6: not delivered any more, but there."""
    bus.send(queue, *together("later", "now"))

    with bus.receiver(queue) as receiver:
        later = receive_one(receiver)
        receiver.defer_message(later)
        assert body(receive_one(receiver)) == b"now"
        assert_nothing_comes(receiver)
        assert body(receiver.receive_deferred_messages(number(later))[0]) == b"later"


@pytest.mark.parametrize("how", SETTLEMENTS)
def test_a_message_is_settled_by_another_receiver(bus: Bus, queue: str, how: str) -> None:
    """R-S8: the lock token is enough, over `$management`, from another connection."""
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as holder, bus.receiver(queue) as other:
        message = receive_one(holder)
        # The client settles only on a receiver that is open.
        assert other.peek_messages(max_message_count=1) != []
        settle(other, message, how)
        assert_settled(bus, other, queue, how)


@pytest.mark.parametrize("how", SETTLEMENTS)
def test_a_message_is_settled_after_its_receiver_closed(bus: Bus, queue: str, how: str) -> None:
    """R-S8: closing a receiver gives back what it had not handed out, not what it had."""
    bus.send(queue, ServiceBusMessage("x"))
    with bus.receiver(queue) as holder:
        message = receive_one(holder)
        holder.close()

    with bus.receiver(queue) as other:
        assert_nothing_comes(other)
        settle(other, message, how)
        assert_settled(bus, other, queue, how)


def assert_settled(bus: Bus, receiver: ServiceBusReceiver, queue: str, how: str) -> None:
    match how:
        case "complete":
            assert peek_all(receiver) == []
        case "abandon":
            assert receive_one(receiver).delivery_count == 1
        case "defer":
            (deferred,) = receiver.receive_deferred_messages(number(peek_all(receiver)[0]))
            assert deferred.delivery_count == 1
        case _:
            assert peek_all(receiver) == []
            with bus.dead_letters(queue) as dead_letters:
                dead = receive_one(dead_letters)
            assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
                "a reason",
                "why",
            )


@pytest.mark.parametrize("how", SETTLEMENTS)
def test_a_settled_message_has_no_lock_any_more(bus: Bus, queue: str, how: str) -> None:
    """R-S8: a second settlement with the same token fails with message-lock-lost."""
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        duplicate = copy.copy(message)
        settle(receiver, message, how)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(duplicate)


def test_what_the_client_refuses_by_itself(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("x"), ServiceBusMessage("y"))

    with bus.receiver(queue) as receiver:
        peeked = receiver.peek_messages(max_message_count=1)[0]
        with pytest.raises(ValueError, match="peeked"):
            receiver.complete_message(peeked)
        message, second = receive(receiver, 2)
        receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(message)
        receiver.close()
        with pytest.raises(ValueError, match="shutdown"):
            receiver.complete_message(second)


def test_competing_receivers_get_different_messages(bus: Bus, queue: str) -> None:
    """R-S2: what one has locked, the other does not see."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(20)])

    with bus.receiver(queue) as one, bus.receiver(queue) as two:
        mine = receive(one, 5)
        yours = receive(two, 10)
        mine += receive(one, 5)
        assert_nothing_comes(two)
        for message in mine:
            one.complete_message(message)
        for message in yours:
            two.complete_message(message)
        assert peek_all(one) == []

    assert len({number(message) for message in mine + yours}) == 20
    assert_no_gaps(mine + yours)


@pytest.mark.smoke
def test_receive_and_delete_takes_the_message_off_at_once(bus: Bus, queue: str) -> None:
    """R-S1: settled when sent, nothing to settle afterwards, nothing comes back."""
    bus.send(queue, *together("a", "b"))

    with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        first = receive_one(receiver)
        assert body(first) == b"a"
        assert first.lock_token is None
        with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
            receiver.complete_message(first)
        assert bodies(peek_all(receiver)) == [b"b"]
        assert body(receive_one(receiver)) == b"b"
        assert peek_all(receiver) == []


def test_a_lock_lasts_as_long_as_the_queue_says(bus: Bus, queue: str, queues: Queues) -> None:
    """R-L1: a minute by default; the client is told until when."""
    short = queues.take("short-lock")
    for name, seconds in ((queue, 60), (short, 5)):
        bus.send(name, ServiceBusMessage("x"))
        with bus.receiver(name) as receiver:
            message = receive_one(receiver)
            now = datetime.now(UTC)
        assert message.locked_until_utc is not None
        left = message.locked_until_utc - now
        assert timedelta(seconds=seconds - 2) < left <= timedelta(seconds=seconds + 0.5)
