"""Between partitions and all at once: transactions, numbers reserved, messages taken over."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    FORWARD,
    MAIN,
    TRANSFER,
    TRANSFER_DEAD,
)
from peeklock.entity.definition import SEND_DISABLED
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import NEVER, Message, Traits
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    SESSION_LOCK_LOST,
)
from peeklock.entity.transfers.records import Transferring
from tests.entity.journal_facts import NOTES, next_due
from tests.entity.living_state import living
from tests.entity.origins import by
from tests.entity.partition_harness import (
    QueueHarness,
    TopicHarness,
    deliveries,
    message,
    sequences,
    token,
)


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(is_retold=True, message_size_max=10)


def settle(outcome: int, *held: Delivery) -> ask.SettleMany:
    return ask.SettleMany(
        by("client"), [0] * len(held), ask.Settlement(outcome), [token(each) for each in held]
    )


def send(*contents: str) -> ask.SendMany:
    return ask.SendMany(by("client"), [0] * len(contents), [message(each) for each in contents])


def commit(queue: QueueHarness, *work: ask.TransactionWork) -> str:
    """Carry out a transaction; answers "committed" or why not, and that nothing changed then."""
    before = living(queue.partition, queue.now)
    locks = sorted(queue.partition._state.lane(MAIN).locked)
    left = queue.budget.left
    fate = queue.fate(ask.Commit(by("transaction"), 1, list(work)), "committed")
    if fate == "committed":
        assert told.Numbered(by("transaction"), 1, []) in queue.replies
    else:
        assert len(queue.replies) == 1
        assert all(isinstance(each, NOTES) for each in queue.records)
        before["position"] += len(queue.records)
        assert living(queue.partition, queue.now) == before
        assert sorted(queue.partition._state.lane(MAIN).locked) == locks
        assert queue.budget.left == left
    return fate


# Transactions.


def test_a_transaction_does_all_of_its_work_and_is_answered_once(queue: QueueHarness) -> None:
    """R-P7."""
    queue.send("one", "two", "three", "four")
    one, two, three, four = queue.receive(4)
    (reply,) = queue.ask(ask.Reserve(by("client"), 1, 1))
    assert reply == told.Numbered(by("client"), 1, [5])
    due = queue.now + 1_000
    fate = commit(
        queue,
        send("sent", "also"),
        ask.SendBatch(by("client"), 1, [message("batch")]),
        ask.Schedule(by("client"), 2, [message("later", due=due)], [5]),
        ask.TransferMessage("invoices", message("away")),
        settle(COMPLETE, one),
        settle(DEFER, two),
        ask.SettleAll(by("client"), 3, ask.Settlement(DEAD_LETTER, None, "r", "d"), [token(three)]),
        ask.SettleMany(by("client"), [4], ask.Settlement(ABANDON, {"tried": b"1"}), [token(four)]),
    )
    assert fate == "committed"
    assert len(queue.replies) == 1
    names = ["two", "four", "later", "sent", "also", "batch"]
    assert queue.contents(queue.peek()) == names
    assert queue.contents(queue.dead()) == ["three"]
    (away,) = queue.peek(TRANSFER)
    assert away.details is not None
    assert (queue.content(away), away.details.destination) == ("away", "invoices")
    queue.checkpoint()
    queue.restart()
    assert queue.contents(queue.peek()) == names
    assert queue.contents(queue.peek(TRANSFER)) == ["away"]
    queue.tick(1_000)
    assert queue.contents(queue.peek()) == ["two", "four", "sent", "also", "batch", "later"]


def test_an_empty_transaction_is_committed(queue: QueueHarness) -> None:
    assert commit(queue) == "committed"
    assert queue.records == []


def test_one_lost_lock_refuses_all_and_changes_nothing(queue: QueueHarness) -> None:
    queue.send("one", "two")
    one, two = queue.receive(2)
    queue.settle(ABANDON, two)
    work: list[ask.TransactionWork] = [
        send("sent"),
        ask.TransferMessage("invoices", message("away")),
        ask.Schedule(by("client"), 1, [message("later", due=queue.now + 9)]),
        settle(COMPLETE, one),
    ]
    assert commit(queue, *work, settle(COMPLETE, two)) == LOCK_LOST
    # What was refused may be tried again without the bad part.
    assert commit(queue, *work) == "committed"
    assert queue.contents(queue.peek()) == ["two", "sent", "later"]


@pytest.mark.parametrize("passed_ms", [-1, 0])
def test_a_transaction_comes_too_late_when_a_lock_is_over(
    queue: QueueHarness, passed_ms: int
) -> None:
    queue.send("one")
    held = queue.receive(1)
    queue.now += 60_000 + passed_ms
    expected = "committed" if passed_ms < 0 else LOCK_LOST
    assert commit(queue, send("sent"), settle(COMPLETE, *held)) == expected


def test_a_message_is_settled_once_in_a_transaction(queue: QueueHarness) -> None:
    queue.send("one")
    (held,) = queue.receive(1)
    assert commit(queue, settle(COMPLETE, held), settle(ABANDON, held)) == LOCK_LOST
    assert commit(queue, settle(COMPLETE, held, held)) == LOCK_LOST
    assert commit(queue, settle(COMPLETE, held)) == "committed"


def test_a_message_that_cannot_be_taken_refuses_all(queue: QueueHarness) -> None:
    queue.send("one")
    (held,) = queue.receive(1)
    assert commit(queue, settle(COMPLETE, held), send("fine", "far too long")) == MESSAGE_TOO_BIG
    later = message("far too long", due=queue.now + 9)
    schedule = ask.Schedule(by("client"), 1, [later])
    assert commit(queue, settle(COMPLETE, held), schedule) == MESSAGE_TOO_BIG
    assert queue.settle(COMPLETE, held) == ["settled"]


def test_a_dead_letter_cannot_be_dead_lettered_in_a_transaction(queue: QueueHarness) -> None:
    queue.send("one")
    queue.settle(DEAD_LETTER, *queue.receive(1))
    (held,) = queue.receive(1, lane=ask.DEAD)
    assert commit(queue, send("x"), settle(DEAD_LETTER, held)) == NOT_ALLOWED
    assert commit(queue, send("x"), settle(COMPLETE, held)) == "committed"


def test_schedules_are_cancelled_in_a_transaction_once(queue: QueueHarness) -> None:
    due = queue.now + 1_000
    queue.ask(ask.Schedule(by("client"), 1, [message("a", due=due), message("b", due=due)]))
    cancel = ask.CancelScheduled(by("client"), 1, [1])
    assert commit(queue, cancel, ask.CancelScheduled(by("client"), 1, [9])) == MESSAGE_NOT_FOUND
    assert commit(queue, cancel, cancel) == MESSAGE_NOT_FOUND
    assert commit(queue, send("x"), cancel) == "committed"
    assert queue.contents(queue.peek()) == ["b", "x"]


def test_what_a_transaction_sends_reaches_who_waits(queue: QueueHarness) -> None:
    queue.open("reader", credit=5)
    replies = queue.ask(ask.Commit(by("t"), 1, [send("a", "b")]))
    assert queue.contents(deliveries(replies, "reader")) == ["a", "b"]


def test_a_transaction_in_a_session() -> None:
    queue = QueueHarness(requires_session=True, is_retold=True)
    queue.send("a0", "a1", session="a")
    queue.accept("a")
    first, second = queue.take(2)
    more = ask.SendMany(by("client"), [1], [message("a2", session="a")])
    assert commit(queue, settle(COMPLETE, first), more) == "committed"
    queue.ask(ask.CloseReceiver(by("holder"), False))
    more = ask.SendMany(by("client"), [1], [message("a3", session="a")])
    assert commit(queue, more, settle(COMPLETE, second)) == SESSION_LOCK_LOST
    assert queue.contents(queue.peek()) == ["a1", "a2"]


def test_a_transaction_on_a_topic() -> None:
    topic = TopicHarness("one", "two")
    topic.send("first")
    (held,) = topic.receive(1, lane=4)
    assert commit(topic, settle(COMPLETE, held), send("second")) == "committed"
    assert (topic.seen_by("one"), topic.seen_by("two")) == (["second"], ["first", "second"])


# Transfers.


def test_transfers_are_handed_to_the_carrier_and_rest_until_it_is_done(queue: QueueHarness) -> None:
    away = Message(
        b"e", b"away", Traits(session_id="s", partition_key="s", hops=2, message_id="id")
    )
    commit(queue, ask.TransferMessage("invoices", away))
    assert Transferring in [type(record) for record in queue.records]
    (held,) = queue.receive(9, "forwarder", lane=TRANSFER, mode=FORWARD)
    assert held.locked_until == NEVER
    assert next_due(queue.partition) == 0
    queue.tick(1_000_000)
    body = queue.journal.body(held.position)
    assert (body.content, body.session_id, body.hops) == (b"away", "s", 2)
    queue.restart()
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    (held,) = queue.receive(9, "forwarder", lane=TRANSFER, mode=FORWARD)
    assert held.details is not None
    assert (held.details.destination, held.details.hops) == ("invoices", 2)
    assert queue.settle(COMPLETE, held) == ["settled"]
    assert queue.partition.live_count == 0


def test_a_transfer_that_cannot_arrive_becomes_a_dead_letter_of_the_transfers(
    queue: QueueHarness,
) -> None:
    commit(queue, ask.TransferMessage("nowhere", message("away")))
    held = queue.receive(1, "forwarder", lane=TRANSFER, mode=FORWARD)
    queue.settle(DEAD_LETTER, *held, note=("gone", "not there"))
    queue.restart()
    (dead,) = queue.peek(TRANSFER_DEAD)
    assert dead.details is not None
    assert (dead.details.reason, dead.details.destination) == ("gone", "nowhere")
    assert queue.dead() == []


def test_transfers_wait_in_order_and_beside_sessions() -> None:
    queue = QueueHarness(requires_session=True, is_retold=True)
    for content in "abc":
        commit(queue, ask.TransferMessage("there", message(content, session=content)))
    queue.checkpoint()
    queue.restart()
    assert queue.sessions() == []
    held = queue.receive(9, "forwarder", lane=TRANSFER, mode=FORWARD)
    assert queue.contents(held) == ["a", "b", "c"]


# Reserved numbers.


def test_reserved_numbers_are_given_to_nobody_else(queue: QueueHarness) -> None:
    queue.ask(ask.Reserve(by("client"), 1, 3))
    assert queue.replies == [told.Numbered(by("client"), 1, [1, 2, 3])]
    queue.restart()
    assert queue.send("a") == [4]
    due = queue.now + 1_000
    later = [message("x", due=due), message("y", due=due)]
    queue.ask(ask.Schedule(by("client"), 2, later, [3, 1]))
    assert queue.replies == [told.Numbered(by("client"), 2, [3, 1])]
    assert queue.numbers() == [1, 3, 4]
    queue.restart()
    assert queue.fate(ask.CancelScheduled(by("client"), 3, [3])) == "fine"
    queue.tick(1_000)
    assert queue.contents(queue.peek()) == ["a", "y"]
    assert queue.numbers() == [4, 5]


def test_a_checkpoint_keeps_what_is_reserved(queue: QueueHarness) -> None:
    queue.ask(ask.Reserve(by("client"), 1, 10))
    queue.checkpoint()
    queue.restart()
    assert queue.send("a") == [11]


def test_reserved_numbers_carry_the_partition() -> None:
    queue = QueueHarness(index=3, is_retold=True)
    queue.ask(ask.Reserve(by("client"), 1, 1))
    assert queue.replies == [told.Numbered(by("client"), 1, [(3 << 48) + 1])]


# Taking over.


def take_over(
    queue: QueueHarness,
    numbers: list[int],
    *,
    source: str = "orders/1",
    forget: list[int] | None = None,
) -> str:
    messages = [message(f"m{number}", hops=1) for number in numbers]
    return queue.fate(ask.TakeOver(by("forwarder"), 1, source, numbers, messages, forget or []))


def test_what_is_taken_over_is_sent_here(queue: QueueHarness) -> None:
    assert take_over(queue, [10, 11]) == "fine"
    assert queue.replies == [told.SendsAccepted(by("forwarder"), [1])]
    found = queue.peek()
    assert sequences(found) == [1, 2]
    assert [each.details.hops for each in found if each.details is not None] == [1, 1]


def test_what_was_taken_over_before_is_ignored(queue: QueueHarness) -> None:
    """A crash between two partitions neither loses nor doubles."""
    take_over(queue, [10, 11])
    assert take_over(queue, [10, 11]) == "fine"
    assert queue.records == []
    assert take_over(queue, [11, 12]) == "fine"
    queue.restart()
    assert take_over(queue, [12, 10, 13]) == "fine"
    assert queue.contents(queue.peek()) == ["m10", "m11", "m12", "m13"]


def test_a_checkpoint_keeps_what_was_taken_over(queue: QueueHarness) -> None:
    take_over(queue, [10, 11])
    take_over(queue, [10], source="orders/2")
    queue.checkpoint()
    queue.restart()
    take_over(queue, [10, 11])
    take_over(queue, [10, 11], source="orders/2")
    assert queue.contents(queue.peek()) == ["m10", "m11", "m10", "m11"]


def test_what_will_not_come_again_is_forgotten(queue: QueueHarness) -> None:
    take_over(queue, [10, 11])
    take_over(queue, [12], forget=[10])
    assert queue.partition._state.taken == {"orders/1": {11: True, 12: True}}
    queue.restart()
    assert take_over(queue, [], forget=[11, 12, 99]) == "fine"
    assert queue.partition._state.taken == {}
    # The same numbers may come from there once more, as new messages.
    take_over(queue, [10])
    assert queue.contents(queue.peek()) == ["m10", "m11", "m12", "m10"]


def test_a_repeat_may_forget_too(queue: QueueHarness) -> None:
    take_over(queue, [10, 11])
    take_over(queue, [11], forget=[10])
    assert queue.partition._state.taken == {"orders/1": {11: True}}
    queue.restart()
    assert queue.partition._state.taken == {"orders/1": {11: True}}


def test_what_cannot_be_taken_over_is_refused_as_a_whole() -> None:
    queue = QueueHarness(is_retold=True, message_size_max=3)
    assert take_over(queue, [10]) == "fine"
    assert take_over(queue, [11, 1234]) == MESSAGE_TOO_BIG
    assert take_over(queue, [7777], source="other") == MESSAGE_TOO_BIG
    assert queue.partition._state.taken == {"orders/1": {10: True}}
    queue.properties["status"] = SEND_DISABLED
    queue.ask(ask.Configure(queue.described()))
    assert take_over(queue, [12]) == ENTITY_DISABLED
    # A repeat needs nothing that could be refused.
    assert take_over(queue, [10]) == "fine"


def test_a_topic_takes_over_for_its_subscriptions() -> None:
    topic = TopicHarness("one", "two")
    take_over(topic, [10])
    topic.restart()
    take_over(topic, [10, 11])
    assert (topic.seen_by("one"), topic.seen_by("two")) == (["m10", "m11"], ["m10", "m11"])
