"""Auto-forwarding: messages and dead letters that go on to another entity by themselves."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError

from tests.wire.clients import (
    PLACE,
    Bus,
    bodies,
    body,
    partition,
    peek_all,
    place,
    receive,
    receive_one,
    together,
)
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side(at_once=16)

DEAD = ServiceBusSubQueue.DEAD_LETTER


def arrived(bus: Bus, queue: str, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages, and see that there are no more."""
    with bus.receiver(queue) as receiver:
        got = receive(receiver, count)
        for each in got:
            receiver.complete_message(each)
        assert peek_all(receiver) == []
    return got


def dead(bus: Bus, queue: str) -> ServiceBusReceivedMessage:
    """The only dead letter of a queue."""
    with bus.dead_letters(queue) as dead_letters:
        message = receive_one(dead_letters)
        dead_letters.complete_message(message)
        assert peek_all(dead_letters) == []
    return message


def first_place(message: ServiceBusReceivedMessage) -> int:
    """Which one it was in its partition of the queue that it was sent to."""
    assert message.enqueued_sequence_number is not None
    return message.enqueued_sequence_number & PLACE


def source_of(message: ServiceBusReceivedMessage) -> str | None:
    return message.dead_letter_source


@pytest.mark.smoke
def test_from_queue_to_queue(bus: Bus, queues: Queues) -> None:
    """In order, with all that they are; number and time are those of the new place."""
    group = queues.take("relay")
    # Something is there before, so that the numbers of the two queues differ.
    bus.send(f"{group}/out", together("before"))
    sent = ServiceBusMessage(
        "0",
        message_id="m",
        subject="s",
        correlation_id="c",
        session_id="k",
        time_to_live=timedelta(hours=1),
        application_properties={"n": 1},
    )
    bus.send(f"{group}/in", sent, together(*(f"{index}" for index in range(1, 20))))

    before, first, *others = arrived(bus, f"{group}/out", 21)
    assert body(before) == b"before"
    assert bodies([first, *others]) == [b"%d" % index for index in range(20)]
    assert (first.message_id, first.subject, first.correlation_id) == ("m", "s", "c")
    assert (first.session_id, first.time_to_live) == ("k", timedelta(hours=1))
    assert first.application_properties == {b"n": 1}
    assert (first.delivery_count, source_of(first)) == (0, None)
    for at, each in enumerate([first, *others]):
        assert first_place(each) == at + 1
        assert place(each) == at + 2


def test_a_queue_that_forwards_gives_nothing(bus: Bus, queues: Queues) -> None:
    """Its dead letters can be received."""
    group = queues.take("relay")
    bus.send(f"{group}/in", ServiceBusMessage("x"))
    arrived(bus, f"{group}/out")

    with (
        pytest.raises(ServiceBusError, match="auto-forwarding"),
        bus.receiver(f"{group}/in", client=bus.client(retry_total=0)) as receiver,
    ):
        receive_one(receiver)
    with bus.dead_letters(f"{group}/in") as dead_letters:
        assert peek_all(dead_letters) == []


def test_scheduled_messages_go_on_when_they_are_due(bus: Bus, queues: Queues) -> None:
    group = queues.take("relay")
    due = datetime.now(UTC) + timedelta(seconds=2)

    with bus.sender(f"{group}/in") as sender:
        first, _ = sender.schedule_messages([ServiceBusMessage("1"), ServiceBusMessage("2")], due)
        sender.cancel_scheduled_messages(first)
    (got,) = arrived(bus, f"{group}/out")
    assert body(got) == b"2"
    assert datetime.now(UTC) >= due - timedelta(milliseconds=50)
    assert got.state == ServiceBusMessageState.SCHEDULED


def test_many_messages_arrive_once_and_in_order(bus: Bus, queues: Queues) -> None:
    group = queues.take("relay")
    with bus.sender(f"{group}/in") as sender:
        for start in range(0, 1000, 250):
            sender.send_messages(together(*(f"{index}" for index in range(start, start + 250))))

    texts = [int(each) for each in bodies(arrived(bus, f"{group}/out", 1000))]
    assert texts == list(range(1000))


def test_through_a_topic(bus: Bus, queues: Queues) -> None:
    """From a queue to a topic, from a subscription to a queue; the rules decide on the way."""
    group = queues.take("relay-topic")
    bus.send(
        f"{group}/in",
        together("red", message_id="r", application_properties={"colour": "red"}),
        together("blue", message_id="b", application_properties={"colour": "blue"}),
    )

    (got,) = arrived(bus, f"{group}/out")
    assert (body(got), got.message_id) == (b"red", "r")
    # The number that it had where it was sent to.
    assert first_place(got) == 1
    with bus.subscriber(f"{group}/topic", "all") as receiver:
        assert bodies(receive(receiver, 2)) == [b"red", b"blue"]
    with (
        pytest.raises(ServiceBusError, match="auto-forwarding"),
        bus.subscriber(f"{group}/topic", "red", client=bus.client(retry_total=0)) as receiver,
    ):
        receive_one(receiver)


def test_four_hops_and_no_more(bus: Bus, queues: Queues) -> None:
    """The fifth one ends in the dead-letter queue of where the message is then."""
    group = queues.take("chain")
    bus.send(f"{group}/h2", ServiceBusMessage("arrives", message_id="m"))
    (got,) = arrived(bus, f"{group}/h6")
    assert (body(got), got.message_id, first_place(got)) == (b"arrives", "m", 1)

    bus.send(f"{group}/h1", ServiceBusMessage("ends"))
    ended = dead(bus, f"{group}/h5")
    assert body(ended) == b"ends"
    assert ended.dead_letter_reason == "MaxTransferHopCountExceeded"
    assert "hops" in str(ended.dead_letter_error_description)
    with bus.receiver(f"{group}/h6") as receiver:
        assert peek_all(receiver) == []


def test_a_ring_comes_to_rest(bus: Bus, queues: Queues) -> None:
    group = queues.take("ring")
    bus.send(f"{group}/one", ServiceBusMessage("x"))

    assert dead(bus, f"{group}/one").dead_letter_reason == "MaxTransferHopCountExceeded"


# --- dead letters


def test_dead_letters_go_on(bus: Bus, queues: Queues) -> None:
    """With the reason, and where they were dead-lettered; by hand and by too many deliveries."""
    group = queues.take("relay-dead")
    bus.send(f"{group}/in", together("1", message_id="m1"), together("2"))

    with bus.receiver(f"{group}/in") as receiver:
        first = receive_one(receiver)
        receiver.dead_letter_message(first, reason="Why", error_description="Because")
        for _ in range(2):
            receiver.abandon_message(receive_one(receiver))
        by_hand, by_count = arrived(bus, f"{group}/dead", 2)
        assert peek_all(receiver) == []
    assert (body(by_hand), by_hand.message_id) == (b"1", "m1")
    assert (by_hand.dead_letter_reason, by_hand.dead_letter_error_description) == (
        "Why",
        "Because",
    )
    assert by_count.dead_letter_reason == "MaxDeliveryCountExceeded"
    for each in (by_hand, by_count):
        assert source_of(each) == f"{group}/in"
        assert each.delivery_count == 0
    with bus.dead_letters(f"{group}/in") as dead_letters:
        assert peek_all(dead_letters) == []


def test_expired_messages_go_on(bus: Bus, queues: Queues) -> None:
    """They have the same time to live again where they arrive, as in the service."""
    group = queues.take("relay-dead")
    life = timedelta(seconds=3)
    bus.send(f"{group}/expiring", ServiceBusMessage("x", time_to_live=life))

    (got,) = arrived(bus, f"{group}/dead")
    assert (body(got), got.dead_letter_reason) == (b"x", "TTLExpiredException")
    assert (source_of(got), got.time_to_live) == (f"{group}/expiring", life)


def test_dead_letters_of_a_subscription_go_on(bus: Bus, queues: Queues) -> None:
    group = queues.take("relay-dead")
    bus.publish(f"{group}/topic", ServiceBusMessage("x"))

    with bus.subscriber(f"{group}/topic", "s") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="Why")
    (got,) = arrived(bus, f"{group}/dead")
    assert (body(got), got.dead_letter_reason) == (b"x", "Why")
    assert str(source_of(got)).lower() == f"{group}/topic/subscriptions/s"


# --- what cannot go on


def test_a_destination_that_is_disabled(bus: Bus, queues: Queues) -> None:
    """The message is a dead letter of the source; where these go on as well, it follows them."""
    group = queues.take("relay-refused")
    bus.send(f"{group}/in", ServiceBusMessage("x"))
    bus.send(f"{group}/both", ServiceBusMessage("y"))

    refused = dead(bus, f"{group}/in")
    assert (body(refused), refused.dead_letter_reason) == (b"x", "MessagingEntityDisabled")
    (followed,) = arrived(bus, f"{group}/dead")
    assert (body(followed), followed.dead_letter_reason) == (b"y", "MessagingEntityDisabled")
    assert source_of(followed) == f"{group}/both"


def test_a_destination_that_takes_no_such_size(bus: Bus, queues: Queues) -> None:
    """What fits goes on, whatever it comes after."""
    group = queues.take("relay-refused")
    bus.send(f"{group}/large", ServiceBusMessage(b"x" * 500_000), ServiceBusMessage("fits"))

    assert bodies(arrived(bus, f"{group}/small")) == [b"fits"]
    assert dead(bus, f"{group}/large").dead_letter_reason == "MessageSizeExceeded"


@pytest.mark.plain_only(reason="each partition has room of its own")
def test_a_destination_that_is_full(bus: Bus, queues: Queues) -> None:
    """What finds no room there is a dead letter of the source; nothing is lost."""
    group = queues.take("relay-refused")
    with bus.sender(f"{group}/filling") as sender:
        for index in range(7):
            sender.send_messages(ServiceBusMessage(b"%d" % index + b"x" * 200_000))

    with bus.dead_letters(f"{group}/filling") as dead_letters:
        refused = receive(dead_letters, 2)
    got = arrived(bus, f"{group}/full", 5)
    assert {each.dead_letter_reason for each in refused} == {"QuotaExceeded"}
    assert [each[:1] for each in bodies([*got, *refused])] == [b"%d" % index for index in range(7)]


def test_a_destination_with_sessions(bus: Bus, queues: Queues) -> None:
    """A message without one is a dead letter of the source."""
    group = queues.take("relay-session")
    bus.send(
        f"{group}/in",
        ServiceBusMessage("a1", session_id="a"),
        ServiceBusMessage("none"),
        ServiceBusMessage("a2", session_id="a"),
    )

    with bus.receiver(f"{group}/out", session_id="a") as receiver:
        assert bodies(receive(receiver, 2)) == [b"a1", b"a2"]
    refused = dead(bus, f"{group}/in")
    assert (body(refused), refused.dead_letter_reason) == (b"none", "Session id is null.")


def test_a_destination_that_detects_duplicates(bus: Bus, queues: Queues) -> None:
    """R-S9: what was seen there is dropped there, and leaves the source."""
    group = queues.take("relay-dedup")
    twins = together("1", "2", message_id="m")
    bus.send(f"{group}/in", *twins, ServiceBusMessage("3", message_id="n", partition_key="k"))

    assert bodies(arrived(bus, f"{group}/out", 2)) == [b"1", b"3"]
    with bus.dead_letters(f"{group}/in") as dead_letters:
        assert peek_all(dead_letters) == []


# --- partitions


def test_from_a_partitioned_queue(bus: Bus, queues: Queues) -> None:
    """R-P8: all partitions empty themselves; those of one key keep their order."""
    group = queues.take("relay-from-partitioned")
    with bus.sender(f"{group}/in") as sender:
        for index in range(30):
            sender.send_messages(ServiceBusMessage(f"{index}", partition_key=f"k{index % 5}"))

    got = arrived(bus, f"{group}/out", 30)
    assert sorted(int(each) for each in bodies(got)) == list(range(30))
    for key in range(5):
        mine = [int(body(each)) for each in got if each.partition_key == f"k{key}"]
        assert mine == list(range(key, 30, 5))


def test_to_a_partitioned_queue(bus: Bus, queues: Queues) -> None:
    """R-P8: the message's own key chooses the partition; without one they are spread."""
    group = queues.take("relay-to-partitioned")
    with bus.sender(f"{group}/in") as sender:
        sender.send_messages([ServiceBusMessage("keyed", partition_key="k") for _ in range(6)])
        for _ in range(8):
            sender.send_messages(ServiceBusMessage("free"))

    got = arrived(bus, f"{group}/out", 14)
    keyed = {partition(each) for each in got if body(each) == b"keyed"}
    free = {partition(each) for each in got if body(each) == b"free"}
    assert len(keyed) == 1
    assert len(free) > 1


def test_between_partitioned_queues(bus: Bus, queues: Queues) -> None:
    """R-P8: sessions keep their order on the way."""
    group = queues.take("relay-partitioned")
    names = [f"s{index}" for index in range(6)]
    with bus.sender(f"{group}/in") as sender:
        for turn in range(5):
            for name in names:
                sender.send_messages(ServiceBusMessage(f"{turn}", session_id=name))

    seen = {}
    for _ in names:
        with bus.receiver(
            f"{group}/out", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
        ) as receiver:
            got = receive(receiver, 5)
            for each in got:
                receiver.complete_message(each)
            seen[got[0].session_id] = bodies(got)
    assert seen == {name: [b"%d" % turn for turn in range(5)] for name in names}
