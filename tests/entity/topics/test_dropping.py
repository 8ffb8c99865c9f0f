"""What was in a dropped lane or stage is out of reach at once, and forgotten in stints."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity.stages.records import STAGE_GIVEN_UP, StageDropped, StagesDropped
from peeklock.entity.stages.staging import NUMBERED_MAX
from peeklock.entity.stint import Stint
from peeklock.entity.topics.records import LaneDropped
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message
from tests.entity.stage_harness import StageHarness

LANE = 6


def topic_of(steps: int) -> TopicHarness:
    """Two subscriptions, of which the second has messages in every place."""
    topic = TopicHarness("one", "two", is_retold=True, stint=Stint(steps))
    assert topic.lanes["two"] == LANE
    topic.send(*"abcdefgh", life_ms=1_000_000)
    topic.send(*"ijkl")
    (dead, back, deferred, _) = topic.receive(4, "r", lane=LANE)
    topic.settle(ask.DEAD_LETTER, dead)
    topic.settle(ask.ABANDON, back)
    topic.settle(ask.DEFER, deferred)
    topic.ask(ask.ClaimMessages(by("owner"), 1, LANE, "o", 1, 2))
    return topic


def decide(hand: QueueHarness, *commands: ask.Command) -> int:
    """One decision and no more; answers how many messages it forgot."""
    before = hand.partition.live_count
    hand.keep(hand.partition.decide(commands, hand.now))
    return before - hand.partition.live_count


def drop(topic: TopicHarness) -> int:
    del topic.subscriptions["two"]
    return decide(topic, ask.Configure(topic.described()))


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_dropped_lane_is_forgotten_in_stints(steps: int) -> None:
    topic = topic_of(steps)
    forgotten = [drop(topic)]
    assert LaneDropped(topic.now, LANE) in topic.records
    assert LANE not in topic.partition._state.lanes, "nobody reaches it any more"
    while topic.partition.is_unfinished:
        forgotten.append(decide(topic))
        assert topic.records == []
    assert sum(forgotten) == 12
    assert max(forgotten) <= steps
    assert topic.partition.live_count == 12
    assert topic.seen_by("one") == list("abcdefghijkl")


def test_a_dropped_lane_with_sessions_is_forgotten_in_stints() -> None:
    topic = TopicHarness("one", is_retold=True, stint=Stint(2))
    topic.add("two", requires_session=True)
    topic.configure()
    for session in "abc":
        topic.send("x", "y", "z", session=session)
    assert topic.accept("b", lane=LANE) == "b"
    topic.ask(ask.Grant(by("holder"), 2, False))
    forgotten = [drop(topic)]
    while topic.partition.is_unfinished:
        forgotten.append(decide(topic))
    assert sum(forgotten) == 9
    assert max(forgotten) <= 2


def test_others_go_on_while_a_lane_is_forgotten_and_it_may_come_again() -> None:
    topic = topic_of(2)
    before = topic.described()
    drop(topic)
    decide(topic)
    two = before.lanes[LANE]
    topic.is_retold = False
    blueprint = topic.described()
    blueprint.lanes[LANE] = two
    decide(topic, ask.Configure(blueprint))
    assert topic.partition.is_unfinished
    topic.ask()
    assert topic.peek(LANE) == []
    assert topic.partition.live_count == 12


def test_a_restart_leaves_nothing_of_a_dropped_lane() -> None:
    topic = topic_of(1)
    drop(topic)
    assert topic.partition.live_count > 12
    topic.restart()
    assert not topic.partition.is_unfinished
    assert topic.partition.live_count == 12
    topic.retell()


def test_what_always_has_something_to_do_still_forgets() -> None:
    topic = topic_of(8)
    drop(topic)
    decisions = 0
    while topic.partition.is_unfinished:
        state = topic.partition._state
        state.stint.spend(100)
        state.forget_dropped()
        decisions += 1
        assert decisions < 20


def test_a_checkpoint_tells_nothing_of_a_lane_that_is_being_forgotten() -> None:
    topic = topic_of(1)
    topic.partition._checkpoints.step_entries = 2
    topic.keep(topic.partition.checkpoint_step(topic.now))
    topic.keep(topic.partition.checkpoint_step(topic.now))
    drop(topic)
    topic.checkpoint()
    assert topic.partition.is_unfinished
    topic.retell()


@pytest.mark.parametrize("steps", [1, 3])
def test_dropped_stages_are_forgotten_in_stints(steps: int) -> None:
    queue = QueueHarness(is_retold=True, stint=Stint(steps))
    writer = StageHarness(queue)
    writer.stage("s", *"abcde")
    writer.stage("t", *"fgh")
    writer.stage("kept", "i")
    command = ask.DropStages(writer, 7, ["s", "t"], None, [])
    forgotten = [decide(queue, command)]
    (record,) = queue.records
    assert isinstance(record, StagesDropped)
    assert len(record.sequences) == 8
    assert writer.staged() == {"kept": 1}
    writer.queue.is_retold = False
    queue.keep(queue.partition.decide([ask.Stage(writer, [1], [message("new")], "s")], queue.now))
    while queue.partition.is_unfinished:
        forgotten.append(decide(queue))
        assert max(forgotten) <= steps
    queue.retell()
    assert writer.staged() == {"kept": 1, "s": 1}
    assert queue.partition.live_count == 2


def test_a_checkpoint_tells_nothing_of_a_stage_that_is_being_forgotten() -> None:
    queue = QueueHarness(is_retold=True, stint=Stint(1))
    queue.partition._checkpoints.step_entries = 1
    writer = StageHarness(queue)
    writer.stage("s", *"abcde")
    queue.keep(queue.partition.checkpoint_step(queue.now))
    queue.keep(queue.partition.checkpoint_step(queue.now))
    decide(queue, ask.DropStages(writer, 7, ["s"], None, []))
    assert queue.partition.is_unfinished
    queue.checkpoint()
    queue.retell()
    assert writer.staged() == {}


def test_bodies_of_a_dropped_lane_are_not_relocated() -> None:
    """A walk for what is to be relocated begins again: it may have found them."""
    topic = TopicHarness("one", "two", stint=Stint(1))
    topic.send("a", "b")
    topic.router = topic.to_all
    del topic.subscriptions["one"]
    topic.configure()
    entries = topic.partition.next_to_relocate(1 << 13, 64)
    assert len(entries) == 2
    bodies = [topic.journal.body(entry.position) for entry in entries]
    drop(topic)
    assert topic.partition.relocate(entries, bodies, topic.now).records == []
    assert topic.partition.next_to_relocate(1 << 13, 64) == []


def test_a_queue_forgets_nothing_by_itself() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send("a", "b")
    assert queue.count().active == 2
    assert not queue.partition.is_unfinished


def test_a_large_stage_is_dropped_by_its_name() -> None:
    """All its numbers were in one record, and written in one step."""
    queue = QueueHarness(is_retold=True)
    writer = StageHarness(queue)
    count = NUMBERED_MAX + 1
    writer.stage("large", *["x"] * count)
    writer.stage("small", "a", "b")
    writer.stage("kept", "c")
    decide(queue, ask.DropStages(writer, 7, ["large", "small"], None, []))
    assert queue.records == [
        StageDropped(queue.now, STAGE_GIVEN_UP, "large", count + 4),
        StagesDropped(queue.now, STAGE_GIVEN_UP, [count + 1, count + 2]),
    ]
    writer.stage("large", "again")
    for _ in range(2):
        assert queue.partition.live_count == 2
        assert writer.staged() == {"kept": 1, "large": 1}
        queue.restart()
    queue.checkpoint()
    queue.restart()
    assert writer.staged() == {"kept": 1, "large": 1}
