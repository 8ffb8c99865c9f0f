"""Time to live: the message's or the queue's, whichever ends first."""

import time
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import TTL_S, Queues

pytestmark = pytest.mark.side_by_side(at_once=24)

# The client writes whole seconds. After this long a message of TTL_S seconds is certainly too old.
EXPIRED_AFTER_S = TTL_S + 0.5


def short_lived(text: str, seconds: int = TTL_S, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, time_to_live=timedelta(seconds=seconds), **options)


def test_an_expired_message_is_dropped(bus: Bus, queues: Queues) -> None:
    """R-T1: never delivered, and not dead-lettered unless the queue says so; others stay."""
    queue = queues.take("plain")
    bus.send(queue, short_lived("old"), ServiceBusMessage("stays"), short_lived("old too"))
    time.sleep(EXPIRED_AFTER_S)

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        assert body(receive_one(receiver)) == b"stays"
        assert_nothing_comes(receiver)
        assert_nothing_comes(dead_letters)


def test_an_expired_message_is_dead_lettered(bus: Bus, queues: Queues) -> None:
    """R-S5: where the queue dead-letters on expiration, with the documented reason."""
    queue = queues.take("dead-letter-on-expiry")
    bus.send(queue, short_lived("old"), ServiceBusMessage("stays"))
    time.sleep(EXPIRED_AFTER_S)

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        assert body(receive_one(receiver)) == b"stays"
        assert_nothing_comes(receiver)
        dead = receive_one(dead_letters)
        # No time to live applies in the dead-letter queue.
        time.sleep(EXPIRED_AFTER_S)
        dead_letters.complete_message(dead)

    assert body(dead) == b"old"
    assert dead.dead_letter_reason == "TTLExpiredException"
    assert dead.dead_letter_error_description == "The message expired and was dead lettered."


def test_the_queue_has_a_time_to_live(bus: Bus, queues: Queues) -> None:
    """The smaller one wins: the queue's over none and over a longer one. The header still says what
    the sender said."""
    queue = queues.take("ttl")
    bus.send(queue, ServiceBusMessage("old"), short_lived("old too", seconds=3600))

    with bus.receiver(queue) as receiver:
        messages = peek_all(receiver)
        assert sorted(bodies(messages)) == [b"old", b"old too"]
        lives = {body(message): message.time_to_live for message in messages}
        assert lives == {b"old": None, b"old too": timedelta(hours=1)}
        time.sleep(EXPIRED_AFTER_S)
        assert_nothing_comes(receiver)


def test_the_queue_dead_letters_what_it_expires(bus: Bus, queues: Queues) -> None:
    """R-S5: the queue's own time to live dead-letters too."""
    queue = queues.take("ttl-dead-letter")
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(5)])
    time.sleep(EXPIRED_AFTER_S)

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        assert_nothing_comes(receiver)
        dead = receive(dead_letters, 5)

    assert bodies(dead) == [b"0", b"1", b"2", b"3", b"4"]
    assert {message.dead_letter_reason for message in dead} == {"TTLExpiredException"}


def test_a_locked_message_does_not_expire(bus: Bus, queues: Queues) -> None:
    """R-F4: the time to live is checked when the broker sends; then the lock protects."""
    queue = queues.take("dead-letter-on-expiry")
    bus.send(queue, short_lived("held"))

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        message = receive_one(receiver)
        time.sleep(EXPIRED_AFTER_S)
        receiver.complete_message(message)
        assert_nothing_comes(dead_letters)


def test_an_abandoned_message_that_is_too_old_goes(bus: Bus, queues: Queues) -> None:
    """It expires as soon as nobody holds it."""
    queue = queues.take("dead-letter-on-expiry")
    bus.send(queue, short_lived("held"))

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        message = receive_one(receiver)
        time.sleep(EXPIRED_AFTER_S)
        receiver.abandon_message(message)
        assert_nothing_comes(receiver)
        assert receive_one(dead_letters).dead_letter_reason == "TTLExpiredException"


def test_a_cached_message_may_be_too_old(bus: Bus, queues: Queues) -> None:
    """R-F4: what was sent into a client's cache in time is given out, however long it lay there."""
    queue = queues.take("plain")
    bus.send(queue, *[short_lived(text, partition_key="k") for text in ("a", "b")])

    with bus.receiver(queue, prefetch_count=10) as receiver:
        first = receive_one(receiver)
        time.sleep(EXPIRED_AFTER_S)
        second = receive_one(receiver)
        receiver.complete_message(first)
        receiver.complete_message(second)

    assert (body(first), body(second)) == (b"a", b"b")
