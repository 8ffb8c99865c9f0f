"""A queue's promises about sending, handing out and settling, one by one."""

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
    DeadLetterNote,
    LockToken,
)
from peeklock.entity.definition import (
    ACTIVE,
    DISABLED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    QueueDefinition,
)
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
)
from peeklock.entity.replies import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED
from tests.entity.at_hand import EVERYTHING, AtHand, deliveries, message, sequences, token

# Sending.


def test_numbers_start_at_one_and_rise_by_one() -> None:
    queue = AtHand()
    assert queue.send("a", "b", "c") == [1, 2, 3]
    assert queue.send("d") == [4]


def test_the_upper_16_bits_of_a_number_name_the_partition() -> None:
    queue = AtHand(index=5)
    assert queue.send("a", "b") == [(5 << 48) + 1, (5 << 48) + 2]


def test_a_send_is_answered_with_its_own_tags_and_one_record_holds_the_run() -> None:
    """R-T1."""
    queue = AtHand()
    messages = [message("a"), message("b")]
    assert queue.ask(ask.SendMany("me", [40, 41], messages)) == [told.Accepted("me", [40, 41])]
    assert queue.records == [records.Enqueued(queue.now, 1, messages)]


def test_of_several_sends_only_the_one_that_is_too_big_is_refused() -> None:
    """R-T2."""
    queue = AtHand(message_size_max=10)
    messages = [message("a" * 10), message("b" * 11), message("c")]
    replies = queue.ask(ask.SendMany("me", [1, 2, 3], messages))
    accepted = [each for each in replies if isinstance(each, told.Accepted)]
    refused = [each for each in replies if isinstance(each, told.Refused)]
    assert [each.tags for each in accepted] == [[1, 3]]
    assert [(each.tags, each.refusal.kind) for each in refused] == [([2], MESSAGE_TOO_BIG)]
    assert queue.numbers() == [1, 2]


def test_a_batch_is_stored_all_or_none() -> None:
    """R-T5."""
    queue = AtHand(message_size_max=10)
    assert queue.fate(ask.SendBatch("me", 1, [message("a"), message("b" * 11)])) == MESSAGE_TOO_BIG
    assert queue.records == []
    assert queue.numbers() == []
    assert queue.ask(ask.SendBatch("me", 2, [message("a"), message("b")])) == [
        told.Accepted("me", [2])
    ]
    assert queue.numbers() == [1, 2]


def test_an_empty_batch_is_accepted_and_stores_nothing() -> None:
    queue = AtHand()
    assert queue.ask(ask.SendBatch("me", 1, [])) == [told.Accepted("me", [1])]
    assert queue.records == []


@pytest.mark.parametrize("status", [SEND_DISABLED, DISABLED])
def test_a_queue_that_is_disabled_for_sending_takes_nothing(status: str) -> None:
    queue = AtHand(status=status)
    commands: list[ask.Command] = [
        ask.SendMany("me", [1], [message("a")]),
        ask.SendBatch("me", 1, [message("a")]),
        ask.Schedule("me", 1, [message("a", due=queue.now + 1)]),
    ]
    assert [queue.fate(command) for command in commands] == [ENTITY_DISABLED] * 3
    assert queue.partition.live_count == 0


# Receiving.


def test_messages_come_in_the_order_of_their_numbers() -> None:
    queue = AtHand()
    queue.send("a", "b", "c")
    assert queue.contents(queue.receive(2)) == ["a", "b"]
    assert queue.contents(queue.receive(2)) == ["c"]


def test_a_long_line_keeps_its_order_while_it_is_handed_out_and_given_back() -> None:
    """R-S2, R-S4."""
    queue = AtHand()
    for start in range(0, 12_000, 1_000):
        queue.send(*(str(number) for number in range(start, start + 1_000)))
    for _ in range(9):
        held = queue.receive(1_000)
        queue.settle(RELEASE, *held[::2])
        queue.settle(COMPLETE, *held[1::2])
    left = queue.numbers()
    assert left == sorted(left)
    assert len(left) == 7_500
    assert sequences(queue.receive(7_500)) == left
    assert sequences(queue.peek(start=left[5_000], count=3)) == left[5_000:5_003]


def test_a_receiver_without_credit_gets_nothing_and_a_waiting_one_gets_what_comes() -> None:
    queue = AtHand()
    queue.open("early")
    assert deliveries(queue.ask(ask.SendMany("me", [1], [message("a")])), "early") == []
    assert len(deliveries(queue.ask(ask.Grant("early", 2, False)), "early")) == 1
    assert len(deliveries(queue.ask(ask.SendMany("me", [2], [message("b")])), "early")) == 1
    assert deliveries(queue.ask(ask.SendMany("me", [3], [message("c")])), "early") == []


def test_credit_is_a_limit_since_the_receiver_was_opened() -> None:
    """A repeated grant of the same limit gives nothing new: no race with what is on its way."""
    queue = AtHand()
    queue.open("r", credit=2)
    queue.send("a", "b", "c", "d")
    assert deliveries(queue.ask(ask.Grant("r", 2, False)), "r") == []
    assert len(deliveries(queue.ask(ask.Grant("r", 3, False)), "r")) == 1
    assert deliveries(queue.ask(ask.Grant("r", 1, False)), "r") == []


def test_a_drain_delivers_what_is_there_and_gives_the_rest_back() -> None:
    queue = AtHand()
    queue.send("a")
    queue.open("r")
    replies = queue.ask(ask.Grant("r", 10, True))
    assert sequences(deliveries(replies, "r")) == [1]
    assert replies[-1] == told.Drained("r")
    assert deliveries(queue.ask(ask.SendMany("me", [1], [message("b")])), "r") == []
    assert sequences(deliveries(queue.ask(ask.Grant("r", 11, False)), "r")) == [2]


def test_a_drain_of_an_empty_queue_is_answered() -> None:
    queue = AtHand()
    queue.open("r")
    assert queue.ask(ask.Grant("r", 3, True)) == [told.Drained("r")]


def test_a_receiver_that_drains_and_closes_at_once_is_not_answered() -> None:
    queue = AtHand()
    queue.open("r")
    assert queue.ask(ask.Grant("r", 5, True), ask.CloseReceiver("r", False)) == []


def test_competing_receivers_get_different_messages_and_share_in_turns() -> None:
    """R-S2."""
    queue = AtHand()
    for name in "abc":
        queue.open(name, credit=100)
    queue.send(*(str(number) for number in range(90)))
    # All 90 went out in the decision of the send.
    got = {name: sequences(deliveries(queue.replies, name)) for name in "abc"}
    assert sorted(got["a"] + got["b"] + got["c"]) == list(range(1, 91))
    assert [len(each) for each in got.values()] == [30, 30, 30]
    assert all(each == sorted(each) for each in got.values())


def test_single_messages_go_to_the_receivers_in_turn() -> None:
    """R-S2."""
    queue = AtHand()
    for name in "abc":
        queue.open(name, credit=10)
    got: list[str] = []
    for number in range(6):
        queue.send(str(number))
        got += [each.origin for each in queue.replies if isinstance(each, told.Delivered)]
    assert sorted(got[:3]) == sorted(got[3:]) == ["a", "b", "c"]


def test_a_locked_message_is_nobody_elses() -> None:
    """R-S2."""
    queue = AtHand()
    queue.send("a")
    assert len(queue.receive(1, "one")) == 1
    assert queue.receive(1, "two") == []


def test_receive_and_delete_hands_out_once_and_for_good() -> None:
    """R-S1."""
    queue = AtHand()
    queue.send("a", "b")
    (got,) = queue.receive(1, mode=RECEIVE_AND_DELETE)
    assert (got.lock_number, got.locked_until) == (0, 0)
    assert records.Removed(queue.now, MAIN, records.DELETED, [1]) in queue.records
    assert queue.numbers() == [2]
    queue.tick(600_000)
    assert queue.numbers() == [2]
    queue.restart()
    assert queue.numbers() == [2]


def test_a_closed_receiver_gets_nothing_more() -> None:
    queue = AtHand()
    queue.open("r", credit=10)
    queue.ask(ask.CloseReceiver("r", False))
    queue.send("a")
    assert deliveries(queue.replies, "r") == []
    assert queue.ask(ask.Grant("r", 20, True)) == []


def test_the_locks_of_a_broken_connection_stay_until_they_expire() -> None:
    """R-S8: the token stays good, because clients settle by it after a reconnect."""
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    queue.close(broken=True)
    assert queue.receive(1, "other") == []
    assert queue.settle(COMPLETE, held) == ["settled"]


@pytest.mark.parametrize("broken", [True, False])
def test_a_queue_may_ask_for_its_locks_back_when_a_connection_breaks(broken: bool) -> None:
    """R-S8: the option restores what the articles say; an orderly close keeps the locks."""
    queue = AtHand(unlock_on_disconnect=True)
    queue.send("a", "b")
    held = queue.receive_one()
    (kept,) = queue.receive(1, "other")
    queue.close(broken=broken)
    again = queue.receive(2, "third")
    assert [(each.sequence, each.delivery_count) for each in again] == ([(1, 0)] if broken else [])
    assert queue.settle(COMPLETE, held) == [LOCK_LOST if broken else "settled"]
    assert queue.settle(COMPLETE, kept) == ["settled"]


@pytest.mark.parametrize("status", [RECEIVE_DISABLED, DISABLED])
def test_a_queue_that_is_disabled_for_receiving_hands_nothing_out(status: str) -> None:
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    queue.open("r", credit=5)
    queue.ask(ask.Configure(QueueDefinition("orders", status=status)))
    queue.tick(60_000)
    assert deliveries(queue.replies, "r") == []
    assert queue.settle(COMPLETE, held) == [ENTITY_DISABLED]
    assert queue.fate(ask.Peek("me", 1, MAIN, 0, 1, 1)) == ENTITY_DISABLED
    assert queue.fate(ask.ReceiveDeferred("me", 1, MAIN, [1], 0)) == ENTITY_DISABLED
    # Enabled again, the credit that was given is still good.
    replies = queue.ask(ask.Configure(QueueDefinition("orders", status=ACTIVE)))
    assert sequences(deliveries(replies, "r")) == [1]


# Settling.


def test_complete_removes_and_says_so() -> None:
    """R-S3."""
    queue = AtHand()
    queue.send("a", "b")
    first, second = queue.receive(2)
    assert queue.settle(COMPLETE, first) == ["settled"]
    assert records.Removed(queue.now, MAIN, records.COMPLETED, [1]) in queue.records
    assert queue.numbers() == [2]
    assert queue.settle(COMPLETE, second) == ["settled"]
    assert queue.partition.live_count == 0


def test_many_completions_make_one_record() -> None:
    queue = AtHand()
    queue.send(*"abcd")
    held = queue.receive(4)
    assert queue.settle(COMPLETE, *held) == ["settled"] * 4
    assert records.Removed(queue.now, MAIN, records.COMPLETED, [1, 2, 3, 4]) in queue.records


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])
def test_a_lock_settles_once(outcome: int) -> None:
    """R-S8."""
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    assert queue.settle(outcome, held) == ["settled"]
    assert queue.settle(outcome, held) == [LOCK_LOST]
    assert queue.settle_all(outcome, held) == LOCK_LOST


@pytest.mark.parametrize("outcome", [COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])
def test_a_token_presented_twice_at_once_settles_once(outcome: int) -> None:
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    assert queue.settle_all(outcome, held, held) == LOCK_LOST
    assert queue.settle(outcome, held, held) == ["settled", LOCK_LOST]


def test_a_token_is_good_only_whole() -> None:
    """R-S8: another chance, another number, another lane, an invented one."""
    queue = AtHand()
    queue.send("a", "b")
    held, other = queue.receive(2)
    wrong = [
        LockToken(held.sequence, held.lock_number ^ 1),
        LockToken(other.sequence, held.lock_number),
        LockToken(held.sequence, held.lock_number | 1 << 48),
        LockToken(held.sequence, held.lock_number | 0xFFFF << 48),
        LockToken(99, 99),
        LockToken(held.sequence, 0),
    ]
    for outcome in (COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE):
        assert queue.settle(outcome, *wrong) == [LOCK_LOST] * 6
        assert queue.settle_all(outcome, wrong[0]) == LOCK_LOST
    assert queue.renew(wrong[0]) == LOCK_LOST
    assert queue.settle(COMPLETE, held, other) == ["settled", "settled"]


def test_a_lock_number_takes_the_lane_from_its_upper_bits_whatever_chance_says() -> None:
    """Chance brings 64 bits; it must not write over the lane, and 0 means no lock."""
    queue = AtHand()
    queue.chances = -1  # the first chance is 0
    queue.send("a", "b")
    held = queue.receive(2)
    assert all(each.lock_number >> 48 == MAIN and each.lock_number for each in held)
    queue.settle(DEAD_LETTER, *held)
    dead = queue.receive(2, lane=DEAD)
    assert [each.lock_number >> 48 for each in dead] == [DEAD, DEAD]
    assert queue.settle(COMPLETE, *dead) == ["settled", "settled"]


def test_abandon_puts_a_message_back_at_its_old_place_at_once() -> None:
    """R-S4."""
    queue = AtHand()
    queue.send("a", "b", "c")
    first, second = queue.receive(2)
    assert queue.settle(ABANDON, second) == ["settled"]
    assert queue.settle(ABANDON, first) == ["settled"]
    again = queue.receive(3)
    assert [(each.sequence, each.delivery_count) for each in again] == [(1, 1), (2, 1), (3, 0)]


def test_abandon_gives_a_new_lock_to_the_next_receiver_and_the_old_token_is_lost() -> None:
    """R-S4, R-S8."""
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    queue.settle(ABANDON, held)
    again = queue.receive_one()
    assert again.lock_number != held.lock_number
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    assert queue.settle(COMPLETE, again) == ["settled"]


def test_release_puts_a_message_back_without_a_count() -> None:
    queue = AtHand()
    queue.send("a", "b")
    held = queue.receive(2)
    assert queue.settle(RELEASE, *held) == ["settled", "settled"]
    assert [(each.sequence, each.delivery_count) for each in queue.receive(2)] == [(1, 0), (2, 0)]


def test_dead_letter_moves_a_message_with_reason_description_and_properties() -> None:
    """R-S5."""
    queue = AtHand()
    queue.send("a")
    held = queue.receive_one()
    note = DeadLetterNote("Bad", "It does not parse.")
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
    queue = AtHand()
    queue.send("a")
    queue.settle(DEAD_LETTER, queue.receive_one())
    details = queue.dead()[0].details
    assert details is not None
    assert (details.reason, details.description) == (None, None)


def test_what_is_dead_lettered_cannot_be_dead_lettered_again() -> None:
    queue = AtHand()
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
    queue = AtHand(delivery_count_max=2)
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
    queue = AtHand()
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
    queue = AtHand()
    queue.send("a")
    queue.settle(ABANDON, queue.receive_one(), changes={"x": b"1"})
    held = queue.receive_one()
    seen = held.details
    queue.settle(DEAD_LETTER, held, changes={"x": b"2"}, note=DeadLetterNote("late", None))
    assert seen is not None
    assert (seen.changes, seen.reason) == ({"x": b"1"}, None)


def test_settling_together_is_all_or_none() -> None:
    queue = AtHand()
    queue.send("a", "b")
    first, second = queue.receive(2)
    assert queue.settle_all(COMPLETE, first, LockToken(7, 7)) == LOCK_LOST
    assert queue.numbers() == [1, 2]
    assert queue.settle_all(COMPLETE, second, first) == "settled"
    assert queue.numbers() == []


def test_settling_each_on_its_own_refuses_only_what_is_lost() -> None:
    queue = AtHand()
    queue.send("a", "b")
    first, second = queue.receive(2)
    fates = queue.settle(COMPLETE, LockToken(7, 7), first, LockToken(8, 8), second)
    assert fates == [LOCK_LOST, "settled", LOCK_LOST, "settled"]


def test_ten_abandons_end_in_the_dead_letter_queue() -> None:
    """R-S7."""
    queue = AtHand()
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
    queue = AtHand(delivery_count_max=1)
    queue.send("a")
    for _ in range(20):
        queue.settle(RELEASE, queue.receive_one())
    assert queue.numbers() == [1]
    queue.settle(ABANDON, queue.receive_one())
    assert (queue.numbers(), sequences(queue.dead())) == ([], [1])


def test_dead_letters_are_received_in_the_order_of_their_numbers() -> None:
    queue = AtHand()
    queue.send("a", "b", "c")
    first, second, third = queue.receive(3)
    for held in (third, first, second):
        queue.settle(DEAD_LETTER, held)
    assert sequences(queue.receive(5, lane=DEAD)) == [1, 2, 3]


# Deferring.


def test_a_deferred_message_comes_only_by_its_number() -> None:
    """R-S6."""
    queue = AtHand()
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
    queue = AtHand()
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    queue.fetch(number)
    assert queue.fate(ask.ReceiveDeferred("me", 1, MAIN, [number], 0)) == MESSAGE_NOT_FOUND


def test_one_number_that_is_not_deferred_refuses_the_whole_call() -> None:
    """R-S6."""
    queue = AtHand()
    queue.send("a", "b")
    queue.settle(DEFER, queue.receive_one())
    for wrong in (2, 3, 0):
        command = ask.ReceiveDeferred("me", 1, MAIN, [1, wrong], 0)
        assert queue.fate(command) == MESSAGE_NOT_FOUND
    assert queue.fate(ask.ReceiveDeferred("me", 1, DEAD, [1], 0)) == MESSAGE_NOT_FOUND
    assert queue.fetch() == []
    assert sequences(queue.fetch(1)) == [1]


def test_a_deferred_message_stays_deferred_when_its_lock_ends_without_success() -> None:
    """R-S6: abandon, defer and expiry count, release does not."""
    queue = AtHand()
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
    queue = AtHand(delivery_count_max=2)
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    queue.settle(ABANDON, *queue.fetch(number))
    assert [(each.sequence, each.delivery_count) for each in queue.dead()] == [(1, 2)]


def test_deferring_does_not_dead_letter_however_often_it_is_done() -> None:
    queue = AtHand(delivery_count_max=2)
    (number,) = queue.send("a")
    queue.settle(DEFER, queue.receive_one())
    for _ in range(3):
        queue.settle(DEFER, *queue.fetch(number))
    assert [(each.state, each.delivery_count) for each in queue.peek()] == [(STATE_DEFERRED, 4)]


def test_deferred_messages_can_be_received_and_deleted() -> None:
    """R-S6."""
    queue = AtHand()
    queue.send("a", "b")
    queue.settle(DEFER, *queue.receive(2))
    (got,) = queue.fetch(2, mode=RECEIVE_AND_DELETE)
    assert (got.sequence, got.lock_number) == (2, 0)
    assert queue.numbers() == [1]


def test_deferring_works_in_the_dead_letter_queue() -> None:
    queue = AtHand()
    (number,) = queue.send("a")
    queue.settle(DEAD_LETTER, queue.receive_one())
    queue.settle(DEFER, queue.receive_one(lane=DEAD))
    assert queue.receive(1, lane=DEAD) == []
    (held,) = queue.fetch(number, lane=DEAD)
    assert held.delivery_count == 0
    assert queue.settle(COMPLETE, held) == ["settled"]
    assert queue.dead() == []


# Looking and deleting.


def test_a_peek_shows_all_states_in_the_order_of_numbers() -> None:
    queue = AtHand()
    queue.send("ready")
    queue.send("later", due=queue.now + 1_000)
    queue.send("locked", "deferred")
    first, locked, deferred = queue.receive(3)
    queue.settle(DEFER, deferred)
    queue.settle(RELEASE, first)
    assert [(queue.content(each), each.state) for each in queue.peek()] == [
        ("ready", STATE_ACTIVE),
        ("later", STATE_SCHEDULED),
        ("locked", STATE_ACTIVE),
        ("deferred", STATE_DEFERRED),
    ]
    assert [each.lock_number for each in queue.peek()] == [0] * 4
    assert queue.settle(COMPLETE, locked) == ["settled"]


def test_a_peek_starts_at_a_number_and_keeps_its_limits() -> None:
    queue = AtHand()
    queue.send(*"abcdef")
    assert sequences(queue.peek(start=3)) == [3, 4, 5, 6]
    assert sequences(queue.peek(start=3, count=2)) == [3, 4]
    assert sequences(queue.peek(size=2)) == [1, 2]
    assert sequences(queue.peek(size=0)) == [1]
    assert queue.peek(start=7) == []
    assert queue.peek(DEAD) == []


def test_a_batch_delete_takes_the_oldest_ready_ones_before_an_instant() -> None:
    queue = AtHand()
    queue.send("a", "b", "c")
    queue.receive_one()
    before = queue.now + 1
    queue.tick(10)
    queue.send("d")
    reply = told.Numbered("me", 1, [1])
    assert reply in queue.ask(ask.DeleteMany("me", 1, MAIN, 1, before))
    assert records.Removed(queue.now, MAIN, records.PURGED, [2]) in queue.records
    assert queue.numbers() == [1, 3, 4]
    assert told.Numbered("me", 2, [1]) in queue.ask(ask.DeleteMany("me", 2, MAIN, 9, before))
    assert queue.numbers() == [1, 4]
    assert told.Numbered("me", 3, [0]) in queue.ask(ask.DeleteMany("me", 3, MAIN, 9, before))
    assert queue.ask(ask.DeleteMany("me", 4, DEAD, 9, EVERYTHING)) == [told.Numbered("me", 4, [0])]


def test_a_batch_delete_finds_what_a_late_alarm_let_in_with_an_earlier_instant() -> None:
    """A scheduled message has its own instant as time of entry, however late it came in."""
    queue = AtHand()
    queue.send("scheduled", due=queue.now + 1_000)
    queue.now += 5_000
    queue.send("sent while the alarm was late")
    queue.tick()
    assert queue.numbers() == [2, 3]
    assert queue.ask(ask.DeleteMany("me", 1, MAIN, 9, queue.now)) == [told.Numbered("me", 1, [1])]
    assert queue.numbers() == [2]


def test_batch_deletes_go_through_a_long_line_bit_by_bit() -> None:
    queue = AtHand()
    for _ in range(6):
        queue.send(*(["x"] * 2_000))
    queue.settle(ABANDON, *queue.receive(10))
    for left in range(11_000, -1, -1_000):
        queue.ask(ask.DeleteMany("me", 1, MAIN, 1_000, EVERYTHING))
        assert queue.partition.live_count == left
    assert queue.send("y") == [12_001]
    assert sequences(queue.receive(5)) == [12_001]


def test_what_a_batch_delete_spares_keeps_its_order() -> None:
    queue = AtHand()
    queue.send("a", "b")
    assert told.Numbered("me", 1, [0]) in queue.ask(ask.DeleteMany("me", 1, MAIN, 9, queue.now))
    assert sequences(queue.receive(2)) == [1, 2]


def test_counts_tell_the_states_apart() -> None:
    queue = AtHand()
    queue.send("ready", "locked", "deferred", "dead")
    queue.send("later", due=queue.now + 1_000)
    ready, _, deferred, dead = queue.receive(4)
    queue.settle(RELEASE, ready)
    queue.settle(DEFER, deferred)
    queue.settle(DEAD_LETTER, dead)
    count = queue.count()
    assert (count.active, count.locked, count.deferred) == (2, 1, 1)
    assert (count.scheduled, count.dead_letter) == (1, 1)
    assert count.bytes == len("readylockeddeferreddeadlater")


def test_a_token_tells_its_message_and_lane() -> None:
    queue = AtHand(index=3)
    queue.send("a")
    held = token(queue.receive_one())
    assert (held.sequence >> 48, held.number >> 48) == (3, MAIN)
