"""A delete of the oldest of all sessions looks at some of them in each decision."""

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import MAIN
from peeklock.entity.definition import DISABLED, QueueDefinition
from peeklock.entity.moves.purging import LOOKS
from peeklock.entity.records import Removed
from peeklock.entity.refusals import ENTITY_DISABLED
from peeklock.entity.replies import Reply
from peeklock.entity.stint import Stint
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness

SESSIONS = "abcdefg"


def queue_of(steps: int) -> QueueHarness:
    """Two messages in each session, the older ones in the later sessions."""
    queue = QueueHarness(requires_session=True, is_retold=True, stint=Stint(steps))
    for session in SESSIONS:
        queue.send("first", session=session)
    for session in reversed(SESSIONS):
        queue.send("second", session=session)
    return queue


def decide(queue: QueueHarness, *commands: ask.Command) -> list[Reply]:
    """One decision, and no more."""
    return queue.keep(queue.partition.decide(commands, queue.now))


def purging(queue: QueueHarness, tag: int, count: int) -> ask.DeleteMany:
    return ask.DeleteMany(by("me"), tag, MAIN, count, queue.now + 1)


def test_sessions_are_looked_at_in_stints_and_the_oldest_go() -> None:
    queue = queue_of(2)
    assert told.Numbered(by("me"), 1, [9]) in queue.ask(purging(queue, 1, 9))
    assert queue.decisions == 4
    assert queue.numbers() == [10, 11, 12, 13, 14]
    assert queue.sessions() == list("abcde")
    assert queue.count().active == 5


def test_nothing_is_deleted_before_all_sessions_were_looked_at() -> None:
    queue = queue_of(3)
    command = purging(queue, 1, 2)
    for _ in range(2):
        assert decide(queue, command) == []
        assert queue.partition.take_leftovers() == [command]
        assert queue.records == []
    assert decide(queue, command) == [told.Numbered(by("me"), 1, [2])]
    (record,) = queue.records
    assert isinstance(record, Removed)
    assert record.sequences == [1, 2]


def test_what_was_taken_meanwhile_is_passed_over() -> None:
    queue = queue_of(6)
    command = purging(queue, 1, 2)
    decide(queue, command)
    assert queue.partition.take_leftovers() == [command]
    assert queue.accept("a") == "a"
    queue.ask(ask.Grant(by("holder"), 1, False))
    assert decide(queue, command) == [told.Numbered(by("me"), 1, [2])]
    # Those sessions give their next ones instead: who asks on must not think it is done.
    assert queue.numbers() == [1, *range(3, 13), 14]


def test_two_deletes_are_done_one_after_the_other() -> None:
    queue = queue_of(2)
    replies = queue.ask(purging(queue, 1, 3), purging(queue, 2, 3))
    assert replies == [told.Numbered(by("me"), 1, [3]), told.Numbered(by("me"), 2, [3])]
    assert queue.numbers() == list(range(7, 15))


def test_a_queue_that_is_closed_meanwhile_keeps_nobody_waiting() -> None:
    queue = queue_of(2)
    command = purging(queue, 1, 3)
    decide(queue, command)
    queue.is_retold = False
    closed = QueueDefinition("orders", requires_session=True, status=DISABLED)
    decide(queue, ask.Configure(queue_blueprint(closed)))
    (reply,) = decide(queue, command)
    assert isinstance(reply, told.Refused)
    assert reply.refusal.kind == ENTITY_DISABLED
    decide(queue, ask.Configure(queue.described()))
    queue.partition.take_leftovers()
    assert told.Numbered(by("me"), 2, [3]) in queue.ask(purging(queue, 2, 3))


def test_a_line_of_which_nothing_is_old_enough_is_looked_through_in_parts() -> None:
    """All of it was looked at in one decision."""
    queue = QueueHarness(stint=Stint(4))
    queue.now -= 10
    old = queue.send("a", "b")
    queue.now += 10
    for _ in range(10):
        queue.send(*["x"] * 100)
    command = ask.DeleteMany(by("m"), 7, MAIN, 100, queue.now)
    (reply,) = queue.ask(command)
    assert reply == told.Numbered(by("m"), 7, [2])
    assert queue.decisions >= 1000 // (4 * LOOKS)
    assert not set(old) & set(queue.numbers())


def test_what_came_back_is_among_the_oldest() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send(*"abcdef")
    held = queue.receive(3)
    queue.settle(ask.ABANDON, held[2], held[0])
    queue.now += 1
    (reply,) = queue.ask(ask.DeleteMany(by("m"), 7, MAIN, 3, queue.now))
    assert reply == told.Numbered(by("m"), 7, [3])
    assert queue.contents(queue.peek()) == ["b", "e", "f"]
