"""Sending: what is accepted is stored, what cannot be stored is refused, and both are said."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, MessagingEntityDisabledError

from tests.wire.clients import (
    FIRST_HOME,
    Bus,
    assert_no_gaps,
    assert_nothing_comes,
    bodies,
    body,
    peek_all,
    place,
    receive,
    receive_one,
    together,
)
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side

MESSAGE_SIZE_MAX = 262_144


@pytest.mark.smoke
def test_a_message_is_accepted_and_held_until_it_is_received(bus: Bus, queue: str) -> None:
    """R-T1: with the numbers, times and counts that the clients show."""
    before = datetime.now(UTC)
    bus.send(queue, ServiceBusMessage("first", message_id="m-1"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)

    assert body(message) == b"first"
    assert message.message_id == "m-1"
    assert place(message) == 1
    # Where it was enqueued first is told of what came from elsewhere.
    assert message.enqueued_sequence_number is None
    assert message.delivery_count == 0
    assert message.lock_token is not None
    assert message.enqueued_time_utc is not None
    assert abs(message.enqueued_time_utc - before) < timedelta(seconds=5)


@pytest.mark.smoke
def test_a_list_is_stored_in_its_order(bus: Bus, queue: str) -> None:
    """R-T5: a list travels as one batch; its messages are numbered one by one."""
    with bus.sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"{index}") for index in range(10)])

    with bus.receiver(queue) as receiver:
        messages = receive(receiver, 10)

    assert bodies(messages) == [f"{index}".encode() for index in range(10)]
    assert [place(message) for message in messages] == list(range(1, 11))


def test_a_batch_keeps_what_belongs_to_each_message(bus: Bus, queue: str) -> None:
    """R-T5: id, session and properties of the envelope are not those of the messages in it."""
    with bus.sender(queue) as sender:
        batch = sender.create_message_batch()
        assert batch.max_size_in_bytes == MESSAGE_SIZE_MAX
        batch.add_message(
            ServiceBusMessage(
                "a", message_id="id-a", session_id="s-a", application_properties={"of": "a"}
            )
        )
        # A partitioned queue takes them together because their keys are the same.
        batch.add_message(
            ServiceBusMessage("b", message_id="id-b", subject="of b", partition_key="s-a")
        )
        batch.add_message(ServiceBusMessage("c", partition_key="s-a"))
        sender.send_messages(batch)

    with bus.receiver(queue) as receiver:
        first, second, third = receive(receiver, 3)

    assert (first.message_id, first.session_id, first.subject) == ("id-a", "s-a", None)
    assert first.application_properties == {b"of": b"a"}
    assert first.partition_key is None
    assert (second.message_id, second.session_id, second.subject) == ("id-b", None, "of b")
    assert not second.application_properties
    assert third.message_id not in (None, "", "id-a", "id-b")
    assert third.session_id is None


def test_an_empty_list_and_an_empty_batch_send_nothing(bus: Bus, queue: str) -> None:
    with bus.sender(queue) as sender:
        sender.send_messages([])
        sender.send_messages(sender.create_message_batch())

    with bus.receiver(queue) as receiver:
        assert receiver.peek_messages(max_message_count=1) == []


def test_a_batch_of_several_hundred_messages_fills_the_limit(bus: Bus, queue: str) -> None:
    """R-T5: as many as fit go in one transfer, the next one is refused by the client."""
    with bus.sender(queue) as sender:
        batch = sender.create_message_batch()
        with pytest.raises(MessageSizeExceededError):  # noqa: PT012 - the last addition raises
            while True:
                batch.add_message(ServiceBusMessage(b"x" * 600, message_id=f"{len(batch)}"))
        assert MESSAGE_SIZE_MAX - 1000 < batch.size_in_bytes <= MESSAGE_SIZE_MAX
        sender.send_messages(batch)

    with bus.receiver(queue) as receiver:
        assert [m.message_id for m in receive(receiver, len(batch))] == [
            f"{index}" for index in range(len(batch))
        ]


def test_a_list_that_does_not_fit_stores_nothing_of_it(bus: Bus, queue: str) -> None:
    """R-T5: all or none, within the size limit."""
    with bus.sender(queue) as sender, pytest.raises(MessageSizeExceededError):
        sender.send_messages([ServiceBusMessage(b"x" * 100_000) for _ in range(3)])

    with bus.receiver(queue) as receiver:
        assert receiver.peek_messages(max_message_count=5) == []


@pytest.mark.smoke
@pytest.mark.parametrize("size", [200_000, 250 * 1024], ids=["200 KB", "250 KiB"])
def test_a_large_message_comes_back_as_it_was(bus: Bus, queue: str, size: int) -> None:
    """R-T1: over as many frames as it takes, in both directions."""
    content = bytes(index * 7 % 251 for index in range(size))
    bus.send(queue, ServiceBusMessage(content))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert body(message) == content


def test_a_message_over_the_limit_is_refused_and_the_sender_lives_on(bus: Bus, queue: str) -> None:
    """R-T2: message-size-exceeded, with a tracking id; no retry could succeed, so none is made."""
    with bus.sender(queue) as sender:
        with pytest.raises(MessageSizeExceededError, match="TrackingId:"):
            sender.send_messages(ServiceBusMessage(b"x" * MESSAGE_SIZE_MAX))
        sender.send_messages(ServiceBusMessage("small"))

    with bus.receiver(queue) as receiver:
        assert body(receive_one(receiver)) == b"small"
        assert_nothing_comes(receiver)


def test_a_queue_may_take_larger_messages(bus: Bus, queues: Queues) -> None:
    """R-T1: the limit is the queue's property, told to the client when it attaches."""
    queue = queues.take("one-megabyte")
    content = bytes(index * 7 % 251 for index in range(900_000))
    bus.send(queue, ServiceBusMessage(content))

    with bus.receiver(queue) as receiver:
        (peeked,) = receiver.peek_messages(max_message_count=1)
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert body(peeked) == content
    assert body(message) == content


def test_a_queue_that_takes_no_messages(bus: Bus, queues: Queues) -> None:
    """R-T2: disabled for senders, and said so; receivers may attach."""
    queue = queues.take("send-disabled")
    with (
        bus.sender(queue, client=bus.client(retry_total=0)) as sender,
        pytest.raises(MessagingEntityDisabledError),
    ):
        sender.send_messages(ServiceBusMessage("x"))
    with bus.receiver(queue) as receiver:
        assert_nothing_comes(receiver)


def test_a_queue_that_gives_no_messages(bus: Bus, queues: Queues) -> None:
    """R-T2: disabled for receivers, and said so; senders may attach."""
    queue = queues.take("receive-disabled")
    bus.send(queue, ServiceBusMessage("x"))
    with (
        bus.receiver(queue, client=bus.client(retry_total=0)) as receiver,
        pytest.raises(MessagingEntityDisabledError),
    ):
        receiver.receive_messages(max_message_count=1, max_wait_time=5)


def test_a_message_without_an_id_gets_one(bus: Bus, queue: str) -> None:
    """R-S9: every message can be told from every other one."""
    bus.send(queue, ServiceBusMessage("a"), ServiceBusMessage("b"))

    with bus.receiver(queue) as receiver:
        ids = [message.message_id for message in receive(receiver, 2)]

    assert all(ids)
    assert len(set(ids)) == 2


def test_a_message_without_a_body_is_a_message(bus: Bus, queue: str) -> None:
    bus.send(
        queue,
        ServiceBusMessage(None, subject="no body", partition_key="k"),
        ServiceBusMessage(b"", partition_key="k"),
    )

    with bus.receiver(queue) as receiver:
        without, empty = receive(receiver, 2)

    assert (without.body, without.subject) == (None, "no body")
    assert body(empty) == b""


def test_many_senders_at_once_lose_nothing(bus: Bus, queue: str) -> None:
    """R-T3, R-T7: eight senders on eight connections, each acknowledged send is there once."""
    ready = threading.Barrier(8)

    def send(index: int) -> list[str]:
        ids = [f"{index}-{turn}" for turn in range(25)]
        with bus.sender(queue) as sender:
            sender.send_messages([])
            ready.wait(30)
            for message_id in ids:
                sender.send_messages(ServiceBusMessage(b"", message_id=message_id))
        return ids

    with ThreadPoolExecutor(max_workers=8) as pool:
        sent = [message_id for ids in pool.map(send, range(8)) for message_id in ids]

    with bus.receiver(queue) as receiver:
        stored = peek_all(receiver)
    assert sorted(message.message_id or "" for message in stored) == sorted(sent)
    assert_no_gaps(stored)


def test_the_messages_of_one_sender_keep_their_order(bus: Bus, queue: str) -> None:
    with bus.sender(queue) as sender:
        for message in together(*[f"{index}" for index in range(50)]):
            sender.send_messages(message)

    with bus.receiver(queue) as receiver:
        assert bodies(receive(receiver, 50)) == [f"{index}".encode() for index in range(50)]


def test_a_received_message_can_be_sent_again(bus: Bus, queue: str) -> None:
    """Also after it was pickled, as applications do that hand work to another process."""
    bus.send(queue, *together("again", key=FIRST_HOME, application_properties={"kind": "x"}))

    with bus.receiver(queue) as receiver:
        original = receive_one(receiver)
        copy: ServiceBusReceivedMessage = pickle.loads(pickle.dumps(original))
        receiver.complete_message(original)
        bus.send(queue, original, copy)
        messages = receive(receiver, 2)

    assert bodies(messages) == [b"again", b"again"]
    assert [message.application_properties for message in messages] == [{b"kind": b"x"}] * 2
    assert [place(message) for message in messages] == [2, 3]
    assert [message.delivery_count for message in messages] == [0, 0]


def test_a_queue_that_is_never_held_for_company(bus: Bus, queues: Queues) -> None:
    """R-F3: without batched store access every send is written as it comes, and is as durable."""
    queue = queues.take("never-held")
    bus.send(queue, *together(*[f"{index}" for index in range(20)]))

    with bus.receiver(queue) as receiver:
        messages = receive(receiver, 20)
        for message in messages:
            receiver.complete_message(message)
        assert receiver.peek_messages(max_message_count=1, sequence_number=1) == []

    assert bodies(messages) == [f"{index}".encode() for index in range(20)]


def test_a_queue_is_found_by_its_name(bus: Bus) -> None:
    """Names may hold / . - _ and are matched without regard to case."""
    odd, camel = (
        ("orders/eu.north-1_sync", "CamelSync")
        if bus.flavour == "sync"
        else ("orders/eu.north-1_async", "CamelAsync")
    )
    for sent_to, received_from in ((odd, odd), (camel.lower(), camel.upper())):
        bus.send(sent_to, ServiceBusMessage(sent_to))
        with bus.receiver(received_from) as receiver:
            message = receive_one(receiver)
            receiver.complete_message(message)
        assert body(message) == sent_to.encode()
