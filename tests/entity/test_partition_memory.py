"""What a partition says that it takes in memory: a count, kept as it goes."""

from peeklock.entity.memory import COPY_BYTES, ENTRY_BYTES, LOCK_BYTES, SEEN_BYTES
from tests.entity.at_hand import AtHand, TopicAtHand


def test_entries_and_locks_are_counted_until_they_are_gone() -> None:
    queue = AtHand()
    assert queue.partition.memory_bytes == 0
    queue.send("a", "b", "c")
    assert queue.partition.memory_bytes == 3 * ENTRY_BYTES
    held = queue.receive_one()
    assert queue.partition.memory_bytes == 3 * ENTRY_BYTES + LOCK_BYTES
    queue.settle(0, held)
    assert queue.partition.memory_bytes == 2 * ENTRY_BYTES
    queue.restart()
    assert queue.partition.memory_bytes == 2 * ENTRY_BYTES


def test_each_copy_is_counted_although_the_body_is_kept_once() -> None:
    topic = TopicAtHand("one", "two", "three")
    topic.send("a", "b")
    assert topic.partition.memory_bytes == 6 * COPY_BYTES


def test_remembered_ids_are_counted() -> None:
    queue = AtHand(duplicate_window_ms=10_000)
    queue.send("a", id="1")
    assert queue.partition.memory_bytes == ENTRY_BYTES + SEEN_BYTES
