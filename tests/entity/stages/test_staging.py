"""Stages: what is staged is seen by nobody, what is published is seen once (R-D1)."""

from itertools import pairwise

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import COMPLETE
from peeklock.entity.definition import SEND_DISABLED, QueueDefinition
from peeklock.entity.deliveries import STATE_SCHEDULED
from peeklock.entity.records import DuplicatesDropped
from peeklock.entity.stages.partition_stages import STAGE_GRACE_MS, STAGE_TIMEOUT_MS, WRITERS_MAX
from peeklock.entity.stages.records import (
    STAGE_GIVEN_UP,
    STAGE_REPEATED,
    STAGE_STALE,
    Staged,
    StagesDropped,
    StagesPublished,
)
from peeklock.entity.stages.staging import NAMES, RESUME_EVERY_MS
from peeklock.entity.stint import Stint
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, message
from tests.entity.stage_harness import StageHarness

STAGES = 5


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(is_retold=True)


@pytest.fixture
def writer(queue: QueueHarness) -> StageHarness:
    return StageHarness(queue)


# Staging.


def test_what_is_staged_is_invisible(queue: QueueHarness, writer: StageHarness) -> None:
    """R-D1: neither received nor peeked nor counted; only its bytes are."""
    queue.send("seen")
    writer.stage("s", "a", "bb")
    assert queue.contents(queue.peek()) == ["seen"]
    assert queue.contents(queue.receive(9)) == ["seen"]
    counted = queue.count()
    assert (counted.active, counted.scheduled, counted.deferred, counted.bytes) == (1, 0, 0, 7)
    assert queue.partition.live_count == 3


def test_a_stage_is_one_record_for_each_run(queue: QueueHarness, writer: StageHarness) -> None:
    writer.stage("s", "a", "b")
    (record,) = queue.records
    assert isinstance(record, Staged)
    assert (record.stage, record.first_sequence, len(record.messages)) == ("s", 1, 2)
    writer.stage("s", "c")
    writer.stage("t", "d")
    assert writer.staged() == {"s": 3, "t": 1}


def test_what_is_sent_between_staged_messages_goes_its_own_way(
    queue: QueueHarness, writer: StageHarness
) -> None:
    stage = ask.Stage(writer, [1], [message("a")], "s")
    send = ask.SendMany(by("x"), [1], [message("b")])
    again = ask.Stage(writer, [2], [message("c")], "s")
    queue.ask(send, stage, ask.SendMany(by("x"), [2], [message("d")]), again)
    assert queue.contents(queue.peek()) == ["b", "d"]
    queue.restart()
    assert writer.publish(1, "s") == 2
    assert queue.contents(queue.peek()) == ["b", "d", "a", "c"]


def test_the_checks_of_a_send_are_made_when_staged() -> None:
    """R-D1: what is published later cannot be refused any more."""
    queue = QueueHarness(is_retold=True, message_size_max=10)
    writer = StageHarness(queue)
    fates = writer.why_not_staged("s", message("a"), message("b" * 11), message("c"))
    assert fates == ["taken", "message-too-big", "taken"]
    assert writer.staged() == {"s": 2}
    assert writer.why_not_staged("s", message("b" * 11)) == ["message-too-big"]
    sessions = StageHarness(QueueHarness(requires_session=True))
    assert sessions.why_not_staged("s", message("a")) == ["session-required"]


def test_a_batch_is_staged_all_or_none() -> None:
    """R-T5, R-D1."""
    queue = QueueHarness(is_retold=True, message_size_max=10)
    writer = StageHarness(queue)
    letters = (message("a"), message("b" * 11))
    assert writer.why_not_staged("s", *letters, is_whole=True) == ["message-too-big"]
    assert writer.staged() == {}
    assert writer.why_not_staged("s", message("a"), message("b"), is_whole=True) == ["taken"]
    assert writer.publish(0, "s") == 2


def test_staged_bytes_count_for_the_size_of_the_entity() -> None:
    """R-D1: a queue is full of staged messages as of others."""
    queue = QueueHarness(is_retold=True, size_max=10)
    writer = StageHarness(queue)
    fates = writer.why_not_staged("s", message("12345"), message("123456"), message("12345"))
    assert fates == ["taken", "quota-exceeded", "taken"]
    assert queue.fate(ask.SendBatch(by("x"), 1, [message("a")])) == "quota-exceeded"
    writer.drop("s")
    assert queue.fate(ask.SendBatch(by("x"), 1, [message("a")])) == "fine"


# Publishing.


def test_published_messages_are_in_the_order_of_the_stages_and_of_each(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1."""
    writer.stage("two", "c", "d")
    writer.stage("one", "a")
    queue.send("before")
    writer.stage("one", "b")
    assert writer.publish(0, "one", "two", "none", "one") == 4
    assert queue.contents(queue.peek()) == ["before", "a", "b", "c", "d"]
    assert writer.staged() == {}
    numbers = queue.numbers()
    assert numbers == sorted(numbers)
    assert queue.count().active == 5


def test_publishing_is_one_record(queue: QueueHarness, writer: StageHarness) -> None:
    """R-D1: all of it rests, or nothing does."""
    writer.stage("s", *[str(each) for each in range(1000)])
    writer.publish(0, "s")
    assert [type(each) for each in queue.records] == [StagesPublished]


def test_whoever_waits_gets_what_is_published(queue: QueueHarness, writer: StageHarness) -> None:
    queue.open("r", credit=2)
    writer.stage("s", "a", "b", "c")
    replies = writer.ask_on(writer.publishing(0, "s"))
    (delivered,) = [each for each in replies if isinstance(each, told.Delivered)]
    assert [each.enqueued_at for each in delivered.deliveries] == [queue.now] * 2
    assert queue.contents(delivered.deliveries) == ["a", "b"]


def test_lives_begin_when_messages_are_published() -> None:
    queue = QueueHarness(is_retold=True, time_to_live_ms=1000)
    writer = StageHarness(queue)
    writer.stage("s", "a", life_ms=100)
    writer.stage("s", "b")
    queue.tick(5000)
    writer.publish(0, "s")
    start = queue.now
    assert [each.expires_at - start for each in queue.peek()] == [100, 1000]
    queue.tick(100)
    assert queue.contents(queue.peek()) == ["b"]
    queue.restart()
    queue.tick(900)
    assert queue.peek() == []


def test_a_schedule_still_to_come_is_kept(queue: QueueHarness, writer: StageHarness) -> None:
    writer.stage("s", "later", due=queue.now + 1000, life_ms=50)
    writer.stage("s", "past", due=queue.now + 10)
    queue.tick(500)
    assert writer.publish(0, "s") == 2
    assert queue.contents(queue.receive(9)) == ["past"]
    (scheduled, _) = queue.peek()
    assert scheduled.state == STATE_SCHEDULED
    queue.restart()
    queue.tick(500)
    found = [each for each in queue.peek() if queue.content(each) == "later"]
    assert [each.expires_at - queue.now for each in found] == [50]


def test_sessions_get_their_messages_when_they_are_published() -> None:
    queue = QueueHarness(is_retold=True, requires_session=True)
    writer = StageHarness(queue)
    writer.stage("s", "a", "b", session="x")
    writer.stage("s", "c", session="y")
    assert queue.sessions() == []
    assert queue.accept(None) is None
    writer.ask_on(writer.publishing(0, "s"))
    assert queue.accepted() == "x"
    assert queue.contents(queue.take(9)) == ["a", "b"]
    assert queue.accept("y", "other") == "y"


def test_what_a_message_brings_along_is_kept(queue: QueueHarness, writer: StageHarness) -> None:
    writer.stage("s", "a", hops=2)
    writer.publish(0, "s")
    (found,) = queue.peek()
    assert found.details is not None
    assert found.details.hops == 2


def test_duplicates_are_found_when_published() -> None:
    """R-S9, R-D1: an id counts from when its message can be seen."""
    queue = QueueHarness(is_retold=True, duplicate_window_ms=60_000)
    writer = StageHarness(queue)
    queue.send("first", id="1")
    writer.stage("s", "again", id="1")
    writer.stage("s", "a", "b", id="2")
    writer.stage("s", "c")
    writer.stage("s", "d")
    queue.send("ahead", id="3")
    writer.stage("s", "late", id="3")
    queue.restart()
    assert writer.publish(0, "s") == 6
    (dropped,) = [each for each in queue.records if isinstance(each, DuplicatesDropped)]
    assert queue.contents(queue.peek()) == ["first", "ahead", "a", "c", "d"]
    assert dropped.message_ids == ["1", "2", "3"]
    queue.checkpoint()
    queue.restart()
    writer.stage("t", "once more", id="2")
    assert writer.publish(1, "t") == 1
    assert len(queue.peek()) == 5


def test_a_disabled_entity_publishes_nothing(queue: QueueHarness, writer: StageHarness) -> None:
    writer.stage("s", "a")
    closed = queue_blueprint(QueueDefinition("orders", status=SEND_DISABLED))
    queue.ask(ask.Configure(closed))
    assert queue.fate(writer.publishing(0, "s")) == "entity-disabled"
    assert writer.staged() == {"s": 1}
    queue.ask(ask.Configure(queue.described()))
    assert writer.publish(0, "s") == 1


# Once.


def test_a_repeat_publishes_nothing(queue: QueueHarness, writer: StageHarness) -> None:
    """R-D1: also after a restart, and also when the batch was done again under other names."""
    writer.stage("first try", "a", "b")
    assert writer.publish(3, "first try") == 2
    assert writer.publish(3, "first try") == 0
    queue.restart()
    writer.stage("second try", "a", "b")
    assert writer.publish(3, "second try") == 0
    assert writer.staged() == {}
    (dropped,) = [each for each in queue.records if isinstance(each, StagesDropped)]
    assert (dropped.why, len(dropped.sequences)) == (STAGE_REPEATED, 2)
    assert writer.publish(2, "anything") == 0
    assert queue.contents(queue.peek()) == ["a", "b"]
    writer.stage("next", "c")
    assert writer.publish(4, "next") == 1


def test_writers_are_apart(queue: QueueHarness, writer: StageHarness) -> None:
    """R-D1."""
    other = StageHarness(queue, "other")
    writer.stage("a", "a")
    other.stage("b", "b")
    assert writer.publish(5, "a") == 1
    assert other.publish(5, "b") == 1


def test_an_empty_batch_is_published_too(queue: QueueHarness, writer: StageHarness) -> None:
    assert writer.publish(0) == 0
    writer.stage("s", "a")
    assert writer.publish(0, "s") == 0
    assert queue.peek() == []


def test_memory_of_writers_outlives_checkpoints(queue: QueueHarness, writer: StageHarness) -> None:
    """R-D1."""
    writer.stage("s", "a")
    writer.publish(7, "s")
    queue.checkpoint()
    queue.restart()
    queue.checkpoint()
    queue.restart()
    writer.stage("t", "a")
    assert writer.publish(7, "t") == 0
    assert writer.publish(8, "u") == 0


def test_so_many_writers_are_remembered(queue: QueueHarness) -> None:
    queue.is_retold = False
    for number in range(WRITERS_MAX + 2):
        StageHarness(queue, f"writer {number}").publish(0)
    writers = queue.partition._state.stages.writers
    assert len(writers) == WRITERS_MAX
    assert "writer 1" not in writers
    assert "writer 2" in writers
    queue.retell()


# Steps.


def test_what_is_too_much_for_one_write_is_published_in_steps(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c")
    writer.stage("t", "d", "e")
    assert writer.publish(0, "s", "t") == 5
    assert queue.contents(queue.peek()) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("again", ["the same", "others"])
def test_a_crash_between_steps_neither_loses_nor_doubles(
    queue: QueueHarness, writer: StageHarness, steps: int, again: str
) -> None:
    """R-D1: the batch is finished with the stages it was begun with."""
    contents = ["a", "b", "c", "d", "e", "f", "g"]
    writer.stage("s", *contents[:3])
    writer.stage("t", *contents[3:])
    writer.take_steps_of(2)
    command: ask.Command = writer.publishing(0, "s", "t")
    for _ in range(steps):
        queue.ask(command)
        (command,) = queue.partition.take_leftovers()
    queue.restart()
    writer.take_steps_of(2)
    if again == "others":
        writer.stage("second try", *contents)
        published = writer.publish(0, "second try")
    else:
        published = writer.publish(0, "s", "t")
    assert published == len(contents) - 2 * steps
    assert queue.contents(queue.peek()) == contents
    if again == "the same" or steps:
        writer.drop(prefix="")
        assert writer.staged() == {}
    assert writer.publish(0, "s", "t") == 0
    assert queue.contents(queue.peek()) == contents


def test_an_opening_goes_on_with_a_batch_that_was_begun(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1: whoever saw its beginning will see its end, even if its writer does not come back."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c", "d", "e")
    queue.ask(writer.publishing(0, "s"))
    queue.checkpoint()
    queue.restart()
    writer.take_steps_of(2)
    assert not [each for each in writer.ask_on(ask.Tick()) if isinstance(each, told.Refused)]
    assert queue.contents(queue.peek()) == ["a", "b", "c", "d", "e"]
    assert writer.publish(0, "s") == 0


def test_a_tick_between_steps_changes_nothing(queue: QueueHarness, writer: StageHarness) -> None:
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c", "d", "e")
    queue.ask(writer.publishing(0, "s"))
    (left,) = queue.partition.take_leftovers()
    queue.tick()
    assert queue.partition.take_leftovers() == []
    (answer,) = writer.ask_on(left)
    assert answer == told.BatchPublished(writer, 7, 5, ["s"])


def test_a_step_that_was_refused_is_asked_for_again(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1: a store without space refuses a step before the partition hears of it, and who asked
    may be gone."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c", "d", "e")
    queue.ask(writer.publishing(0, "s"))
    assert len(queue.partition.take_leftovers()) == 1
    assert queue.partition.next_deadline() <= queue.now + RESUME_EVERY_MS
    queue.now += RESUME_EVERY_MS
    writer.ask_on(ask.Tick())
    assert queue.contents(queue.peek()) == ["a", "b", "c", "d", "e"]
    assert writer.publish(0, "s") == 0


def test_a_batch_goes_on_when_its_entity_is_enabled_again(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c")
    queue.ask(writer.publishing(0, "s"))
    (left,) = queue.partition.take_leftovers()
    closed = queue_blueprint(QueueDefinition("orders", status=SEND_DISABLED))
    queue.ask(ask.Configure(closed))
    assert queue.fate(left) == "entity-disabled"
    queue.tick(RESUME_EVERY_MS)
    assert queue.partition.next_deadline() > queue.now
    writer.ask_on(ask.Configure(queue.described()))
    assert queue.contents(queue.peek()) == ["a", "b", "c"]


def test_a_batch_that_was_begun_can_neither_be_dropped_nor_grow_nor_get_stale(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c")
    queue.ask(writer.publishing(0, "s"))
    (left,) = queue.partition.take_leftovers()
    assert writer.drop("s") == 0
    assert writer.drop(prefix="") == 0
    assert writer.why_not_staged("s", message("d"), message("e")) == ["not-allowed"] * 2
    queue.is_retold = False  # that it is looked at later is not written down
    queue.tick()
    queue.tick(STAGE_TIMEOUT_MS)
    assert queue.partition.next_deadline() > queue.now
    assert writer.staged() == {"s": 1}
    writer.ask_on(left)
    assert queue.contents(queue.peek()) == ["a", "b", "c"]


def test_the_next_batch_waits_for_the_end_of_the_one_before(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1."""
    writer.take_steps_of(2)
    writer.stage("s", "a", "b", "c", "d", "e")
    queue.ask(writer.publishing(0, "s"))
    queue.restart()
    writer.take_steps_of(2)
    writer.stage("t", "f")
    assert writer.publish(1, "t") == 1
    assert queue.contents(queue.peek()) == ["a", "b", "c", "d", "e", "f"]
    assert writer.publish(0, "s") == 0


# Dropping and getting old.


def test_stages_are_dropped_by_name_and_by_prefix(
    queue: QueueHarness, writer: StageHarness
) -> None:
    for name in ("q/1/a", "q/1/b", "q/2/a", "other"):
        writer.stage(name, "x", "y")
    assert writer.drop("q/1/a", "unknown") == 2
    (dropped,) = queue.records
    assert isinstance(dropped, StagesDropped)
    assert dropped.why == STAGE_GIVEN_UP
    assert writer.drop(prefix="q/", keep=["q/2/a"]) == 2
    assert list(writer.staged()) == ["q/2/a", "other"]
    assert writer.drop(prefix="q/") == 2
    assert writer.drop(prefix="") == 2
    assert queue.partition.live_count == 0
    assert queue.partition.live_blocks() == []


def test_very_many_stages_are_looked_at_in_parts(queue: QueueHarness, writer: StageHarness) -> None:
    """All names were looked at, and all that had the prefix were dropped, in one decision."""
    queue.partition._state.stint = Stint(4)
    for number in range(8 * NAMES):
        writer.stage(f"other/{number}", "x")
        if number % 8 == 0:
            writer.stage(f"mine/{number}", "y", "z")
    left: list[int] = []
    command = ask.DropStages(writer, 7, [], "mine/", ["mine/8"])
    replies = writer.begin(command)
    while not replies:
        left.append(len(writer.staged()))
        (leftover,) = queue.partition.take_leftovers()
        assert leftover is command
        replies = writer.begin(leftover)
    assert len(left) >= NAMES // 4 - 1
    assert replies == [told.Numbered(writer, 7, [2 * (NAMES - 1)])]
    assert [name for name in writer.staged() if name.startswith("mine/")] == ["mine/8"]
    assert len(writer.staged()) == 8 * NAMES + 1
    assert max(before - after for before, after in pairwise(left)) <= 4


def test_two_who_drop_stages_by_prefix_take_turns(
    queue: QueueHarness, writer: StageHarness
) -> None:
    queue.partition._state.stint = Stint(1)
    for number in range(4 * NAMES):
        writer.stage(f"{number % 2}/{number}", "x")
    first, second = [ask.DropStages(writer, tag, [], f"{tag}/", []) for tag in (0, 1)]
    replies = [*writer.begin(first), *writer.begin(second)]
    while leftovers := queue.partition.take_leftovers():
        for leftover in leftovers:
            replies += writer.begin(leftover)
    assert [told.Numbered(writer, tag, [2 * NAMES]) for tag in (0, 1)] == replies
    assert not writer.staged()


def test_a_stage_that_nobody_comes_back_to_is_dropped(
    queue: QueueHarness, writer: StageHarness
) -> None:
    writer.stage("old", "a")
    queue.tick(1000)
    writer.stage("young", "b")
    writer.stage("old", "c")
    queue.tick(1000)
    writer.stage("old", "d")
    first = queue.now - 1000
    assert queue.partition.next_deadline() == first + STAGE_TIMEOUT_MS
    queue.restart()
    assert queue.partition.next_deadline() == first + STAGE_TIMEOUT_MS
    queue.tick()
    queue.tick(STAGE_TIMEOUT_MS - 1000)
    (dropped,) = queue.records
    assert isinstance(dropped, StagesDropped)
    assert (dropped.why, len(dropped.sequences)) == (STAGE_STALE, 1)
    assert writer.staged() == {"old": 3}
    queue.tick(1000)
    assert writer.staged() == {}
    assert queue.partition.next_deadline() == 0


def test_a_stage_outlives_a_partition_that_was_out_of_reach(
    queue: QueueHarness, writer: StageHarness
) -> None:
    """R-D1: its writer may have waited to publish it."""
    writer.stage("s", "a")
    queue.checkpoint()
    queue.restart()
    queue.tick(STAGE_TIMEOUT_MS * 3)
    assert queue.partition.next_deadline() == queue.now + STAGE_GRACE_MS
    assert writer.staged() == {"s": 1}
    queue.tick(STAGE_GRACE_MS)
    assert writer.staged() == {}


# The journal.


def test_a_checkpoint_keeps_stages(queue: QueueHarness, writer: StageHarness) -> None:
    writer.stage("s", *[str(each) for each in range(1500)], life_ms=7)
    writer.stage("t", "x", due=queue.now + 10, hops=1)
    queue.checkpoint()
    queue.restart()
    queue.retell()
    assert writer.publish(0, "t", "s") == 1501
    queue.retell()


@pytest.mark.parametrize("published", range(STAGES))
def test_stages_may_be_published_while_a_checkpoint_walks(
    queue: QueueHarness, writer: StageHarness, published: int
) -> None:
    """R-D1."""
    names = [f"s{each}" for each in range(STAGES)]
    for name in names:
        writer.stage(name, *[f"{name}-{each}" for each in range(600)])
    queue.is_retold = False
    for step in range(3):
        queue.keep(queue.partition.checkpoint_step(queue.now))
        if step == 1:
            writer.publish(0, names[published])
            writer.drop(names[published - 1])
    queue.checkpoint()
    queue.retell()
    queue.restart()
    assert queue.count().active == 600
    assert len(writer.staged()) == STAGES - 2


def test_bodies_of_staged_messages_are_relocated() -> None:
    """R-D1: a stage does not pin the journal, and what is relocated is still staged."""
    queue = QueueHarness(memory=0)
    writer = StageHarness(queue)
    writer.stage("s", "a", "b")
    for number in queue.send(*["x" * 10] * 9000):
        del number
    locked = queue.receive(9000)
    for at in range(0, len(locked), 1_000):
        queue.settle(COMPLETE, *locked[at : at + 1_000])
    queue.checkpoint()
    entries = queue.partition.next_to_relocate(8192, 64)
    assert len(entries) == 2
    bodies = [queue.journal.body(entry.position) for entry in entries]
    queue.keep(queue.partition.relocate(entries, bodies, queue.now))
    queue.checkpoint()
    queue.restart()
    queue.retell()
    assert writer.publish(0, "s") == 2
    assert queue.contents(queue.peek()) == ["a", "b"]
