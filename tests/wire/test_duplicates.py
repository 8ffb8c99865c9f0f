"""Duplicate detection: what has an id that was seen within the window is accepted and dropped."""

import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from tests.wire.clients import Bus, bodies, partition, peek_all, receive, receive_one
from tests.wire.entities import Queues
from tests.wire.layouts import WINDOW_S

pytestmark = pytest.mark.side_by_side(at_once=16)

SOME_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


# With one key for all, the same is true of plain and of partitioned queues.
KEY: dict[str, Any] = {"x-opt-partition-key": "k"}


def message(
    message_id: str, text: str, *, partition_key: str | None = "k", **options: Any
) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=message_id, partition_key=partition_key, **options)


def stored(bus: Bus, queue: str) -> list[bytes]:
    with bus.receiver(queue) as receiver:
        return bodies(peek_all(receiver))


@pytest.mark.smoke
def test_a_known_id_is_accepted_and_dropped(bus: Bus, queues: Queues) -> None:
    """R-S9: the sender sees no difference; another case is another id."""
    queue = queues.take("dedup")
    bus.send(queue, message("m", "1"), message("m", "2"), message("M", "3"), message("n", "4"))

    assert stored(bus, queue) == [b"1", b"3", b"4"]


def test_a_plain_queue_keeps_duplicates(bus: Bus, queue: str) -> None:
    bus.send(queue, message("m", "1"), message("m", "2"))

    assert sorted(stored(bus, queue)) == [b"1", b"2"]


def test_messages_without_id_are_never_the_same(bus: Bus, queues: Queues) -> None:
    """The broker gives each an id of its own."""
    queue = queues.take("dedup")
    nameless = [AmqpAnnotatedMessage(data_body=b"x") for _ in range(3)]
    bus.send(queue, *nameless)

    assert stored(bus, queue) == [b"x"] * 3


def test_a_completed_message_is_remembered(bus: Bus, queues: Queues) -> None:
    queue = queues.take("dedup")
    bus.send(queue, message("m", "1"))
    with bus.receiver(queue) as receiver:
        receiver.complete_message(receive_one(receiver))

    bus.send(queue, message("m", "2"))
    assert stored(bus, queue) == []


def test_batches(bus: Bus, queues: Queues) -> None:
    """Duplicates within a batch, and of what came before; the rest of the batch is kept."""
    queue = queues.take("dedup")
    bus.send(
        queue,
        [message("a", "1"), message("b", "2"), message("a", "3")],
        [message("b", "4"), message("c", "5")],
        [message("a", "6"), message("b", "7")],
    )

    assert stored(bus, queue) == [b"1", b"2", b"5"]


@pytest.mark.parametrize(
    "message_id",
    [SOME_UUID, 7, b"\x00\xff", "text"],
    ids=["uuid", "ulong", "binary", "string"],
)
def test_ids_of_every_type(bus: Bus, queues: Queues, message_id: Any) -> None:
    """R-S9: one by one, and in a batch."""
    queue = queues.take("dedup")

    def twin(text: bytes) -> AmqpAnnotatedMessage:
        properties = AmqpMessageProperties(message_id=message_id)
        return AmqpAnnotatedMessage(data_body=text, properties=properties, annotations=KEY)

    bus.send(queue, twin(b"1"), twin(b"2"), [twin(b"3")], message("other", "4"))
    assert stored(bus, queue) == [b"1", b"4"]


def test_scheduled_messages(bus: Bus, queues: Queues) -> None:
    """They count from when they are scheduled; a number is given to each all the same."""
    queue = queues.take("dedup")
    due = datetime.now(UTC) + timedelta(seconds=3)

    with bus.sender(queue) as sender, bus.receiver(queue) as receiver:
        wanted = [message("a", "1"), message("a", "2"), message("b", "3")]
        numbers = sender.schedule_messages(wanted, due)
        assert len(set(numbers)) == 3
        sender.send_messages(message("a", "4"))
        sender.send_messages(message("a", "5", scheduled_enqueue_time_utc=due))
        assert bodies(peek_all(receiver)) == [b"1", b"3"]
        got = receive(receiver, 2)
        assert bodies(got) == [b"1", b"3"]
        for each in got:
            receiver.complete_message(each)
        sender.send_messages(message("b", "6"))
        assert peek_all(receiver) == []


def test_after_the_window_an_id_is_new_again(bus: Bus, queues: Queues) -> None:
    """The window is counted from the first one: what was dropped does not prolong it."""
    queue = queues.take("dedup-brief")

    with bus.sender(queue) as sender:
        sender.send_messages(message("m", "1"))
        begin = time.monotonic()
        sender.send_messages(message("m", "2"))
        time.sleep(max(0.0, WINDOW_S - 1.5 - (time.monotonic() - begin)))
        sender.send_messages(message("m", "3"))
        assert time.monotonic() - begin < WINDOW_S, "the machine is too slow for this test"
        time.sleep(max(0.0, WINDOW_S + 0.2 - (time.monotonic() - begin)))
        sender.send_messages(message("m", "4"))
        sender.send_messages(message("m", "5"))
    assert stored(bus, queue) == [b"1", b"4"]


@pytest.mark.plain_only(reason="on a partitioned queue an id counts within its session")
def test_sessions(bus: Bus, queues: Queues) -> None:
    """On a plain queue the id alone counts, whatever the session."""
    queue = queues.take("dedup-session")
    sent = [("m", "1", "a"), ("m", "2", "b"), ("n", "3", "b")]
    bus.send(
        queue,
        *(
            message(name, text, partition_key=None, session_id=session)
            for name, text, session in sent
        ),
    )

    with bus.receiver(queue, session_id="b") as receiver:
        assert bodies(peek_all(receiver)) == [b"3"]


def test_topics(bus: Bus, queues: Queues) -> None:
    """A duplicate reaches no subscription."""
    topic = queues.take("dedup-topic")
    bus.publish(topic, message("m", "1"), [message("m", "2"), message("n", "3")])

    for name in ("a", "b"):
        with bus.subscriber(topic, name) as receiver:
            assert bodies(peek_all(receiver)) == [b"1", b"3"]


def test_a_partitioned_queue(bus: Bus, queues: Queues) -> None:
    """R-P3: without a key the id chooses the partition, so that duplicates meet."""
    queue = queues.take("partitioned-dedup")
    with bus.sender(queue) as sender:
        for turn in range(2):
            for index in range(12):
                sender.send_messages(message(f"m{index}", f"{turn}", partition_key=None))

    with bus.receiver(queue) as receiver:
        seen = peek_all(receiver)
    assert bodies(seen) == [b"0"] * 12
    assert len({partition(each) for each in seen}) > 1


def test_a_partitioned_queue_with_keys(bus: Bus, queues: Queues) -> None:
    """R-P3, R-S9: the key chooses the partition, and an id counts within its key."""
    queue = queues.take("partitioned-dedup")
    with bus.sender(queue) as sender:
        for key in ("k1", "k2", "k3"):
            for text in ("first", "second"):
                sender.send_messages(message("m", f"{key} {text}", partition_key=key))

    assert sorted(stored(bus, queue)) == [b"k1 first", b"k2 first", b"k3 first"]
