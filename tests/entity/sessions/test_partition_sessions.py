"""Message sessions: who holds one, in which order its messages come, how they are settled."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD,
    DEAD_LETTER,
    DEFER,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    RELEASE,
)
from peeklock.entity.deliveries import STATE_DEFERRED, Delivery
from peeklock.entity.records import LOCK_EXPIRED
from peeklock.entity.refusals import (
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    SESSION_REQUIRED,
    TIMED_OUT,
)
from tests.entity.journal_facts import next_due
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries, message

LOCK_MS = 60_000


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(requires_session=True, is_retold=True)


def locked_until(queue: QueueHarness) -> int:
    (reply,) = [each for each in queue.replies if isinstance(each, told.SessionAccepted)]
    return reply.locked_until


def counts(found: list[Delivery]) -> list[int]:
    return [delivery.delivery_count for delivery in found]


# Accepting.


def test_a_session_is_accepted_by_its_name(queue: QueueHarness) -> None:
    queue.send("a1", "a2", session="a")
    queue.send("b1", session="b")
    assert queue.accept("b") == "b"
    assert locked_until(queue) == queue.now + LOCK_MS
    assert queue.contents(queue.take(9)) == ["b1"]


def test_a_named_session_can_be_accepted_before_it_has_messages(queue: QueueHarness) -> None:
    assert queue.accept("new") == "new"
    queue.ask(ask.Grant(by("holder"), 9, False))
    queue.send("first", session="new")
    assert queue.contents(deliveries(queue.replies, "holder")) == ["first"]


def test_the_next_session_is_the_one_with_the_oldest_message(queue: QueueHarness) -> None:
    queue.send("b1", session="b")
    queue.send("a1", session="a")
    queue.send("b2", session="b")
    assert [queue.accept(None, origin) for origin in ("one", "two", "three")] == ["b", "a", None]


def test_a_session_that_is_held_cannot_be_accepted_again(queue: QueueHarness) -> None:
    queue.send("a1", session="a")
    assert queue.accept("a", "one") == "a"
    assert queue.accept("a", "two") == SESSION_CANNOT_BE_LOCKED
    queue.ask(ask.CloseReceiver(by("one"), False))
    assert queue.accept("a", "two") == "a"


def test_a_lock_that_is_over_does_not_keep_others_out_until_the_timer(queue: QueueHarness) -> None:
    queue.send("a1", session="a")
    queue.accept("a", "one")
    queue.now += LOCK_MS
    assert queue.accept("a", "two") == "a"
    assert queue.lost() == [("one", SESSION_LOCK_LOST)]


def test_who_waits_is_served_when_a_message_arrives_the_first_first(queue: QueueHarness) -> None:
    assert queue.accept(None, "one") is None
    assert queue.accept(None, "two") is None
    queue.send("a1", session="a")
    assert (queue.accepted("one"), queue.accepted("two")) == ("a", None)
    queue.send("a2", session="a")
    assert queue.accepted("two") is None
    queue.send("b1", session="b")
    assert queue.accepted("two") == "b"


def test_who_waits_is_served_when_a_session_becomes_free(queue: QueueHarness) -> None:
    queue.send("a1", session="a")
    queue.accept("a", "one")
    assert queue.accept(None, "two") is None
    queue.ask(ask.CloseReceiver(by("one"), False))
    assert queue.accepted("two") == "a"


def test_who_waits_is_served_when_a_schedule_falls_due(queue: QueueHarness) -> None:
    queue.send("later", session="a", due=queue.now + 500)
    assert queue.accept(None, wait_ms=1_000) is None
    queue.tick(500)
    assert queue.accepted() == "a"
    assert queue.contents(queue.take()) == ["later"]


def test_who_waits_too_long_is_refused(queue: QueueHarness) -> None:
    assert queue.accept(None, wait_ms=1_000) is None
    assert next_due(queue.partition) == queue.now + 1_000
    queue.tick(999)
    assert queue.accepted() is None
    queue.tick(1)
    assert queue.accepted() == TIMED_OUT
    queue.send("a1", session="a")
    assert queue.replies == [told.SendsAccepted(by("sender"), [queue.tags])]
    assert next_due(queue.partition) == 0


def test_who_waits_and_goes_gets_nothing(queue: QueueHarness) -> None:
    queue.accept(None, "one")
    queue.ask(ask.CloseReceiver(by("one"), True))
    queue.send("a1", session="a")
    assert queue.accepted("one") is None
    assert queue.accept(None, "two") == "a"


def test_a_session_is_offered_once_however_often_it_gets_a_message(queue: QueueHarness) -> None:
    for content in "abcdef":
        queue.send(content, session="a")
    lane_sessions = queue.partition._state.lane(MAIN).sessions
    assert lane_sessions is not None
    assert len(lane_sessions._available) == 1
    assert queue.accept(None, "one") == "a"
    assert queue.accept(None, "two") is None


def test_a_session_returns_to_the_offers_under_its_oldest_message(queue: QueueHarness) -> None:
    queue.send("a1", session="a")
    queue.send("b1", session="b")
    queue.accept("a", "one")
    queue.send("a2", session="a")
    queue.settle(COMPLETE, *queue.take(1, "one"))
    queue.ask(ask.CloseReceiver(by("one"), False))
    assert queue.accept(None, "two") == "b"
    assert queue.accept(None, "three") == "a"


def test_the_empty_text_is_a_session(queue: QueueHarness) -> None:
    queue.send("nameless", session="")
    assert queue.accept(None, "one") == ""
    assert queue.accept("", "two") == SESSION_CANNOT_BE_LOCKED
    assert queue.contents(queue.take(9, "one")) == ["nameless"]
    assert queue.sessions() == [""]
    assert queue.set_state("", b"x", holder="one") == "fine"
    queue.restart()
    assert queue.accept("") == ""
    assert queue.state("") == b"x"


def test_a_queue_with_sessions_takes_no_message_without_one(queue: QueueHarness) -> None:
    assert queue.fate(ask.SendMany(by("s"), [1], [message("a")])) == SESSION_REQUIRED
    assert queue.fate(ask.SendBatch(by("s"), 1, [message("a", session="a"), message("b")])) == (
        SESSION_REQUIRED
    )
    assert queue.numbers() == []


def test_a_queue_without_sessions_gives_none_but_takes_the_id() -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a1", session="a")
    assert queue.accept("a") == NOT_ALLOWED
    assert queue.accept(None) == NOT_ALLOWED
    assert queue.fate(ask.ListSessions(by("m"), 7, MAIN, None, 0, 9)) == NOT_ALLOWED
    assert queue.contents(queue.receive(9)) == ["a1"]
    assert queue.journal.body(0).session_id == "a"


# Order.


def test_each_session_keeps_its_order_beside_another(queue: QueueHarness) -> None:
    for number in range(3):
        queue.send(f"a{number}", session="a")
        queue.send(f"b{number}", session="b")
    queue.accept("a", "one")
    queue.accept("b", "two")
    got: dict[str, list[str]] = {"one": [], "two": []}
    for _ in range(3):
        for origin, contents in got.items():
            held = queue.take(1, origin)
            contents += queue.contents(held)
            assert queue.settle(COMPLETE, *held) == ["settled"]
    assert got == {"one": ["a0", "a1", "a2"], "two": ["b0", "b1", "b2"]}
    assert queue.numbers() == []


def test_what_is_abandoned_comes_before_what_is_newer(queue: QueueHarness) -> None:
    queue.send("a0", "a1", "a2", session="a")
    queue.accept("a")
    first, second = queue.take(2)
    queue.settle(ABANDON, second)
    queue.settle(ABANDON, first)
    again = queue.take(9)
    assert queue.contents(again) == ["a0", "a1", "a2"]
    assert counts(again) == [1, 1, 0]


def test_closing_returns_what_was_held_in_order_and_uncounted(queue: QueueHarness) -> None:
    queue.send("a0", "a1", "a2", "a3", session="a")
    queue.accept("a", "one")
    queue.settle(COMPLETE, queue.take(3, "one")[1])
    queue.ask(ask.CloseReceiver(by("one"), False))
    queue.accept("a", "two")
    again = queue.take(9, "two")
    assert queue.contents(again) == ["a0", "a2", "a3"]
    assert counts(again) == [0, 0, 0]


def test_a_broken_connection_frees_the_session_too(queue: QueueHarness) -> None:
    """The token of a plain message outlives its connection, a session does not."""
    queue.send("a0", session="a")
    queue.accept("a", "one")
    held = queue.take(1, "one")
    queue.ask(ask.CloseReceiver(by("one"), True))
    assert queue.settle(COMPLETE, *held) == [SESSION_LOCK_LOST]
    assert queue.settle_all(COMPLETE, *held) == SESSION_LOCK_LOST
    assert queue.accept(None, "two") == "a"


def test_receive_and_delete_works_within_a_session(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.accept("a", mode=RECEIVE_AND_DELETE)
    assert queue.contents(queue.take(1)) == ["a0"]
    queue.ask(ask.CloseReceiver(by("holder"), False))
    assert queue.contents(queue.peek()) == ["a1"]


def test_a_session_without_messages_state_and_holder_is_forgotten(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    queue.settle(COMPLETE, *queue.take())
    queue.ask(ask.CloseReceiver(by("holder"), False))
    lane_sessions = queue.partition._state.lane(MAIN).sessions
    assert lane_sessions is not None
    assert not lane_sessions.by_id


# Locks.


def test_who_receives_and_deletes_is_cut_off_when_another_one_wants_the_session(
    queue: QueueHarness,
) -> None:
    """No client renews for it, and it has nothing that could be lost."""
    queue.send("a0", session="a")
    queue.accept("a", mode=RECEIVE_AND_DELETE)
    queue.granted["holder"] += 5
    queue.ask(ask.Grant(by("holder"), 5, False))
    queue.tick(LOCK_MS)
    assert queue.lost() == []
    queue.send("a1", session="a")
    assert queue.contents(deliveries(queue.replies, "holder")) == ["a1"]
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "a", by("holder"))) == SESSION_LOCK_LOST
    assert next_due(queue.partition) == queue.now + LOCK_MS
    queue.tick(5 * LOCK_MS)
    assert queue.lost() == []
    assert queue.accept("a", "other") == "a"
    assert queue.lost() == [("holder", SESSION_LOCK_LOST)]


def test_who_receives_and_deletes_without_credit_loses_the_session(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.accept("a", mode=RECEIVE_AND_DELETE)
    queue.ask(ask.Grant(by("holder"), 3, False))
    queue.tick(LOCK_MS)
    assert queue.lost() == []
    queue.send("a2", "a3", session="a")
    queue.tick(LOCK_MS)
    assert queue.lost() == [("holder", SESSION_LOCK_LOST)]
    assert queue.accept("a", "other") == "a"
    assert queue.contents(queue.take(9, "other")) == ["a3"]


def test_what_is_deleted_at_once_tells_the_end_of_its_session_too(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.accept("a", mode=RECEIVE_AND_DELETE)
    (taken,) = queue.take(1)
    assert (taken.number, taken.locked_until) == (0, queue.now + LOCK_MS)
    queue.ask(ask.CloseReceiver(by("holder"), False))
    queue.accept("a")
    queue.settle(DEFER, queue.take(1)[0])
    queue.ask(ask.ReceiveDeferred(by("m"), 7, MAIN, [2], RECEIVE_AND_DELETE, "a"))
    (found,) = queue.found()
    assert (found.number, found.locked_until) == (0, queue.now + LOCK_MS)


def test_a_lock_that_expires_counts_the_deliveries_and_tells_the_holder(
    queue: QueueHarness,
) -> None:
    queue.send("a0", "a1", "a2", session="a")
    queue.accept("a")
    held = queue.take(2)
    assert [delivery.locked_until for delivery in held] == [queue.now + LOCK_MS] * 2
    assert next_due(queue.partition) == queue.now + LOCK_MS
    queue.tick(LOCK_MS - 1)
    assert queue.lost() == []
    queue.tick(1)
    assert queue.lost() == [("holder", SESSION_LOCK_LOST)]
    (returned,) = [each for each in queue.records if isinstance(each, records.Returned)]
    assert (returned.why, returned.sequences, returned.counts) == (LOCK_EXPIRED, [1, 2], [1, 1])
    assert queue.settle(COMPLETE, *held) == [SESSION_LOCK_LOST] * 2
    queue.accept("a", "two")
    assert counts(queue.take(9, "two")) == [1, 1, 0]


def test_a_settlement_fails_from_the_end_of_the_lock_on(queue: QueueHarness) -> None:
    """R-S8: whether or not the timer has fired."""
    queue.send("a0", session="a")
    queue.accept("a")
    held = queue.take()
    queue.now += LOCK_MS
    assert queue.settle(COMPLETE, *held) == [SESSION_LOCK_LOST]
    assert queue.set_state("a", b"late") == SESSION_LOCK_LOST
    assert queue.fate(ask.GetSessionState(by("m"), 7, MAIN, "a", by("holder"))) == SESSION_LOCK_LOST
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "a", by("holder"))) == SESSION_LOCK_LOST


def test_a_session_lost_too_often_dead_letters_what_was_held() -> None:
    queue = QueueHarness(requires_session=True, is_retold=True, delivery_count_max=2)
    queue.send("a0", "a1", session="a")
    for _ in range(2):
        assert queue.accept("a") == "a"
        assert queue.contents(queue.take(1)) == ["a0"]
        queue.tick(LOCK_MS)
    assert queue.contents(queue.dead()) == ["a0"]
    assert queue.contents(queue.peek()) == ["a1"]


def test_renewing_gives_a_whole_duration_to_the_session_only(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    (held,) = queue.take()
    queue.now += 50_000
    (reply,) = queue.ask(ask.RenewSession(by("m"), 7, MAIN, "a", by("holder")))
    assert reply == told.Numbered(by("m"), 7, [queue.now + LOCK_MS])
    assert queue.renew(held) == NOT_ALLOWED
    queue.tick(LOCK_MS - 1)
    assert queue.settle(COMPLETE, held) == ["settled"]
    queue.tick(1)
    assert queue.lost() == [("holder", SESSION_LOCK_LOST)]


def test_only_the_holder_renews_and_reads(queue: QueueHarness) -> None:
    queue.accept("a", "one")
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "a", by("two"))) == SESSION_LOCK_LOST
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "a", by("one"))) == "fine"
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "a", None)) == "fine"
    assert queue.fate(ask.RenewSession(by("m"), 7, MAIN, "b", None)) == SESSION_LOCK_LOST
    assert queue.set_state("a", b"x", holder="two") == SESSION_LOCK_LOST


def test_a_restart_frees_every_session_uncounted(queue: QueueHarness) -> None:
    """R-L4."""
    queue.send("a0", "a1", session="a")
    queue.accept("a")
    held = queue.take(1)
    queue.restart()
    assert queue.settle(COMPLETE, *held) == [SESSION_LOCK_LOST]
    assert queue.accept(None, "two") == "a"
    assert counts(queue.take(9, "two")) == [0, 0]


def test_a_lock_that_lasts_until_its_message_is_forwarded_has_no_deadline() -> None:
    """Neither does it keep the deadlines of others from being seen."""
    queue = QueueHarness(is_retold=True)
    queue.send("one", "two", "three")
    queue.receive(1, "forwarder", mode=ask.FORWARD)
    assert next_due(queue.partition) == 0
    queue.receive(1, "receiver")
    assert next_due(queue.partition) == queue.now + LOCK_MS
    queue.receive(1, "forwarder", mode=ask.FORWARD)
    queue.tick(LOCK_MS)
    assert counts(queue.peek()) == [0, 1, 0]
    assert next_due(queue.partition) == 0
    queue.receive(1, "receiver")
    assert next_due(queue.partition) == queue.now + LOCK_MS


# Settling.


def test_every_outcome_works_within_a_session(queue: QueueHarness) -> None:
    queue.send("a0", "a1", "a2", "a3", session="a")
    queue.accept("a")
    done, set_aside, dead, back = queue.take(4)
    assert queue.settle(COMPLETE, done) == ["settled"]
    assert queue.settle(DEFER, set_aside) == ["settled"]
    note = ("why", "because")
    assert queue.settle(DEAD_LETTER, dead, note=note) == ["settled"]
    assert queue.settle(RELEASE, back) == ["settled"]
    assert queue.contents(queue.peek()) == ["a1", "a3"]
    assert queue.contents(queue.dead()) == ["a2"]
    # The dead letters have no sessions: anybody may receive them.
    assert queue.contents(queue.receive(9, lane=DEAD)) == ["a2"]
    queue.restart()
    assert queue.contents(queue.receive(9, lane=DEAD)) == ["a2"]


def test_deferred_messages_of_a_session_need_its_lock(queue: QueueHarness) -> None:
    queue.send("a0", "a1", session="a")
    queue.accept("a")
    queue.settle(DEFER, queue.take(1)[0])
    fetch = ask.ReceiveDeferred(by("m"), 7, MAIN, [1], PEEK_LOCK, "a")
    assert queue.fate(ask.ReceiveDeferred(by("m"), 7, MAIN, [1], PEEK_LOCK)) == SESSION_LOCK_LOST
    assert (
        queue.fate(ask.ReceiveDeferred(by("m"), 7, MAIN, [1], PEEK_LOCK, "b")) == SESSION_LOCK_LOST
    )
    assert (
        queue.fate(ask.ReceiveDeferred(by("m"), 7, MAIN, [2], PEEK_LOCK, "a")) == MESSAGE_NOT_FOUND
    )
    queue.ask(fetch)
    (held,) = queue.found()
    until = queue.now + LOCK_MS
    assert (held.locked_until, held.state, held.delivery_count) == (until, STATE_DEFERRED, 1)
    queue.ask(ask.CloseReceiver(by("holder"), False))
    assert queue.settle(COMPLETE, held) == [SESSION_LOCK_LOST]
    assert queue.fate(fetch) == SESSION_LOCK_LOST
    # It is deferred still, not ready.
    queue.accept("a", "two")
    assert queue.contents(queue.take(9, "two")) == ["a1"]
    queue.ask(fetch)
    assert queue.settle(COMPLETE, *queue.found()) == ["settled"]


def test_a_deferred_message_that_is_lost_with_its_session_stays_deferred(
    queue: QueueHarness,
) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    queue.settle(DEFER, *queue.take(1))
    queue.ask(ask.ReceiveDeferred(by("m"), 7, MAIN, [1], PEEK_LOCK, "a"))
    queue.tick(LOCK_MS)
    (left,) = queue.peek()
    assert (left.state, left.delivery_count) == (STATE_DEFERRED, 2)
    assert queue.accept(None, "two") is None  # there is nothing to give in turn
    assert queue.sessions() == ["a"]


def test_an_end_of_life_within_a_session() -> None:
    queue = QueueHarness(requires_session=True, is_retold=True, dead_letter_on_expiration=True)
    queue.send("brief", session="a", life_ms=1_000)
    queue.send("held", session="b", life_ms=1_000)
    queue.accept("b")
    queue.take(1)
    queue.tick(1_000)
    assert queue.contents(queue.dead()) == ["brief"]
    assert queue.sessions() == ["b"]
    queue.ask(ask.CloseReceiver(by("holder"), False))
    assert queue.contents(queue.dead()) == ["brief", "held"]
    assert queue.sessions() == []


def test_a_lock_of_before_a_restart_is_lost_with_its_session(queue: QueueHarness) -> None:
    """Also where nothing is left in the lane, which then is not there yet."""
    queue.send("a0", session="a")
    queue.accept("a")
    (held,) = queue.take(1)
    queue.ask(
        ask.CloseReceiver(by("holder"), False), ask.DeleteMany(by("m"), 7, MAIN, 1, queue.now + 1)
    )
    queue.restart()
    assert queue.settle(COMPLETE, held) == [SESSION_LOCK_LOST]
    assert queue.settle(ABANDON, held) == [SESSION_LOCK_LOST]


def test_those_who_gave_up_are_forgotten_however_long_they_would_have_waited() -> None:
    queue = QueueHarness(requires_session=True)
    lane_sessions = queue.partition._state.lane(MAIN).sessions
    assert lane_sessions is not None
    for number in range(2_000):
        queue.accept(None, f"w{number}", wait_ms=1 << 32)
        queue.ask(ask.CloseReceiver(by(f"w{number}"), False))
    assert not lane_sessions.waiting
    assert len(lane_sessions._waits) < 500
    assert next_due(queue.partition) == 0


def test_waits_end_in_their_time_whoever_came_first() -> None:
    queue = QueueHarness(requires_session=True)
    for name, wait_ms in (("long", 9_000), ("short", 1_000), ("middle", 5_000)):
        assert queue.accept(None, name, wait_ms=wait_ms) is None
    assert next_due(queue.partition) == queue.now + 1_000
    queue.tick(5_000)
    assert (queue.accepted("short"), queue.accepted("middle")) == (TIMED_OUT, TIMED_OUT)
    assert queue.accepted("long") is None
    queue.send("x", session="a")
    assert queue.accepted("long") == "a"
