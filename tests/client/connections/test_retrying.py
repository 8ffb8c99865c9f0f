"""What is tried again, after which pause, and when it is given up."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from peeklock.client.connections.retrying import FIXED, RetryPolicy, with_retries
from peeklock.client.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

LOST = ServiceBusConnectionError("lost")


def failing(*errors: Exception) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    """An attempt that fails with these, one after the other, and then succeeds."""
    left = list(errors)
    tries = [0]

    async def attempt() -> str:
        tries[0] += 1
        if left:
            raise left.pop(0)
        return "done"

    return attempt, tries


def pauses_of(
    policy: RetryPolicy, *errors: Exception, within_s: float | None = None
) -> list[float]:
    """Try with pauses that are only noted, in the middle of their jitter; raise what is raised."""
    pauses: list[float] = []

    async def note(pause: float) -> None:
        pauses.append(pause)

    attempt, _ = failing(*errors)
    run = with_retries(policy, attempt, within_s=within_s, jitter=lambda: 0.5, sleep=note)
    assert asyncio.run(_of(run)) == "done"
    return pauses


async def _of(awaitable: Awaitable[str]) -> str:
    return await awaitable


def test_pauses_double() -> None:
    policy = RetryPolicy(retry_total=4, retry_backoff_factor=0.5, retry_backoff_max=3.0)
    assert pauses_of(policy, LOST, LOST, LOST, LOST) == [0.5, 1.0, 2.0, 3.0]


def test_pauses_may_stay_the_same() -> None:
    policy = RetryPolicy(retry_backoff_factor=0.5, retry_mode=FIXED)
    assert pauses_of(policy, LOST, LOST, LOST) == [0.5, 0.5, 0.5]


def test_a_busy_broker_is_left_alone_for_longer() -> None:
    policy = RetryPolicy(retry_backoff_factor=0.5)
    assert pauses_of(policy, LOST, ServiceBusServerBusyError("busy"), LOST) == [0.5, 4.0, 2.0]


def test_pauses_differ_by_chance() -> None:
    policy = RetryPolicy(retry_backoff_factor=1.0)
    assert [policy.pause_s(1, LOST, jitter) for jitter in (0.0, 0.5, 1.0)] == [
        0.8,
        1.0,
        1.2,
    ]


@pytest.mark.parametrize(
    "error",
    [
        ServiceBusAuthenticationError("no"),
        MessagingEntityNotFoundError("no"),
        ServiceBusError("no"),
        ValueError("a mistake of the caller"),
    ],
)
def test_what_stays_is_not_tried_again(error: Exception) -> None:
    attempt, tries = failing(error)
    with pytest.raises(type(error)):
        asyncio.run(_of(with_retries(RetryPolicy(), attempt)))
    assert tries == [1]


def test_tries_run_out() -> None:
    with pytest.raises(ServiceBusConnectionError):
        pauses_of(RetryPolicy(retry_total=2), LOST, LOST, LOST)
    with pytest.raises(ServiceBusConnectionError):
        pauses_of(RetryPolicy(retry_total=0), LOST)


def test_a_pause_that_would_end_too_late_is_not_begun() -> None:
    with pytest.raises(ServiceBusConnectionError):
        pauses_of(RetryPolicy(retry_backoff_factor=10.0), LOST, within_s=5.0)


def test_an_attempt_that_takes_too_long_is_cancelled() -> None:
    ended: list[bool] = []

    async def attempt() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)
        return "never"

    with pytest.raises(OperationTimeoutError, match=r"within 0\.01 s"):
        asyncio.run(_of(with_retries(RetryPolicy(), attempt, within_s=0.01)))
    assert ended == [True]


def test_a_timeout_of_the_attempt_itself_is_its_own() -> None:
    attempt, _ = failing(TimeoutError("mine"))
    with pytest.raises(TimeoutError, match="mine"):
        asyncio.run(_of(with_retries(RetryPolicy(), attempt, within_s=100.0)))


@pytest.mark.parametrize(
    "options",
    [{"retry_total": -1}, {"retry_backoff_factor": -1.0}, {"retry_mode": "sometimes"}],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="retr"):
        RetryPolicy(**options)  # type: ignore[arg-type]  # wrong on purpose
