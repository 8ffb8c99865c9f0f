"""One decision hands out so many messages and no more, whatever the credit is; what is gone from a
line is passed over in parts."""

from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import COMPLETE, MAIN, PEEK_LOCK, RECEIVE_AND_DELETE
from peeklock.entity.entries import TAKEN, Entry
from peeklock.entity.lane import HEAD_MAX, PASSED_MAX, Lane
from peeklock.entity.moves.delivering import DELIVERED_AT_ONCE, PASSED
from peeklock.entity.records import READY
from peeklock.entity.replies import Reply
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries, message

MANY = 3 * DELIVERED_AT_ONCE + 5


def queue_of(count: int, **properties: Any) -> QueueHarness:
    queue = QueueHarness(**properties)
    for at in range(0, count, 1000):
        some = min(1000, count - at)
        queue.ask(ask.SendMany(by("s"), list(range(some)), [message("x") for _ in range(some)]))
    return queue


def decide(queue: QueueHarness, *commands: ask.Command) -> list[Reply]:
    """One decision and no more."""
    return queue.keep(queue.partition.decide(commands, queue.now))


def handed_out(replies: list[Reply]) -> int:
    return sum(len(each.deliveries) for each in replies if isinstance(each, told.Delivered))


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_a_grant_for_very_many_is_served_in_parts(mode: int) -> None:
    """It was one decision for all of them, and one step for their receiver."""
    queue = queue_of(MANY)
    opened = ask.OpenReceiver(by("r"), MAIN, mode)
    counts = []
    found: list[int] = []
    replies = decide(queue, opened, ask.Grant(by("r"), 1 << 31, True))
    while True:
        counts.append(handed_out(replies))
        found += [each.sequence for each in deliveries(replies, "r")]
        if not queue.partition.is_unfinished:
            break
        assert not any(isinstance(each, told.Drained) for each in replies)
        replies = decide(queue)
    assert max(counts) == DELIVERED_AT_ONCE
    assert found == list(range(1, MANY + 1))
    assert told.Drained(by("r")) in replies


def test_others_get_theirs_before_one_gets_more() -> None:
    queue = queue_of(MANY)
    both = [ask.OpenReceiver(by(name), MAIN, PEEK_LOCK) for name in ("greedy", "modest")]
    grants = [ask.Grant(by("greedy"), 1 << 31, False), ask.Grant(by("modest"), 3, False)]
    decide(queue, *both, *grants)
    replies = decide(queue)
    assert len(deliveries(replies, "modest")) == 3


def test_a_receiver_that_goes_in_the_middle_leaves_the_rest() -> None:
    queue = queue_of(MANY)
    decide(queue, ask.OpenReceiver(by("r"), MAIN, PEEK_LOCK), ask.Grant(by("r"), 1 << 31, True))
    replies = decide(queue, ask.CloseReceiver(by("r"), False))
    assert handed_out(replies) == 0
    assert not queue.partition.is_unfinished
    assert queue.count().active == MANY


def test_what_was_taken_is_let_go_at_once() -> None:
    """Entries stayed in front of the head until half of a line was taken, and all went in one
    step."""
    queue = queue_of(HEAD_MAX // 2)
    held = queue.receive(1000)
    queue.settle(COMPLETE, *held)
    lane = queue.partition._state.lane(MAIN)
    assert lane.head == 1000
    assert all(entry is TAKEN for entry in lane.ready[:1000])
    assert TAKEN.place != READY


def test_what_expired_at_the_front_is_passed_over_as_it_goes() -> None:
    queue = queue_of(0)
    for at in range(0, 3000, 1000):
        messages = [message("x", life_ms=1000) for _ in range(1000)]
        queue.ask(ask.SendMany(by("s"), list(range(at, at + 1000)), messages))
    queue.send("kept")
    queue.now += 1000
    while 0 < queue.partition.next_deadline() <= queue.now:
        decide(queue, ask.Tick())
    lane = queue.partition._state.lane(MAIN)
    assert lane.ready[lane.head].place == READY


def test_a_line_of_which_little_is_left_is_passed_over_in_parts() -> None:
    """A receiver passed over all of it in one decision."""
    line = Lane(MAIN)
    count = 2 * PASSED_MAX + 10
    entries = [Entry(number, number, 1, 0, 1, None) for number in range(1, count + 1)]
    line.put_new(entries)
    for entry in reversed(entries[:-1]):
        line.drop_ready(entry)
    assert line.ready_count == 1
    passed = []
    while line.ready[line.head].place != READY:
        passed.append(line.pass_gone())
    assert max(passed) == PASSED_MAX
    assert line.take() is entries[-1]


def test_passing_over_counts_as_work() -> None:
    count = PASSED * DELIVERED_AT_ONCE + 100
    queue = queue_of(count)
    lane = queue.partition._state.lane(MAIN)
    for entry in reversed(lane.ready[:-1]):
        queue.partition._state.forget(lane.drop_ready(entry))
    opened = ask.OpenReceiver(by("r"), MAIN, PEEK_LOCK)
    replies = queue.partition.decide([opened, ask.Grant(by("r"), 10, True)], queue.now).replies
    decisions = 1
    while queue.partition.is_unfinished:
        replies += queue.partition.decide([], queue.now).replies
        decisions += 1
    assert decisions == 2
    assert [each.sequence for each in deliveries(replies, "r")] == [count]
    assert told.Drained(by("r")) in replies
