"""A queue's promises about looking, deleting and counting, one by one."""

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
    RELEASE,
)
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness, sequences, token


def test_a_peek_shows_all_states_in_the_order_of_numbers() -> None:
    queue = QueueHarness()
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
    assert [each.number for each in queue.peek()] == [0] * 4
    queue.ask(ask.ReceiveDeferred(by("me"), 1, MAIN, [deferred.sequence], PEEK_LOCK))
    assert queue.peek()[3].state == STATE_DEFERRED
    assert queue.settle(COMPLETE, locked) == ["settled"]


def test_a_peek_starts_at_a_number_and_keeps_its_limits() -> None:
    queue = QueueHarness()
    queue.send(*"abcdef")
    assert sequences(queue.peek(start=3)) == [3, 4, 5, 6]
    assert sequences(queue.peek(start=3, count=2)) == [3, 4]
    assert sequences(queue.peek(size=2)) == [1, 2]
    assert sequences(queue.peek(size=0)) == [1]
    assert queue.peek(start=7) == []
    assert queue.peek(DEAD) == []


def test_a_batch_delete_takes_the_oldest_ready_ones_before_an_instant() -> None:
    queue = QueueHarness()
    queue.send("a", "b", "c")
    queue.receive_one()
    before = queue.now + 1
    queue.tick(10)
    queue.send("d")
    reply = told.Numbered(by("me"), 1, [1])
    assert reply in queue.ask(ask.DeleteMany(by("me"), 1, MAIN, 1, before))
    assert records.Removed(queue.now, MAIN, records.PURGED, [2]) in queue.records
    assert queue.numbers() == [1, 3, 4]
    assert told.Numbered(by("me"), 2, [1]) in queue.ask(
        ask.DeleteMany(by("me"), 2, MAIN, 9, before)
    )
    assert queue.numbers() == [1, 4]
    assert told.Numbered(by("me"), 3, [0]) in queue.ask(
        ask.DeleteMany(by("me"), 3, MAIN, 9, before)
    )
    assert queue.ask(ask.DeleteMany(by("me"), 4, DEAD, 9, EVERYTHING)) == [
        told.Numbered(by("me"), 4, [0])
    ]


def test_a_batch_delete_finds_what_a_late_timer_let_in_with_an_earlier_instant() -> None:
    """A scheduled message has its own instant as time of entry, however late it came in."""
    queue = QueueHarness()
    queue.send("scheduled", due=queue.now + 1_000)
    queue.now += 5_000
    queue.send("sent while the timer was late")
    queue.tick()
    assert queue.numbers() == [2, 3]
    assert queue.ask(ask.DeleteMany(by("me"), 1, MAIN, 9, queue.now)) == [
        told.Numbered(by("me"), 1, [1])
    ]
    assert queue.numbers() == [2]


def test_batch_deletes_go_through_a_long_line_bit_by_bit() -> None:
    queue = QueueHarness()
    for _ in range(6):
        queue.send(*(["x"] * 2_000))
    queue.settle(ABANDON, *queue.receive(10))
    for left in range(11_000, -1, -1_000):
        queue.ask(ask.DeleteMany(by("me"), 1, MAIN, 1_000, EVERYTHING))
        assert queue.partition.live_count == left
    assert queue.send("y") == [12_001]
    assert sequences(queue.receive(5)) == [12_001]


def test_what_a_batch_delete_spares_keeps_its_order() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    assert told.Numbered(by("me"), 1, [0]) in queue.ask(
        ask.DeleteMany(by("me"), 1, MAIN, 9, queue.now)
    )
    assert sequences(queue.receive(2)) == [1, 2]


def test_counts_tell_the_states_apart() -> None:
    queue = QueueHarness()
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
    queue = QueueHarness(index=3)
    queue.send("a")
    held = token(queue.receive_one())
    assert (held.sequence >> 48, held.number >> 48) == (3, MAIN)
