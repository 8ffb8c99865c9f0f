"""When a store write waits for company: only where that brings two halves together (R-F3)."""

from peeklock.broker.worker.write_batching import (
    HOLD_S_MAX,
    SENDERS_MIN,
    STORE_S_MIN,
    WriteBatching,
)


def write_batching(store_s: float, answered: int) -> WriteBatching:
    found = WriteBatching()
    for _ in range(50):
        found.stored(store_s)
    found.answered(answered)
    return found


def test_many_lone_senders_on_a_slow_store_are_brought_together() -> None:
    assert write_batching(0.010, 25).hold_s(waiting=25) > 0.0


def test_a_fast_store_is_never_made_to_wait() -> None:
    assert write_batching(STORE_S_MIN / 2, 100).hold_s(waiting=100) == 0.0


def test_a_busy_loop_does_not_make_a_store_slow() -> None:
    found = write_batching(0.003, 100)
    found.stored(0.0004)
    assert found.hold_s(waiting=100) == 0.0


def test_few_senders_are_not_worth_a_wait() -> None:
    assert write_batching(0.010, SENDERS_MIN - 1).hold_s(waiting=0) == 0.0


def test_whoever_waits_already_does_not_wait_for_a_few() -> None:
    assert write_batching(0.010, 10).hold_s(waiting=21) == 0.0


def test_the_wait_is_small_beside_the_write_and_bounded() -> None:
    assert write_batching(0.010, 25).hold_s(waiting=0) <= 0.010 / 4 + 1e-9
    assert write_batching(10.0, 25).hold_s(waiting=0) == HOLD_S_MAX
