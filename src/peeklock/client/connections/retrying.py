"""Trying again: which failures may pass, how long to wait between tries, and when to give up."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar, final

from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

FIXED: Final = "fixed"
EXPONENTIAL: Final = "exponential"
# A broker that is busy is left alone for this long at least, as the official clients do.
BUSY_S: Final = 4.0
# Pauses differ by this part, so that clients that failed together do not come back together.
_JITTER: Final = 0.2

T = TypeVar("T")


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and how fast; the names of the numbers are those of azure-servicebus."""

    retry_total: int = 3
    retry_backoff_factor: float = 0.8
    retry_backoff_max: float = 120.0
    retry_mode: str = EXPONENTIAL
    # How long one try may take; None lets it take what it takes.
    try_timeout: float | None = None
    busy_s: float = BUSY_S

    def __post_init__(self) -> None:
        if self.retry_mode not in (FIXED, EXPONENTIAL):
            modes = f"'{FIXED}' or '{EXPONENTIAL}'"
            raise ValueError(f"retry_mode is {modes}, not '{self.retry_mode}'")
        if self.retry_total < 0 or self.retry_backoff_factor < 0 or self.retry_backoff_max < 0:
            raise ValueError("retries cannot be counted or timed with negative numbers")
        if self.try_timeout is not None and not 0 < self.try_timeout < math.inf:
            raise ValueError("try_timeout must be greater than 0, and not for ever")

    def pause_s(self, tried: int, error: ServiceBusError, jitter: float) -> float:
        """Return how long to wait after this try, the first is 1; `jitter` is 0 to 1."""
        factor = self.retry_backoff_factor
        pause = factor if self.retry_mode == FIXED else factor * 2.0 ** (tried - 1)
        pause = min(pause, self.retry_backoff_max)
        if isinstance(error, ServiceBusServerBusyError):
            pause = max(pause, self.busy_s)
        return pause * (1.0 + _JITTER * (2.0 * jitter - 1.0))


def check_timeout(timeout: float | None) -> None:
    """Make sure that there is time at all."""
    if timeout is not None and timeout <= 0:
        raise ValueError("timeout must be greater than 0")


async def with_retries(
    policy: RetryPolicy,
    attempt: Callable[[], Awaitable[T]],
    *,
    within_s: float | None = None,
    bounds_tries: bool = True,
    jitter: Callable[[], float] = random.random,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Try until it succeeds, the failure is one that stays, or tries or time have run out.

    The last failure is raised. An attempt that is under way when the time ends is cancelled.
    `bounds_tries` says whether `try_timeout` holds for an attempt as a whole.
    """
    loop = asyncio.get_running_loop()
    deadline = None if within_s is None else loop.time() + within_s
    tried = 0
    while True:
        tried += 1
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                if policy.try_timeout is None or not bounds_tries:
                    return await attempt()
                return await one_try(policy, attempt())
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise OperationTimeoutError(f"no answer within {within_s} s") from error
        except ServiceBusError as error:
            if not error.is_retryable or tried > policy.retry_total:
                raise
            pause = policy.pause_s(tried, error, jitter())
            if deadline is not None and loop.time() + pause >= deadline:
                raise
            await sleep(pause)


async def one_try(policy: RetryPolicy, work: Awaitable[T], *, beyond_s: float = 0.0) -> T:
    """Wait for one try as long as it may take, and as much longer as it was asked to wait.

    Raises OperationTimeoutError, after which another try makes sense.
    """
    if policy.try_timeout is None:
        return await work
    limit = asyncio.timeout(policy.try_timeout + beyond_s)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise OperationTimeoutError(f"a try took more than {policy.try_timeout} s") from error
