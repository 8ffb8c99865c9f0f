"""Stages of topics, and of entities with several partitions (R-D1)."""

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import MAIN
from peeklock.entity.message import Message
from peeklock.entity.records import DuplicatesDropped
from peeklock.entity.stages.records import (
    StagesPublished,
)
from peeklock.entity.topics.records import Published
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message, routed, sequences
from tests.entity.stage_harness import StageHarness

# Topics.


def test_a_topic_routes_when_it_publishes() -> None:
    """R-D1."""
    topic = TopicHarness("one", "two")
    writer = StageHarness(topic)
    topic.router = routed()
    writer.stage("s", "a", "b")
    topic.router = topic.to_all
    topic.restart()
    assert writer.publish(0, "s") == 2
    assert [type(each) for each in topic.records] == [Published, Published, StagesPublished]
    assert topic.seen_by("one") == topic.seen_by("two") == ["a", "b"]
    assert writer.staged() == {}
    assert topic.peek(MAIN) == []


def test_bodies_are_brought_before_a_topic_publishes() -> None:
    """R-D1: without them it asks to be asked again, and does nothing by halves."""
    topic = TopicHarness("one", memory=0)
    writer = StageHarness(topic)
    writer.stage("s", "a", "b")
    command = writer.publishing(0, "s")
    assert topic.ask(command) == []
    assert topic.partition.take_leftovers() == [command]
    assert topic.records == []
    assert writer.publish(0, "s") == 2
    assert topic.seen_by("one") == ["a", "b"]


def test_a_topic_publishes_in_steps_of_so_many_bytes() -> None:
    topic = TopicHarness("one", memory=0)
    writer = StageHarness(topic)
    topic.partition._staging.bytes_max = 10
    writer.stage("s", "x" * 20, "y" * 6, "z" * 4)
    writer.stage("t", "w")
    sizes = []
    command: ask.Command = writer.publishing(0, "s", "t")
    while True:
        writer.begin(command)
        sizes.append(len([each for each in topic.records if isinstance(each, Published)]))
        leftovers = topic.partition.take_leftovers()
        if not leftovers:
            break
        (command,) = leftovers
    assert sizes == [1, 2, 1]
    assert len(topic.seen_by("one")) == 4


def test_a_topic_publishes_the_bytes_of_one_step_in_a_decision() -> None:
    """However many writers ask for theirs; the next one has its turn in the next decision."""
    topic = TopicHarness("one")
    writers = [StageHarness(topic, name) for name in ("first", "second", "third")]
    topic.partition._staging.bytes_max = 10
    for writer in writers:
        writer.stage(writer.name, "x" * 10)
    wishes: list[ask.Command] = [writer.publishing(0, writer.name) for writer in writers]
    sizes = []
    while wishes:
        topic.ask(*wishes)
        sizes.append(len([each for each in topic.records if isinstance(each, Published)]))
        wishes = topic.partition.take_leftovers()
    assert sizes == [1, 1, 1]


def test_schedules_and_duplicates_of_a_topic_are_found_when_published() -> None:
    """R-S9, R-D1."""
    topic = TopicHarness("one", duplicate_window_ms=60_000)
    writer = StageHarness(topic)
    writer.stage("s", "later", id="1", due=topic.now + 500)
    writer.stage("s", "now", id="2")
    writer.stage("s", "twice", id="1")
    assert writer.publish(0, "s") == 3
    assert topic.seen_by("one") == ["now"]
    topic.restart()
    topic.fire_timer(500)
    assert topic.seen_by("one") == ["now", "later"]


def test_a_topic_may_ask_for_subscriptions_before_it_takes_anything() -> None:
    """R-S10, R-D1: filter before publishing is a check like others, made when staged."""
    topic = TopicHarness("one", filter_before_publishing=True)
    writer = StageHarness(topic)

    def route(message: Message, now: int) -> list[Copy]:
        return [Copy(4)] if message.content == b"wanted" else []

    topic.router = route
    fates = writer.why_not_staged("s", message("wanted"), message("unwanted"))
    assert fates == ["taken", "no-matching-subscription"]
    topic.router = routed()
    assert writer.publish(0, "s") == 1
    assert topic.seen_by("one") == []
    assert topic.partition.live_count == 0


# Several partitions.


def test_one_partition_knows_the_stages_of_a_batch_for_all() -> None:
    """R-D1: those that could not publish yet must publish the same stages, and not drop them."""
    queue = QueueHarness(is_retold=True, partitions=2)
    writer = StageHarness(queue)
    writer.stage("s", "a")
    for stages in (["s"], ["other"]):
        (reply,) = writer.ask_on(writer.publishing(4, *stages))
        assert isinstance(reply, told.BatchPublished)
        assert reply.stages == ["s"]
    queue.checkpoint()
    queue.restart()
    (found,) = queue.ask(ask.FindPublished(by("x"), 7, ["s", "t"], None))
    assert found == told.Named(by("x"), 7, ["s"])
    (found,) = queue.ask(ask.FindPublished(by("x"), 7, [], "no"))
    assert found == told.Named(by("x"), 7, [])
    (found,) = queue.ask(ask.FindPublished(by("x"), 7, [], ""))
    assert found == told.Named(by("x"), 7, ["s"])
    (reply,) = writer.ask_on(writer.publishing(3, "x"))
    assert isinstance(reply, told.BatchPublished)
    assert reply.stages == []


def test_ids_of_a_partitioned_entity_are_told_without_their_key() -> None:
    queue = QueueHarness(
        is_retold=True, partitions=2, duplicate_window_ms=1000, requires_session=True
    )
    writer = StageHarness(queue)
    writer.stage("s", "a", "b", id="7:x", session="ke:y")
    writer.stage("s", "c", id="7:x", session="another")
    writer.publish(0, "s")
    (dropped,) = [each for each in queue.records if isinstance(each, DuplicatesDropped)]
    assert dropped.message_ids == ["7:x"]
    assert len(sequences(queue.peek())) == 2


def test_what_is_published_for_later_holds_no_memory_that_is_not_there() -> None:
    """The bodies of a step are brought for the rules; those of schedules are not read yet."""
    topic = TopicHarness("s", memory=0)
    writer = StageHarness(topic)
    writer.stage("later", "a", "b", due=topic.now + 5_000)
    assert writer.publish(0, "later") == 2
    assert topic.budget.left == 0
    assert all(entry.message is None for entry in topic.partition._state.lane(MAIN).entries())
    topic.fire_timer(5_000)
    assert topic.seen_by("s") == ["a", "b"]
