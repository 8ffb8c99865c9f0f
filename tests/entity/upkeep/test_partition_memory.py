"""What a partition says that it takes in memory: a count, kept as it goes."""

from peeklock.entity import commands as ask
from peeklock.entity.commands import ABANDON, COMPLETE, DEAD, DEAD_LETTER
from peeklock.entity.rules.filter import TrueFilter
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.stint import Stint
from peeklock.entity.upkeep.memory import (
    COPY_BYTES,
    ENTRY_BYTES,
    LOCK_BYTES,
    SEEN_BYTES,
    SESSION_BYTES,
)
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness
from tests.entity.stage_harness import StageHarness


def test_entries_and_locks_are_counted_until_they_are_gone() -> None:
    queue = QueueHarness()
    assert queue.partition.memory_bytes == 0
    queue.send("a", "b", "c")
    assert queue.partition.memory_bytes == 3 * ENTRY_BYTES
    held = queue.receive_one()
    assert queue.partition.memory_bytes == 3 * ENTRY_BYTES + LOCK_BYTES
    queue.settle(0, held)
    assert queue.partition.memory_bytes == 2 * ENTRY_BYTES
    queue.restart()
    assert queue.partition.memory_bytes == 2 * ENTRY_BYTES


def test_each_copy_is_counted_although_the_body_is_kept_once() -> None:
    topic = TopicHarness("one", "two", "three")
    topic.send("a", "b")
    assert topic.partition.memory_bytes == 6 * COPY_BYTES


def test_remembered_ids_are_counted() -> None:
    queue = QueueHarness(duplicate_window_ms=10_000)
    queue.send("a", id="1")
    assert queue.partition.memory_bytes == ENTRY_BYTES + SEEN_BYTES


def test_copies_that_are_yet_to_come_are_counted_when_a_message_is_accepted() -> None:
    topic = TopicHarness("one", "two", "three", stint=Stint())
    topic.send("a")  # from which is known how many copies there are
    before = topic.partition.memory_bytes
    topic.send("b", "c", due=topic.now + 1_000)
    assert topic.partition.memory_expected == 6 * COPY_BYTES
    assert topic.partition.memory_bytes == before + (2 + 6) * COPY_BYTES
    writer = StageHarness(topic)
    writer.stage("s", "d", "e")
    writer.stage("t", "f")
    assert topic.partition.memory_expected == 15 * COPY_BYTES
    writer.drop("t")
    assert writer.publish(0, "s") == 2
    topic.fire_timer(1_000)
    assert topic.partition.memory_expected == 0
    assert topic.partition.memory_bytes == before + 12 * COPY_BYTES


def test_subscriptions_that_take_everything_are_expected_to() -> None:
    topic = TopicHarness("one", "two", stint=Stint())
    for lane in topic.lanes.values():
        topic.rules.put(lane, RuleSet([Rule("all", TrueFilter())]))
    topic.send("b", due=topic.now + 1_000)
    assert topic.partition.memory_expected == 2 * COPY_BYTES
    topic.restart()
    assert topic.partition.memory_expected == 2 * COPY_BYTES


def test_sessions_are_counted_while_they_exist() -> None:
    queue = QueueHarness(requires_session=True)
    for name in ("one", "two", "three"):
        queue.send("m", session=name)
    assert queue.partition.memory_bytes == 3 * (ENTRY_BYTES + SESSION_BYTES)
    queue.restart()
    assert queue.partition.memory_bytes == 3 * (ENTRY_BYTES + SESSION_BYTES)
    queue.accept("one")
    queue.settle(COMPLETE, *queue.take())
    queue.ask(ask.CloseReceiver(by("holder"), False))
    assert queue.partition.memory_bytes == 2 * (ENTRY_BYTES + SESSION_BYTES)


def test_sessions_of_a_subscription_are_counted_until_it_is_forgotten() -> None:
    topic = TopicHarness("one", stint=Stint(), is_retold=False)
    topic.add("two", requires_session=True)
    topic.configure()
    topic.send("m", session="s")
    assert topic.partition.memory_bytes == 2 * COPY_BYTES + SESSION_BYTES
    del topic.subscriptions["two"]
    topic.configure()
    assert topic.partition.memory_bytes == COPY_BYTES


def test_what_receivers_say_is_counted_until_the_message_is_gone() -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.settle(ABANDON, queue.receive_one(), changes={"note": b"x" * 10_000})
    assert 10_000 < queue.partition.memory_bytes - ENTRY_BYTES < 10_500
    queue.settle(ABANDON, queue.receive_one(), changes={"note": b"x" * 5_000})
    assert 5_000 < queue.partition.memory_bytes - ENTRY_BYTES < 5_500
    note = ("r" * 1_000, "d" * 4_000)
    queue.settle(DEAD_LETTER, queue.receive_one(), note=note)
    assert 10_000 < queue.partition.memory_bytes - ENTRY_BYTES < 10_500
    before = queue.partition.memory_bytes
    queue.restart()
    assert queue.partition.memory_bytes == before
    queue.checkpoint()
    queue.restart()
    assert queue.partition.memory_bytes == before
    queue.settle(COMPLETE, queue.receive_one(lane=DEAD))
    assert queue.partition.memory_bytes == 0
