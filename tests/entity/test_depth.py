"""How many messages are in which state: told by name, without a command."""

from peeklock.entity.commands import COMPLETE, DEAD_LETTER, DEFER
from peeklock.entity.depth import STATES
from peeklock.entity.partition import Partition
from tests.entity.at_hand import AtHand, TopicAtHand


def told(partition: Partition) -> dict[str, int]:
    counts = zip(STATES, partition.depths(), strict=True)
    return {state: count for state, count in counts if count}


def test_each_state_is_counted() -> None:
    queue = AtHand()
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
    topic = TopicAtHand("one", "two", "three")
    topic.send("a", "b")
    assert told(topic.partition) == {"ready": 6}
