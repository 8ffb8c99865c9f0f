"""The official Python client on its older transport, a C library that speaks AMQP over TLS only.

Where the broker is, the client is told as it is told of any private endpoint. Nothing in the client
is replaced.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSession,
    TransportType,
)
from azure.servicebus.exceptions import MessageLockLostError, MessageSizeExceededError

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    FLAVOURS,
    Blocking,
    Bus,
    Flavour,
    LoopThread,
    assert_nothing_comes,
    bodies,
    body,
    number,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import LOCK_SHORT_S, Queues

pytest.importorskip("uamqp", reason="uamqp is not installed: `make setup` found no wheel of it")
pytestmark = pytest.mark.side_by_side(at_once=4)

LATER = timedelta(hours=1)


@pytest.fixture(scope="module")
def buses(broker: BrokerProcess, loop: LoopThread) -> Iterator[dict[Flavour, Bus]]:
    """Both flavours of the client, on this transport."""
    made: dict[Flavour, Bus] = {
        flavour: Bus(
            flavour,
            sas.connection_string(broker.amqp_port, emulator=False),
            loop,
            uamqp_transport=True,
            custom_endpoint_address=f"sb://localhost:{broker.amqp_port}",
            # A private endpoint means websockets, unless something else is said.
            transport_type=TransportType.Amqp,
            connection_verify=str(broker.authority),
        )
        for flavour in FLAVOURS
    }
    yield made
    for bus in made.values():
        bus.close()


def test_a_message_is_sent_received_and_completed(bus: Bus, queue: str) -> None:
    """R-T1: with its properties."""
    bus.send(
        queue,
        ServiceBusMessage("x", message_id="m", subject="s", application_properties={"n": 1}),
    )

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
        assert peek_all(receiver) == []

    assert (body(message), message.message_id, message.subject) == (b"x", "m", "s")
    assert message.application_properties == {b"n": 1}
    assert message.delivery_count == 0


def test_a_batch_is_sent_as_one(bus: Bus, queue: str) -> None:
    """R-T5: as a list and as a batch; what is too large is refused."""
    with bus.sender(queue) as sender:
        batch = sender.create_message_batch()
        for index in range(5):
            batch.add_message(ServiceBusMessage(f"{index}", partition_key="k"))
        sender.send_messages(batch)
        sender.send_messages(
            [ServiceBusMessage(f"{index}", partition_key="k") for index in range(5, 10)]
        )
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 262_144))

    with bus.receiver(queue) as receiver:
        assert bodies(receive(receiver, 10)) == [b"%d" % index for index in range(10)]


def test_a_large_message_is_whole(bus: Bus, queue: str) -> None:
    content = bytes(index * 7 % 251 for index in range(200_000))
    bus.send(queue, ServiceBusMessage(content))

    with bus.receiver(queue) as receiver:
        assert body(receive_one(receiver)) == content


def test_each_way_to_settle(bus: Bus, queue: str) -> None:
    """R-S3 to R-S6."""
    texts = ("complete", "abandon", "defer", "dead-letter")
    bus.send(queue, [ServiceBusMessage(text) for text in texts])

    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        complete, abandon, defer, dead_letter = receive(receiver, 4)
        receiver.complete_message(complete)
        receiver.abandon_message(abandon)
        receiver.defer_message(defer)
        receiver.dead_letter_message(dead_letter, reason="Why", error_description="So")
        again = receive_one(receiver)
        assert (body(again), again.delivery_count) == (b"abandon", 1)
        receiver.complete_message(again)
        dead = receive_one(dead_letters)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Why", "So")
        dead_letters.complete_message(dead)
        assert [message.state for message in peek_all(receiver)] == [
            ServiceBusMessageState.DEFERRED
        ]
        (deferred,) = receiver.receive_deferred_messages(number(defer))
        receiver.complete_message(deferred)
        assert peek_all(receiver) == []


def test_receive_and_delete(bus: Bus, queue: str) -> None:
    """R-S1."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(3)])

    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.receiver(queue, receive_mode=mode) as receiver:
        assert bodies(receive(receiver, 3)) == [b"0", b"1", b"2"]
        assert peek_all(receiver) == []


def test_messages_come_by_iterating(bus: Bus, queue: str) -> None:
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(5)])

    with bus.receiver(queue, max_wait_time=3, prefetch_count=3) as receiver:
        got = []
        for message in receiver:
            got.append(body(message))
            receiver.complete_message(message)
            if len(got) == 5:
                break

    assert got == [b"%d" % index for index in range(5)]


def test_a_lock_is_renewed(bus: Bus, queues: Queues) -> None:
    """R-L2; R-S8: a settled message has no lock to renew."""
    queue = queues.take("short-lock")
    bus.send(queue, ServiceBusMessage("x"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        before = message.locked_until_utc
        assert before is not None
        with bus.receiver(queue) as other:
            assert_nothing_comes(other, within_s=LOCK_SHORT_S - 2)
        assert receiver.renew_message_lock(message) > before
        with bus.receiver(queue) as other:
            assert_nothing_comes(other, within_s=LOCK_SHORT_S - 2)
            # The token is enough: from elsewhere, over the management link.
            other.complete_message(message)
        message._settled = False
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)


def test_a_session_is_accepted(bus: Bus, queues: Queues) -> None:
    """By its name, and the next one; its state and its lock."""
    queue = queues.take("session")
    for name in ("a", "b"):
        bus.send(queue, [ServiceBusMessage(f"{name}{n}", session_id=name) for n in range(2)])

    with bus.receiver(queue, session_id="b") as receiver, receiver:
        session = session_of(bus, receiver.session)
        assert bodies(receive(receiver, 2)) == [b"b0", b"b1"]
        assert session.get_state() is None
        session.set_state(b"kept")
        assert session.get_state() == b"kept"
        assert session.renew_lock() > datetime.now(UTC)
        with bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as next_one, next_one:
            messages = receive(next_one, 2)
            for message in messages:
                next_one.complete_message(message)
            assert session_of(bus, next_one.session).session_id == "a"
    assert bodies(messages) == [b"a0", b"a1"]


def session_of(bus: Bus, found: ServiceBusSession) -> ServiceBusSession:
    return found if bus.flavour == "sync" else cast(ServiceBusSession, Blocking(found, bus.loop))


def test_messages_are_scheduled_and_cancelled(bus: Bus, queue: str) -> None:
    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        numbers = sender.schedule_messages(
            [ServiceBusMessage(f"{index}", partition_key="k") for index in range(2)],
            datetime.now(UTC) + LATER,
        )
        assert [message.state for message in peek_all(receiver)] == [
            ServiceBusMessageState.SCHEDULED
        ] * 2
        sender.cancel_scheduled_messages(numbers)
        assert peek_all(receiver) == []
        sender.schedule_messages(ServiceBusMessage("soon"), datetime.now(UTC))
        assert body(receive_one(receiver)) == b"soon"


def test_a_topic_is_published_to(bus: Bus, queues: Queues) -> None:
    """Each subscription has its copy, and its dead letters."""
    topic = queues.take("topic")
    client = bus.client()
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("x", session_id="s"))

    for subscription in ("a", "b"):
        with client.get_subscription_receiver(topic, subscription) as receiver:
            message = receive_one(receiver)
            assert body(message) == b"x"
            receiver.dead_letter_message(message, reason="Why")
            assert peek_all(receiver) == []
        with client.get_subscription_receiver(
            topic, subscription, sub_queue="deadletter"
        ) as receiver:
            assert receive_one(receiver).dead_letter_reason == "Why"
    client.close()
