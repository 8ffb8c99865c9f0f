"""A queue's promises about settling and deferring, one by one."""

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
    RECEIVE_AND_DELETE,
    RELEASE,
)
from peeklock.entity.deliveries import STATE_DEFERRED, LockToken
from peeklock.entity.moves.settling import CHANGES_SIZE_MAX
from peeklock.entity.refusals import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
)
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, sequences, token


def test_complete_removes_and_says_so() -> None:
    """R-S3."""
    queue = QueueHarness()
    queue.send("a", "b")
    first, second = queue.receive(2)
    assert queue.settle(COMPLETE, first) == ["settled"]
    assert records.Removed(queue.now, MAIN, records.COMPLETED, [1]) in queue.records
    assert queue.numbers() == [2]
    assert queue.settle(COMPLETE, second) == ["settled"]
    assert queue.partition.live_count == 0


def test_many_completions_make_one_record() -> None:
    queue = QueueHarness()
    queue.send(*"abcd")
    held = queue.receive(4)
    assert queue.settle(COMPLETE, *held) == ["settled"] * 4
    assert records.Removed(queue.now, MAIN, records.COMPLETED, [1, 2, 3, 4]) in queue.records


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])
def test_a_lock_settles_once(outcome: int) -> None:
    """R-S8."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    assert queue.settle(outcome, held) == ["settled"]
    assert queue.settle(outcome, held) == [LOCK_LOST]
    assert queue.settle_all(outcome, held) == LOCK_LOST


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])
def test_a_token_presented_twice_at_once_settles_once(outcome: int) -> None:
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    assert queue.settle_all(outcome, held, held) == LOCK_LOST
    assert queue.settle(outcome, held, held) == ["settled", LOCK_LOST]


def test_a_token_is_good_only_whole() -> None:
    """R-S8: another chance, another number, another lane, an invented one."""
    queue = QueueHarness()
    queue.send("a", "b")
    held, other = queue.receive(2)
    wrong = [
        LockToken(held.sequence, held.number ^ 1),
        LockToken(other.sequence, held.number),
        LockToken(held.sequence, held.number | 1 << 48),
        LockToken(held.sequence, held.number | 0xFFFF << 48),
        LockToken(99, 99),
        LockToken(held.sequence, 0),
    ]
    for outcome in (COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE):
        assert queue.settle(outcome, *wrong) == [LOCK_LOST] * 6
        assert queue.settle_all(outcome, wrong[0]) == LOCK_LOST
    assert queue.renew(wrong[0]) == LOCK_LOST
    assert queue.settle(COMPLETE, held, other) == ["settled", "settled"]


def test_a_lock_number_takes_the_lane_from_its_upper_bits_whatever_is_random() -> None:
    """There are 64 random bits; they must not write over the lane, and 0 means no lock."""
    queue = QueueHarness()
    queue.numbers_drawn = -1  # the first random number is 0
    queue.send("a", "b")
    held = queue.receive(2)
    assert all(each.number >> 48 == MAIN and each.number for each in held)
    queue.settle(DEAD_LETTER, *held)
    dead = queue.receive(2, lane=DEAD)
    assert [each.number >> 48 for each in dead] == [DEAD, DEAD]
    assert queue.settle(COMPLETE, *dead) == ["settled", "settled"]


def test_abandon_puts_a_message_back_at_its_old_place_at_once() -> None:
    """R-S4."""
    queue = QueueHarness()
    queue.send("a", "b", "c")
    first, second = queue.receive(2)
    assert queue.settle(ABANDON, second) == ["settled"]
    assert queue.settle(ABANDON, first) == ["settled"]
    again = queue.receive(3)
    assert [(each.sequence, each.delivery_count) for each in again] == [(1, 1), (2, 1), (3, 0)]


def test_abandon_gives_a_new_lock_to_the_next_receiver_and_the_old_token_is_lost() -> None:
    """R-S4, R-S8."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.settle(ABANDON, held)
    again = queue.receive_one()
    assert again.number != held.number
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    assert queue.settle(COMPLETE, again) == ["settled"]


def test_release_puts_a_message_back_without_a_count() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    held = queue.receive(2)
    assert queue.settle(RELEASE, *held) == ["settled", "settled"]
    assert [(each.sequence, each.delivery_count) for each in queue.receive(2)] == [(1, 0), (2, 0)]


def test_dead_letter_moves_a_message_with_reason_description_and_properties() -> None:
    """R-S5."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    note = ("Bad", "It does not parse.")
    assert queue.settle(DEAD_LETTER, held, changes={"by": b"me"}, note=note) == ["settled"]
    assert queue.numbers() == []
    dead = queue.receive_one(lane=DEAD)
    assert (dead.sequence, dead.delivery_count, dead.enqueued_at) == (1, 0, held.enqueued_at)
    assert queue.content(dead) == "a"
    details = dead.details
    assert details is not None
    assert (details.reason, details.description) == ("Bad", "It does not parse.")
    assert details.changes == {"by": b"me"}


def test_dead_letter_without_a_word_has_neither_reason_nor_description() -> None:
    """R-S5."""
    queue = QueueHarness()
    queue.send("a")
    queue.settle(DEAD_LETTER, queue.receive_one())
    details = queue.dead()[0].details
    assert details is not None
    assert (details.reason, details.description) == (None, None)


def test_what_is_dead_lettered_cannot_be_dead_lettered_again() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    queue.settle(DEAD_LETTER, queue.receive_one())
    dead = queue.receive_one(lane=DEAD)
    living = queue.receive_one()
    # Each on its own: the one that may go, goes.
    assert queue.settle(DEAD_LETTER, dead, living) == [NOT_ALLOWED, "settled"]
    assert queue.settle_all(DEAD_LETTER, dead) == NOT_ALLOWED
    assert queue.settle(COMPLETE, dead) == ["settled"]
    assert queue.settle(DEAD_LETTER, dead) == [LOCK_LOST]


def test_the_dead_letter_queue_counts_no_deliveries_and_has_no_limit() -> None:
    """R-S7 ends there: what is dead-lettered stays."""
    queue = QueueHarness(delivery_count_max=2)
    queue.send("a")
    queue.settle(ABANDON, queue.receive_one())
    queue.settle(DEAD_LETTER, queue.receive_one())
    for _ in range(3):
        assert queue.receive_one(lane=DEAD).delivery_count == 1
        queue.tick(60_000)
        held = queue.receive_one(lane=DEAD)
        assert held.delivery_count == 1
        queue.settle(ABANDON, held)
    assert sequences(queue.dead()) == [1]


def test_changed_properties_are_merged_and_the_later_one_wins() -> None:
    queue = QueueHarness()
    (number,) = queue.send("a")
    queue.settle(ABANDON, queue.receive_one(), changes={"x": b"1", "y": b"1"})
    held = queue.receive_one()
    queue.settle(DEFER, held, changes={"y": b"2"})
    (held,) = queue.fetch(number)
    queue.settle(DEAD_LETTER, held, changes={"z": b"3"})
    details = queue.dead()[0].details
    assert details is not None
    assert details.changes == {"x": b"1", "y": b"2", "z": b"3"}


def test_a_delivery_on_its_way_does_not_change_any_more() -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.settle(ABANDON, queue.receive_one(), changes={"x": b"1"})
    held = queue.receive_one()
    seen = held.details
    queue.settle(DEAD_LETTER, held, changes={"x": b"2"}, note=("late", None))
    assert seen is not None
    assert (seen.changes, seen.reason) == ({"x": b"1"}, None)


def test_settling_together_is_all_or_none() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    first, second = queue.receive(2)
    assert queue.settle_all(COMPLETE, first, LockToken(7, 7)) == LOCK_LOST
    assert queue.numbers() == [1, 2]
    assert queue.settle_all(COMPLETE, second, first) == "settled"
    assert queue.numbers() == []


def test_settling_each_on_its_own_refuses_only_what_is_lost() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    first, second = queue.receive(2)
    fates = queue.settle(COMPLETE, LockToken(7, 7), first, LockToken(8, 8), second)
    assert fates == [LOCK_LOST, "settled", LOCK_LOST, "settled"]


def test_ten_abandons_end_in_the_dead_letter_queue() -> None:
    """R-S7."""
    queue = QueueHarness()
    queue.send("a")
    for count in range(10):
        held = queue.receive_one()
        assert held.delivery_count == count
        queue.settle(ABANDON, held, changes={"try": b"%d" % count})
    assert queue.numbers() == []
    (dead,) = queue.dead()
    details = dead.details
    assert (dead.sequence, dead.delivery_count) == (1, 10)
    assert details is not None
    assert details.reason == "MaxDeliveryCountExceeded"
    assert details.description == "Message could not be consumed after 10 delivery attempts."
    assert details.changes == {"try": b"9"}


def test_releases_do_not_count_towards_the_limit() -> None:
    """R-S7: an AMQP `released` does not count."""
    queue = QueueHarness(delivery_count_max=1)
    queue.send("a")
    for _ in range(20):
        queue.settle(RELEASE, queue.receive_one())
    assert queue.numbers() == [1]
    queue.settle(ABANDON, queue.receive_one())
    assert (queue.numbers(), sequences(queue.dead())) == ([], [1])


def test_dead_letters_are_received_in_the_order_of_their_numbers() -> None:
    queue = QueueHarness()
    queue.send("a", "b", "c")
    first, second, third = queue.receive(3)
    for held in (third, first, second):
        queue.settle(DEAD_LETTER, held)
    assert sequences(queue.receive(5, lane=DEAD)) == [1, 2, 3]


# Deferring.


def test_a_deferred_message_comes_only_by_its_number() -> None:
    """R-S6."""
    queue = QueueHarness()
    (number,) = queue.send("a")
    assert queue.settle(DEFER, queue.receive_one()) == ["settled"]
    assert queue.receive(5) == []
    assert [(each.sequence, each.state) for each in queue.peek()] == [(1, STATE_DEFERRED)]
    (held,) = queue.fetch(number)
    assert (held.delivery_count, held.state) == (1, STATE_DEFERRED)
    assert held.locked_until == queue.now + 60_000
    assert queue.content(held) == "a"
    assert queue.settle(COMPLETE, held) == ["settled"]
    assert queue.numbers() == []


def test_a_deferred_message_that_is_locked_is_not_found() -> None:
    """R-S6."""
    queue = QueueHarness()
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    queue.fetch(number)
    assert queue.fate(ask.ReceiveDeferred(by("me"), 1, MAIN, [number], 0)) == MESSAGE_NOT_FOUND


def test_one_number_that_is_not_deferred_refuses_the_whole_call() -> None:
    """R-S6."""
    queue = QueueHarness()
    queue.send("a", "b")
    queue.settle(DEFER, queue.receive_one())
    for wrong in (2, 3, 0):
        command = ask.ReceiveDeferred(by("me"), 1, MAIN, [1, wrong], 0)
        assert queue.fate(command) == MESSAGE_NOT_FOUND
    assert queue.fate(ask.ReceiveDeferred(by("me"), 1, DEAD, [1], 0)) == MESSAGE_NOT_FOUND
    assert queue.fetch() == []
    assert sequences(queue.fetch(1)) == [1]


@pytest.mark.parametrize("mode", [ask.PEEK_LOCK, RECEIVE_AND_DELETE])
def test_deferred_messages_that_are_too_much_for_one_answer_stay(mode: int) -> None:
    """All or none; the same number twice is one message, and one alone always comes."""
    queue = QueueHarness()
    queue.send("12345", "12345", "1")
    queue.settle(DEFER, *queue.receive(3))

    def fetch(*numbers: int, most: int = 10) -> ask.ReceiveDeferred:
        return ask.ReceiveDeferred(by("me"), 1, MAIN, list(numbers), mode, bytes_max=most)

    (reply,) = queue.ask(fetch(1, 2, 3))
    assert isinstance(reply, told.Refused)
    assert reply.refusal.kind == QUOTA_EXCEEDED
    assert "have 11 bytes" in reply.refusal.text
    assert "may have 10 together" in reply.refusal.text
    assert [each.state for each in queue.peek()] == [STATE_DEFERRED] * 3
    assert queue.fate(fetch(1, 1, most=5)) == "fine"
    assert queue.fate(fetch(2, 3, most=6)) == "fine"


def test_one_deferred_message_of_any_size_comes() -> None:
    queue = QueueHarness()
    queue.send("12345")
    queue.settle(DEFER, queue.receive_one())
    command = ask.ReceiveDeferred(by("me"), 1, MAIN, [1], RECEIVE_AND_DELETE, bytes_max=1)
    assert queue.fate(command) == "fine"
    assert queue.numbers() == []


def test_what_receivers_have_set_counts_as_bytes_of_the_answer() -> None:
    queue = QueueHarness()
    queue.send("1", "2")
    changes = {"note": b"\xa1\x05hello"}
    tokens = [token(each) for each in queue.receive(2)]
    queue.ask(ask.SettleMany(by("receiver"), [1, 2], ask.Settlement(DEFER, changes), tokens))
    command = ask.ReceiveDeferred(by("me"), 1, MAIN, [1, 2], 0, bytes_max=4)
    assert queue.fate(command) == QUOTA_EXCEEDED


def test_a_deferred_message_stays_deferred_when_its_lock_ends_without_success() -> None:
    """R-S6: abandon, defer and expiry count, release does not."""
    queue = QueueHarness()
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    counts = []
    for outcome in (ABANDON, DEFER, RELEASE):
        (held,) = queue.fetch(number)
        counts.append(held.delivery_count)
        queue.settle(outcome, held)
    (held,) = queue.fetch(number)
    counts.append(held.delivery_count)
    queue.tick(60_000)
    assert counts == [1, 2, 3, 3]
    assert [(each.state, each.delivery_count) for each in queue.peek()] == [(STATE_DEFERRED, 4)]
    assert queue.receive(5) == []


def test_a_deferred_message_is_dead_lettered_at_the_limit() -> None:
    """R-S7."""
    queue = QueueHarness(delivery_count_max=2)
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    queue.settle(ABANDON, *queue.fetch(number))
    assert [(each.sequence, each.delivery_count) for each in queue.dead()] == [(1, 2)]


def test_deferring_does_not_dead_letter_however_often_it_is_done() -> None:
    queue = QueueHarness(delivery_count_max=2)
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    for _ in range(3):
        queue.settle(DEFER, *queue.fetch(number))
    assert [(each.state, each.delivery_count) for each in queue.peek()] == [(STATE_DEFERRED, 4)]


def test_deferred_messages_can_be_received_and_deleted() -> None:
    """R-S6."""
    queue = QueueHarness()
    queue.send("a", "b")
    queue.settle(DEFER, *queue.receive(2))
    (got,) = queue.fetch(2, mode=RECEIVE_AND_DELETE)
    assert (got.sequence, got.number) == (2, 0)
    assert queue.numbers() == [1]


def test_deferring_works_in_the_dead_letter_queue() -> None:
    queue = QueueHarness()
    (number,) = queue.send("a")
    queue.settle(DEAD_LETTER, queue.receive_one())
    queue.settle(DEFER, queue.receive_one(lane=DEAD))
    assert queue.receive(1, lane=DEAD) == []
    (held,) = queue.fetch(number, lane=DEAD)
    assert held.delivery_count == 0
    assert queue.settle(COMPLETE, held) == ["settled"]
    assert queue.dead() == []


def test_the_properties_set_by_receivers_have_a_limit() -> None:
    """A dead letter is abandoned without being counted; it must not grow for ever."""
    queue = QueueHarness()
    queue.send("a", "b")
    queue.settle(DEAD_LETTER, *queue.receive(2))
    held, other = queue.receive(2, "dead", lane=DEAD)
    half = CHANGES_SIZE_MAX // 2 - 10
    assert queue.settle(ABANDON, held, changes={"x": bytes(half)}) == ["settled"]
    (held,) = queue.receive(1, "dead", lane=DEAD)
    more = {"y": bytes(half + 20)}
    assert queue.settle(ABANDON, held, other, changes=more) == [MESSAGE_TOO_BIG, "settled"]
    wish = ask.SettleAll(by("m"), 1, ask.Settlement(ABANDON, more), [token(held)])
    assert queue.fate(wish) == MESSAGE_TOO_BIG
    assert queue.fate(ask.Commit(by("m"), 1, [wish])) == MESSAGE_TOO_BIG
    # What is set anew takes the place of what was there.
    assert queue.settle(ABANDON, held, changes={"x": bytes(half + 20)}) == ["settled"]
