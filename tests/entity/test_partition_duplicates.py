"""Duplicate detection: an id that was seen within the window is accepted and dropped (R-S9)."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.moves.duplicate_detection import CUT_MAX, CUTS_PER_WINDOW, SHARDS, SeenIds
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message, routed

WINDOW_MS = 20_000


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(duplicate_window_ms=WINDOW_MS, is_retold=True)


def dropped(queue: QueueHarness) -> list[str]:
    found = [each for each in queue.records if isinstance(each, records.DuplicatesDropped)]
    return [id for each in found for id in each.message_ids]


def test_a_duplicate_is_accepted_and_dropped(queue: QueueHarness) -> None:
    queue.send("first", id="a")
    queue.send("second", id="a")
    assert dropped(queue) == ["a"]
    queue.send("other", id="b")
    assert queue.contents(queue.peek()) == ["first", "other"]


def test_a_message_that_is_gone_still_has_duplicates(queue: QueueHarness) -> None:
    queue.send("first", id="a")
    queue.receive(1, mode=ask.RECEIVE_AND_DELETE)
    queue.send("second", id="a")
    assert queue.contents(queue.peek()) == []


@pytest.mark.parametrize(("passed_ms", "seen"), [(-1, 1), (0, 2), (1, 2)])
def test_the_window_ends_to_the_millisecond(queue: QueueHarness, passed_ms: int, seen: int) -> None:
    queue.send("first", id="a")
    queue.now += WINDOW_MS + passed_ms
    queue.send("second", id="a")
    assert len(queue.peek()) == seen


@pytest.mark.parametrize(("passed_ms", "seen"), [(-1, 1), (0, 2)])
def test_the_window_is_the_same_after_a_restart(
    queue: QueueHarness, passed_ms: int, seen: int
) -> None:
    queue.send("first", id="a")
    queue.now += WINDOW_MS + passed_ms
    queue.restart()
    queue.send("second", id="a")
    assert len(queue.peek()) == seen


def test_a_duplicate_does_not_move_the_window(queue: QueueHarness) -> None:
    queue.send("first", id="a")
    queue.now += WINDOW_MS - 1
    queue.send("dropped", id="a")
    queue.now += 1
    queue.send("second", id="a")
    assert queue.contents(queue.peek()) == ["first", "second"]
    queue.now += WINDOW_MS - 1
    queue.send("dropped", id="a")
    assert queue.contents(queue.peek()) == ["first", "second"]


def test_a_batch_drops_duplicates_within_itself_and_keeps_the_rest(queue: QueueHarness) -> None:
    queue.send("old", id="a")
    batch = [message("a", id="a"), message("b", id="b"), message("b", id="b"), message("c", id="c")]
    assert queue.ask(ask.SendBatch(by("s"), 1, batch)) == [told.SendsAccepted(by("s"), [1])]
    assert dropped(queue) == ["a", "b"]
    assert queue.contents(queue.peek()) == ["old", "b", "c"]


def test_a_batch_that_is_refused_is_not_remembered() -> None:
    queue = QueueHarness(duplicate_window_ms=WINDOW_MS, message_size_max=3, is_retold=True)
    queue.ask(ask.SendBatch(by("s"), 1, [message("a", id="a"), message("long", id="b")]))
    queue.send("a", id="a")
    assert queue.contents(queue.peek()) == ["a"]


def test_a_message_without_an_id_is_nobodys_duplicate(queue: QueueHarness) -> None:
    queue.send("one", "two")
    queue.send("three")
    queue.restart()
    queue.send("four")
    assert queue.contents(queue.peek()) == ["one", "two", "three", "four"]


def test_a_scheduled_message_counts_from_when_it_was_scheduled(queue: QueueHarness) -> None:
    due = queue.now + WINDOW_MS + 5_000
    queue.send("later", id="a", due=due)
    queue.send("dropped", id="a")
    queue.send("dropped too", id="a", due=due)
    assert len(queue.peek()) == 1
    queue.tick(WINDOW_MS)
    queue.send("second", id="a")
    queue.tick(5_000)
    assert queue.contents(queue.peek()) == ["second", "later"]


def test_the_number_of_a_dropped_schedule_is_never_anothers(queue: QueueHarness) -> None:
    """A client that cancels by that number must not take another message back."""
    due = queue.now + 5_000
    queue.ask(ask.Schedule(by("s"), 1, [message("one", id="a", due=due)]))
    (reply,) = queue.ask(ask.Schedule(by("s"), 2, [message("again", id="a", due=due)]))
    assert isinstance(reply, told.Numbered)
    queue.restart()
    queue.ask(ask.Schedule(by("s"), 3, [message("two", id="b", due=due)]))
    assert queue.fate(ask.CancelScheduled(by("s"), 4, reply.numbers)) == "message-not-found"
    assert queue.contents(queue.peek()) == ["one", "two"]


def test_a_checkpoint_keeps_the_ids_and_when_they_were_seen(queue: QueueHarness) -> None:
    queue.send("first", id="a")
    queue.receive(1, mode=ask.RECEIVE_AND_DELETE)
    queue.now += 5_000
    queue.send("second", id="b")
    queue.checkpoint()
    queue.restart()
    queue.send("dropped", id="a")
    queue.now += WINDOW_MS - 5_000
    queue.send("third", id="a")
    queue.send("dropped", id="b")
    assert queue.contents(queue.peek()) == ["second", "third"]


def test_old_ids_are_forgotten(queue: QueueHarness) -> None:
    for number in range(10):
        queue.send("x", id=f"id-{number}")
        queue.now += WINDOW_MS // 5
    queue.tick()
    assert len(queue.partition._state.seen) == 4


def test_a_topic_remembers_what_was_published() -> None:
    topic = TopicHarness("all", duplicate_window_ms=WINDOW_MS)
    topic.send("first", id="a")
    topic.send("dropped", id="a")
    topic.checkpoint()
    topic.restart()
    topic.send("dropped", id="a")
    assert topic.seen_by("all") == ["first"]


def test_a_topic_remembers_what_nobody_wanted() -> None:
    topic = TopicHarness("none", duplicate_window_ms=WINDOW_MS)
    topic.router = routed()
    topic.send("unwanted", id="a")
    topic.restart()
    topic.router = topic.to_all
    topic.send("dropped", id="a")
    assert topic.seen_by("none") == []


def test_a_topics_schedule_counts_once_from_when_it_was_scheduled() -> None:
    topic = TopicHarness("all", duplicate_window_ms=WINDOW_MS)
    topic.send("later", id="a", due=topic.now + 15_000)
    topic.fire_timer(15_000)
    assert topic.seen_by("all") == ["later"]
    topic.restart()
    topic.send("dropped", id="a")
    topic.now += 5_000
    topic.send("second", id="a")
    assert topic.seen_by("all") == ["later", "second"]


def test_old_ids_are_cut_off_a_few_times_in_a_window() -> None:
    """With every message, a million ids would be copied for each (R-S9)."""
    seen = SeenIds(WINDOW_MS)
    cuts = 0
    step = WINDOW_MS // 1_000
    for now in range(0, 3 * WINDOW_MS, step):
        before = list(seen._shards)
        seen.prune(now)
        cuts += sum(old is not new for old, new in zip(before, seen._shards, strict=False))
        assert seen.is_new(f"id-{now}", now)
        assert len(seen) <= 1_000 + 1_000 // CUTS_PER_WINDOW + 1
    assert cuts <= (2 * CUTS_PER_WINDOW + 1) * SHARDS


def test_many_old_ids_are_cut_off_over_many_calls() -> None:
    """A million ids that end together end in steps (R-S9)."""
    seen = SeenIds(WINDOW_MS)
    for number in range(200_000):
        seen.remember(f"id-{number}", 1)
    calls = 0
    while len(seen):
        before = len(seen)
        seen.prune(WINDOW_MS + 10)
        assert before - len(seen) <= CUT_MAX + 2_000
        calls += 1
    assert calls > 10
    assert seen.size == 0
