"""A peek looks at a bounded number of messages in each decision, whatever state they are in."""

from collections.abc import Callable

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import MAIN
from peeklock.entity.moves.looking import NUMBERS
from peeklock.entity.replies import Reply
from peeklock.entity.stint import Stint
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness, sequences

MANY = 5 * NUMBERS


def locked(queue: QueueHarness) -> None:
    queue.receive(MANY)


def deferred(queue: QueueHarness) -> None:
    queue.settle(ask.DEFER, *reversed(queue.receive(MANY)))


def returned(queue: QueueHarness) -> None:
    held = queue.receive(MANY - 1)
    queue.settle(ask.RELEASE, *reversed(held))


def decide(queue: QueueHarness, *commands: ask.Command) -> list[Reply]:
    """One decision, and no more."""
    return queue.keep(queue.partition.decide(commands, queue.now))


def peeking(first: int, count: int, tag: int = 1) -> ask.Peek:
    return ask.Peek(by("me"), tag, MAIN, first, count, EVERYTHING)


def shown(replies: list[Reply]) -> list[list[int]]:
    return [sequences(each.deliveries) for each in replies if isinstance(each, told.Found)]


@pytest.mark.parametrize("prepare", [locked, deferred, returned])
def test_what_is_in_another_order_is_looked_through_in_stints(
    prepare: Callable[[QueueHarness], None],
) -> None:
    queue = QueueHarness(stint=Stint(2))
    queue.send(*["m"] * MANY)
    prepare(queue)
    assert shown(queue.ask(peeking(7, 5))) == [[7, 8, 9, 10, 11]]
    assert queue.decisions == 3
    assert shown(queue.ask(peeking(MANY - 1, 5))) == [[MANY - 1, MANY]]
    assert shown(queue.ask(peeking(MANY + 1, 5))) == [[]]


def test_sessions_are_looked_at_in_stints() -> None:
    queue = QueueHarness(requires_session=True, stint=Stint(1))
    for _ in range(2):
        for session in "abcdef":
            queue.send("m", session=session)
    queue.accept("b")
    queue.ask(ask.Grant(by("holder"), 1, False))
    assert shown(queue.ask(peeking(2, 8))) == [[2, 3, 4, 5, 6, 7, 8, 9]]
    assert queue.decisions > 5


def test_many_ready_messages_are_not_looked_at() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send(*["m"] * MANY)
    assert shown(queue.ask(peeking(3, 2))) == [[3, 4]]
    assert queue.decisions == 1


def test_others_go_on_meanwhile_and_what_they_take_is_not_shown() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send(*["m"] * MANY)
    held = queue.receive(MANY)
    command = peeking(1, MANY)
    assert decide(queue, command) == []
    assert queue.partition.take_leftovers() == [command]
    assert queue.settle(ask.COMPLETE, held[0], held[-1]) == ["settled"] * 2
    queue.settle(ask.ABANDON, held[1])
    assert shown(queue.ask(command)) == [list(range(2, MANY))]


def test_a_peek_that_lost_all_it_found_looks_again() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send(*["m"] * MANY)
    held = queue.receive(MANY)
    queue.settle(ask.DEFER, held[0])
    command = peeking(1, 1)
    decide(queue, command)
    queue.partition.take_leftovers()
    queue.settle(ask.COMPLETE, *queue.fetch(1))
    assert shown(queue.ask(command)) == [[2]]


def test_two_peeks_are_answered_one_after_the_other() -> None:
    queue = QueueHarness(stint=Stint(1))
    queue.send(*["m"] * MANY)
    locked(queue)
    assert shown(queue.ask(peeking(1, 2), peeking(3, 2, tag=2))) == [[1, 2], [3, 4]]
    assert queue.decisions > 2 * MANY // NUMBERS - 2
