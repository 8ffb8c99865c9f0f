"""A clock that was set forward: schedules and lives follow it, locks last as long as promised."""

from peeklock.clock import MANUAL_START
from peeklock.entity import commands as ask
from peeklock.entity import records
from peeklock.entity import replies as told
from peeklock.entity.claims.records import Unclaimed
from peeklock.entity.commands import COMPLETE, MAIN
from peeklock.entity.lane import LENGTHENED_AT_ONCE
from peeklock.entity.refusals import LOCK_LOST, SESSION_LOCK_LOST
from tests.entity.journal_facts import next_due
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries, message

LOCK_MS = 60_000
HOUR_MS = 3_600_000


def skip(queue: QueueHarness, duration_ms: int = HOUR_MS) -> None:
    """Set the clock forward, as the worker tells of it."""
    queue.now += duration_ms
    queue.partition.skip(duration_ms)


def test_a_lock_ends_when_its_duration_has_really_passed() -> None:
    queue = QueueHarness(lock_duration_ms=LOCK_MS)
    queue.send("a", "b", "c")
    held = queue.receive(3)
    queue.now += 10_000
    skip(queue)
    queue.tick()
    assert not any(isinstance(record, records.Returned) for record in queue.records)
    assert next_due(queue.partition) == queue.now + LOCK_MS - 10_000
    assert queue.settle(COMPLETE, held[0]) == ["settled"]
    assert queue.renew(held[1]) == "renewed"
    queue.tick(LOCK_MS - 10_000 - 1)
    assert queue.settle(COMPLETE, held[1]) == ["settled"]
    queue.tick(1)
    assert queue.settle(COMPLETE, held[2]) == [LOCK_LOST]
    assert records.Returned(queue.now, MAIN, records.LOCK_EXPIRED, [3], [1]) not in queue.records
    assert [each.delivery_count for each in queue.receive(9)] == [1]


def test_a_lock_taken_afterwards_is_not_lengthened() -> None:
    queue = QueueHarness(lock_duration_ms=LOCK_MS)
    queue.send("a")
    skip(queue)
    held = queue.receive_one()
    queue.partition.skip(HOUR_MS)  # told again, as it is before each decision
    assert held.locked_until == queue.now + LOCK_MS
    queue.now += LOCK_MS
    assert queue.settle(COMPLETE, held) == [LOCK_LOST]


def test_a_session_is_held_for_as_long_as_it_was_given() -> None:
    queue = QueueHarness(requires_session=True, lock_duration_ms=LOCK_MS)
    queue.send("a", session="a")
    assert queue.accept("a") == "a"
    (held,) = queue.take(1)
    skip(queue)
    queue.tick()
    assert next_due(queue.partition) == queue.now + LOCK_MS
    queue.tick(LOCK_MS - 1)
    assert queue.settle(COMPLETE, held) == ["settled"]
    replies = queue.tick(1)
    assert [type(reply) for reply in replies] == [told.ReceiverClosed]
    assert queue.settle(COMPLETE, held) == [SESSION_LOCK_LOST]


def test_who_waits_for_a_session_waits_for_its_whole_time() -> None:
    queue = QueueHarness(requires_session=True)
    wait = ask.AcceptSession(by("waiter"), 1, MAIN, 0, None, queue.now + 5_000)
    assert queue.ask(wait) == []
    skip(queue)
    assert queue.tick(4_999) == []
    assert [type(reply) for reply in queue.tick(1)] == [told.Refused]


def test_schedules_and_lives_follow_the_clock_at_once() -> None:
    queue = QueueHarness()
    queue.send("later", due=queue.now + HOUR_MS)
    queue.send("short", life_ms=HOUR_MS)
    skip(queue)
    queue.tick()
    assert queue.contents(queue.receive(9)) == ["later"]


def test_claims_and_stages_are_not_lost_by_a_clock_that_was_set() -> None:
    queue = QueueHarness()
    queue.send("a")
    claim = ask.ClaimMessages(by("me"), 1, MAIN, "owner", 1, 10, 1 << 20, timeout_ms=HOUR_MS)
    queue.ask(claim)
    skip(queue, 10 * HOUR_MS)
    queue.tick(HOUR_MS - 1)
    assert not any(isinstance(record, Unclaimed) for record in queue.records)
    queue.tick(1)
    assert any(isinstance(record, Unclaimed) for record in queue.records)


def test_a_partition_tells_the_latest_instant_of_its_journal() -> None:
    queue = QueueHarness()
    assert queue.partition.latest_at == 0
    queue.send("a")
    queue.now += 77
    queue.send("b")
    queue.restart()
    assert queue.partition.latest_at == MANUAL_START + 77


def test_what_was_skipped_before_a_partition_opened_is_nothing_to_it() -> None:
    queue = QueueHarness(lock_duration_ms=LOCK_MS)
    queue.send("a")
    queue.restart()
    held = deliveries(
        queue.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), 1, False)), "r"
    )
    assert [each.locked_until for each in held] == [queue.now + LOCK_MS]


def test_very_many_locks_are_lengthened_in_parts() -> None:
    """All of them were walked over in one step."""
    queue = QueueHarness(lock_duration_ms=LOCK_MS)
    count = 2 * LENGTHENED_AT_ONCE + 3
    for at in range(0, count, 1000):
        queue.send(*["x"] * min(1000, count - at))
    held = queue.receive(count)
    queue.now += HOUR_MS
    parts = 1
    while not queue.partition.skip_some(HOUR_MS):
        parts += 1
    assert parts == 3
    assert next_due(queue.partition) == queue.now + LOCK_MS
    queue.tick(LOCK_MS - 1)
    assert queue.settle(COMPLETE, held[0], held[-1]) == ["settled", "settled"]


def test_very_many_sessions_are_lengthened_in_parts() -> None:
    queue = QueueHarness(requires_session=True, lock_duration_ms=LOCK_MS)
    lane_sessions = queue.partition._state.lane(MAIN).sessions
    assert lane_sessions is not None
    for at in range(LENGTHENED_AT_ONCE):
        lane_sessions.session(f"s{at}")
    queue.partition.decide([], queue.now)
    messages = [message("a", session="a")]
    accepted = ask.AcceptSession(by("holder"), 1, MAIN, 0, "a", queue.now)
    queue.partition.decide([ask.SendMany(by("s"), [1], messages), accepted], queue.now)
    parts = 1
    queue.now += HOUR_MS
    while not queue.partition.skip_some(HOUR_MS):
        parts += 1
    assert parts == 2
    assert lane_sessions.by_id["a"].until == queue.now + LOCK_MS
    assert lane_sessions.next_deadline() == queue.now + LOCK_MS


def test_a_clock_that_is_set_forward_again_meanwhile_is_followed() -> None:
    queue = QueueHarness(lock_duration_ms=LOCK_MS)
    count = 2 * LENGTHENED_AT_ONCE
    for _ in range(0, count, 1024):
        queue.send(*["x"] * 1024)
    queue.receive(count)
    queue.now += 2 * HOUR_MS
    assert not queue.partition.skip_some(HOUR_MS)
    while not queue.partition.skip_some(2 * HOUR_MS):
        pass
    locks = queue.partition._state.lane(MAIN).locked.values()
    assert {lock.until for lock in locks} == {queue.now + LOCK_MS}
