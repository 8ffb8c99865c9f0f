"""What an entity that is disabled for receiving declines, and what a change of its description does
to those who wait or hold something (protocol 11.8, R-L4)."""

from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import (
    COMPLETE,
    DEAD_LETTER,
    FORWARD,
    MAIN,
    PEEK_LOCK,
    TRANSFER,
    TRANSFER_DEAD,
)
from peeklock.entity.definition import ACTIVE, DISABLED, RECEIVE_DISABLED
from peeklock.entity.refusals import ENTITY_DISABLED, LOCK_LOST, SESSION_LOCK_LOST
from tests.entity.journal_facts import next_due
from tests.entity.origins import by
from tests.entity.partition_harness import (
    QueueHarness,
    TopicHarness,
    deliveries,
    message,
    sequences,
    token,
)

CLOSED = [DISABLED, RECEIVE_DISABLED]


def changed(hand: QueueHarness, **properties: Any) -> list[told.Reply]:
    """Give the entity another description."""
    hand.properties = {**hand.properties, **properties}
    return hand.ask(ask.Configure(hand.described()))


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(requires_session=True, is_retold=True)


@pytest.mark.parametrize("status", CLOSED)
def test_sessions_are_not_to_be_had(queue: QueueHarness, status: str) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    changed(queue, status=status)
    assert queue.accept("b", "other") == ENTITY_DISABLED
    assert queue.accept(None, "other") == ENTITY_DISABLED
    assert queue.set_state("a", b"s") == ENTITY_DISABLED
    wishes: list[ask.Command] = [
        ask.RenewSession(by("m"), 7, MAIN, "a", by("holder")),
        ask.GetSessionState(by("m"), 7, MAIN, "a", by("holder")),
        ask.ListSessions(by("m"), 7, MAIN, None, 0, 9),
        ask.ReceiveDeferred(by("m"), 7, MAIN, [1], PEEK_LOCK, "a"),
        ask.Peek(by("m"), 7, MAIN, 0, 1, 1, "a"),
    ]
    assert [queue.fate(wish) for wish in wishes] == [ENTITY_DISABLED] * len(wishes)
    changed(queue, status=ACTIVE)
    assert queue.contents(queue.take(1)) == ["a0"]


def test_a_message_that_comes_meanwhile_waits_for_the_queue_to_be_active_again(
    queue: QueueHarness,
) -> None:
    assert queue.accept(None, wait_ms=10_000) is None
    changed(queue, status=RECEIVE_DISABLED)
    queue.send("a0", session="a")
    assert queue.accepted() is None
    changed(queue, status=ACTIVE)
    assert queue.accepted() == "a"


@pytest.mark.parametrize("status", CLOSED)
def test_a_transaction_settles_nothing(status: str) -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a")
    held = queue.receive_one()
    changed(queue, status=status)
    for work in (
        ask.SettleAll(by("s"), 1, ask.Settlement(COMPLETE), [token(held)]),
        ask.SettleMany(by("s"), [1], ask.Settlement(COMPLETE), [token(held)]),
    ):
        assert queue.fate(ask.Commit(by("t"), 1, [work])) == ENTITY_DISABLED
    changed(queue, status=ACTIVE)
    commit = ask.Commit(
        by("t"), 1, [ask.SettleAll(by("s"), 1, ask.Settlement(COMPLETE), [token(held)])]
    )
    assert queue.fate(commit) == "fine"


def test_one_subscription_may_be_closed_by_itself() -> None:
    topic = TopicHarness()
    topic.add("open")
    topic.add("closed", status=RECEIVE_DISABLED)
    topic.configure()
    topic.send("a")
    assert topic.fate(ask.Peek(by("m"), 7, 6, 0, 1, 1)) == ENTITY_DISABLED
    assert topic.seen_by("open") == ["a"]
    assert topic.receive(1, lane=6) == []


def test_receivers_that_wait_get_nothing_until_the_queue_is_active_again() -> None:
    queue = QueueHarness()
    queue.open("r", credit=5)
    changed(queue, status=RECEIVE_DISABLED)
    queue.send("a", "b")
    assert deliveries(queue.replies, "r") == []
    assert sequences(deliveries(changed(queue, status=ACTIVE), "r")) == [1, 2]


def test_what_is_on_its_way_elsewhere_goes_on() -> None:
    queue = QueueHarness()
    queue.ask(ask.Commit(by("t"), 1, [ask.TransferMessage("there", message("x"))]))
    changed(queue, status=DISABLED)
    (held,) = queue.receive(1, lane=TRANSFER, mode=FORWARD)
    assert queue.settle(COMPLETE, held) == ["settled"]


def test_another_lock_duration_takes_the_sessions_back(queue: QueueHarness) -> None:
    """R-L4."""
    queue.send("a0", "a1", session="a")
    queue.accept("a")
    (held,) = queue.take(1)
    queue.accept("idle", "other")
    changed(queue, lock_duration_ms=30_000)
    assert sorted(queue.lost()) == [("holder", SESSION_LOCK_LOST), ("other", SESSION_LOCK_LOST)]
    assert queue.settle(COMPLETE, held) == [SESSION_LOCK_LOST]
    assert queue.sessions() == ["a"]
    assert queue.accept("a", "next") == "a"
    again = queue.take(2, "next")
    assert queue.contents(again) == ["a0", "a1"]
    assert [each.delivery_count for each in again] == [0, 0]
    assert next_due(queue.partition) == queue.now + 30_000


def test_a_session_that_is_taken_back_goes_to_who_waits(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    assert queue.accept(None, "next") is None
    changed(queue, lock_duration_ms=30_000)
    assert queue.lost() == [("holder", SESSION_LOCK_LOST)]
    assert queue.accepted("next") == "a"


def test_another_lock_duration_leaves_alone_what_is_being_forwarded() -> None:
    queue = QueueHarness()
    queue.ask(ask.Commit(by("t"), 1, [ask.TransferMessage("there", message("x"))]))
    queue.send("a")
    relocated = queue.receive(1, lane=TRANSFER, mode=FORWARD) + queue.receive(1, "c", mode=FORWARD)
    changed(queue, lock_duration_ms=30_000)
    assert queue.settle(COMPLETE, *relocated) == ["settled", "settled"]


def test_dead_transfers_follow_the_lock_duration_of_their_entity() -> None:
    queue = QueueHarness(lock_duration_ms=60_000)
    queue.ask(
        ask.Commit(by("t"), 1, [ask.TransferMessage("there", message(each)) for each in "ab"])
    )
    queue.settle(DEAD_LETTER, *queue.receive(2, lane=TRANSFER, mode=FORWARD))
    (held,) = queue.receive(1, lane=TRANSFER_DEAD)
    changed(queue, lock_duration_ms=30_000)
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    assert len(queue.receive(2, lane=TRANSFER_DEAD)) == 2
    queue.tick(30_000)
    assert queue.count().transfer_dead_letter == 2
    assert len(queue.receive(2, lane=TRANSFER_DEAD)) == 2
