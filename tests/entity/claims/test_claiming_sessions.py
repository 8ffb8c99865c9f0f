"""Claims where a queue has sessions: a session with claimed messages is nobody else's."""

import pytest

from peeklock.entity.commands import ABANDON, COMPLETE, DEFER, RELEASE
from peeklock.entity.deliveries import STATE_CLAIMED
from tests.entity.claim_harness import ClaimHarness
from tests.entity.partition_harness import QueueHarness


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(is_retold=True, requires_session=True, delivery_count_max=5)


@pytest.fixture
def owner(queue: QueueHarness) -> ClaimHarness:
    return ClaimHarness(queue)


def test_sessions_are_claimed_one_after_the_other(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1: the one with the oldest message first, each in order."""
    queue.send("a0", session="a")
    queue.send("b0", session="b")
    queue.send("a1", session="a")
    made = owner.claimed()
    assert queue.contents(owner.fetch(*made.sequences)) == ["a0", "a1", "b0"]
    assert made.session_ids == ["a", "a", "b"]
    assert owner.listed().session_ids == ["a", "b", "a"]


def test_only_so_many_sessions_are_claimed(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    for name in "abc":
        queue.send(name, name, session=name)
    assert owner.claimed(session_count=2).session_ids == ["a", "a", "b", "b"]
    assert owner.claimed(session_count=2).session_ids == ["c", "c"]


def test_a_session_with_claims_is_given_to_nobody(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a0", "a1", session="a")
    (first,) = owner.claim(1)
    assert queue.accept("a") == "session-cannot-be-locked"
    assert queue.accept(None, "waiting") is None
    assert ClaimHarness(queue, "other").claim() == []
    assert [each.state for each in queue.peek(session="a")] == [STATE_CLAIMED, 0]
    assert queue.sessions() == ["a"]
    owner.settle(COMPLETE, first)
    assert queue.accepted("waiting") == "a", "who waits gets it when its last claim has ended"


def test_the_owner_goes_on_with_its_own_sessions(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a0", "a1", session="a")
    (first,) = owner.claim(1)
    (second,) = owner.claim(1)
    queue.send("a2", session="a")
    (third,) = owner.claim(1)
    owner.settle(COMPLETE, first, second)
    assert queue.accept("a") == "session-cannot-be-locked"
    owner.settle(COMPLETE, third)
    assert queue.sessions() == []
    assert queue.partition.live_count == 0


def test_an_older_session_comes_before_more_of_a_claimed_one(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1: a session that never ends does not keep the others from being claimed."""
    queue.send("a0", session="a")
    queue.send("b0", session="b")
    queue.send("a1", session="a")
    assert owner.claimed(1).session_ids == ["a"]
    assert owner.claimed(1).session_ids == ["b"]
    assert owner.claimed(1).session_ids == ["a"]


def test_a_session_that_a_receiver_holds_is_not_claimed(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    queue.send("a", session="a")
    queue.send("b", session="b")
    queue.accept("a")
    assert owner.claimed().session_ids == ["b"]


def test_a_look_in_vain_leaves_sessions_free(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a", session="a")
    queue.send("b", session="b", life_ms=1_000)
    assert owner.claim(upto={0: 0}) == []
    assert owner.claim(upto={}) == []
    queue.now += 1_000
    assert queue.accept(None, "one") == "a"
    assert owner.claim() == []
    assert queue.sessions() == ["a"]


def test_a_bound_is_looked_for_in_all_sessions(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    for name in "aab":
        queue.send(name, session=name)
    assert owner.claim(1) == [1]
    owner.settle(RELEASE, 1)
    assert owner.claim(upto={0: 1}) == [1]
    assert owner.claimed(upto={0: 3}).session_ids == ["a", "b"]


def test_returned_claims_keep_the_order_of_their_session(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    queue.send("a0", "a1", "a2", session="a")
    first, second = owner.claim(2)
    owner.settle(ABANDON, first)
    assert queue.accept("a") == "session-cannot-be-locked"
    owner.settle(RELEASE, second)
    assert queue.accept("a") == "a"
    assert queue.contents(queue.take(5)) == ["a0", "a1", "a2"]


def test_a_deferred_claim_stays_with_its_session(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a0", session="a")
    (number,) = owner.claim()
    owner.settle(DEFER, number)
    assert queue.sessions() == ["a"]
    assert queue.accept("a") == "a"


def test_claimed_sessions_outlive_restarts_and_checkpoints(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    queue.send("a0", "a1", session="a")
    queue.send("b0", session="b")
    first = owner.claim(1)
    for step in (queue.restart, queue.checkpoint, queue.restart):
        step()
        assert queue.accept("a", object()) == "session-cannot-be-locked"
        assert owner.has() == first
    assert queue.accept(None) == "b"
    queue.tick()
    queue.tick(90_000_000)
    assert queue.accept("a", "late") == "a"


def test_a_message_that_failed_is_first_in_the_next_claim_of_its_session(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    numbers = queue.send("a0", "a1", "a2", session="a")
    queue.send("b0", session="b")
    owner.claim(2)
    owner.settle(ABANDON, numbers[1])
    owner.settle(RELEASE, numbers[0])
    assert owner.claim(8) == numbers[:1]
    assert owner.claim(8) == numbers[1:2]
    assert len(owner.claim(8)) == 2
