"""Where messages of a lane went is known over restarts, as is what came from others."""

from peeklock.entity import commands as ask
from peeklock.entity.commands import MAIN
from peeklock.entity.replies import Named, Numbered
from peeklock.entity.transfers.records import DestinationsNoted
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message


def note(queue: QueueHarness, path: str, *, is_only: bool = False, lane: int = MAIN) -> list[str]:
    (named,) = queue.ask(ask.NoteDestination(by("forwarder"), 7, lane, path, is_only))
    assert isinstance(named, Named)
    return named.names


def test_ways_are_written_down_once_and_survive() -> None:
    queue = QueueHarness(is_retold=True)
    assert note(queue, "b") == ["b"]
    assert queue.records == [DestinationsNoted(queue.now, MAIN, ["b"])]
    queue.restart()
    assert note(queue, "b") == ["b"]
    assert queue.records == []
    assert note(queue, "c") == ["c", "b"]
    queue.checkpoint()
    queue.restart()
    assert note(queue, "c") == ["c", "b"]
    assert note(queue, "c", is_only=True) == ["c"]
    queue.restart()
    assert note(queue, "c") == ["c"]


def test_the_ways_of_a_dropped_subscription_are_forgotten() -> None:
    topic = TopicHarness("one", "two")
    lane = topic.lanes["two"]
    assert note(topic, "b", lane=lane | 1) == ["b"]
    del topic.subscriptions["two"]
    topic.configure()
    for _ in range(2):
        assert topic.partition._state.ways == {}
        topic.restart()


def test_what_was_taken_over_is_told_until_it_is_forgotten() -> None:
    queue = QueueHarness()
    queue.ask(ask.TakeOver(by("forwarder"), 1, "source", [4, 9], [message("a"), message("b")], []))
    assert queue.ask(ask.TellTaken(by("other"), 2, "source")) == [Numbered(by("other"), 2, [4, 9])]
    queue.restart()
    queue.ask(ask.TakeOver(by("forwarder"), 1, "source", [], [], [4]))
    assert queue.ask(ask.TellTaken(by("other"), 2, "source")) == [Numbered(by("other"), 2, [9])]
    assert queue.ask(ask.TellTaken(by("other"), 2, "unknown")) == [Numbered(by("other"), 2, [])]
