"""What a message brings along from the entities before: its first number, and where it died."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import DEAD, DEAD_LETTER, MAIN, TRANSFER
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import Message, Traits
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, routed


def traveller(scheduled_at: int = 0) -> Message:
    return Message(
        b"",
        b"x",
        Traits(scheduled_at=scheduled_at, hops=1, enqueue_sequence=77, dead_letter_source="orders"),
    )


def past(found: Delivery) -> tuple[int, int, str]:
    assert found.details is not None
    return (found.details.enqueue_sequence, found.details.hops, found.details.source)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_keeps_where_a_message_comes_from(restarted: bool) -> None:
    queue = QueueHarness(is_retold=True)
    queue.ask(ask.TakeOver(by("c"), 1, "orders", [5], [traveller()], []))
    queue.ask(ask.SendMany(by("s"), [1], [traveller()]))
    queue.ask(ask.Schedule(by("s"), 1, [traveller(queue.now + 1_000)]))
    queue.checkpoint()
    if restarted:
        queue.restart()
    assert [past(each) for each in queue.peek()] == [(77, 1, "orders")] * 3
    queue.tick(1_000)
    assert [past(each) for each in queue.receive(3)] == [(77, 1, "orders")] * 3


@pytest.mark.parametrize(
    ("number", "source", "details"), [(77, "", (77, 0, "")), (0, "orders", (0, 0, "orders"))]
)
def test_either_of_the_two_facts_is_kept(
    number: int, source: str, details: tuple[int, int, str]
) -> None:
    queue = QueueHarness(is_retold=True)
    one = Message(b"", b"x", Traits(enqueue_sequence=number, dead_letter_source=source))
    queue.ask(ask.SendMany(by("s"), [1], [one]))
    queue.restart()
    (found,) = queue.receive(1)
    assert past(found) == details


def test_a_plain_message_has_no_details() -> None:
    queue = QueueHarness()
    queue.send("x")
    assert queue.peek()[0].details is None
    assert not Message(b"", b"").has_past


def test_a_dead_letter_that_came_from_elsewhere_keeps_its_past() -> None:
    queue = QueueHarness(is_retold=True)
    queue.ask(ask.SendMany(by("s"), [1], [traveller()]))
    queue.settle(DEAD_LETTER, queue.receive_one())
    assert past(queue.peek(DEAD)[0]) == (77, 1, "orders")


def test_a_transfer_keeps_its_past() -> None:
    queue = QueueHarness(is_retold=True)
    queue.ask(ask.Commit(by("t"), 1, [ask.TransferMessage("there", traveller())]))
    queue.restart()
    (found,) = queue.peek(TRANSFER)
    assert past(found) == (77, 1, "orders")


def test_copies_keep_the_first_number_of_what_was_published() -> None:
    topic = TopicHarness("one", "two")
    topic.router = routed(Copy(4), Copy(6, Message(b"", b"changed")))
    topic.ask(ask.TakeOver(by("c"), 1, "orders", [5], [traveller()], []))
    topic.restart()
    assert [past(topic.peek(lane)[0]) for lane in (4, 6)] == [(77, 1, "orders")] * 2


def test_a_changed_copy_keeps_the_schedule_of_what_was_published() -> None:
    topic = TopicHarness("one", "two")
    topic.router = routed(Copy(4), Copy(6, Message(b"", b"changed")))
    due = topic.now + 1_000
    topic.ask(ask.Schedule(by("s"), 1, [traveller(due)]))
    assert [past(each) for each in topic.peek(MAIN)] == [(77, 1, "orders")]
    topic.fire_timer(1_500)
    for lane in (4, 6):
        (found,) = topic.peek(lane)
        assert found.details is not None
        assert (found.details.scheduled_at, found.enqueued_at) == (due, due)
        assert past(found) == (77, 1, "orders")
