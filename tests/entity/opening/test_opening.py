"""An opening takes in what there is a part at a time, and costs what there is."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.clock import MANUAL_START
from peeklock.entity import commands as ask
from peeklock.entity.blueprint import Blueprint, subscription_policy, topic_blueprint
from peeklock.entity.commands import MAIN
from peeklock.entity.definition import SubscriptionDefinition, TopicDefinition
from peeklock.entity.entries import Entry
from peeklock.entity.message import BodyBudget, Message
from peeklock.entity.opening.placing import _SMALL, BLOCK_MAX, Entries
from peeklock.entity.opening.restore import Restoring
from peeklock.entity.partition import PLACED_AT_ONCE, Partition
from peeklock.entity.records import Enqueued, Record, Removed, width
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.topics.records import LaneDropped, Published
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, routed
from tests.entity.partition_harness import message as words

NOW = MANUAL_START
LANES_MAX = 2000


def topic(*lanes: int) -> Blueprint:
    blueprint = topic_blueprint(TopicDefinition("t"), routed())
    for lane in lanes:
        definition = SubscriptionDefinition("t", f"s{lane}", requires_session=True)
        blueprint.lanes[lane] = subscription_policy(definition)
    return blueprint


def opening(*lanes: int) -> Partition:
    return Partition(topic(*lanes), 0, BodyBudget(0), lambda: 1)


def restoring_of(partition: Partition) -> Restoring:
    assert partition._restoring is not None
    return partition._restoring


def message() -> Message:
    return Message(b"", b"x")


def published(count: int, lanes: list[int], first: int = 1) -> list[Record]:
    ends = [0] * len(lanes)
    return [
        Published(NOW, first + at * len(lanes), message(), lanes, ends, 1) for at in range(count)
    ]


def known(entries: Entries) -> int:
    return sum(1 for _ in entries.numbers())


def steps_of(partition: Partition, records: list[Record]) -> list[int]:
    """How many messages each step of a restore brought in or took out."""
    entries = restoring_of(partition)._entries
    partition.begin_restoring(0, records)
    counts = []
    is_done = False
    while not is_done:
        before = known(entries)
        is_done = partition.restore_some()
        counts.append(abs(known(entries) - before))
    return counts


def test_a_chunk_of_very_many_copies_is_taken_in_parts() -> None:
    lanes = list(range(4, 4 + 2 * LANES_MAX, 2))
    counts = steps_of(opening(*lanes), published(20, lanes))
    assert sum(counts) == 20 * LANES_MAX
    assert max(counts) <= PLACED_AT_ONCE + LANES_MAX


@pytest.mark.parametrize("count", [1, PLACED_AT_ONCE, 5 * PLACED_AT_ONCE + 7])
def test_a_record_of_very_many_messages_is_taken_in_parts(count: int) -> None:
    partition = opening()
    sent = Enqueued(NOW, 1, [message() for _ in range(count)])
    settled = Removed(NOW, MAIN, 0, list(range(1, count)))
    counts = steps_of(partition, [sent, settled])
    assert sum(counts) >= count
    assert max(counts) <= PLACED_AT_ONCE
    assert partition.next_position == width(sent) + 1
    assert restoring_of(partition).positions() == {count: count - 1}
    assert restoring_of(partition).next_sequence == count + 1


def drops(lanes: int, messages: int) -> list[Record]:
    """A topic all of whose subscriptions were dropped."""
    numbers = list(range(4, 4 + 2 * lanes, 2))
    states = [SessionStateSet(NOW, lane, "s", b"x") for lane in numbers]
    return [*published(messages, numbers), *states, *[LaneDropped(NOW, each) for each in numbers]]


def cpu(work: Callable[[], None]) -> float:
    took = []
    for _ in range(3):
        begun = time.thread_time()
        work()
        took.append(time.thread_time() - begun)
    return min(took)


def test_dropped_lanes_cost_what_they_had() -> None:
    """Each of them looked at all that there was: four times as many took sixteen times as long."""

    def opened(records: list[Record]) -> Callable[[], None]:
        def work() -> None:
            partition = opening(4)
            partition.restore(0, records)
            partition.opened()
            assert partition.live_count == 0
            partition.check()

        return work

    few, many = drops(100, 40), drops(400, 40)
    # A busy machine can make any one of them long, but not each time.
    assert any(cpu(opened(many)) < 10 * cpu(opened(few)) for _ in range(4))


def test_a_dropped_lane_is_left_out_where_its_messages_would_be_placed() -> None:
    partition = opening(4, 6)
    records: list[Record] = [
        *published(3, [4, 6]),
        SessionStateSet(NOW, 4, "s", b"gone"),
        LaneDropped(NOW, 4),
        *published(1, [4, 6], first=7),
        SessionStateSet(NOW, 4, "s", b"new"),
    ]
    partition.restore(0, records)
    assert restoring_of(partition).numbers() == [2, 4, 6, 7, 8]
    assert list(restoring_of(partition).positions()) == [2, 4, 6, 7, 8]
    partition.opened()
    partition.check()
    assert partition.live_count == 5
    lane_sessions = partition._state.lane(4).sessions
    assert lane_sessions is not None
    assert lane_sessions.by_id["s"].state == b"new"


def test_what_came_back_to_a_lane_after_it_was_dropped_is_there() -> None:
    topic = TopicHarness("one", "two", is_retold=False)
    topic.send("a", "b")
    lane = topic.lanes["two"]
    (taken,) = topic.receive(1, "r", lane=lane, mode=ask.RECEIVE_AND_DELETE)
    taken.message = topic.journal.body(taken.position)
    two = topic.subscriptions.pop("two")
    topic.configure()
    topic.subscriptions["two"] = two
    topic.configure()
    topic.ask(ask.Requeue(lane, [taken]))
    assert topic.seen_by("two") == ["a"]
    topic.restart()
    assert topic.seen_by("two") == ["a"]
    topic.retell()


def test_sessions_are_found_in_parts() -> None:
    queue = QueueHarness(requires_session=True)
    count = 3 * PLACED_AT_ONCE
    for at in range(0, count, 1000):
        names = [f"s{number}" for number in range(at, min(at + 1000, count))]
        messages = [words("x", session=name) for name in names]
        queue.ask(ask.SendMany(by("sender"), list(range(len(names))), messages))
    partition = Partition(queue.described(), 0, queue.budget, queue.random_source)
    for position, records in queue.journal.replay(0):
        partition.restore(position, records)
    steps = 0
    while not partition.place_some():
        steps += 1
    # Once to deal the numbers out, once to place the messages, once to offer the sessions.
    assert steps >= 2 * count // PLACED_AT_ONCE
    partition.opened()
    assert queue.partition.live_count == partition.live_count


def slots(entries: Entries) -> list[int]:
    return [len(block.entries) for block in entries._blocks]


def test_nothing_of_an_opening_grows_in_one_step() -> None:
    """A dictionary of two million grew in a step of 100 ms, and many that were filled evenly all
    grew together."""
    lanes = list(range(4, 4 + 2 * LANES_MAX, 2))
    partition = opening(*lanes)
    steps_of(partition, published(20, lanes))
    entries = restoring_of(partition)._entries
    assert max(slots(entries)) <= BLOCK_MAX
    while not partition.place_some():
        pass
    assert entries.is_empty


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "pop", "lane"]), st.integers(1, 400), st.integers(1, 9)),
        max_size=300,
    )
)
def test_entries_are_found_by_number(moves: list[tuple[str, int, int]]) -> None:
    entries = Entries()
    known: dict[int, tuple[Entry, int]] = {}
    for kind, first, number in moves:
        # Runs of numbers, some of them in a row.
        for sequence in range(first, first + 40 * number, number):
            if kind == "put":
                entry = Entry(sequence, 0, NOW, 0, 1, None)
                known[sequence] = (entry, known[sequence][1] if sequence in known else MAIN)
                entries.put(entry)
            elif kind == "pop":
                assert entries.pop(sequence) is known.pop(sequence, (None, 0))[0]
            elif sequence in known:
                known[sequence] = (known[sequence][0], number)
                entries.set_lane(sequence, number)
    for sequence in range(800):
        found = known.get(sequence)
        assert entries.get(sequence) is (None if found is None else found[0])
        assert entries.lane_of(sequence) == (MAIN if found is None else found[1])
    assert list(entries.numbers()) == sorted(known)
    taken: list[tuple[Entry, int]] = []
    while not entries.is_empty:
        block = entries.take_first()
        assert len(block.entries) <= BLOCK_MAX
        for each, lane in zip(block.entries, block.lanes, strict=True):
            if each is not None:
                taken.append((each, lane))
    assert taken == [known[sequence] for sequence in sorted(known)]


@pytest.mark.parametrize("step", [-1, 1, 7919])
def test_numbers_in_any_order_are_put_in_order(step: int) -> None:
    count = 8 * BLOCK_MAX + 1
    entries = Entries()
    for number in range(count):
        entries.put(Entry(1 + number * step % count, 0, NOW, 0, 1, None))
    assert list(entries.numbers()) == list(range(1, count + 1))
    assert max(slots(entries)) <= BLOCK_MAX
    assert len(slots(entries)) <= 4 * count // BLOCK_MAX


@pytest.mark.parametrize("kept", [3, 50, 1500])
def test_what_is_gone_takes_no_room(kept: int) -> None:
    """Of very many messages one in so many is left."""
    count = 100 * BLOCK_MAX
    entries = Entries()
    for sequence in range(1, count + 1):
        entries.put(Entry(sequence, 0, NOW, 0, 1, None))
        if sequence > BLOCK_MAX and (sequence - BLOCK_MAX) % kept:
            assert entries.pop(sequence - BLOCK_MAX) is not None
    live = BLOCK_MAX + count // kept
    assert sum(slots(entries)) <= 4 * live + 2 * BLOCK_MAX
    assert len(slots(entries)) <= 8 + 4 * live // _SMALL
