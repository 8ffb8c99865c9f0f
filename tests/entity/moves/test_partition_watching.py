"""Receivers without credit that want to know when there is something to grant for: how the credit
of one link is spread over the partitions of an entity."""

from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import COMPLETE, DEAD, DEAD_LETTER, MAIN, PEEK_LOCK, RELEASE
from peeklock.entity.definition import ACTIVE, RECEIVE_DISABLED, QueueDefinition
from peeklock.entity.replies import Reply
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, deliveries, message, token


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness()


def opened(hand: QueueHarness, origin: Any = "r", lane: int = MAIN) -> Any:
    hand.ask(ask.OpenReceiver(origin, lane, PEEK_LOCK))
    return origin


def watch(hand: QueueHarness, limit: int, origin: Any = "r") -> list[Reply]:
    return hand.ask(ask.Grant(origin, limit, True, True))


def notices(replies: list[Reply]) -> list[tuple[str, Any]]:
    """What was said about credit, in order."""
    said = [each for each in replies if isinstance(each, told.Drained | told.Ready)]
    return [(type(each).__name__, each.origin) for each in said]


def send(count: int = 1) -> ask.SendMany:
    return ask.SendMany(by("s"), list(range(count)), [message("x") for _ in range(count)])


def test_a_watcher_is_told_once_when_a_message_comes(queue: QueueHarness) -> None:
    opened(queue)
    assert notices(watch(queue, 5)) == [("Drained", "r")]
    replies = queue.ask(send(3))
    assert notices(replies) == [("Ready", "r")]
    assert deliveries(replies, "r") == []
    assert notices(queue.ask(send())) == []


def test_what_is_left_over_is_told_at_once_after_the_drain(queue: QueueHarness) -> None:
    opened(queue)
    queue.ask(send(3))
    replies = watch(queue, 2)
    assert len(deliveries(replies, "r")) == 2
    assert [type(each) for each in replies] == [told.Delivered, told.Drained, told.Ready]


def test_a_watch_that_a_grant_satisfies_in_full_waits_for_the_next_message(
    queue: QueueHarness,
) -> None:
    opened(queue)
    queue.ask(send(2))
    assert notices(watch(queue, 2)) == [("Drained", "r")]
    assert notices(queue.ask(send())) == [("Ready", "r")]


def test_a_grant_without_watch_ends_the_watch(queue: QueueHarness) -> None:
    opened(queue)
    watch(queue, 1)
    queue.ask(ask.Grant(by("r"), 2, True))
    assert notices(queue.ask(send())) == []


def test_a_grant_and_a_message_in_one_decision_are_told_in_order(queue: QueueHarness) -> None:
    opened(queue)
    watch(queue, 1)
    replies = queue.ask(send(2), ask.Grant(by("r"), 2, True, True))
    assert [type(each) for each in replies] == [
        told.SendsAccepted,
        told.Delivered,
        told.Drained,
        told.Ready,
    ]


def test_whoever_has_credit_comes_before_those_who_watch(queue: QueueHarness) -> None:
    opened(queue, "watcher")
    watch(queue, 1, "watcher")
    queue.open("hungry", credit=1)
    assert notices(queue.ask(send())) == []
    assert notices(queue.ask(send())) == [("Ready", "watcher")]


def test_all_who_watch_are_told(queue: QueueHarness) -> None:
    for origin in ("one", "two"):
        opened(queue, origin)
        watch(queue, 1, origin)
    assert notices(queue.ask(send())) == [("Ready", "one"), ("Ready", "two")]


def test_a_receiver_that_closes_stops_watching(queue: QueueHarness) -> None:
    opened(queue)
    watch(queue, 1)
    queue.ask(ask.CloseReceiver(by("r"), False))
    assert queue.ask(send()) == [told.SendsAccepted(by("s"), [0])]
    opened(queue)
    replies = queue.ask(ask.Grant(by("r"), 0, True, True), ask.CloseReceiver(by("r"), False))
    assert notices(replies) == []


def test_a_message_that_comes_back_is_told(queue: QueueHarness) -> None:
    opened(queue)
    queue.ask(send())
    (held,) = deliveries(watch(queue, 1), "r")
    replies = queue.ask(ask.SettleMany(by("r"), [1], ask.Settlement(RELEASE), [token(held)]))
    assert notices(replies) == [("Ready", "r")]
    (held,) = deliveries(watch(queue, 2), "r")
    assert notices(queue.tick(60_000)) == [("Ready", "r")]
    (held,) = deliveries(watch(queue, 3), "r")
    assert (
        notices(queue.ask(ask.SettleMany(by("r"), [1], ask.Settlement(COMPLETE), [token(held)])))
        == []
    )


def test_dead_letters_are_watched_in_their_own_lane(queue: QueueHarness) -> None:
    opened(queue, "dead", DEAD)
    watch(queue, 1, "dead")
    queue.send("x")
    assert notices(queue.replies) == []
    queue.settle(DEAD_LETTER, queue.receive_one())
    assert notices(queue.replies) == [("Ready", "dead")]


def test_each_subscription_is_watched_for_itself() -> None:
    topic = TopicHarness("one", "two")
    for name, lane in topic.lanes.items():
        opened(topic, name, lane)
        watch(topic, 1, name)
    topic.send("x")
    assert notices(topic.replies) == [("Ready", "one"), ("Ready", "two")]


def test_a_disabled_queue_has_nothing_to_grant_for(queue: QueueHarness) -> None:
    opened(queue)
    closed = queue_blueprint(QueueDefinition("orders", status=RECEIVE_DISABLED))
    queue.ask(ask.Configure(closed))
    assert notices(watch(queue, 1)) == [("Drained", "r")]
    assert notices(queue.ask(send())) == []
    assert notices(watch(queue, 2)) == [("Drained", "r")]
    active = queue_blueprint(QueueDefinition("orders", status=ACTIVE))
    assert notices(queue.ask(ask.Configure(active))) == [("Ready", "r")]


def test_the_holder_of_a_session_may_watch_it() -> None:
    queue = QueueHarness(requires_session=True)
    queue.accept("a")
    assert notices(watch(queue, 1, "holder")) == [("Drained", "holder")]
    queue.send("x", session="b")
    assert notices(queue.replies) == []
    queue.send("x", session="a")
    assert notices(queue.replies) == [("Ready", "holder")]
    watch(queue, 1, "holder")
    queue.tick(60_000)
    queue.send("x", session="a")
    assert notices(queue.replies) == []
