"""A queue's promises about time: locks, lives and schedules, with a clock that tests move."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import ABANDON, COMPLETE, DEAD, DEAD_LETTER, DEFER, MAIN, RELEASE
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_SCHEDULED, Delivery
from peeklock.entity.refusals import LOCK_LOST, MESSAGE_NOT_FOUND, MESSAGE_TOO_BIG
from tests.entity.journal_facts import next_due
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries, message, sequences

# Locks.


@pytest.mark.parametrize("lock_ms", [5_000, 60_000, 300_000])
def test_a_lock_lasts_as_long_as_the_queue_says(lock_ms: int) -> None:
    """R-L1."""
    queue = QueueHarness(lock_duration_ms=lock_ms)
    queue.send("a")
    held = queue.receive_one()
    assert held.locked_until == queue.now + lock_ms
    assert next_due(queue.partition) == queue.now + lock_ms
    queue.now += lock_ms - 1
    assert queue.settle(COMPLETE, held) == ["settled"]


def test_a_lock_is_over_at_its_last_instant_even_before_the_timer_fires() -> None:
    """R-L3, R-S8."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.now += 60_000
    for outcome in (COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE):
        assert queue.settle(outcome, held) == [LOCK_LOST]
        assert queue.settle_all(outcome, held) == LOCK_LOST
    assert queue.renew(held) == LOCK_LOST
    assert queue.numbers() == [1]


def test_an_expired_lock_puts_the_message_back_at_its_old_place_and_counts() -> None:
    """R-L3."""
    queue = QueueHarness()
    queue.send("a", "b", "c")
    held = queue.receive_one()
    queue.tick(59_999)
    assert sequences(queue.receive(1, "other")) == [2]
    queue.tick(1)
    assert records.Returned(queue.now, MAIN, records.LOCK_EXPIRED, [1], [1]) in queue.records
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    again = queue.receive(2, "third")
    assert [(each.sequence, each.delivery_count) for each in again] == [(1, 1), (3, 0)]


def test_expired_locks_free_their_messages_in_order_for_those_who_wait() -> None:
    """R-L3."""
    queue = QueueHarness()
    queue.send("a", "b", "c")
    queue.receive(3)
    queue.open("waiting", credit=10)
    assert sequences(deliveries(queue.tick(60_000), "waiting")) == [1, 2, 3]


def test_lock_expiries_and_abandons_together_reach_the_limit() -> None:
    """R-S7."""
    queue = QueueHarness(delivery_count_max=3)
    queue.send("a")
    queue.receive_one()
    queue.tick(60_000)
    queue.settle(ABANDON, queue.receive_one())
    queue.receive_one()
    assert sequences(queue.dead()) == []
    queue.tick(60_000)
    (dead,) = queue.dead()
    assert (dead.sequence, dead.delivery_count, queue.numbers()) == (1, 3, [])


def test_a_renewed_lock_lasts_a_whole_duration_from_then_on_again_and_again() -> None:
    """R-L2."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    for _ in range(5):
        queue.tick(50_000)
        assert queue.renew(held) == "renewed"
        assert queue.replies == [told.Numbered(by("manager"), 7, [queue.now + 60_000])]
    queue.tick(59_999)
    assert queue.settle(COMPLETE, held) == ["settled"]


def test_renewing_several_locks_is_all_or_none() -> None:
    """R-L2."""
    queue = QueueHarness()
    queue.send("a", "b")
    first = queue.receive_one()
    queue.tick(40_000)
    second = queue.receive_one()
    queue.tick(20_000)
    assert queue.renew(second, first) == LOCK_LOST
    queue.tick(40_000)
    # The second one was not renewed either.
    assert queue.settle(COMPLETE, second) == [LOCK_LOST]


def test_a_renewal_lets_the_others_expire_in_their_time() -> None:
    """R-L2: the order of deadlines changes with each renewal."""
    queue = QueueHarness()
    queue.send("a", "b", "c")
    first, second, third = queue.receive(3)
    queue.tick(30_000)
    assert queue.renew(first, third) == "renewed"
    queue.tick(30_000)
    assert queue.settle(COMPLETE, second) == [LOCK_LOST]
    queue.tick(29_999)
    assert queue.settle(COMPLETE, first) == ["settled"]
    queue.tick(1)
    assert queue.settle(COMPLETE, third) == [LOCK_LOST]


def test_locks_are_renewed_in_the_dead_letter_queue_and_out_of_deferral() -> None:
    """R-L2."""
    queue = QueueHarness()
    queue.send("a", "b")
    first, second = queue.receive(2)
    queue.settle(DEAD_LETTER, first)
    queue.settle(DEFER, second)
    held = [queue.receive_one(lane=DEAD), *queue.fetch(2)]
    queue.tick(59_999)
    assert queue.renew(*held) == "renewed"
    queue.tick(59_999)
    assert queue.settle(COMPLETE, *held) == ["settled", "settled"]


def test_a_restart_drops_locks_and_loses_no_message() -> None:
    """R-L4."""
    queue = QueueHarness()
    queue.send("a", "b")
    held = queue.receive(2)
    queue.restart()
    assert queue.settle(COMPLETE, *held) == [LOCK_LOST, LOCK_LOST]
    assert queue.renew(held[0]) == LOCK_LOST
    again = queue.receive(2)
    assert [(each.sequence, each.delivery_count) for each in again] == [(1, 0), (2, 0)]


def test_another_lock_duration_drops_the_locks_and_loses_no_message() -> None:
    """R-L4: a change of the entity's properties may drop locks."""
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.ask(ask.Configure(queue_blueprint(QueueDefinition("orders", lock_duration_ms=5_000))))
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]
    again = queue.receive_one()
    assert (again.sequence, again.delivery_count) == (1, 0)
    assert again.locked_until == queue.now + 5_000


def test_another_limit_of_deliveries_keeps_the_locks() -> None:
    queue = QueueHarness()
    queue.send("a")
    held = queue.receive_one()
    queue.ask(ask.Configure(queue_blueprint(QueueDefinition("orders", delivery_count_max=1))))
    assert queue.settle(ABANDON, held) == ["settled"]
    assert sequences(queue.dead()) == [1]


def test_nothing_is_due_in_a_queue_without_locks_lives_and_schedules() -> None:
    queue = QueueHarness()
    queue.send("a")
    assert next_due(queue.partition) == 0
    queue.settle(COMPLETE, queue.receive_one())
    assert next_due(queue.partition) == 0


# Lives.


@pytest.mark.parametrize(
    ("of_message", "of_queue", "life"),
    [
        (-1, -1, 0),
        (5_000, -1, 5_000),
        (-1, 7_000, 7_000),
        (5_000, 7_000, 5_000),
        (9_000, 7_000, 7_000),
    ],
)
def test_the_shorter_life_wins(of_message: int, of_queue: int, life: int) -> None:
    queue = QueueHarness(time_to_live_ms=of_queue)
    queue.send("a", life_ms=of_message)
    expires_at = queue.now + life if life else 0
    assert queue.peek()[0].expires_at == expires_at
    assert next_due(queue.partition) == expires_at


def test_an_expired_message_is_dropped_when_the_timer_fires() -> None:
    queue = QueueHarness()
    queue.send("a", "b", life_ms=1_000)
    queue.send("c")
    queue.tick(999)
    assert queue.numbers() == [1, 2, 3]
    queue.tick(1)
    assert queue.records == [records.Removed(queue.now, MAIN, records.EXPIRED, [1, 2])]
    assert (queue.numbers(), queue.dead()) == ([3], [])


def test_an_expired_message_is_dead_lettered_where_the_queue_says_so() -> None:
    queue = QueueHarness(dead_letter_on_expiration=True, time_to_live_ms=1_000)
    queue.send("a")
    queue.tick(1_000)
    (dead,) = queue.dead()
    details = dead.details
    assert details is not None
    assert (details.reason, details.description) == (
        "TTLExpiredException",
        "The message expired and was dead lettered.",
    )
    assert (dead.sequence, dead.delivery_count, queue.content(dead)) == (1, 0, "a")


@pytest.mark.parametrize("keeping", [True, False])
def test_an_expired_message_is_never_delivered_even_before_the_timer_fires(keeping: bool) -> None:
    """R-F4: the life is checked when the server sends."""
    queue = QueueHarness(dead_letter_on_expiration=keeping)
    queue.send("a", life_ms=1_000)
    queue.send("b")
    queue.now += 1_000
    assert queue.contents(queue.receive(5)) == ["b"]
    assert sequences(queue.dead()) == ([1] if keeping else [])
    assert queue.partition.live_count == (2 if keeping else 1)


@pytest.mark.parametrize("keeping", [True, False])
def test_lives_that_are_over_when_they_are_asked_for_end_in_one_record(keeping: bool) -> None:
    queue = QueueHarness(dead_letter_on_expiration=keeping)
    queue.send(*"abc", life_ms=1_000)
    queue.send("d")
    queue.now += 1_000
    assert queue.contents(queue.receive(5)) == ["d"]
    kind = records.DeadLettered if keeping else records.Removed
    ended = [record for record in queue.records if isinstance(record, kind)]
    assert [record.sequences for record in ended] == [[1, 2, 3]]


def test_the_first_to_expire_need_not_be_the_first_in_line() -> None:
    queue = QueueHarness(dead_letter_on_expiration=True)
    queue.send("a", life_ms=9_000)
    queue.send("b", life_ms=3_000)
    queue.send("c", life_ms=6_000)
    assert next_due(queue.partition) == queue.now + 3_000
    queue.tick(3_000)
    assert (queue.numbers(), sequences(queue.dead())) == ([1, 3], [2])
    queue.tick(6_000)
    assert (queue.numbers(), sequences(queue.dead())) == ([], [1, 2, 3])
    assert sequences(queue.receive(5, lane=DEAD)) == [1, 2, 3]
    assert queue.receive(5) == []


def test_a_locked_message_does_not_expire_and_can_be_completed() -> None:
    queue = QueueHarness()
    queue.send("a", life_ms=1_000)
    held = queue.receive_one()
    queue.tick(30_000)
    assert queue.settle(COMPLETE, held) == ["settled"]


@pytest.mark.parametrize("outcome", [ABANDON, RELEASE])
def test_a_message_that_outlived_its_time_in_a_lock_expires_when_it_returns(outcome: int) -> None:
    queue = QueueHarness(dead_letter_on_expiration=True)
    queue.send("a", life_ms=1_000)
    held = queue.receive_one()
    queue.tick(1_000)
    assert queue.settle(outcome, held) == ["settled"]
    assert queue.numbers() == []
    details = queue.dead()[0].details
    assert details is not None
    assert details.reason == "TTLExpiredException"


@pytest.mark.parametrize("outcome", [ABANDON, RELEASE])
def test_messages_that_outlived_their_time_are_written_down_together(outcome: int) -> None:
    queue = QueueHarness()
    queue.send("a", "b", life_ms=1_000)
    queue.send("c")
    held = queue.receive(3)
    queue.tick(1_000)
    queue.settle(outcome, *held)
    removed = [each for each in queue.records if isinstance(each, records.Removed)]
    assert removed == [records.Removed(queue.now, MAIN, records.EXPIRED, [1, 2])]
    assert queue.numbers() == [3]


def test_a_message_whose_lock_and_life_are_over_is_dropped() -> None:
    queue = QueueHarness()
    queue.send("a", life_ms=1_000)
    queue.receive_one()
    queue.tick(60_000)
    assert queue.partition.live_count == 0
    assert next_due(queue.partition) == 0


def test_a_message_that_returns_in_time_expires_later() -> None:
    queue = QueueHarness()
    queue.send("a", life_ms=10_000)
    held = queue.receive_one()
    next_due(queue.partition)
    queue.tick(5_000)
    queue.settle(ABANDON, held)
    assert next_due(queue.partition) == queue.now + 5_000
    queue.tick(5_000)
    assert queue.numbers() == []


def test_a_deferred_message_does_not_expire() -> None:
    queue = QueueHarness()
    queue.send("a", life_ms=1_000)
    queue.settle(DEFER, queue.receive_one())
    queue.tick(5_000)
    (held,) = queue.fetch(1)
    queue.tick(60_000)
    assert queue.numbers() == [1]
    assert next_due(queue.partition) == 0
    assert held.sequence == 1


def test_what_is_dead_lettered_does_not_expire() -> None:
    """Its place in the line of lives must not outlast the move to the other lane."""
    queue = QueueHarness(dead_letter_on_expiration=True)
    queue.send("a", "b", life_ms=1_000)
    queue.settle(DEAD_LETTER, queue.receive_one())
    queue.tick(1_000)
    assert sequences(queue.dead()) == [1, 2]
    assert next_due(queue.partition) == 0
    queue.tick(600_000)
    assert sequences(queue.receive(5, lane=DEAD)) == [1, 2]
    details = queue.dead()[0].details
    assert details is not None
    assert details.reason is None


def test_a_life_of_nothing_ends_at_once() -> None:
    queue = QueueHarness()
    queue.send("a", life_ms=0)
    assert next_due(queue.partition) == queue.now
    assert queue.receive(1) == []
    assert queue.partition.live_count == 0


@pytest.mark.parametrize("life_ms", [922_337_203_685_477, (1 << 63) - 1])
def test_a_life_beyond_the_longest_duration_has_no_end(life_ms: int) -> None:
    """Its instant would not fit into a record: storing it would fail, for all of the round."""
    queue = QueueHarness()
    queue.send("a", life_ms=life_ms)
    queue.send("b", life_ms=life_ms, due=queue.now + 1_000)
    queue.tick(1_000)
    assert [each.expires_at for each in queue.peek()] == [0, 0]
    assert next_due(queue.partition) == 0
    queue.restart()
    assert [each.expires_at for each in queue.peek()] == [0, 0]


def test_lives_and_schedules_go_on_after_a_restart() -> None:
    queue = QueueHarness(dead_letter_on_expiration=True)
    queue.send("brief", life_ms=1_000)
    queue.send("later", life_ms=1_000, due=queue.now + 2_000)
    queue.restart()
    assert next_due(queue.partition) == queue.now + 1_000
    queue.tick(1_000)
    assert sequences(queue.dead()) == [1]
    queue.tick(1_000)
    queue.restart()
    assert next_due(queue.partition) == queue.now + 1_000
    queue.tick(1_000)
    assert sequences(queue.dead()) == [1, 3]


def test_another_time_to_live_holds_for_what_comes_then() -> None:
    queue = QueueHarness(time_to_live_ms=5_000)
    queue.send("a")
    queue.ask(ask.Configure(queue_blueprint(QueueDefinition("orders"))))
    queue.send("b")
    queue.tick(5_000)
    assert queue.numbers() == [2]


def test_the_line_of_lives_forgets_what_was_settled_and_only_that() -> None:
    queue = QueueHarness()
    held = []
    for _ in range(5):
        queue.send("held", life_ms=5_000)
        held.append(queue.receive_one())
        queue.send(*(["done"] * 1_000), life_ms=9_000)
        queue.settle(COMPLETE, *queue.receive(1_000))
    queue.settle(RELEASE, *held)
    assert next_due(queue.partition) == queue.now + 5_000
    queue.tick(5_000)
    assert queue.partition.live_count == 0


# Schedules.


def test_a_scheduled_message_waits_and_enters_under_a_new_number_at_its_instant() -> None:
    queue = QueueHarness()
    due = queue.now + 10_000
    assert queue.send("later", due=due) == [1]
    assert queue.send("now") == [2]
    assert [(each.sequence, each.state) for each in queue.peek()] == [
        (1, STATE_SCHEDULED),
        (2, STATE_ACTIVE),
    ]
    assert next_due(queue.partition) == due
    queue.tick(9_999)
    assert sequences(queue.receive(5)) == [2]
    queue.now += 500
    queue.tick(1)
    assert records.Activated(queue.now, 3, [1], [0]) in queue.records
    held = queue.receive_one()
    assert (held.sequence, held.delivery_count, held.state) == (3, 0, STATE_ACTIVE)
    assert (held.enqueued_at, queue.content(held)) == (due, "later")
    assert held.details is not None
    assert held.details.scheduled_at == due


def test_scheduling_answers_the_numbers_in_order() -> None:
    queue = QueueHarness()
    queue.send("a")
    later = [message("x", due=queue.now + 10), message("y", due=queue.now - 10), message("z")]
    assert queue.ask(ask.Schedule(by("me"), 4, later)) == [told.Numbered(by("me"), 4, [2, 3, 4])]
    assert [each.state for each in queue.peek()] == [
        STATE_ACTIVE,
        STATE_SCHEDULED,
        STATE_ACTIVE,
        STATE_ACTIVE,
    ]


def test_scheduling_is_all_or_none() -> None:
    queue = QueueHarness(message_size_max=3)
    later = [message("x", due=queue.now + 10), message("long", due=queue.now + 10)]
    assert queue.fate(ask.Schedule(by("me"), 4, later)) == MESSAGE_TOO_BIG
    assert queue.partition.live_count == 0


def test_messages_enter_in_the_order_of_their_instants_and_waiting_receivers_get_them() -> None:
    queue = QueueHarness()
    queue.send("third", due=queue.now + 3_000)
    queue.send("first", due=queue.now + 1_000)
    queue.send("second", due=queue.now + 1_000)
    queue.open("waiting", credit=10)
    assert queue.contents(deliveries(queue.tick(2_000), "waiting")) == ["first", "second"]
    assert queue.contents(deliveries(queue.tick(1_000), "waiting")) == ["third"]


def test_a_cancelled_message_never_comes() -> None:
    queue = QueueHarness()
    queue.send("a", "b", due=queue.now + 1_000)
    assert queue.fate(ask.CancelScheduled(by("me"), 1, [1])) == "fine"
    assert records.Removed(queue.now, MAIN, records.CANCELLED, [1]) in queue.records
    queue.tick(1_000)
    assert queue.contents(queue.receive(5)) == ["b"]


def test_one_unknown_number_cancels_nothing_and_no_number_is_fine() -> None:
    queue = QueueHarness()
    queue.send("later", due=queue.now + 1_000)
    queue.send("ready")
    for wrong in (2, 3, 0):
        assert queue.fate(ask.CancelScheduled(by("me"), 1, [1, wrong])) == MESSAGE_NOT_FOUND
    assert queue.ask(ask.CancelScheduled(by("me"), 2, [])) == [told.Numbered(by("me"), 2, [])]
    assert queue.fate(ask.CancelScheduled(by("me"), 3, [1, 1])) == "fine"
    assert queue.fate(ask.CancelScheduled(by("me"), 4, [1])) == MESSAGE_NOT_FOUND


def test_a_message_that_has_entered_can_no_longer_be_cancelled() -> None:
    queue = QueueHarness()
    queue.send("a", due=queue.now + 1_000)
    queue.tick(1_000)
    assert queue.fate(ask.CancelScheduled(by("me"), 1, [1])) == MESSAGE_NOT_FOUND
    assert queue.fate(ask.CancelScheduled(by("me"), 1, [2])) == MESSAGE_NOT_FOUND


def test_the_life_of_a_scheduled_message_starts_when_it_is_due() -> None:
    queue = QueueHarness(time_to_live_ms=8_000)
    queue.send("a", life_ms=5_000, due=queue.now + 60_000)
    queue.tick(59_999)
    assert queue.numbers() == [1]
    queue.tick(1)
    assert queue.peek()[0].expires_at == queue.now + 5_000
    queue.tick(5_000)
    assert queue.numbers() == []


def test_a_cancelled_schedule_leaves_nothing_due() -> None:
    queue = QueueHarness()
    queue.send("a", due=queue.now + 1_000)
    queue.ask(ask.CancelScheduled(by("me"), 1, [1]))
    assert next_due(queue.partition) == 0


def test_the_line_of_schedules_forgets_what_was_cancelled_and_only_that() -> None:
    queue = QueueHarness()
    queue.send("kept", due=queue.now + 5_000)
    for _ in range(3):
        numbers = queue.send(*(["cancelled"] * 1_000), due=queue.now + 1_000)
        queue.ask(ask.CancelScheduled(by("me"), 1, numbers))
    assert next_due(queue.partition) == queue.now + 5_000
    assert queue.contents(deliveries_of(queue, 5_000)) == ["kept"]


def deliveries_of(queue: QueueHarness, duration_ms: int) -> list[Delivery]:
    """What is there to be received after some time."""
    queue.tick(duration_ms)
    return queue.receive(10)
