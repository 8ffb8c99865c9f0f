"""The dead-letter queue: a queue of its own under each queue, with a few rules of its own."""

import pytest
from azure.servicebus import ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from tests.wire.clients import (
    FIRST_HOME,
    Bus,
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

pytestmark = pytest.mark.side_by_side


def dead_letter(bus: Bus, queue: str, *texts: str) -> None:
    bus.send(queue, *together(*texts, key=FIRST_HOME))
    with bus.receiver(queue) as receiver:
        for message in receive(receiver, len(texts)):
            receiver.dead_letter_message(message, reason=f"no {body(message).decode()}")


@pytest.mark.smoke
def test_dead_letters_are_received_and_completed(bus: Bus, queue: str) -> None:
    """R-S5: in their order, by the path in any case, and the main queue does not see them."""
    dead_letter(bus, queue, "a", "b")

    with bus.receiver(f"{queue}/$deadletterqueue") as dead_letters, bus.receiver(queue) as receiver:
        assert_nothing_comes(receiver)
        messages = receive(dead_letters, 2)
        for message in messages:
            dead_letters.complete_message(message)
        assert peek_all(dead_letters) == []

    assert [(body(m), m.dead_letter_reason) for m in messages] == [(b"a", "no a"), (b"b", "no b")]


def test_abandoned_dead_letters_stay_without_end(bus: Bus, queue: str) -> None:
    """R-S5: the count stays as it was, so no number of abandons takes them away."""
    dead_letter(bus, queue, "a")

    with bus.dead_letters(queue) as dead_letters:
        counts = []
        for _ in range(12):
            message = receive_one(dead_letters)
            counts.append(message.delivery_count)
            dead_letters.abandon_message(message)
        assert body(receive_one(dead_letters)) == b"a"

    assert counts == [0] * 12


def test_dead_letters_are_deferred(bus: Bus, queue: str) -> None:
    """R-S6: on the dead-letter queue's own management node."""
    dead_letter(bus, queue, "a")

    with bus.dead_letters(queue) as dead_letters:
        message = receive_one(dead_letters)
        dead_letters.defer_message(message)
        assert_nothing_comes(dead_letters)
        assert [m.state for m in peek_all(dead_letters)] == [ServiceBusMessageState.DEFERRED]
        (deferred,) = dead_letters.receive_deferred_messages(number(message))
        dead_letters.complete_message(deferred)
        assert peek_all(dead_letters) == []


def test_a_dead_letter_cannot_be_dead_lettered_again(bus: Bus, queue: str) -> None:
    """R-T2: an error, and the message stays where it is."""
    dead_letter(bus, queue, "a")

    with bus.dead_letters(queue, client=bus.client(retry_total=0)) as dead_letters:
        with pytest.raises(ServiceBusError):
            dead_letters.dead_letter_message(receive_one(dead_letters), reason="again")
        assert [m.dead_letter_reason for m in peek_all(dead_letters)] == ["no a"]


def test_dead_letters_are_peeked_and_deleted(bus: Bus, queue: str) -> None:
    """R-S1: the dead-letter queue has both receive modes."""
    dead_letter(bus, queue, "a", "b", "c")

    with bus.dead_letters(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as dead_letters:
        assert bodies(peek_all(dead_letters)) == [b"a", b"b", b"c"]
        assert bodies(receive(dead_letters, 3)) == [b"a", b"b", b"c"]
        assert peek_all(dead_letters) == []


def test_a_dead_letter_is_sent_again(bus: Bus, queue: str) -> None:
    """R-S5: what people do with dead letters: repair and resubmit."""
    dead_letter(bus, queue, "a")

    with bus.dead_letters(queue) as dead_letters:
        message = receive_one(dead_letters)
        bus.send(queue, message)
        dead_letters.complete_message(message)
    with bus.receiver(queue) as receiver:
        again = receive_one(receiver)

    assert (body(again), again.delivery_count, place(again)) == (b"a", 0, 2)
