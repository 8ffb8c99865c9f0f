"""What falls due together is done in stints: each decision does a bounded part, says that more is
left, and a restart in between loses nothing."""

from collections.abc import Callable

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import DEAD, MAIN, Tick
from peeklock.entity.message import NEVER
from peeklock.entity.moves.settling import SETTLED_AT_ONCE
from peeklock.entity.records import (
    Activated,
    DeadLettered,
    Removed,
    Returned,
)
from peeklock.entity.refusals import LOCK_LOST
from peeklock.entity.stint import STINT_STEPS, Stint
from peeklock.large_dict import LargeDict
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message, sequences, token

MANY = 2 * STINT_STEPS + 100
MOVES = (Removed, Returned, DeadLettered, Activated)


def moved(hand: QueueHarness) -> int:
    """How many messages the last decision moved."""
    return sum(len(each.sequences) for each in hand.records if isinstance(each, MOVES))


def fill(queue: QueueHarness, count: int, *, life_ms: int = -1, due: int = NEVER) -> None:
    messages = [message("m", life_ms=life_ms, due=due) for _ in range(count)]
    queue.ask(ask.SendMany(by("sender"), list(range(count)), messages))


def lock_all(queue: QueueHarness) -> None:
    assert len(queue.receive(MANY)) == MANY


def locks_end(queue: QueueHarness) -> None:
    fill(queue, MANY)
    lock_all(queue)
    queue.now += 60_000


def lives_end(queue: QueueHarness) -> None:
    fill(queue, MANY, life_ms=1_000)
    queue.now += 1_000


def schedules_come(queue: QueueHarness) -> None:
    fill(queue, MANY, due=queue.now + 1_000)
    queue.now += 1_000


def an_owner_falls_silent(queue: QueueHarness) -> None:
    fill(queue, MANY)
    queue.ask(ask.ClaimMessages(by("owner"), 1, MAIN, "one", 1, MANY, timeout_ms=1_000))
    queue.now += 1_000


@pytest.mark.parametrize("prepare", [locks_end, lives_end, schedules_come])
def test_what_falls_due_together_is_moved_in_stints(
    prepare: Callable[[QueueHarness], None],
) -> None:
    queue = QueueHarness(dead_letter_on_expiration=True)
    prepare(queue)
    total = 0
    while queue.partition.next_deadline() and queue.partition.next_deadline() <= queue.now:
        queue.ask(Tick())
        assert 0 < moved(queue) <= STINT_STEPS
        total += moved(queue)
        leftovers = queue.partition.take_leftovers()
        assert leftovers == ([Tick()] if total < MANY else [])
        queue.retell()
    assert total == MANY


def test_somebody_else_has_a_turn_between_two_stints() -> None:
    queue = QueueHarness()
    schedules_come(queue)
    queue.ask(Tick())
    (late,) = queue.send("late")
    queue.ask(*queue.partition.take_leftovers())
    assert len(queue.receive(2 * STINT_STEPS + 1)) == 2 * STINT_STEPS + 1
    assert late == MANY + STINT_STEPS + 1, "it did not wait for the second stint"


def test_a_restart_between_two_stints_loses_nothing() -> None:
    queue = QueueHarness(dead_letter_on_expiration=True)
    lives_end(queue)
    queue.ask(Tick())
    queue.restart()
    queue.stint = Stint()
    queue.tick()
    assert queue.decisions == 2
    assert len(queue.numbers(DEAD)) == MANY


def test_what_a_silent_owner_has_comes_back_in_stints() -> None:
    queue = QueueHarness(stint=Stint())
    an_owner_falls_silent(queue)
    queue.ask(Tick())
    assert queue.decisions == 3
    assert len(queue.receive(MANY)) == MANY
    queue.retell()


def test_a_lost_session_is_free_when_all_that_its_holder_had_is_back() -> None:
    queue = QueueHarness(requires_session=True, lock_duration_ms=5_000)
    queue.ask(
        ask.SendMany(by("s"), list(range(MANY)), [message("m", session="a") for _ in range(MANY)])
    )
    assert queue.accept("a") == "a"
    assert len(queue.take(MANY)) == MANY
    queue.tick(5_000)
    assert queue.lost() == [("holder", "session-lock-lost")], "the holder is told at once"
    assert moved(queue) == STINT_STEPS
    assert queue.accept("a", "other") == "session-cannot-be-locked", "a second stint was done"
    queue.ask(*queue.partition.take_leftovers())
    assert queue.lost() == []
    assert queue.accept("a", "third") == "a"
    assert len(queue.take(MANY, "third")) == MANY


def test_many_sessions_are_lost_in_stints() -> None:
    queue = QueueHarness(requires_session=True, lock_duration_ms=5_000, stint=Stint(10))
    for name in range(40):
        queue.send("m", session=str(name))
        queue.accept(str(name), f"holder {name}")
        queue.take(1, f"holder {name}")
    queue.tick(5_000)
    assert queue.decisions >= 8
    assert len(queue.lost()) == 40


def test_the_bodies_of_what_a_topic_publishes_late_are_bounded() -> None:
    topic = TopicHarness("one", is_retold=False, stint=Stint(bytes_max=1_000))
    topic.send(*["x" * 300] * 10, due=topic.now + 1_000)
    topic.send("y" * 5_000, due=topic.now + 1_000)
    topic.now += 1_000
    wanted = topic.partition.bodies_wanted(topic.now)
    assert sum(entry.size for entry in wanted) == 900
    topic.fire_timer()
    assert topic.decisions == 6, "a stint ends with the message that reaches its measure"
    assert len(topic.seen_by("one")) == 11
    topic.retell()


def test_the_copies_of_what_a_topic_publishes_late_are_counted() -> None:
    topic = TopicHarness("one", "two", "three", is_retold=False, stint=Stint(5))
    topic.rules.remove(0)
    topic.send(*"abcdef", due=topic.now + 1_000)
    topic.fire_timer(1_000)
    assert topic.decisions >= 4, "each message is a step, and so is each copy"
    assert sequences(topic.peek(topic.lanes["one"])) == [7, 10, 13, 16, 19, 22]


def test_very_many_settlements_are_carried_out_in_parts() -> None:
    queue = QueueHarness(stint=Stint())
    count = SETTLED_AT_ONCE + 100
    fill(queue, count)
    held = queue.receive(count)
    assert queue.settle(ask.COMPLETE, *held) == ["settled"] * count
    assert queue.decisions == 2
    assert queue.partition.live_count == 0
    queue.retell()


def test_what_follows_very_many_settlements_comes_after_all_of_them() -> None:
    queue = QueueHarness(stint=Stint(), requires_session=True)
    count = SETTLED_AT_ONCE + 100
    queue.send(*["m"] * count, session="s")
    queue.accept("s")
    held = [token(each) for each in queue.take(count)]
    tags = list(range(count))
    settle = ask.SettleMany(by("settler"), tags, ask.Settlement(ask.COMPLETE), held)
    replies = queue.ask(settle, ask.CloseReceiver(by("holder"), False))
    assert [type(each) for each in replies] == [told.Settled] * 2
    assert queue.partition.live_count == 0


def test_counts_are_kept_and_not_counted() -> None:
    """Neither a count nor a change of the entity looks at each session."""
    queue = QueueHarness(requires_session=True)
    for session in ("a", "b", "c"):
        queue.send("x", "y", session=session)
    assert queue.accept("a") == "a"
    (held, _) = queue.take(2)
    queue.settle(ask.DEFER, held)
    lane = queue.partition._state.lane(MAIN)
    lane_sessions = lane.sessions
    assert lane_sessions is not None
    sessions = lane_sessions.by_id
    lane_sessions.by_id = LargeDict()
    assert (lane.total_ready(), lane.total_deferred()) == (4, 1)
    [(_, depths)] = queue.partition.depths()
    assert (depths[0], depths[3]) == (4, 1)
    lane_sessions.by_id = sessions
    queue.partition.check()


def test_a_partition_that_is_thrown_away_gives_its_memory_back_without_a_walk() -> None:
    queue = QueueHarness(memory=1_000)
    queue.send("a", "b")
    assert queue.budget.left < 1_000
    lanes = queue.partition._state.lanes
    queue.partition._state.lanes = {}
    queue.partition.discard()
    assert queue.budget.left == 1_000
    queue.partition._state.lanes = lanes


def test_another_lock_duration_takes_the_locks_away_in_stints() -> None:
    """Whatever is asked after the change comes after all of it, and nothing is locked before."""
    queue = QueueHarness(stint=Stint(2))
    queue.send(*"abcde")
    held = queue.receive(5)
    queue.open("other", credit=9)
    queue.properties["lock_duration_ms"] = 5_000
    change = ask.Configure(queue.described())
    settle = ask.SettleMany(by("settler"), [1], ask.Settlement(ask.COMPLETE), [token(held[4])])
    commands: list[ask.Command] = [change, settle]
    for left in (3, 1):
        decided = queue.partition.decide(commands, queue.now)
        assert queue.keep(decided) == []
        assert len(queue.partition._state.lane(MAIN).locked) == left
        commands = queue.partition.take_leftovers()
        assert commands == [change, settle]
        queue.retell()
    replies = queue.ask(*commands)
    (refused,) = [each for each in replies if isinstance(each, told.Refused)]
    assert refused.refusal.kind == LOCK_LOST
    (delivered,) = [each for each in replies if isinstance(each, told.Delivered)]
    assert [each.locked_until for each in delivered.deliveries] == [queue.now + 5_000] * 5
    assert queue.partition._state.lane(MAIN).lock_deadline == queue.now + 5_000


def test_another_lock_duration_takes_sessions_back_in_stints() -> None:
    queue = QueueHarness(stint=Stint(3), requires_session=True)
    for session in "abcd":
        queue.send("x", "y", session=session)
        assert queue.accept(session, session) == session
        queue.ask(ask.Grant(by(session), 2, False))
    queue.properties["lock_duration_ms"] = 5_000
    queue.ask(ask.Configure(queue.described()))
    assert queue.decisions == 4
    assert queue.count().locked == 0
    assert queue.accept(None) == "a"
