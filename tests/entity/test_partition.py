"""A queue's promises about sending and handing out, one by one."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    RECEIVE_AND_DELETE,
    RELEASE,
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
    MESSAGE_TOO_BIG,
)
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries, message, sequences

# Sending.


def test_numbers_start_at_one_and_rise_by_one() -> None:
    queue = QueueHarness()
    assert queue.send("a", "b", "c") == [1, 2, 3]
    assert queue.send("d") == [4]


def test_the_upper_16_bits_of_a_number_name_the_partition() -> None:
    queue = QueueHarness(index=5)
    assert queue.send("a", "b") == [(5 << 48) + 1, (5 << 48) + 2]


def test_a_send_is_answered_with_its_own_tags_and_one_record_holds_the_run() -> None:
    """R-T1."""
    queue = QueueHarness()
    messages = [message("a"), message("b")]
    assert queue.ask(ask.SendMany(by("me"), [40, 41], messages)) == [
        told.SendsAccepted(by("me"), [40, 41])
    ]
    assert queue.records == [records.Enqueued(queue.now, 1, messages)]


def test_of_several_sends_only_the_one_that_is_too_big_is_refused() -> None:
    """R-T2."""
    queue = QueueHarness(message_size_max=10)
    messages = [message("a" * 10), message("b" * 11), message("c")]
    replies = queue.ask(ask.SendMany(by("me"), [1, 2, 3], messages))
    accepted = [each for each in replies if isinstance(each, told.SendsAccepted)]
    refused = [each for each in replies if isinstance(each, told.Refused)]
    assert [each.tags for each in accepted] == [[1, 3]]
    assert [(each.tags, each.refusal.kind) for each in refused] == [([2], MESSAGE_TOO_BIG)]
    assert queue.numbers() == [1, 2]


def test_a_batch_is_stored_all_or_none() -> None:
    """R-T5."""
    queue = QueueHarness(message_size_max=10)
    assert (
        queue.fate(ask.SendBatch(by("me"), 1, [message("a"), message("b" * 11)])) == MESSAGE_TOO_BIG
    )
    assert queue.records == []
    assert queue.numbers() == []
    assert queue.ask(ask.SendBatch(by("me"), 2, [message("a"), message("b")])) == [
        told.SendsAccepted(by("me"), [2])
    ]
    assert queue.numbers() == [1, 2]


def test_an_empty_batch_is_accepted_and_stores_nothing() -> None:
    queue = QueueHarness()
    assert queue.ask(ask.SendBatch(by("me"), 1, [])) == [told.SendsAccepted(by("me"), [1])]
    assert queue.records == []


@pytest.mark.parametrize("status", [SEND_DISABLED, DISABLED])
def test_a_queue_that_is_disabled_for_sending_takes_nothing(status: str) -> None:
    queue = QueueHarness(status=status)
    commands: list[ask.Command] = [
        ask.SendMany(by("me"), [1], [message("a")]),
        ask.SendBatch(by("me"), 1, [message("a")]),
        ask.Schedule(by("me"), 1, [message("a", due=queue.now + 1)]),
    ]
    assert [queue.fate(command) for command in commands] == [ENTITY_DISABLED] * 3
    assert queue.partition.live_count == 0


# Receiving.


def test_messages_come_in_the_order_of_their_numbers() -> None:
    queue = QueueHarness()
    queue.send("a", "b", "c")
    assert queue.contents(queue.receive(2)) == ["a", "b"]
    assert queue.contents(queue.receive(2)) == ["c"]


def test_a_long_line_keeps_its_order_while_it_is_handed_out_and_given_back() -> None:
    """R-S2, R-S4."""
    queue = QueueHarness()
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
    queue = QueueHarness()
    queue.open("early")
    assert deliveries(queue.ask(ask.SendMany(by("me"), [1], [message("a")])), "early") == []
    assert len(deliveries(queue.ask(ask.Grant(by("early"), 2, False)), "early")) == 1
    assert len(deliveries(queue.ask(ask.SendMany(by("me"), [2], [message("b")])), "early")) == 1
    assert deliveries(queue.ask(ask.SendMany(by("me"), [3], [message("c")])), "early") == []


def test_credit_is_a_limit_since_the_receiver_was_opened() -> None:
    """A repeated grant of the same limit gives nothing new: no race with what is on its way."""
    queue = QueueHarness()
    queue.open("r", credit=2)
    queue.send("a", "b", "c", "d")
    assert deliveries(queue.ask(ask.Grant(by("r"), 2, False)), "r") == []
    assert len(deliveries(queue.ask(ask.Grant(by("r"), 3, False)), "r")) == 1
    assert deliveries(queue.ask(ask.Grant(by("r"), 1, False)), "r") == []


def test_a_drain_delivers_what_is_there_and_gives_the_rest_back() -> None:
    queue = QueueHarness()
    queue.send("a")
    queue.open("r")
    replies = queue.ask(ask.Grant(by("r"), 10, True))
    assert sequences(deliveries(replies, "r")) == [1]
    assert replies[-1] == told.Drained(by("r"))
    assert deliveries(queue.ask(ask.SendMany(by("me"), [1], [message("b")])), "r") == []
    assert sequences(deliveries(queue.ask(ask.Grant(by("r"), 11, False)), "r")) == [2]


def test_a_drain_of_an_empty_queue_is_answered() -> None:
    queue = QueueHarness()
    queue.open("r")
    assert queue.ask(ask.Grant(by("r"), 3, True)) == [told.Drained(by("r"))]


def test_a_receiver_that_drains_and_closes_at_once_is_not_answered() -> None:
    queue = QueueHarness()
    queue.open("r")
    assert queue.ask(ask.Grant(by("r"), 5, True), ask.CloseReceiver(by("r"), False)) == []


def test_competing_receivers_get_different_messages_and_share_in_turns() -> None:
    """R-S2."""
    queue = QueueHarness()
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
    queue = QueueHarness()
    for name in "abc":
        queue.open(name, credit=10)
    got: list[str] = []
    for number in range(6):
        queue.send(str(number))
        got += [str(each.origin) for each in queue.replies if isinstance(each, told.Delivered)]
    assert sorted(got[:3]) == sorted(got[3:]) == ["a", "b", "c"]


def test_a_locked_message_is_nobody_elses() -> None:
    """R-S2."""
    queue = QueueHarness()
    queue.send("a")
    assert len(queue.receive(1, "one")) == 1
    assert queue.receive(1, "two") == []


def test_receive_and_delete_hands_out_once_and_for_good() -> None:
    """R-S1."""
    queue = QueueHarness()
    queue.send("a", "b")
    (got,) = queue.receive(1, mode=RECEIVE_AND_DELETE)
    assert (got.number, got.locked_until) == (0, 0)
    assert records.Removed(queue.now, MAIN, records.DELETED, [1]) in queue.records
    assert queue.numbers() == [2]
    queue.tick(600_000)
    assert queue.numbers() == [2]
    queue.restart()
    assert queue.numbers() == [2]


def test_a_closed_receiver_gets_nothing_more() -> None:
    queue = QueueHarness()
    queue.open("r", credit=10)
    queue.ask(ask.CloseReceiver(by("r"), False))
    assert queue.ask(ask.CloseReceiver(by("r"), True)) == []
    queue.send("a")
    assert deliveries(queue.replies, "r") == []
    assert queue.ask(ask.Grant(by("r"), 20, True)) == []


def test_the_locks_of_a_broken_connection_stay_until_they_expire() -> None:
    """R-S8: the token stays good, because clients settle by it after a reconnect."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.close(broken=True)
    assert queue.receive(1, "other") == []
    assert queue.settle(COMPLETE, held) == ["settled"]


@pytest.mark.parametrize("broken", [True, False])
def test_a_queue_may_ask_for_its_locks_back_when_a_connection_breaks(broken: bool) -> None:
    """R-S8: the option restores what the articles say; an orderly close keeps the locks."""
    queue = QueueHarness(unlock_on_disconnect=True)
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
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.open("r", credit=5)
    queue.ask(ask.Configure(queue_blueprint(QueueDefinition("orders", status=status))))
    queue.tick(60_000)
    assert deliveries(queue.replies, "r") == []
    assert queue.settle(COMPLETE, held) == [ENTITY_DISABLED]
    assert queue.fate(ask.Peek(by("me"), 1, MAIN, 0, 1, 1)) == ENTITY_DISABLED
    assert queue.fate(ask.ReceiveDeferred(by("me"), 1, MAIN, [1], 0)) == ENTITY_DISABLED
    assert queue.fate(ask.DeleteMany(by("me"), 1, MAIN, 1, queue.now)) == ENTITY_DISABLED
    assert queue.settle_all(COMPLETE, held) == ENTITY_DISABLED
    assert queue.renew(held) == ENTITY_DISABLED
    # Enabled again, the credit that was given is still good.
    replies = queue.ask(ask.Configure(queue_blueprint(QueueDefinition("orders", status=ACTIVE))))
    assert sequences(deliveries(replies, "r")) == [1]
