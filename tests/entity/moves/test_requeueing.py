"""Grants by bytes, and messages that were handed out for good and never sent (R-S1, R-S6)."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import DEAD, MAIN, PEEK_LOCK, RECEIVE_AND_DELETE
from peeklock.entity.deliveries import Delivery
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, deliveries, sequences

MODES = [PEEK_LOCK, RECEIVE_AND_DELETE]


def grant(queue: QueueHarness, limit: int, size: int, *, drain: bool = False) -> list[Delivery]:
    return deliveries(queue.ask(ask.Grant(by("r"), limit, drain, False, size)), "r")


@pytest.mark.parametrize("mode", MODES)
def test_a_grant_ends_with_its_bytes_or_its_count(mode: int) -> None:
    queue = QueueHarness(is_retold=True)
    queue.send(*["x" * 10] * 9)
    queue.open("r", mode=mode)
    assert sequences(grant(queue, 9, 1)) == [1], "a message of any size goes through"
    assert sequences(grant(queue, 9, 10)) == [], "its bytes were lent in advance"
    assert sequences(grant(queue, 9, 25)) == [2, 3]
    assert sequences(grant(queue, 4, 100)) == [4], "the count ends first"
    assert sequences(grant(queue, 9, 41)) == [5]
    (reply,) = queue.ask(ask.Grant(by("r"), 9, False, False, 65))
    assert isinstance(reply, told.Delivered)
    assert reply.size == 20


def test_a_message_that_comes_later_uses_what_is_left_of_the_bytes() -> None:
    queue = QueueHarness()
    queue.open("r")
    grant(queue, 9, 15)
    queue.send("x" * 10)
    assert sequences(deliveries(queue.replies, "r")) == [1]
    queue.send("x" * 10, "x" * 10)
    assert sequences(deliveries(queue.replies, "r")) == [2]


@pytest.mark.parametrize("mode", MODES)
def test_a_drain_that_its_bytes_cut_short_says_so(mode: int) -> None:
    queue = QueueHarness()
    queue.send(*["x" * 10] * 3)
    queue.open("r", mode=mode)
    grant(queue, 9, 20, drain=True)
    assert queue.replies[-1] == told.Drained(by("r"), True)
    # The count is used up, the bytes are not.
    grant(queue, 9 + 7, 30, drain=True)
    assert queue.replies[-1] == told.Drained(by("r"), False)
    assert [type(reply) for reply in queue.replies] == [told.Delivered, told.Drained]


def removed(queue: QueueHarness, count: int, lane: int = MAIN) -> list[Delivery]:
    """What receive-and-delete hands out, with its bodies."""
    found = queue.receive(count, "deleter", lane=lane, mode=RECEIVE_AND_DELETE)
    for delivery in found:
        delivery.message = queue.journal.body(delivery.position)
    return found


@pytest.mark.parametrize("memory", [0, 1_000])
def test_what_was_never_sent_is_back_with_number_place_and_count(memory: int) -> None:
    queue = QueueHarness(is_retold=True, memory=memory)
    queue.send("a", "b", "c", "d")
    queue.settle(ask.ABANDON, queue.receive_one(), changes={"p": b"1"})
    unsent = removed(queue, 3)
    queue.send("e")
    queue.journal.trim(queue.partition.live_blocks())
    queue.ask(ask.Requeue(MAIN, unsent[1:]))
    queue.ask(ask.Requeue(MAIN, unsent[:1]))
    back = queue.receive(9)
    assert sequences(back) == [1, 2, 3, 4, 5]
    assert queue.contents(back) == ["a", "b", "c", "d", "e"]
    assert [each.delivery_count for each in back] == [1, 0, 0, 0, 0]
    assert back[0].details is not None
    assert back[0].details.changes == {"p": b"1"}
    assert [each.enqueued_at for each in back] == [queue.now] * 5


def test_it_is_handed_to_who_waits_and_survives_a_restart_and_a_checkpoint() -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a", "b")
    unsent = removed(queue, 2)
    queue.restart()
    queue.ask(ask.Requeue(MAIN, unsent))
    queue.checkpoint()
    queue.restart()
    queue.open("r", credit=9)
    assert sequences(deliveries(queue.replies, "r")) == [1, 2]
    queue.ask(ask.CloseReceiver(by("r"), True))
    unsent = removed(queue, 1)
    assert unsent == []


def test_a_repeat_does_not_double_what_is_back_already() -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a", "b")
    unsent = removed(queue, 2)
    queue.ask(ask.Requeue(MAIN, unsent[:1]))
    queue.ask(ask.Requeue(MAIN, unsent, True))
    assert queue.numbers() == [1, 2]


def test_a_life_that_ended_meanwhile_ends() -> None:
    queue = QueueHarness(is_retold=True, dead_letter_on_expiration=True)
    queue.send("a", life_ms=1_000)
    queue.send("b", life_ms=9_000)
    unsent = removed(queue, 2)
    queue.now += 2_000
    queue.ask(ask.Requeue(MAIN, unsent))
    assert queue.numbers() == [2]
    assert sequences(queue.dead()) == [1]
    queue.tick(9_000)
    assert sequences(queue.dead()) == [1, 2]


def test_dead_letters_keep_their_reasons() -> None:
    queue = QueueHarness(is_retold=True)
    queue.send("a")
    note = ("why", "because")
    queue.settle(ask.DEAD_LETTER, queue.receive_one(), note=note)
    queue.ask(ask.Requeue(DEAD, removed(queue, 1, DEAD)))
    (dead,) = queue.dead()
    assert dead.details is not None
    assert (dead.details.reason, dead.details.description) == ("why", "because")


def test_a_session_gets_its_messages_back_in_order() -> None:
    queue = QueueHarness(is_retold=True, requires_session=True)
    queue.send("a", "b", session="s")
    queue.accept("s", mode=RECEIVE_AND_DELETE)
    unsent = queue.take(2)
    for delivery in unsent:
        delivery.message = queue.journal.body(delivery.position)
    queue.send("c", session="s")
    queue.ask(ask.Requeue(MAIN, unsent), ask.CloseReceiver(by("holder"), True))
    assert queue.sessions() == ["s"]
    queue.accept(None, "other")
    assert queue.contents(queue.take(9, "other")) == ["a", "b", "c"]


def test_a_copy_goes_back_to_its_subscription_or_with_it() -> None:
    topic = TopicHarness("one", "two")
    topic.send("a")
    unsent = removed(topic, 1, topic.lanes["one"])
    topic.ask(ask.Requeue(topic.lanes["one"], unsent))
    assert topic.seen_by("one") == ["a"]
    unsent = removed(topic, 1, topic.lanes["one"])
    del topic.subscriptions["one"]
    topic.configure()
    topic.ask(ask.Requeue(topic.lanes["one"], unsent))
    assert topic.records == []
    assert topic.seen_by("two") == ["a"]
