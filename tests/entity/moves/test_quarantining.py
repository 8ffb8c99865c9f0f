"""Messages whose bodies are damaged on disk: set apart one by one, and the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import (
    COMPLETE,
    DEAD,
    DEAD_LETTER,
    DEFER,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    TRANSFER_DEAD,
)
from peeklock.entity.deliveries import Delivery
from peeklock.entity.moves.quarantining import DAMAGED_BODY
from peeklock.entity.refusals import LOCK_LOST
from peeklock.entity.replies import Reply
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, deliveries

LOST = b"lost"


def cold(**properties: Any) -> QueueHarness:
    """A queue that keeps no body in memory."""
    return QueueHarness(memory=0, is_retold=True, **properties)


def undeliver(queue: QueueHarness, replies: list[Reply], *positions: int) -> list[Reply]:
    """What the worker does where bodies cannot be read; gives the replies that are left."""
    step = queue.partition.undeliver(replies, frozenset(positions), LOST, queue.now)
    return [*replies, *queue.keep(step)]


def open_with(queue: QueueHarness, origin: Any, credit: int, mode: int = PEEK_LOCK) -> list[Reply]:
    return queue.ask(ask.OpenReceiver(origin, MAIN, mode), ask.Grant(origin, credit, False))


def dead_letters(queue: QueueHarness, lane: int = DEAD) -> list[tuple[int, str | None, str]]:
    found = queue.receive(9, "undertaker", lane=lane)
    return [
        (each.sequence, None if each.details is None else each.details.reason, queue.content(each))
        for each in found
    ]


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_a_damaged_message_is_replaced_by_the_next_one(mode: int) -> None:
    """The receiver has as much credit as before: it never saw the damaged message."""
    queue = cold()
    queue.send("a", "b", "c")
    replies = open_with(queue, "r", 2, mode)
    (bad, good) = deliveries(replies, "r")
    left = undeliver(queue, replies, bad.position)
    assert [each.sequence for each in deliveries(left, "r")] == [2, 3]
    if mode == PEEK_LOCK:
        assert queue.settle(COMPLETE, bad) == [LOCK_LOST]
        assert queue.settle(COMPLETE, good) == ["settled"]
    assert dead_letters(queue) == [(1, DAMAGED_BODY, "lost")]
    queue.restart()
    assert dead_letters(queue) == [(1, DAMAGED_BODY, "lost")]


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_who_was_drained_gets_nothing_instead(mode: int) -> None:
    queue = cold()
    queue.send("a", "b", "c")
    queue.ask(ask.OpenReceiver(by("r"), MAIN, mode))
    replies = queue.ask(ask.Grant(by("r"), 2, True))
    bad = deliveries(replies, "r")[0]
    left = undeliver(queue, replies, bad.position)
    assert [each.sequence for each in deliveries(left, "r")] == [2]
    assert any(isinstance(reply, told.Drained) for reply in left)
    more = deliveries(queue.ask(ask.Grant(by("r"), 3, True)), "r")
    assert [each.sequence for each in more] == [3]


def test_who_was_drained_gets_the_bytes_of_a_damaged_message_back() -> None:
    """Its owner counts what it was told; a deficit would make every later grant smaller."""
    queue = cold()
    queue.send("x" * 5_000, "b")
    queue.ask(ask.OpenReceiver(by("r"), MAIN, PEEK_LOCK))
    replies = queue.ask(ask.Grant(by("r"), 1, True, True, 1_000))
    (bad,) = deliveries(replies, "r")
    left = undeliver(queue, replies, bad.position)
    (delivered,) = [reply for reply in left if isinstance(reply, told.Delivered)]
    assert (delivered.deliveries, delivered.size) == ([], 0)
    more = queue.ask(ask.Grant(by("r"), 2, True, True, delivered.size + 1_000))
    assert [each.sequence for each in deliveries(more, "r")] == [2]


def test_who_came_again_since_has_no_more_credit_than_it_says() -> None:
    queue = cold()
    queue.send("a", "b", "c", "d")
    replies = open_with(queue, "r", 1)
    (bad,) = deliveries(replies, "r")
    queue.ask(ask.CloseReceiver(by("r"), False), ask.OpenReceiver(by("r"), MAIN, PEEK_LOCK))
    assert deliveries(undeliver(queue, replies, bad.position), "r") == []
    assert len(deliveries(queue.ask(ask.Grant(by("r"), 1, False)), "r")) == 1


def test_a_session_goes_on_without_its_damaged_message() -> None:
    queue = cold(requires_session=True)
    queue.send("a", "b", session="s")
    assert queue.accept("s") == "s"
    replies = queue.ask(ask.Grant(by("holder"), 1, False))
    (bad,) = deliveries(replies, "holder")
    left = undeliver(queue, replies, bad.position)
    assert [each.sequence for each in deliveries(left, "holder")] == [2]
    assert dead_letters(queue) == [(1, DAMAGED_BODY, "lost")]


def test_a_look_sets_apart_what_is_ready_and_leaves_what_is_held() -> None:
    queue = cold()
    queue.send("a", "b", "c")
    held = queue.receive_one()
    replies = queue.ask(ask.Peek(by("looker"), 7, MAIN, 0, 9, 1 << 30))
    seen = found(replies)
    left = undeliver(queue, replies, *[each.position for each in seen[:2]])
    assert [each.sequence for each in found(left)] == [3]
    # Whoever holds a message has its body.
    assert queue.settle(COMPLETE, held) == ["settled"]
    assert dead_letters(queue) == [(2, DAMAGED_BODY, "lost")]


def test_deferred_claimed_and_dead_messages_are_set_apart_too() -> None:
    queue = cold()
    queue.send("deferred", "dead", "claimed")
    deferred, dead = queue.receive(2)
    queue.settle(DEFER, deferred)
    queue.settle(DEAD_LETTER, dead, note=("Mine", None))
    queue.ask(ask.ClaimMessages(by("me"), 1, MAIN, "owner", 1, 10))
    replies = queue.ask(ask.ReceiveDeferred(by("manager"), 7, MAIN, [1], PEEK_LOCK))
    assert found(undeliver(queue, replies, found(replies)[0].position)) == []
    replies = queue.ask(ask.FetchClaims(by("me"), 1, MAIN, "owner", [3], 1 << 20))
    (fetched,) = [each for each in replies if isinstance(each, told.ClaimsFetched)]
    undeliver(queue, replies, fetched.deliveries[0].position)
    queue.open("undertaker", lane=DEAD)
    replies = queue.ask(ask.Grant(by("undertaker"), 3, False))
    (again,) = [each for each in deliveries(replies, "undertaker") if each.sequence == 2]
    left = undeliver(queue, replies, again.position)
    delivered = deliveries(left, "undertaker")
    assert [each.sequence for each in delivered] == [1, 3, 2]
    reasons = [each.details.reason for each in delivered if each.details is not None]
    assert reasons == [DAMAGED_BODY] * 3
    seen = found(queue.ask(ask.Peek(by("looker"), 7, DEAD, 0, 9, 1 << 30)))
    assert [queue.content(each) for each in seen] == ["lost"] * 3
    texts = [each.details.description for each in seen if each.details is not None]
    assert sum("It was dead-lettered before: Mine." in str(text) for text in texts) == 1


def test_a_deferred_message_that_was_removed_comes_back_to_the_dead_letters() -> None:
    """Who fetches it by receive-and-delete gets nothing, and it is not lost without a word."""
    queue = cold()
    queue.send("a", "b")
    held = queue.receive(2)
    for each in held:
        queue.settle(DEFER, each)
    replies = queue.ask(ask.ReceiveDeferred(by("manager"), 7, MAIN, [1, 2], RECEIVE_AND_DELETE))
    left = undeliver(queue, replies, found(replies)[0].position)
    assert [each.sequence for each in found(left)] == [2]
    assert dead_letters(queue) == [(1, DAMAGED_BODY, "lost")]
    queue.restart()
    assert dead_letters(queue) == [(1, DAMAGED_BODY, "lost")]
    assert queue.numbers() == []


def test_what_is_scheduled_at_a_topic_goes_to_the_dead_transfers() -> None:
    topic = TopicHarness()
    topic.send("later", due=topic.now + 1_000)
    topic.now += 1_000
    wanted = topic.partition.bodies_wanted(topic.now)
    if not wanted:  # it is in memory: nobody would ask
        for entry in topic.partition._state.lane(MAIN).scheduled.values():
            topic.partition._state.release_body(entry)
        wanted = topic.partition.bodies_wanted(topic.now)
    topic.keep(topic.partition.quarantine(wanted, LOST, topic.now))
    topic.tick()
    assert dead_letters(topic, TRANSFER_DEAD) == [(1, DAMAGED_BODY, "lost")]


def found(replies: list[Reply]) -> list[Delivery]:
    return [
        delivery
        for reply in replies
        if isinstance(reply, told.Found)
        for delivery in reply.deliveries
    ]
