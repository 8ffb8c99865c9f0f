"""Topics: copies for lanes, a body kept once, subscriptions that come and go."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import COMPLETE, MAIN, RECEIVE_AND_DELETE
from peeklock.entity.deliveries import STATE_SCHEDULED, Delivery, Details, LockToken
from peeklock.entity.message import Message, Traits
from peeklock.entity.refusals import ENTITY_NOT_FOUND, NO_MATCHING_SUBSCRIPTION
from peeklock.entity.topics.records import LaneDropped, Published
from tests.entity.origins import by
from tests.entity.partition_harness import TopicHarness, message, routed, sequences


@pytest.fixture
def topic() -> TopicHarness:
    return TopicHarness("one", "two", "three")


def published(topic: TopicHarness) -> list[Published]:
    return [each for each in topic.records if isinstance(each, Published)]


def details(found: Delivery) -> Details:
    assert found.details is not None
    return found.details


# Publishing.


def test_each_subscription_gets_a_copy_under_a_number_of_its_own(topic: TopicHarness) -> None:
    topic.send("a")
    topic.send("b")
    found = [topic.peek(lane)[0] for lane in topic.lanes.values()]
    assert sequences(found) == [1, 2, 3]
    assert [details(each).enqueue_sequence for each in found] == [1, 1, 1]
    assert sequences(topic.peek(topic.lanes["two"])) == [2, 5]
    assert topic.seen_by("three") == ["a", "b"]
    assert topic.peek(MAIN) == []


def test_the_body_is_kept_once_for_all_copies(topic: TopicHarness) -> None:
    before = topic.partition.next_position
    topic.send("a" * 1000)
    assert topic.partition.next_position == before + 1
    assert sum(len(chunk) for chunk in topic.journal.chunks) < 1_200
    (record,) = published(topic)
    assert (record.first_sequence, record.lanes, record.expirations) == (1, [4, 6, 8], [0, 0, 0])
    positions = {topic.peek(lane)[0].position for lane in topic.lanes.values()}
    assert positions == {before}
    assert topic.contents(topic.peek(8)) == ["a" * 1000]


def test_the_body_lives_as_long_as_its_last_copy(topic: TopicHarness) -> None:
    topic.send("a")
    for lane in topic.lanes.values():
        assert topic.partition.live_blocks() == [0]
        topic.receive(1, lane=lane, mode=RECEIVE_AND_DELETE)
    assert topic.partition.live_blocks() == []
    assert topic.partition.live_count == 0


def test_a_router_says_who_takes_a_message(topic: TopicHarness) -> None:
    def route(message: Message, now: int) -> list[Copy]:
        return [Copy(4), Copy(8)] if message.content == b"odd" else [Copy(6)]

    topic.router = route
    topic.send("odd", "even")
    assert [topic.seen_by(name) for name in topic.lanes] == [["odd"], ["even"], ["odd"]]


def test_what_nobody_wants_is_accepted_and_gone(topic: TopicHarness) -> None:
    topic.router = routed()
    topic.send("a")
    assert topic.records == []
    assert topic.partition.live_count == 0


def test_what_nobody_wants_is_refused_where_the_topic_says_so() -> None:
    topic = TopicHarness("one", filter_before_publishing=True)
    topic.router = routed()
    assert topic.fate(ask.SendMany(by("s"), [1], [message("a")])) == NO_MATCHING_SUBSCRIPTION


def test_an_action_gives_a_copy_a_body_of_its_own(topic: TopicHarness) -> None:
    changed = Message(b"", b"changed", Traits(message_id="new"))
    topic.router = routed(Copy(4), Copy(6, changed), Copy(8))
    topic.send("plain")
    assert [record.lanes for record in published(topic)] == [[4, 8], [6]]
    assert [topic.seen_by(name) for name in topic.lanes] == [["plain"], ["changed"], ["plain"]]
    enqueued = [details(topic.peek(lane)[0]).enqueue_sequence for lane in topic.lanes.values()]
    assert enqueued == [1, 1, 1]
    topic.restart()
    assert topic.seen_by("two") == ["changed"]


def test_a_rule_that_fails_dead_letters_the_copy(topic: TopicHarness) -> None:
    topic.router = routed(Copy(4), Copy(6, failure="no such property"))
    topic.send("a")
    assert topic.seen_by("two") == []
    (dead,) = topic.peek(topic.lanes["two"] | 1)
    assert (details(dead).reason, details(dead).description) == (
        "FilterException",
        "no such property",
    )
    assert topic.seen_by("one") == ["a"]


def test_copies_are_settled_each_for_itself(topic: TopicHarness) -> None:
    topic.send("a")
    (held,) = topic.receive(1, "r", lane=4)
    assert topic.settle(COMPLETE, held) == ["settled"]
    assert [topic.seen_by(name) for name in topic.lanes] == [[], ["a"], ["a"]]
    (held,) = topic.receive(1, "r", lane=6)
    topic.tick(60_000)
    assert topic.settle(COMPLETE, held) == ["lock-lost"]
    assert [each.delivery_count for each in topic.peek(6)] == [1]
    assert [each.delivery_count for each in topic.peek(8)] == [0]


def test_a_topics_memory_for_bodies_is_given_back() -> None:
    topic = TopicHarness("one", "two", memory=1_000)
    for _ in range(3):
        topic.send("a" * 300)
        for lane in topic.lanes.values():
            topic.receive(1, lane=lane, mode=RECEIVE_AND_DELETE)
    assert topic.budget.left == 1_000


# Lives.


def test_each_subscription_has_its_own_length_of_life() -> None:
    topic = TopicHarness(time_to_live_ms=10_000)
    topic.add("long", time_to_live_ms=20_000)
    topic.add("short", time_to_live_ms=5_000, dead_letter_on_expiration=True)
    topic.add("endless")
    topic.configure()
    start = topic.now
    topic.send("a")
    topic.send("brief", life_ms=1_000)
    long, short, endless = topic.lanes.values()
    assert [each.expires_at - start for each in topic.peek(long)] == [10_000, 1_000]
    assert [each.expires_at - start for each in topic.peek(short)] == [5_000, 1_000]
    topic.tick(1_000)
    assert [topic.seen_by(name) for name in topic.lanes] == [["a"], ["a"], ["a"]]
    topic.tick(4_000)
    assert topic.seen_by("short") == []
    assert topic.contents(topic.peek(short | 1)) == ["a", "brief"]
    topic.tick(5_000)
    assert (topic.peek(long), topic.peek(endless), topic.peek(long | 1)) == ([], [], [])


# Subscriptions that come and go.


def test_a_subscription_gets_what_is_published_after_it_came(topic: TopicHarness) -> None:
    topic.send("before")
    topic.add("late")
    topic.configure()
    topic.send("after")
    assert topic.seen_by("late") == ["after"]
    assert topic.seen_by("one") == ["before", "after"]


def test_a_dropped_subscription_takes_its_messages_along(topic: TopicHarness) -> None:
    topic.send("a", "b")
    topic.receive(1, "r", lane=6)
    topic.settle(ask.DEAD_LETTER, *topic.receive(1, "r", lane=6))
    del topic.subscriptions["two"]
    topic.configure()
    assert LaneDropped(topic.now, 6) in topic.records
    topic.send("c")
    assert (topic.peek(6), topic.peek(7)) == ([], [])
    assert topic.seen_by("three") == ["a", "b", "c"]
    assert topic.partition.live_count == 6
    topic.checkpoint()
    topic.restart()
    assert topic.partition.live_count == 6


def test_receivers_of_a_dropped_subscription_are_told(topic: TopicHarness) -> None:
    topic.add("sessions", requires_session=True)
    topic.configure()
    topic.open("reader", lane=6, credit=5)
    topic.open("dead reader", lane=7, credit=5)
    topic.open("other", lane=8, credit=5)
    topic.send("x", session="a")
    assert topic.accept("a", "holder", lane=10) == "a"
    assert topic.accept(None, "waiter", lane=10) is None
    del topic.subscriptions["two"]
    del topic.subscriptions["sessions"]
    topic.configure()
    assert sorted(topic.lost()) == [
        ("dead reader", ENTITY_NOT_FOUND),
        ("holder", ENTITY_NOT_FOUND),
        ("reader", ENTITY_NOT_FOUND),
    ]
    assert topic.accepted("waiter") == ENTITY_NOT_FOUND
    # What they say afterwards finds nobody.
    topic.ask(ask.Grant(by("reader"), 9, True), ask.Grant(by("holder"), 9, True))
    assert topic.replies == []
    topic.send("y")
    assert topic.seen_by("three") == ["x", "y"]


def test_a_message_settled_right_before_its_subscription_is_dropped(topic: TopicHarness) -> None:
    """The journal must not tell of a message after the lane that it was in."""
    topic.send("a", "b")
    (held,) = topic.receive(1, "r", lane=6)
    del topic.subscriptions["two"]
    tokens = [LockToken(held.sequence, held.number)]
    topic.ask(
        ask.SettleMany(by("r"), [1], ask.Settlement(COMPLETE), tokens),
        ask.SendMany(by("s"), [2], [message("c")]),
        ask.Configure(topic.described()),
    )
    names = [type(record).__name__ for record in topic.records]
    assert names.index("Removed") < names.index("LaneDropped")
    assert topic.seen_by("three") == ["a", "b", "c"]


def test_a_subscription_deleted_while_nobody_was_here_leaves_nothing(topic: TopicHarness) -> None:
    topic.send("a")
    del topic.subscriptions["two"]
    topic.is_retold = False
    topic.restart()
    topic.partition.check()
    assert topic.partition.live_count == 2
    assert topic.peek(6) == []
    topic.checkpoint()
    topic.restart()
    assert topic.partition.live_count == 2


def test_a_lane_that_is_used_again_does_not_bring_back_what_was_deleted(
    topic: TopicHarness,
) -> None:
    """Also where the messages of the new subscription come in the same decision."""
    topic.send("a")
    two = topic.subscriptions.pop("two")
    topic.is_retold = False
    topic.restart()
    topic.subscriptions["two"] = two
    topic.ask(
        ask.Tick(),
        ask.Configure(topic.described()),
        ask.SendMany(by("s"), [1], [message("b")]),
    )
    assert topic.seen_by("two") == ["b"]
    topic.retell()
    topic.restart()
    assert topic.seen_by("two") == ["b"]
    assert topic.seen_by("three") == ["a", "b"]


def test_a_subscription_dropped_while_a_checkpoint_is_under_way(topic: TopicHarness) -> None:
    topic.partition._checkpoints.step_bytes = 50
    topic.send("a")
    for dropped_after in range(5):
        name = f"extra-{dropped_after}"
        topic.add(name)
        topic.configure()
        topic.send("b")
        before = topic.journal.replay_from
        steps = 0
        while topic.journal.replay_from == before:
            if steps == dropped_after:
                del topic.subscriptions[name]
                topic.configure()
            topic.keep(topic.partition.checkpoint_step(topic.now))
            steps += 1
        topic.retell()
    assert topic.partition.live_count == 3 * 6


# Schedules.


def test_what_is_scheduled_on_a_topic_is_published_when_it_is_due(topic: TopicHarness) -> None:
    due = topic.now + 5_000
    topic.send("later", due=due, life_ms=1_000)
    (waiting,) = topic.peek(MAIN)
    assert waiting.state == STATE_SCHEDULED
    assert topic.partition.bodies_wanted(due - 1) == []
    topic.fire_timer(4_999)
    assert topic.seen_by("one") == []
    # The timer may fire late: what was due then counts.
    topic.fire_timer(501)
    (found,) = topic.peek(topic.lanes["one"])
    assert (found.enqueued_at, found.expires_at) == (due, due + 1_000)
    assert details(found).scheduled_at == due
    assert details(found).enqueue_sequence == 2
    assert topic.peek(MAIN) == []
    assert [topic.seen_by(name) for name in topic.lanes] == [["later"]] * 3


def test_the_rules_of_the_due_instant_decide(topic: TopicHarness) -> None:
    topic.send("later", due=topic.now + 1_000)
    topic.add("late")
    del topic.subscriptions["one"]
    topic.configure()
    topic.restart()
    topic.fire_timer(1_000)
    assert topic.seen_by("late") == ["later"]
    assert topic.peek(4) == []


def test_the_bodies_wanted_are_given_back(topic: TopicHarness) -> None:
    topic.budget.left = 100
    topic.router = routed()
    topic.send("later", due=topic.now + 1_000)
    (entry,) = topic.partition.bodies_wanted(topic.now + 1_000)
    assert topic.journal.body(entry.position).content == b"later"
    topic.fire_timer(1_000)
    assert topic.budget.left == 100
    (removed,) = topic.records
    assert isinstance(removed, records.Removed)
    assert (removed.lane, removed.why, removed.sequences) == (MAIN, records.DUE, [1])


def test_a_schedule_on_a_topic_is_cancelled_like_any_other(topic: TopicHarness) -> None:
    topic.ask(ask.Schedule(by("s"), 1, [message("later", due=topic.now + 1_000)]))
    assert topic.replies == [told.Numbered(by("s"), 1, [1])]
    assert topic.fate(ask.CancelScheduled(by("s"), 2, [1])) == "fine"
    topic.fire_timer(1_000)
    assert topic.seen_by("one") == []


@pytest.mark.parametrize("passed_ms", [0, 1])
def test_a_schedule_for_the_past_is_published_at_once(topic: TopicHarness, passed_ms: int) -> None:
    topic.send("now", due=topic.now - passed_ms)
    (found,) = topic.peek(topic.lanes["one"])
    assert found.enqueued_at == topic.now


def test_the_number_of_an_unwanted_message_is_never_anothers(topic: TopicHarness) -> None:
    topic.router = routed()
    (reply,) = topic.ask(ask.Schedule(by("s"), 1, [message("now")]))
    assert isinstance(reply, told.Numbered)
    topic.restart()
    topic.ask(ask.Schedule(by("s"), 2, [message("later", due=topic.now + 9)]))
    assert topic.fate(ask.CancelScheduled(by("s"), 3, reply.numbers)) == "message-not-found"


# Sessions of subscriptions.


def test_sessions_of_a_subscription(topic: TopicHarness) -> None:
    lane = topic.add("sessions", requires_session=True)
    topic.configure()
    topic.send("a0", session="a")
    topic.send("b0", session="b")
    topic.send("a1", session="a")
    assert topic.seen_by("one") == ["a0", "b0", "a1"]
    assert topic.accept(None, "x", lane=lane) == "a"
    assert topic.contents(topic.take(9, "x")) == ["a0", "a1"]
    assert topic.contents(topic.peek(lane, session="b")) == ["b0"]
    topic.checkpoint()
    topic.restart()
    assert topic.accept(None, "y", lane=lane) == "a"


def test_a_message_without_a_session_is_a_dead_letter_of_such_a_subscription(
    topic: TopicHarness,
) -> None:
    lane = topic.add("sessions", requires_session=True)
    topic.configure()
    topic.send("nobody's")
    (dead,) = topic.peek(lane | 1)
    assert details(dead).reason == "Session id is null."
    assert details(dead).description == (
        "Session enabled entity doesn't allow a message whose session identifier is null."
    )
    assert topic.seen_by("sessions") == []
    assert topic.seen_by("one") == ["nobody's"]
    topic.restart()
    assert topic.contents(topic.receive(1, lane=lane | 1)) == ["nobody's"]


# Housekeeping.


def test_a_checkpoint_keeps_every_copy_where_it_is(topic: TopicHarness) -> None:
    topic.send("a", "b")
    topic.send("later", due=topic.now + 1_000)
    topic.settle(ask.DEFER, *topic.receive(1, "r", lane=4))
    topic.settle(ask.DEAD_LETTER, *topic.receive(1, "r", lane=6))
    topic.receive(1, "r", lane=8)
    topic.checkpoint()
    topic.restart()
    assert topic.contents(topic.peek(6)) == ["b"]
    assert topic.contents(topic.peek(7)) == ["a"]
    topic.fire_timer(1_000)
    assert topic.seen_by("one") == ["a", "b", "later"]


def test_a_batch_delete_stops_at_what_is_too_young(topic: TopicHarness) -> None:
    topic.send("old")
    topic.now += 10
    topic.send("young", "younger")
    topic.ask(ask.DeleteMany(by("m"), 7, 4, 9, topic.now))
    assert topic.seen_by("one") == ["young", "younger"]
    assert topic.seen_by("two") == ["old", "young", "younger"]


def test_two_thousand_subscriptions_share_one_small_record() -> None:
    topic = TopicHarness(*(f"s{number}" for number in range(2_000)), is_retold=False)
    topic.send("a" * 100)
    (chunk,) = topic.journal.chunks
    assert len(chunk) < 250
    topic.retell()
    assert topic.partition.live_count == 2_000
