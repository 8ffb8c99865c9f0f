"""What is kept and told about message sessions: states, names, looks, checkpoints, changes."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity.commands import ABANDON, DEAD_LETTER, DEFER, MAIN
from peeklock.entity.definition import RECEIVE_DISABLED
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_DEFERRED
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness, deliveries, sequences


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(requires_session=True, is_retold=True)


# State.


def test_a_state_is_set_read_and_cleared(queue: QueueHarness) -> None:
    queue.accept("a")
    assert queue.state("a") is None
    assert queue.set_state("a", b"one") == "fine"
    assert queue.state("a") == b"one"
    assert queue.set_state("a", b"") == "fine"
    assert queue.state("a") == b""
    assert queue.set_state("a", None) == "fine"
    assert queue.state("a") is None
    queue.ask(ask.CloseReceiver(by("holder"), False))
    assert queue.sessions() == []


def test_a_state_outlives_holder_restart_and_checkpoint(queue: QueueHarness) -> None:
    queue.accept("a")
    queue.set_state("a", b"kept")
    queue.ask(ask.CloseReceiver(by("holder"), False))
    queue.restart()
    queue.now += 5
    queue.checkpoint()
    queue.restart()
    assert queue.accept("a") == "a"
    assert queue.state("a") == b"kept"
    assert queue.sessions(updated_after=queue.now - 6) == ["a"]
    assert queue.sessions(updated_after=queue.now - 5) == []


def test_a_state_that_was_cleared_stays_so_after_a_checkpoint(queue: QueueHarness) -> None:
    queue.accept("a")
    queue.set_state("a", b"kept")
    queue.keep(
        queue.partition.checkpoint_step(queue.now)
    )  # the checkpoint has begun, with the state
    queue.set_state("a", None)
    while queue.journal.replay_from == 0:
        queue.keep(queue.partition.checkpoint_step(queue.now))
    queue.restart()
    assert queue.accept("a") == "a"
    assert queue.state("a") is None


# Names.


def test_sessions_with_messages_or_state_are_listed_page_by_page(queue: QueueHarness) -> None:
    for name in ("d", "b", "e"):
        queue.send(name, session=name)
    for name in ("a", "c"):
        queue.accept(name, name)
    assert queue.sessions() == ["b", "d", "e"]
    queue.set_state("a", b"x", holder="a")
    assert queue.sessions() == ["a", "b", "d", "e"]
    assert queue.sessions(skip=1, top=2) == ["b", "d"]
    assert queue.sessions(skip=9) == []
    before = queue.now
    assert queue.sessions(updated_after=before - 1) == ["a"]
    queue.now += 1
    queue.set_state("c", b"y", holder="c")
    assert queue.sessions(updated_after=before) == ["c"]


def test_a_session_whose_messages_are_all_locked_or_deferred_is_listed(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.accept("a")
    first, _ = queue.take(2)
    queue.settle(DEFER, first)
    assert queue.sessions() == ["a"]


# Looking.


def test_a_look_shows_one_session_or_all_in_the_order_of_numbers(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.send("b0", session="b")
    queue.send("a1", "a2", session="a")
    queue.accept("a")
    first, second = queue.take(2)
    queue.settle(DEFER, second)
    assert sequences(queue.peek()) == [1, 2, 3, 4]
    assert sequences(queue.peek(session="a")) == [1, 3, 4]
    assert [each.state for each in queue.peek(session="a")] == [
        STATE_ACTIVE,
        STATE_DEFERRED,
        STATE_ACTIVE,
    ]
    assert sequences(queue.peek(session="b")) == [2]
    assert sequences(queue.peek(session="nobody")) == []
    assert sequences(queue.peek(start=2, count=2)) == [2, 3]
    assert sequences(queue.peek(start=2, count=1, session="a")) == [3]
    queue.settle(ABANDON, first)
    assert sequences(queue.peek(session="a")) == [1, 3, 4]


def test_counts_are_those_of_all_sessions(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.send("b0", session="b")
    queue.send("later", session="b", due=queue.now + 10)
    queue.accept("a")
    first, _ = queue.take(2)
    queue.settle(DEFER, first)
    found = queue.count()
    assert (found.active, found.locked, found.deferred, found.scheduled) == (2, 1, 1, 1)


def test_a_batch_delete_reaches_one_session_or_all(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.send("b0", session="b")
    queue.send("a1", session="a")
    later = queue.now + 1
    queue.ask(ask.DeleteMany(by("m"), 7, MAIN, 9, later, "a"))
    assert queue.contents(queue.peek()) == ["b0"]
    queue.ask(ask.DeleteMany(by("m"), 7, MAIN, EVERYTHING, later))
    assert queue.contents(queue.peek()) == []
    assert queue.sessions() == []


# Housekeeping and change.


def test_a_checkpoint_keeps_sessions_in_every_place(queue: QueueHarness) -> None:
    queue.send("a0", "a1", "a2", session="a")
    queue.send("b0", session="b")
    queue.send("later", session="a", due=queue.now + 100)
    queue.accept("a")
    first, _ = queue.take(2)
    queue.settle(DEFER, first)
    queue.settle(DEAD_LETTER, queue.take(1)[0])
    queue.checkpoint()
    queue.restart()
    assert queue.contents(queue.peek(session="a")) == ["a0", "a1", "later"]
    queue.tick(100)
    queue.accept("a")
    assert queue.contents(queue.take(9)) == ["a1", "later"]


def test_a_holder_gets_what_waited_while_the_queue_was_disabled(queue: QueueHarness) -> None:
    queue.accept("a")
    queue.ask(ask.Grant(by("holder"), 5, False))
    queue.properties["status"] = RECEIVE_DISABLED
    queue.ask(ask.Configure(queue.described()))
    queue.send("a0", session="a")
    assert deliveries(queue.replies, "holder") == []
    del queue.properties["status"]
    replies = queue.ask(ask.Configure(queue.described()))
    assert queue.contents(deliveries(replies, "holder")) == ["a0"]
