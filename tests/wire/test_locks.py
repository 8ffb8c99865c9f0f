"""Locks in real time: renewal, expiry, and what each of them does to the message."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import MessageLockLostError

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    number,
    receive,
    receive_one,
    together,
)
from tests.wire.entities import LOCK_SHORT_S, Queues

pytestmark = pytest.mark.side_by_side(at_once=24)

# After this long a short lock is certainly gone; the broker has half a second to notice.
EXPIRED_AFTER_S = LOCK_SHORT_S + 0.5


def test_an_expired_lock_puts_the_message_back(bus: Bus, queues: Queues) -> None:
    """R-L3: at its old place, before the messages behind it, with one more delivery."""
    queue = queues.take("short-lock")
    bus.send(queue, *together("a", "b", "c"))

    with bus.receiver(queue) as holder, bus.receiver(queue) as other:
        first = receive_one(holder)
        time.sleep(EXPIRED_AFTER_S)
        messages = receive(other, 3)

    assert bodies(messages) == [b"a", b"b", b"c"]
    assert [message.delivery_count for message in messages] == [1, 0, 0]
    assert messages[0].sequence_number == first.sequence_number
    assert messages[0].lock_token != first.lock_token


def test_an_expired_lock_wakes_a_waiting_receiver(bus: Bus, queues: Queues) -> None:
    """R-L3: nobody has to ask again; several messages come back in their order."""
    queue = queues.take("short-lock")
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(3)])

    with bus.receiver(queue) as holder, bus.receiver(queue) as waiting:
        receive(holder, 3)
        started = time.monotonic()
        messages = receive(waiting, 3, within_s=LOCK_SHORT_S + 5)
        waited = time.monotonic() - started

    assert bodies(messages) == [b"0", b"1", b"2"]
    assert [message.delivery_count for message in messages] == [1, 1, 1]
    assert LOCK_SHORT_S - 2 < waited < LOCK_SHORT_S + 2


def test_the_client_knows_an_expired_lock(bus: Bus, queues: Queues) -> None:
    """R-S8: from the time that the broker told it."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        time.sleep(EXPIRED_AFTER_S)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)


def test_the_broker_refuses_an_expired_lock(bus: Bus, queues: Queues) -> None:
    """R-S8, R-L3: every settlement, also when the client's clock is wrong; the message stays."""
    queue = queues.take("short-lock")
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(4)])

    with bus.receiver(queue) as receiver:
        complete, abandon, defer, dead_letter = messages = receive(receiver, 4)
        time.sleep(EXPIRED_AFTER_S)
        for message in messages:
            believe_in_the_lock(message)
        with pytest.raises(MessageLockLostError, match="The lock supplied is invalid"):
            receiver.complete_message(complete)
        with pytest.raises(MessageLockLostError, match="The lock supplied is invalid"):
            receiver.abandon_message(abandon)
        with pytest.raises(MessageLockLostError, match="The lock supplied is invalid"):
            receiver.defer_message(defer)
        with pytest.raises(MessageLockLostError, match="The lock supplied is invalid"):
            receiver.dead_letter_message(dead_letter, reason="no")
        again = receive(receiver, 4)
        for message in again:
            receiver.complete_message(message)

    assert [message.delivery_count for message in again] == [1, 1, 1, 1]


def believe_in_the_lock(message: ServiceBusReceivedMessage) -> None:
    # The client looks at its clock before it asks; this is what it sees when that clock is slow.
    message._expiry = datetime.now(UTC) + timedelta(minutes=1)


def test_a_renewed_lock_lasts(bus: Bus, queues: Queues) -> None:
    """R-L2: renewed twice, the message is held for three durations and settled after them."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver, bus.receiver(queue) as other:
        message = receive_one(receiver)
        for _ in range(2):
            before = message.locked_until_utc
            assert before is not None
            time.sleep(LOCK_SHORT_S - 1.5)
            until = receiver.renew_message_lock(message)
            assert until == message.locked_until_utc
            assert until - before > timedelta(seconds=LOCK_SHORT_S - 2.5)
        assert_nothing_comes(other, within_s=LOCK_SHORT_S - 1.5)
        receiver.complete_message(message)
        assert_nothing_comes(other)


def test_a_lock_is_renewed_through_another_receiver(bus: Bus, queues: Queues) -> None:
    """R-L2: the token is enough."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as holder, bus.receiver(queue) as other:
        message = receive_one(holder)
        assert other.peek_messages(max_message_count=1) != []
        time.sleep(LOCK_SHORT_S - 1.5)
        other.renew_message_lock(message)
        time.sleep(LOCK_SHORT_S - 1.5)
        holder.complete_message(message)


def test_an_expired_lock_is_not_renewed(bus: Bus, queues: Queues) -> None:
    """R-S8: 410, message-lock-lost; and the same for a message that was completed."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        time.sleep(EXPIRED_AFTER_S)
        with pytest.raises(MessageLockLostError, match="The lock supplied is invalid"):
            receiver.renew_message_lock(message)


def test_the_renewer_holds_a_message(bus: Bus, queues: Queues) -> None:
    """R-L2: the client's own automatic renewal, over more than two lock durations."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("a"), ServiceBusMessage("b"))

    with (
        bus.renewer() as renewer,
        bus.receiver(queue, auto_lock_renewer=renewer) as receiver,
        bus.receiver(queue) as other,
    ):
        messages = receive(receiver, 2)
        assert_nothing_comes(other, within_s=2.3 * LOCK_SHORT_S)
        for message in messages:
            assert message.auto_renew_error is None
            receiver.complete_message(message)
        assert_nothing_comes(other)


def test_the_renewer_stops_when_told(bus: Bus, queues: Queues) -> None:
    """R-L2: for a chosen period; afterwards the message comes back."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.renewer() as renewer, bus.receiver(queue) as receiver, bus.receiver(queue) as other:
        message = receive_one(receiver)
        register(renewer, receiver, message, for_s=LOCK_SHORT_S + 1)
        started = time.monotonic()
        assert receive_one(other, within_s=30).delivery_count == 1
        assert time.monotonic() - started > LOCK_SHORT_S + 0.5


def register(
    renewer: AutoLockRenewer, receiver: object, message: ServiceBusReceivedMessage, *, for_s: float
) -> None:
    renewer.register(receiver, message, max_lock_renewal_duration=for_s)  # type: ignore[arg-type]  # either flavour


def test_expiries_count_as_deliveries(bus: Bus, queues: Queues) -> None:
    """R-S7: two lock expiries on a queue with two deliveries end in the dead-letter queue."""
    queue = queues.take("short-lock-two-deliveries")
    bus.send(queue, ServiceBusMessage("unwanted"))

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        receive_one(receiver)
        assert receive_one(receiver, within_s=LOCK_SHORT_S + 5).delivery_count == 1
        dead = receive_one(dead_letters, within_s=LOCK_SHORT_S + 5)

    assert body(dead) == b"unwanted"
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_a_deferred_message_is_locked_and_renewed(bus: Bus, queues: Queues) -> None:
    """R-S6, R-L2: its lock runs and is renewed; when it ends the message is deferred again."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
        held = receiver.receive_deferred_messages(number(message))[0]
        time.sleep(LOCK_SHORT_S - 1.5)
        receiver.renew_message_lock(held)
        time.sleep(EXPIRED_AFTER_S)
        believe_in_the_lock(held)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(held)
        assert_nothing_comes(receiver)
        again = receiver.receive_deferred_messages(number(message))[0]
        receiver.complete_message(again)

    assert again.delivery_count == 2


def test_a_released_message_was_not_delivered(bus: Bus, queues: Queues) -> None:
    """R-S7: what a closing receiver gives back from its cache raises no count and comes at once."""
    queue = queues.take("short-lock")
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(10)])

    with bus.receiver(queue, prefetch_count=10) as caching:
        kept = receive_one(caching)
        # The others are in its cache by now; nobody else sees them.
        with bus.receiver(queue) as other:
            assert_nothing_comes(other)
        caching.close()

    with bus.receiver(queue) as other:
        messages = receive(other, 9, within_s=3)
        again = receive_one(other, within_s=LOCK_SHORT_S + 3)

    assert bodies(messages) == [f"{index}".encode() for index in range(1, 10)]
    assert [message.delivery_count for message in messages] == [0] * 9
    assert number(again) == number(kept)
    assert again.delivery_count == 1
