"""Topics and subscriptions: who gets what is published, and what a subscription can do with it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    number,
    partition,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import LOCK_SHORT_S, Queues
from tests.wire.layouts import TTL_S

pytestmark = pytest.mark.side_by_side(at_once=16)

DEAD = ServiceBusSubQueue.DEAD_LETTER
NAMES = ("a", "b", "c")
both_kinds = pytest.mark.parametrize("kind", ["topic", "partitioned-topic"])


def taken(bus: Bus, topic: str, subscription: str, count: int, **options: Any) -> list[bytes]:
    """Receive and complete so many messages, and see that there are no more."""
    with bus.subscriber(topic, subscription, **options) as receiver:
        got = complete(receiver, count)
        assert peek_all(receiver) == []
    return bodies(got)


def complete(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    got = receive(receiver, count) if count else []
    for each in got:
        receiver.complete_message(each)
    return got


def coloured(colour: str) -> ServiceBusMessage:
    return ServiceBusMessage(colour, application_properties={"colour": colour})


@pytest.mark.smoke
@both_kinds
def test_every_subscription_gets_a_copy(bus: Bus, queues: Queues, kind: str) -> None:
    """One by one and in a batch; each copy is settled by itself."""
    topic = queues.take(kind)
    bus.publish(topic, ServiceBusMessage("1"), ServiceBusMessage("2"))
    bus.publish(topic, [ServiceBusMessage("3"), ServiceBusMessage("4")])

    with bus.subscriber(topic, "a") as receiver:
        got = receive(receiver, 4)
        assert sorted(bodies(got)) == [b"1", b"2", b"3", b"4"]
        receiver.complete_message(got[0])
        receiver.abandon_message(got[1])
        assert len(peek_all(receiver)) == 3
    for name in ("b", "c"):
        assert sorted(taken(bus, topic, name, 4)) == [b"1", b"2", b"3", b"4"]


def test_everything_arrives_in_each_copy(bus: Bus, queues: Queues) -> None:
    topic = queues.take("topic")
    sent = ServiceBusMessage(
        b"\x00body",
        message_id="m",
        subject="s",
        to="t",
        reply_to="r",
        correlation_id="c",
        content_type="text/plain",
        session_id="not needed",
        reply_to_session_id="rs",
        time_to_live=timedelta(hours=1),
        application_properties={"n": 1, "text": "x", "flag": True},
    )
    bus.publish(topic, sent)

    for name in NAMES:
        with bus.subscriber(topic, name) as receiver:
            got = receive_one(receiver)
        assert body(got) == b"\x00body"
        assert (got.message_id, got.subject, got.to, got.reply_to) == ("m", "s", "t", "r")
        assert (got.correlation_id, got.content_type) == ("c", "text/plain")
        assert (got.session_id, got.reply_to_session_id) == ("not needed", "rs")
        assert got.time_to_live == timedelta(hours=1)
        assert got.application_properties == {b"n": 1, b"text": b"x", b"flag": True}
        assert got.delivery_count == 0
        raw = got.raw_amqp_message.annotations or {}
        assert b"x-opt-enqueue-sequence-number" in raw
        assert b"x-opt-message-state" not in raw


def test_order_is_kept_in_every_subscription(bus: Bus, queues: Queues) -> None:
    """Each copy has a number of its own, and that of the message as it came to the topic."""
    topic = queues.take("topic")
    bus.publish(topic, [ServiceBusMessage(f"{index}") for index in range(50)])

    seen: set[int] = set()
    enqueued = set()
    for name in NAMES:
        with bus.subscriber(topic, name) as receiver:
            got = complete(receiver, 50)
        assert bodies(got) == [b"%d" % index for index in range(50)]
        numbers = [number(each) for each in got]
        assert numbers == sorted(numbers)
        assert seen.isdisjoint(numbers)
        seen.update(numbers)
        enqueued.add(tuple(each.enqueued_sequence_number for each in got))
    assert len(enqueued) == 1


def test_a_large_message_for_many(bus: Bus, queues: Queues) -> None:
    """Forty subscriptions share one body of nearly the greatest size."""
    topic = queues.take("wide-topic")
    large = b"x" * 250_000
    bus.publish(topic, ServiceBusMessage(large), ServiceBusMessage(large))

    for index in (0, 17, 39):
        assert taken(bus, topic, f"s{index:02}", 2) == [large, large]
    # The others do not lose theirs by that.
    with bus.subscriber(topic, "s01") as receiver:
        first = receive_one(receiver)
        receiver.dead_letter_message(first)
    with bus.subscriber(topic, "s01", sub_queue=DEAD) as receiver:
        assert body(receive_one(receiver)) == large


def test_a_message_that_is_too_large_is_refused(bus: Bus, queues: Queues) -> None:
    topic = queues.take("topic")

    with pytest.raises(MessageSizeExceededError):
        bus.publish(topic, ServiceBusMessage(b"x" * 262_144))
    with bus.subscriber(topic, "a") as receiver:
        assert peek_all(receiver) == []


def test_names_in_any_case(bus: Bus, queues: Queues) -> None:
    topic = queues.take("topic")
    bus.publish(topic.upper(), ServiceBusMessage("1"))

    assert taken(bus, topic.title(), "A", 1) == [b"1"]
    with bus.receiver(f"{topic}/subscriptions/b") as receiver:
        assert body(receive_one(receiver)) == b"1"


def test_topics_only_take_and_subscriptions_only_give(bus: Bus, queues: Queues) -> None:
    topic = queues.take("topic")
    client = bus.client(retry_total=0)

    with (
        pytest.raises(ServiceBusError, match="cannot be sent to a subscription"),
        bus.sender(f"{topic}/Subscriptions/a", client=client) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    with (
        pytest.raises(ServiceBusError, match="cannot be received from a topic"),
        bus.receiver(topic, client=client) as receiver,
    ):
        receive_one(receiver)
    # A token for nothing is refused, which this client calls an authentication error.
    with (
        pytest.raises(ServiceBusAuthenticationError) as caught,
        bus.subscriber(topic, "nobody", client=client) as receiver,
    ):
        receive_one(receiver)
    assert "could not be found" in str(caught.value.inner_exception)


def test_what_nobody_takes_is_accepted_and_gone(bus: Bus, queues: Queues) -> None:
    """Without any subscription, and with one that wants none of it."""
    topic = queues.take("deserted-topic")
    bus.publish(topic, ServiceBusMessage("x"), [ServiceBusMessage("y"), ServiceBusMessage("z")])
    bus.publish(f"{topic}/refused", ServiceBusMessage("x"))

    with bus.subscriber(f"{topic}/refused", "none") as receiver:
        assert peek_all(receiver) == []


def test_filtering_before_publishing(bus: Bus, queues: Queues) -> None:
    """R-F6: what no subscription would take is refused, a batch with such a message as a whole."""
    topic = queues.take("trying-topic")
    client = bus.client(retry_total=0)

    with bus.publisher(topic, client=client) as publisher:
        publisher.send_messages(coloured("red"))
        for refused in (coloured("blue"), [coloured("red"), coloured("blue")]):
            with pytest.raises(ServiceBusError, match="no-matching-subscription"):
                publisher.send_messages(refused)
        with pytest.raises(ServiceBusError, match="No subscription"):
            publisher.schedule_messages(coloured("blue"), datetime.now(UTC) + timedelta(hours=1))
        publisher.send_messages(coloured("red"))
    assert taken(bus, topic, "red", 2) == [b"red", b"red"]


def test_each_subscription_takes_what_its_rules_want(bus: Bus, queues: Queues) -> None:
    """True, false, SQL and correlation; several rules that match give one copy."""
    topic = queues.take("choosy-topic")
    bus.publish(topic, coloured("red"), [coloured("blue"), coloured("green")])

    assert taken(bus, topic, "all", 3) == [b"red", b"blue", b"green"]
    assert taken(bus, topic, "none", 0) == []
    assert taken(bus, topic, "red", 1) == [b"red"]
    assert taken(bus, topic, "blue", 1) == [b"blue"]
    assert taken(bus, topic, "either", 2) == [b"red", b"blue"]


# --- settlement


@both_kinds
def test_settlement_on_a_subscription(bus: Bus, queues: Queues, kind: str) -> None:
    """R-S3 to R-S6: complete, abandon, defer and dead-letter, as on a queue."""
    topic = queues.take(kind)
    with bus.publisher(topic) as publisher:
        publisher.send_messages([ServiceBusMessage(f"{index}") for index in range(4)])

    with bus.subscriber(topic, "a", client=bus.client(retry_total=0)) as receiver:
        first, second, third, fourth = receive(receiver, 4)
        receiver.complete_message(first)
        receiver.defer_message(second)
        receiver.dead_letter_message(third, reason="Why", error_description="Because")
        receiver.abandon_message(fourth)
        again = receive_one(receiver)
        assert (body(again), again.delivery_count) == (b"3", 1)
        receiver.complete_message(again)
        (left,) = peek_all(receiver)
        assert left.state == ServiceBusMessageState.DEFERRED
        (fetched,) = receiver.receive_deferred_messages(number(second))
        assert body(fetched) == b"1"
        receiver.complete_message(fetched)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(number(second))
        assert peek_all(receiver) == []
    with bus.subscriber(topic, "a", sub_queue=DEAD) as dead_letters:
        (dead,) = complete(dead_letters, 1)
    assert (body(dead), dead.dead_letter_reason) == (b"2", "Why")
    assert dead.dead_letter_error_description == "Because"
    # Nothing of this is seen by its neighbours.
    with bus.subscriber(topic, "b") as receiver:
        assert [each.delivery_count for each in receive(receiver, 4)] == [0] * 4
    with bus.subscriber(topic, "b", sub_queue=DEAD) as dead_letters:
        assert peek_all(dead_letters) == []


def test_receivers_share_a_subscription(bus: Bus, queues: Queues) -> None:
    """R-S2: no message goes to both of them; another subscription has all of them still."""
    topic = queues.take("topic")
    bus.publish(topic, [ServiceBusMessage(f"{index}") for index in range(20)])

    with bus.subscriber(topic, "a") as first, bus.subscriber(topic, "a") as second:
        mine = receive(first, 10)
        theirs = receive(second, 10)
        assert {number(each) for each in mine}.isdisjoint(number(each) for each in theirs)
        for receiver, got in ((first, mine), (second, theirs)):
            for each in got:
                receiver.complete_message(each)
        assert peek_all(first) == []
    assert len(taken(bus, topic, "b", 20)) == 20


def test_dead_letters_of_a_subscription(bus: Bus, queues: Queues) -> None:
    """R-S6: they can be set aside and fetched there; dead they stay, however often abandoned."""
    topic = queues.take("topic")
    bus.publish(topic, ServiceBusMessage("x"))
    with bus.subscriber(topic, "a") as receiver:
        receiver.dead_letter_message(receive_one(receiver))

    with bus.subscriber(topic, "a", sub_queue=DEAD) as dead_letters:
        for _ in range(12):
            dead_letters.abandon_message(receive_one(dead_letters))
        deferred = receive_one(dead_letters)
        dead_letters.defer_message(deferred)
        (fetched,) = dead_letters.receive_deferred_messages(number(deferred))
        dead_letters.complete_message(fetched)
        assert peek_all(dead_letters) == []


def test_locks_on_a_subscription(bus: Bus, queues: Queues) -> None:
    """R-L1 to R-L3: its own duration; renewed, and lost when nobody renews."""
    topic = queues.take("short-topic")
    bus.publish(topic, ServiceBusMessage("kept"), ServiceBusMessage("lost"))

    with bus.subscriber(topic, "default") as receiver:
        kept, lost = receive(receiver, 2)
        for _ in range(2):
            time.sleep(LOCK_SHORT_S - 2)
            receiver.renew_message_lock(kept)
        receiver.complete_message(kept)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(lost)
        again = receive_one(receiver)
        assert (body(again), again.delivery_count) == (b"lost", 1)


def test_too_many_deliveries(bus: Bus, queues: Queues) -> None:
    """R-S7: the number is the subscription's own."""
    topic = queues.take("short-topic")
    bus.publish(topic, ServiceBusMessage("x"))

    with bus.subscriber(topic, "two-deliveries") as receiver:
        for _ in range(2):
            receiver.abandon_message(receive_one(receiver))
        assert peek_all(receiver) == []
    with bus.subscriber(topic, "two-deliveries", sub_queue=DEAD) as dead_letters:
        assert receive_one(dead_letters).dead_letter_reason == "MaxDeliveryCountExceeded"


@both_kinds
def test_receive_and_delete(bus: Bus, queues: Queues, kind: str) -> None:
    """R-S1."""
    topic = queues.take(kind)
    bus.publish(topic, [ServiceBusMessage(f"{index}") for index in range(5)])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE

    with bus.subscriber(topic, "a", receive_mode=mode) as receiver:
        assert len(receive(receiver, 5)) == 5
        assert peek_all(receiver) == []
    with bus.subscriber(topic, "b") as receiver:
        assert len(peek_all(receiver)) == 5


def test_a_subscription_has_a_time_to_live(bus: Bus, queues: Queues) -> None:
    """The shortest wins: of the message, of the subscription, of the topic."""
    topic = queues.take("short-topic")
    bus.publish(topic, ServiceBusMessage("x"))
    bus.publish(f"{topic}/limited", ServiceBusMessage("y", time_to_live=timedelta(hours=1)))

    with bus.subscriber(topic, "short") as receiver:
        (peeked,) = peek_all(receiver)
        assert peeked.time_to_live is None
        time.sleep(TTL_S + 0.5)
        assert_nothing_comes(receiver)
    with bus.subscriber(topic, "short", sub_queue=DEAD) as dead_letters:
        assert receive_one(dead_letters).dead_letter_reason == "TTLExpiredException"
    with bus.subscriber(f"{topic}/limited", "s", sub_queue=DEAD) as dead_letters:
        assert body(receive_one(dead_letters)) == b"y"
    assert taken(bus, topic, "default", 1) == [b"x"]


# --- scheduling


@both_kinds
def test_scheduled_messages_wait_in_the_topic(bus: Bus, queues: Queues, kind: str) -> None:
    """Nobody sees them before; cancelled ones never come; then every subscription has them."""
    topic = queues.take(kind)
    due = datetime.now(UTC) + timedelta(seconds=4)
    client = bus.client(retry_total=0)

    with bus.publisher(topic, client=client) as publisher, bus.subscriber(topic, "a") as receiver:
        wanted = [ServiceBusMessage("1"), ServiceBusMessage("2")]
        first, _ = publisher.schedule_messages(wanted, due)
        publisher.send_messages(ServiceBusMessage("3", scheduled_enqueue_time_utc=due))
        publisher.cancel_scheduled_messages(first)
        with pytest.raises(ServiceBusError):
            publisher.cancel_scheduled_messages(first)
        assert peek_all(receiver) == []
        got = complete(receiver, 2)
        assert datetime.now(UTC) >= due - timedelta(milliseconds=50)
    assert sorted(bodies(got)) == [b"2", b"3"]
    for each in got:
        assert each.enqueued_time_utc is not None
        assert each.enqueued_time_utc >= due - timedelta(seconds=1)
        assert (each.delivery_count, each.state) == (0, ServiceBusMessageState.SCHEDULED)
    assert sorted(taken(bus, topic, "b", 2)) == [b"2", b"3"]


def test_scheduled_messages_are_filtered_when_they_are_due(bus: Bus, queues: Queues) -> None:
    topic = queues.take("choosy-topic")
    due = datetime.now(UTC) + timedelta(seconds=2)

    with bus.publisher(topic) as publisher:
        publisher.schedule_messages([coloured("red"), coloured("blue"), coloured("green")], due)
    assert taken(bus, topic, "all", 3) == [b"red", b"blue", b"green"]
    assert taken(bus, topic, "blue", 1) == [b"blue"]
    assert taken(bus, topic, "either", 2) == [b"red", b"blue"]
    assert taken(bus, topic, "none", 0) == []


# --- sessions


def test_sessions_on_a_subscription(bus: Bus, queues: Queues) -> None:
    """One subscription of a topic has sessions, another one has not."""
    topic = queues.take("session-topic")
    texts = ("a1", "b1", "a2")
    bus.publish(topic, *(ServiceBusMessage(text, session_id=text[0]) for text in texts))

    with bus.subscriber(topic, "sessions", session_id="a") as receiver:
        assert bodies(complete(receiver, 2)) == [b"a1", b"a2"]
    with bus.subscriber(
        topic, "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
    ) as receiver:
        (got,) = complete(receiver, 1)
        assert got.session_id == "b"
    assert sorted(taken(bus, topic, "ordinary", 3)) == [b"a1", b"a2", b"b1"]
    with (
        pytest.raises(ServiceBusError, match="non-sessionful"),
        bus.subscriber(topic, "sessions") as receiver,
    ):
        receive_one(receiver)


def test_a_copy_without_session_is_a_dead_letter(bus: Bus, queues: Queues) -> None:
    """Only where sessions are needed; the sender is not at fault and is not told."""
    topic = queues.take("session-topic")
    bus.publish(topic, ServiceBusMessage("x"))

    with bus.subscriber(topic, "sessions", sub_queue=DEAD) as dead_letters:
        (dead,) = complete(dead_letters, 1)
    assert body(dead) == b"x"
    assert dead.dead_letter_reason == "Session id is null."
    assert taken(bus, topic, "ordinary", 1) == [b"x"]


def test_sessions_on_a_partitioned_topic(bus: Bus, queues: Queues) -> None:
    """R-P3: a session rests in one partition and keeps its order."""
    topic = queues.take("partitioned-session-topic")
    names = [f"s{index}" for index in range(6)]
    with bus.publisher(topic) as publisher:
        for turn in range(4):
            for name in names:
                publisher.send_messages(ServiceBusMessage(f"{turn}", session_id=name))

    seen = {}
    for _ in names:
        with bus.subscriber(
            topic, "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
        ) as receiver:
            got = complete(receiver, 4)
        seen[got[0].session_id] = bodies(got)
    assert seen == {name: [b"%d" % turn for turn in range(4)] for name in names}


def test_partition_keys_on_a_topic(bus: Bus, queues: Queues) -> None:
    """R-P3, R-P6: one key, one partition, in order; browsing walks through all of them."""
    topic = queues.take("partitioned-topic")
    with bus.publisher(topic) as publisher:
        for index in range(12):
            publisher.send_messages(ServiceBusMessage(f"{index}", partition_key=f"k{index % 3}"))

    with bus.subscriber(topic, "a") as receiver:
        seen = peek_all(receiver)
        assert sorted(map(int, bodies(seen))) == list(range(12))
        for key in ("k0", "k1", "k2"):
            mine = [each for each in seen if each.partition_key == key]
            assert len({partition(each) for each in mine}) == 1
            texts = [int(body(each)) for each in mine]
            assert texts == sorted(texts)
        assert len(complete(receiver, 12)) == 12
