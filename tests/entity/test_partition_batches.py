"""What holds for several messages at once: the size of the entity, the keys of duplicates, the
order of batch deletes, the bodies that copies share."""

from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import (
    COMPLETE,
    DEAD_LETTER,
    FORWARD,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    TRANSFER,
    TRANSFER_DEAD,
)
from peeklock.entity.deliveries import STATE_SCHEDULED
from peeklock.entity.message import Message, Traits
from peeklock.entity.refusals import MESSAGE_NOT_FOUND, QUOTA_EXCEEDED, SESSION_LOCK_LOST
from peeklock.entity.upkeep.live_bodies import BLOCK
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, message, routed, sequences

# The size of an entity.


def wishes(messages: list[Message], now: int) -> list[ask.Command]:
    later = [Message(b"", each.content, Traits(scheduled_at=now + 1_000)) for each in messages]
    transfers: list[Any] = [ask.TransferMessage("there", each) for each in messages]
    return [
        ask.SendBatch(by("s"), 1, messages),
        ask.Schedule(by("s"), 1, later),
        ask.TakeOver(by("c"), 1, "there", list(range(len(messages))), messages, []),
        ask.Commit(by("t"), 1, [ask.SendMany(by("s"), [1], [each]) for each in messages]),
        ask.Commit(by("t"), 1, [*transfers[:1], ask.SendBatch(by("s"), 1, messages[1:])]),
        ask.Commit(by("t"), 1, transfers),
    ]


@pytest.mark.parametrize("which", range(6))
def test_all_that_is_stored_together_must_find_room(which: int) -> None:
    queue = QueueHarness(size_max=10)
    too_much = wishes([message("1234") for _ in range(3)], queue.now)[which]
    assert queue.fate(too_much) == QUOTA_EXCEEDED
    assert queue.partition.live_count == 0
    just_right = wishes([message("12345") for _ in range(2)], queue.now)[which]
    assert queue.fate(just_right) == "fine"
    assert queue.count().bytes == 10
    assert queue.fate(ask.SendMany(by("s"), [1], [message("x")])) == QUOTA_EXCEEDED


def test_of_several_sends_those_are_taken_that_find_room() -> None:
    queue = QueueHarness(size_max=10)
    sends = [message(each) for each in ("1234", "1234", "1234", "12")]
    replies = queue.ask(ask.SendMany(by("s"), [1, 2, 3, 4], sends))
    assert told.SendsAccepted(by("s"), [1, 2, 4]) in replies
    assert [each.tags for each in replies if isinstance(each, told.Refused)] == [[3]]


# Duplicates.


def keyed(id: str, *, session: str | None = None, key: str | None = None) -> Message:
    return Message(b"", b"x", Traits(message_id=id, session_id=session, partition_key=key))


@pytest.mark.parametrize("partitions", [1, 4])
def test_ids_differ_by_their_key_on_a_partitioned_entity(partitions: int) -> None:
    """R-S9, protocol 11.6."""
    queue = QueueHarness(partitions=partitions, duplicate_window_ms=60_000, is_retold=True)
    different = [
        keyed("1"),
        keyed("1", key=""),
        keyed("1", key="a"),
        keyed("1", key="b"),
        keyed("11", key=""),
    ]
    queue.ask(ask.SendMany(by("s"), list(range(5)), different))
    kept = 5 if partitions > 1 else 2
    assert queue.partition.live_count == kept
    queue.checkpoint()
    queue.restart()
    queue.ask(ask.SendMany(by("s"), list(range(5)), different))
    queue.ask(ask.SendBatch(by("s"), 1, [keyed("1", session="a", key="a")]))
    assert queue.partition.live_count == kept


def test_a_partitioned_topic_remembers_keys_too() -> None:
    topic = TopicHarness("one", partitions=4, duplicate_window_ms=60_000)
    for one in (keyed("1", key="a"), keyed("1", key="b"), keyed("1", key="a")):
        topic.ask(ask.SendMany(by("s"), [1], [one]))
    assert topic.count().bytes == 2


# Sessions.


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(requires_session=True, is_retold=True)


def test_a_look_at_a_session_shows_what_is_scheduled_for_it(queue: QueueHarness) -> None:
    queue.send("now", session="a")
    queue.send("later", session="a", due=queue.now + 1_000)
    queue.send("other", session="b", due=queue.now + 1_000)
    assert queue.contents(queue.peek(session="a")) == ["now", "later"]
    (only,) = queue.peek(session="b")
    assert (queue.content(only), only.state) == ("other", STATE_SCHEDULED)
    assert queue.peek(session="b", start=only.sequence + 1) == []
    assert queue.peek(session="b", count=0) == []
    assert queue.peek(session="c") == []
    assert queue.sessions() == ["a"]


def test_deferred_messages_are_for_the_holder_of_the_session(queue: QueueHarness) -> None:
    queue.send("a0", session="a")
    queue.accept("a")
    queue.settle(ask.DEFER, *queue.take(1))

    def fate(holder: Any, sequence: int = 1) -> str:
        command = ask.ReceiveDeferred(by("m"), 7, MAIN, [sequence], PEEK_LOCK, "a", holder)
        return queue.fate(command)

    assert fate("somebody else") == SESSION_LOCK_LOST
    assert fate("holder", 2) == MESSAGE_NOT_FOUND
    assert fate("holder") == "fine"


def test_a_batch_delete_takes_the_oldest_of_all_sessions(queue: QueueHarness) -> None:
    for number in range(3):
        for name in ("a", "b"):
            queue.send(f"{name}{number}", session=name)
    queue.accept("a")
    queue.take(1)
    (reply,) = queue.ask(ask.DeleteMany(by("m"), 1, MAIN, 3, queue.now + 1))
    assert reply == told.Numbered(by("m"), 1, [3])
    assert queue.contents(queue.peek()) == ["a0", "a2", "b2"]
    queue.ask(ask.DeleteMany(by("m"), 1, MAIN, 9, queue.now + 1, "b"))
    assert queue.contents(queue.peek()) == ["a0", "a2"]
    assert queue.sessions() == ["a"]
    assert queue.contents(queue.take(9)) == ["a2"]


# Copies.


def test_a_body_that_copies_share_is_relocated_once() -> None:
    topic = TopicHarness("one", "two", "three", is_retold=False)
    topic.send("shared")
    topic.router = routed(Copy(4))
    topic.send("alone", *(["x"] * (BLOCK - 2)))
    held = topic.receive(BLOCK, lane=4)
    topic.settle(COMPLETE, *held[2:])
    chosen = topic.partition.next_to_relocate(topic.partition.next_position, 10)
    assert len(chosen) == 2
    messages = [topic.journal.body(entry.position) for entry in chosen]
    topic.receive(1, lane=8, mode=RECEIVE_AND_DELETE)
    before = topic.partition.next_position
    topic.keep(topic.partition.relocate(chosen, messages, topic.now))
    relocated = [each for each in topic.records if isinstance(each, records.Relocated)]
    shared = [each for each in topic.records if isinstance(each, records.RelocatedCopies)]
    assert [len(each.sequences) for each in relocated] == [1]
    assert [each.sequences for each in shared] == [[1, 2]]
    assert topic.partition.live_blocks() == [before // BLOCK]
    topic.retell()
    topic.restart()
    assert topic.contents(topic.peek(4)) == ["shared", "alone"]
    assert topic.seen_by("two") == ["shared"]
    assert topic.seen_by("three") == []
    assert len({each.position for each in (topic.peek(4)[0], topic.peek(6)[0])}) == 1


def test_so_many_bodies_are_chosen_and_no_more() -> None:
    topic = TopicHarness("one", "two", is_retold=False)
    topic.send(*"abcd")
    topic.router = routed(Copy(4))
    topic.send(*(["x"] * BLOCK))
    topic.settle(COMPLETE, *topic.receive(BLOCK + 4, lane=4)[4:])
    chosen: list[int] = []
    while True:
        some = topic.partition.next_to_relocate(BLOCK, 3)
        chosen.append(len(some))
        messages = [topic.journal.body(entry.position) for entry in some]
        topic.keep(topic.partition.relocate(some, messages, topic.now))
        if not topic.partition.is_relocating:
            break
    assert chosen == [3, 1]
    assert 0 not in topic.partition.live_blocks()
    assert topic.seen_by("two") == list("abcd")


def test_copies_that_are_gone_or_moved_meanwhile_are_left_out() -> None:
    topic = TopicHarness("one", "two", "three", is_retold=False)
    topic.send("shared")
    topic.router = routed(Copy(4))
    topic.send(*(["x"] * BLOCK))
    topic.settle(COMPLETE, *topic.receive(BLOCK + 1, lane=4))
    (chosen,) = topic.partition.next_to_relocate(BLOCK, 3)
    body = topic.journal.body(chosen.position)
    (held,) = topic.receive(1, lane=6)
    topic.settle(DEAD_LETTER, held)
    topic.keep(topic.partition.relocate([chosen], [body], topic.now))
    assert [type(each) for each in topic.records] == [records.Relocated]
    topic.retell()
    assert topic.contents(topic.peek(7)) == ["shared"]
    assert topic.seen_by("three") == ["shared"]


def test_a_message_that_no_rule_wants_breaks_nothing() -> None:
    """A failed rule of a subscription that does not want dead letters gives no copy either."""
    topic = TopicHarness("one", duplicate_window_ms=60_000)
    topic.router = routed()
    later = topic.now + 1_000
    commands: list[ask.Command] = [
        ask.SendMany(by("s"), [1], [message("a", id="1")]),
        ask.SendBatch(by("s"), 1, [message("a"), message("b")]),
        ask.Schedule(by("s"), 1, [message("a", due=later), message("b")]),
        ask.TakeOver(by("c"), 1, "there", [1], [message("a")], []),
        ask.Commit(by("t"), 1, [ask.SendMany(by("s"), [1], [message("a")])]),
    ]
    assert [topic.fate(command) for command in commands] == ["fine"] * len(commands)
    topic.fire_timer(1_000)
    assert topic.partition.live_count == 0
    assert topic.count().scheduled == 0


def test_only_what_is_due_has_its_body_fetched() -> None:
    topic = TopicHarness("one", memory=0)
    for delay in (5, 1, 4, 2, 3, 6, 7):
        topic.send(str(delay), due=topic.now + delay)
    wanted = topic.partition.bodies_wanted(topic.now + 3)
    assert sorted(topic.journal.body(entry.position).content for entry in wanted) == [
        b"1",
        b"2",
        b"3",
    ]
    before = [entry.details for entry in wanted]
    again = topic.partition.bodies_wanted(topic.now + 3)
    assert [id(entry.details) for entry in again] == [id(details) for details in before]


# Counting.


def test_what_is_on_its_way_elsewhere_is_counted_by_itself() -> None:
    queue = QueueHarness()
    queue.send("here")
    transfers: list[Any] = [ask.TransferMessage("there", message(each)) for each in "abc"]
    queue.ask(ask.Commit(by("t"), 1, transfers))
    held = queue.receive(2, lane=TRANSFER, mode=FORWARD)
    queue.settle(DEAD_LETTER, held[0])
    counted = queue.count()
    assert (counted.active, counted.transfer, counted.transfer_dead_letter) == (1, 2, 1)
    assert sequences(queue.peek(TRANSFER_DEAD)) == [held[0].sequence]


def test_a_subscription_counts_no_transfers() -> None:
    topic = TopicHarness("one")
    topic.ask(ask.Commit(by("t"), 1, [ask.TransferMessage("there", message("x"))]))
    (counted,) = topic.ask(ask.Count(by("m"), 1, 4))
    assert isinstance(counted, told.Counted)
    assert (counted.transfer, counted.transfer_dead_letter) == (0, 0)
    assert topic.count().transfer == 1
