"""A receiver that is gone leaves its locks; they are looked for in stints, as are many names."""

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import COMPLETE, MAIN, PEEK_LOCK
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.moves.releasing import LOOKS
from peeklock.entity.refusals import LOCK_LOST
from peeklock.entity.replies import Reply
from peeklock.entity.sessions.listing import NAMES
from peeklock.entity.stint import Stint
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries

STEPS = 4


def locked(counts: dict[str, int]) -> tuple[QueueHarness, dict[str, list[Delivery]]]:
    queue = QueueHarness(stint=Stint(STEPS), unlock_on_disconnect=True)
    queue.send(*["x"] * sum(counts.values()))
    held = {}
    for name, count in counts.items():
        asked = (ask.OpenReceiver(by(name), MAIN, PEEK_LOCK), ask.Grant(by(name), count, False))
        held[name] = deliveries(queue.ask(*asked), name)
    return queue, held


def decide(queue: QueueHarness, *commands: ask.Command) -> list[Reply]:
    return queue.keep(queue.partition.decide(commands, queue.now))


def test_what_somebody_had_goes_back_in_parts() -> None:
    """All locks of all lanes were looked at in one decision, and again for each who was gone."""
    queue, held = locked({"mine": 30, "other": 100})
    lane = queue.partition._state.lane(MAIN)
    decide(queue, ask.CloseReceiver(by("mine"), True))
    decisions = 1
    while queue.partition.is_unfinished:
        before = len(lane.locked)
        decide(queue)
        decisions += 1
        assert before - len(lane.locked) <= STEPS
    assert len(lane.locked) == 100
    assert decisions >= (100 + 30 * LOOKS) // (STEPS * LOOKS)
    assert queue.settle(COMPLETE, held["other"][0], held["mine"][0]) == ["settled", LOCK_LOST]
    returned = queue.receive(30)
    assert [each.sequence for each in returned] == list(range(1, 31))
    assert {each.delivery_count for each in returned} == {0}


def test_many_who_go_at_once_are_one_walk() -> None:
    names = [f"r{number}" for number in range(20)]
    queue, _ = locked(dict.fromkeys(names, 5) | {"other": 200})
    decide(queue, *[ask.CloseReceiver(by(name), True) for name in names])
    decisions = 1
    while queue.partition.is_unfinished:
        decide(queue)
        decisions += 1
    assert len(queue.partition._state.lane(MAIN).locked) == 200
    assert decisions <= 2 + (300 + 100 * LOOKS) // (STEPS * LOOKS)


def test_what_was_settled_meanwhile_stays_settled() -> None:
    queue, held = locked({"mine": 20, "other": 5})
    decide(queue, ask.CloseReceiver(by("mine"), True))
    first = held["mine"][0]
    assert queue.partition.is_unfinished
    decide(
        queue,
        ask.SettleMany(
            by("s"), [1], ask.Settlement(COMPLETE), [LockToken(first.sequence, first.number)]
        ),
    )
    queue.ask()
    assert queue.count().active == 24
    assert first.sequence not in queue.numbers()


def test_a_lane_that_is_dropped_meanwhile_takes_its_locks_with_it() -> None:
    queue, _ = locked({"mine": 20})
    decide(queue, ask.CloseReceiver(by("mine"), True))
    queue.partition._state.drop_lane(MAIN, queue.now)
    queue.ask()
    assert not queue.partition.is_unfinished
    assert queue.partition.live_count == 0


def test_names_of_very_many_sessions_are_listed_in_parts() -> None:
    """They were gathered and sorted in one decision."""
    names = [f"s{number:04}" for number in range(3000)]
    queue = QueueHarness(requires_session=True, stint=Stint(64))
    for name in reversed(names):
        queue.send("x", session=name)
    assert queue.sessions(skip=10, top=5) == names[10:15]
    assert queue.decisions >= len(names) // (64 * NAMES)
    assert queue.sessions(skip=2998, top=100) == names[2998:]
    assert queue.sessions(skip=5000, top=100) == []
    assert queue.sessions(top=0) == []


def test_lists_are_made_one_after_the_other() -> None:
    queue = QueueHarness(requires_session=True, stint=Stint(2))
    for name in "abcdefghijklmnopqrstuvwxyz":
        queue.send("x", session=name)
    asked = [ask.ListSessions(by(f"m{tag}"), tag, MAIN, None, tag, 2) for tag in range(3)]
    named = [each for each in queue.ask(*asked) if isinstance(each, told.Named)]
    assert {each.tag: each.names for each in named} == {0: ["a", "b"], 1: ["b", "c"], 2: ["c", "d"]}
