"""What the journal is told of deliveries and locks, and when: R-D4, R-D5."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD,
    DEAD_LETTER,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    RELEASE,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.refusals import LOCK_LOST, SESSION_LOCK_LOST
from peeklock.entity.upkeep.journal_facts import (
    NOT_COUNTED,
    RAN_OUT,
    RECEIVER_GONE,
    RECONFIGURED,
    RELEASED,
    RENEWAL,
    SESSION_CLOSED,
    SESSION_LOST,
    SESSION_RENEWED,
    SESSION_TAKEN_BACK,
    HandedTo,
    LocksReleased,
    LocksRenewed,
    SessionLockNoted,
    SettlementsFailed,
)
from peeklock.entity.upkeep.notebook import NOTES_DELAY_MS, NOTES_MAX
from tests.entity.journal_facts import next_due, notes
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, deliveries, token

WHO = "app/worker-1"
LOCK_MS = 60_000


def opened(
    queue: QueueHarness, credit: int, *, mode: int = PEEK_LOCK, lane: int = MAIN
) -> list[LockToken]:
    """A receiver with a name and some credit; answers the locks of what it got."""
    queue.ask(ask.OpenReceiver(by("r"), lane, mode, WHO), ask.Grant(by("r"), credit, True))
    return [token(each) for each in deliveries(queue.replies, "r")]


def test_a_delivery_is_told_with_its_instant_and_its_consumer() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    delivered_at = queue.now
    opened(queue, 2)
    assert queue.records == []
    queue.now += 300
    queue.send("c")
    assert notes(queue.records) == [HandedTo(delivered_at, MAIN, WHO, [1, 2], [])]


def test_a_delivery_to_a_waiting_receiver_is_told_with_the_send_itself() -> None:
    queue = QueueHarness()
    opened(queue, 0)
    queue.ask(ask.Grant(by("r"), 9, False))
    queue.send("a", "b")
    assert [type(each).__name__ for each in queue.records] == ["Enqueued", "HandedTo"]
    assert notes(queue.records) == [HandedTo(queue.now, MAIN, WHO, [1, 2], [])]


def test_a_second_delivery_tells_how_often_it_was_in_vain_before() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    held = opened(queue, 2)
    queue.settle(ABANDON, held[0])
    queue.ask(ask.Grant(by("r"), 3, True))
    queue.send("c")
    assert notes(queue.records) == [HandedTo(queue.now, MAIN, WHO, [1], [1])]


def test_deliveries_come_after_what_made_them_possible() -> None:
    """The message came back and went out again in one decision: that is the order in which the
    journal tells it."""
    queue = QueueHarness()
    queue.send("a")
    held = opened(queue, 1)
    queue.ask(ask.Grant(by("r"), 9, False))
    queue.settle(ABANDON, *held)
    told = [type(each).__name__ for each in queue.records]
    assert told == ["HandedTo", "Returned", "HandedTo"]


def test_what_is_received_and_deleted_is_delivered_first() -> None:
    queue = QueueHarness()
    queue.send("a")
    opened(queue, 1, mode=RECEIVE_AND_DELETE)
    assert [type(each).__name__ for each in queue.records] == ["HandedTo", "Removed"]
    assert notes(queue.records) == [HandedTo(queue.now, MAIN, WHO, [1], [])]


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_who_fetches_deferred_messages_is_told(mode: int) -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.settle(ask.DEFER, *opened(queue, 1))
    queue.ask(ask.ReceiveDeferred(by("m"), 1, MAIN, [1], mode, None, None, "app/$management"))
    queue.send("b")
    queue.tick(NOTES_DELAY_MS)
    told = [each for chunk in queue.journal.replay(0) for each in notes(list(chunk[1]))]
    assert told[-1] == HandedTo(queue.now - NOTES_DELAY_MS, MAIN, "app/$management", [1], [1])


def test_the_holder_of_a_session_is_told_with_its_deliveries() -> None:
    queue = QueueHarness(requires_session=True)
    queue.send("a", session="s")
    until = queue.now + 1_000
    queue.ask(ask.AcceptSession(by("r"), 1, MAIN, PEEK_LOCK, "s", until, WHO))
    queue.ask(ask.Grant(by("r"), 5, False))
    queue.send("b", session="s")
    assert notes(queue.records) == [
        HandedTo(queue.now, MAIN, WHO, [1], []),
        HandedTo(queue.now, MAIN, WHO, [2], []),
    ]


# When they are written.


def test_notes_wait_a_second_for_company_and_no_longer() -> None:
    queue = QueueHarness()
    queue.send("a")
    opened(queue, 1)
    delivered_at = queue.now
    assert queue.partition.next_deadline() == delivered_at + NOTES_DELAY_MS
    queue.tick(NOTES_DELAY_MS - 1)
    assert queue.records == []
    queue.tick(1)
    assert queue.records == [HandedTo(delivered_at, MAIN, WHO, [1], [])]
    assert queue.partition.next_deadline() == delivered_at + LOCK_MS


def test_many_notes_are_worth_a_write_of_their_own() -> None:
    queue = QueueHarness()
    queue.send(*("m" for _ in range(NOTES_MAX)))
    opened(queue, NOTES_MAX - 1)
    assert queue.records == []
    queue.ask(ask.Grant(by("r"), NOTES_MAX, False))
    assert {type(each) for each in queue.records} == {HandedTo}
    numbers = [each.sequences for each in queue.records if isinstance(each, HandedTo)]
    assert sum(map(len, numbers)) == NOTES_MAX


def test_notes_are_written_when_there_will_be_no_better_moment() -> None:
    queue = QueueHarness()
    queue.send("a")
    opened(queue, 1)
    queue.keep(queue.partition.last_words(queue.now))
    assert queue.records == [HandedTo(queue.now, MAIN, WHO, [1], [])]
    queue.keep(queue.partition.last_words(queue.now))
    assert queue.records == []


def test_a_replay_does_not_mind_them() -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a", "b")
    held = opened(queue, 2)
    queue.renew(held[0])
    queue.settle(RELEASE, held[1])
    queue.settle(COMPLETE, held[1])
    queue.tick(NOTES_DELAY_MS)
    assert len(queue.records) == 4
    queue.restart()
    assert queue.contents(queue.receive(2)) == ["a", "b"]


# What becomes of locks.


def told(queue: QueueHarness) -> list[object]:
    """The notes of what has happened since the deliveries, once they are written."""
    queue.tick(NOTES_DELAY_MS)
    return [each for each in notes(queue.records) if not isinstance(each, HandedTo)]


def test_a_renewal_is_told_in_the_name_of_the_holder() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    held = opened(queue, 2)
    assert queue.renew(*held) == "renewed"
    assert told(queue) == [LocksRenewed(queue.now - NOTES_DELAY_MS, MAIN, WHO, [1, 2])]


def test_a_renewal_of_a_fetched_message_is_told_in_the_name_of_who_asks() -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.settle(ask.DEFER, *opened(queue, 1))
    (held,) = queue.fetch(1)
    queue.ask(ask.RenewLocks(by("m"), 1, [token(held)], "app/$management"))
    assert told(queue) == [LocksRenewed(queue.now - NOTES_DELAY_MS, MAIN, "app/$management", [1])]


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEAD_LETTER])
def test_a_settlement_that_comes_too_late_is_told(outcome: int) -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    held = opened(queue, 1)
    queue.tick(LOCK_MS)
    queue.ask(ask.SettleMany(by("r"), [1], ask.Settlement(outcome), held, WHO))
    assert told(queue) == [SettlementsFailed(queue.now - NOTES_DELAY_MS, MAIN, outcome, WHO, [1])]


@pytest.mark.parametrize("kind", [ask.SettleMany, ask.SettleAll])
def test_a_transaction_that_comes_too_late_tells_who_settled(kind: type) -> None:
    queue = QueueHarness()
    queue.send("a")
    held = opened(queue, 1)
    queue.tick(LOCK_MS)
    tag = [1] if kind is ask.SettleMany else 1
    work = kind("r", tag, ask.Settlement(COMPLETE), held, WHO)
    assert queue.fate(ask.Commit(by("t"), 1, [work])) == LOCK_LOST
    assert told(queue) == [SettlementsFailed(queue.now - NOTES_DELAY_MS, MAIN, COMPLETE, WHO, [1])]


def test_of_a_call_for_several_only_the_lost_ones_are_told() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    held = opened(queue, 2)
    queue.settle(COMPLETE, held[0])
    assert queue.settle_all(COMPLETE, *held) == LOCK_LOST
    assert queue.renew(*held) == LOCK_LOST
    at = queue.now
    assert told(queue) == [
        SettlementsFailed(at, MAIN, COMPLETE, "", [1]),
        SettlementsFailed(at, MAIN, RENEWAL, "", [1]),
    ]


def test_tokens_that_never_were_are_nobodys_loss() -> None:
    queue = QueueHarness(index=3)
    queue.send("a")
    foreign = [LockToken(1, 7), LockToken((3 << 48) + 2, 7), LockToken((1 << 63) - 1, 7)]
    assert queue.settle(COMPLETE, *foreign) == [LOCK_LOST] * 3
    assert queue.settle(RELEASE, LockToken((3 << 48) + 1, 7)) == [LOCK_LOST]
    assert told(queue) == []
    assert next_due(queue.partition) == queue.partition.next_deadline() == 0


def test_a_release_is_told() -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.settle(RELEASE, *opened(queue, 1))
    assert told(queue) == [LocksReleased(queue.now - NOTES_DELAY_MS, MAIN, RELEASED, WHO, [1])]


def test_what_a_broken_connection_gives_back_is_told() -> None:
    queue = QueueHarness(unlock_on_disconnect=True)
    queue.send("a")
    opened(queue, 1)
    queue.ask(ask.CloseReceiver(by("r"), True))
    assert told(queue) == [LocksReleased(queue.now - NOTES_DELAY_MS, MAIN, RECEIVER_GONE, WHO, [1])]


def test_dead_letters_come_back_uncounted_and_are_told() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    queue.settle(DEAD_LETTER, *(token(each) for each in queue.receive(2)))
    held = opened(queue, 2, lane=DEAD)
    queue.settle(ABANDON, held[0])
    assert told(queue) == [LocksReleased(queue.now - NOTES_DELAY_MS, DEAD, NOT_COUNTED, WHO, [1])]
    queue.tick(LOCK_MS)
    assert told(queue) == [LocksReleased(queue.now - NOTES_DELAY_MS, DEAD, RAN_OUT, WHO, [2])]


# Sessions.


def with_session() -> tuple[QueueHarness, list[LockToken]]:
    queue = QueueHarness(requires_session=True)
    queue.send("a", session="s")
    queue.ask(ask.AcceptSession(by("r"), 1, MAIN, PEEK_LOCK, "s", queue.now, WHO))
    queue.ask(ask.Grant(by("r"), 1, True))
    return queue, [token(each) for each in deliveries(queue.replies, "r")]


def test_a_session_that_is_renewed_and_lost_is_told() -> None:
    queue, held = with_session()
    queue.ask(ask.RenewSession(by("m"), 1, MAIN, "s", None))
    assert told(queue) == [
        SessionLockNoted(queue.now - NOTES_DELAY_MS, MAIN, SESSION_RENEWED, WHO, "s")
    ]
    queue.tick(LOCK_MS)
    assert any(isinstance(each, records.Returned) for each in queue.records)
    assert notes(queue.records) == [SessionLockNoted(queue.now, MAIN, SESSION_LOST, WHO, "s")]
    assert queue.settle(COMPLETE, *held) == [SESSION_LOCK_LOST]


def test_a_session_that_is_lost_without_messages_is_told() -> None:
    queue, held = with_session()
    queue.settle(COMPLETE, *held)
    queue.tick(LOCK_MS)
    assert told(queue) == [
        SessionLockNoted(queue.now - NOTES_DELAY_MS, MAIN, SESSION_LOST, WHO, "s")
    ]


def test_a_session_that_is_let_go_is_told_by_its_messages() -> None:
    queue, _ = with_session()
    queue.ask(ask.CloseReceiver(by("r"), False))
    assert told(queue) == [
        LocksReleased(queue.now - NOTES_DELAY_MS, MAIN, SESSION_CLOSED, WHO, [1])
    ]


def test_a_change_of_the_lock_duration_is_told() -> None:
    queue, _ = with_session()
    queue.properties["lock_duration_ms"] = 30_000
    queue.ask(ask.Configure(queue.described()))
    at = queue.now
    assert told(queue) == [
        LocksReleased(at, MAIN, RECONFIGURED, WHO, [1]),
        SessionLockNoted(at, MAIN, SESSION_TAKEN_BACK, WHO, "s"),
    ]


def test_subscriptions_are_told_by_their_lanes() -> None:
    topic = TopicHarness("a", "b")
    topic.ask(ask.OpenReceiver(by("r"), 6, PEEK_LOCK, WHO), ask.Grant(by("r"), 5, False))
    topic.send("m")
    (note,) = notes(topic.records)
    assert isinstance(note, HandedTo)
    assert (note.lane, note.consumer, note.sequences) == (6, WHO, [2])
