"""How many messages are in which state: told by name, without a command."""

from collections import Counter

from peeklock.entity.commands import COMPLETE, DEAD_LETTER, DEFER
from peeklock.entity.moves.depth import PART, STATES
from peeklock.entity.partition import Partition
from tests.entity.partition_harness import QueueHarness, TopicHarness


def told(partition: Partition) -> dict[str, int]:
    found: Counter[str] = Counter()
    for _, counts in partition.depths():
        found.update(dict(zip(STATES, counts, strict=True)))
    return {state: count for state, count in found.items() if count}


def test_each_state_is_counted() -> None:
    queue = QueueHarness()
    assert told(queue.partition) == {}
    queue.send("a", "b", "c", "d")
    assert told(queue.partition) == {"ready": 4}
    held = [queue.receive_one() for _ in range(3)]
    assert told(queue.partition) == {"ready": 1, "locked": 3}
    queue.settle(COMPLETE, held[0])
    queue.settle(DEFER, held[1])
    queue.settle(DEAD_LETTER, held[2])
    assert told(queue.partition) == {"ready": 1, "deferred": 1, "dead_letter": 1}


def test_each_copy_of_a_topic_is_counted() -> None:
    topic = TopicHarness("one", "two", "three")
    topic.send("a", "b")
    assert told(topic.partition) == {"ready": 6}


def test_many_lanes_are_counted_in_parts_while_they_come_and_go() -> None:
    topic = TopicHarness(*[str(number) for number in range(PART)], is_retold=False)
    topic.send("a")
    parts = topic.partition.depths()
    weight, counts = next(parts)
    assert weight == PART
    topic.add("one more")
    topic.configure()
    topic.send("b")
    rest = list(parts)
    assert sum(weight for weight, _ in rest) < PART
    assert counts[0] + sum(counts[0] for _, counts in rest) >= PART
