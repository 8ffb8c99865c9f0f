"""Renewing locks in the background, for as long as something takes (R-L2)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final

from peeklock.client.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.session import ServiceBusSession
from peeklock.clock import SystemClock

if TYPE_CHECKING:
    from peeklock.client.receiver import ServiceBusReceiver

Renewable: TypeAlias = ServiceBusReceivedMessage | ServiceBusSession
# Told of a lock that is not renewed any more, and why.
OnRenewFailure: TypeAlias = Callable[[Any, Exception | None], Awaitable[None] | None]

RENEWAL_DURATION_S: Final = 300.0
# A lock is renewed this long before its end, or after half of its time where that is less.
_AHEAD_S: Final = 10.0
_AT_ONCE_S: Final = 0.05
# Not more often than this, also when the clocks here and there disagree on what is over.
_AGAIN_S_MIN: Final = 0.5
_CLOCK: Final = SystemClock()
_LOG: Final = logging.getLogger("peeklock.client")


@final
class Renewal:
    """One lock that is kept alive; costs a timer until it is really renewed."""

    __slots__ = (
        "_ends_at",
        "_on_failure",
        "_receiver",
        "_renewable",
        "_renewer",
        "_task",
        "_timer",
    )

    def __init__(
        self,
        renewer: "AutoLockRenewer",
        receiver: "ServiceBusReceiver",
        renewable: Renewable,
        duration_s: float,
        on_failure: OnRenewFailure | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._renewer = renewer
        self._receiver = receiver
        self._renewable = renewable
        self._on_failure = on_failure
        self._ends_at = loop.time() + duration_s
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._wait(_AT_ONCE_S)

    def cancel(self) -> None:
        """Let the lock end when it ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._renewer.forget(self)

    async def ended(self) -> None:
        """Wait until nothing is under way any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _wait(self, at_least_s: float) -> None:
        left_s = ((self._renewable.locked_until_ms or 0) - _CLOCK.now()) / 1000
        pause_s = max(at_least_s, left_s - min(_AHEAD_S, left_s / 2))
        loop = asyncio.get_running_loop()
        at = min(loop.time() + pause_s, self._ends_at)
        self._timer = loop.call_at(at, self._due)

    def _due(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        if not self._is_wanted():
            self.cancel()
            return
        if asyncio.get_running_loop().time() >= self._ends_at:
            error = AutoLockRenewTimeout("the lock was renewed for as long as was allowed")
            await self._give_up(error, None)
            return
        try:
            if isinstance(self._renewable, ServiceBusSession):
                await self._renewable.renew_lock()
            else:
                await self._receiver.renew_message_lock(self._renewable)
        except Exception as cause:  # noqa: BLE001  whatever it is, the lock will end
            # Settled or closed meanwhile is no failure: nobody needs the lock any more.
            if self._is_wanted():
                failed = AutoLockRenewFailed(f"the lock could not be renewed: {cause}")
                failed.__cause__ = cause
                await self._give_up(failed, cause)
            else:
                self.cancel()
            return
        self._task = None
        if self._is_wanted():
            self._wait(_AGAIN_S_MIN)
        else:
            self.cancel()

    def _is_wanted(self) -> bool:
        if self._receiver.is_closed:
            return False
        renewable = self._renewable
        return isinstance(renewable, ServiceBusSession) or not renewable.is_settled

    async def _give_up(self, error: Exception, cause: Exception | None) -> None:
        self._renewable.auto_renew_error = error
        self._renewer.forget(self)
        if self._on_failure is None:
            _LOG.warning("%r: %s", self._renewable, error)
            return
        try:
            told = self._on_failure(self._renewable, cause)
            if inspect.isawaitable(told):
                await told
        except Exception:  # noqa: BLE001  told to the log, with all that it says
            # A callback that fails must not stop the renewing of others.
            _LOG.exception("on_lock_renew_failure failed while it was told of: %s", error)


@final
class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it."""

    def __init__(
        self,
        max_lock_renewal_duration: float = RENEWAL_DURATION_S,
        on_lock_renew_failure: OnRenewFailure | None = None,
        loop: object = None,
    ) -> None:
        """The duration is how long a lock is kept alive, in seconds, from its registration on."""
        if loop is not None:
            raise ValueError("loop cannot be chosen: locks are renewed in the loop that is running")
        self._duration_s = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._renewals: set[Renewal] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._is_closed:
            raise ValueError("the renewer is closed; make another one")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def register(
        self,
        receiver: "ServiceBusReceiver",
        renewable: Renewable,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: OnRenewFailure | None = None,
    ) -> Renewal:
        """Keep a lock alive until it is settled, its receiver is closed, or its time is up.

        Parameters:
            receiver: whose lock it is.
            renewable: a message, or `receiver.session`.
            max_lock_renewal_duration: seconds; None is that of the renewer.
            on_lock_renew_failure: told when it could not be renewed; None is that of the renewer.

        Raises:
            ValueError: there is no lock to renew, or the renewer is closed.

        Example:
            async with AutoLockRenewer() as renewer:
                renewer.register(receiver, message, max_lock_renewal_duration=600)
        """
        if self._is_closed:
            raise ValueError("the renewer is closed; make another one")
        if isinstance(renewable, ServiceBusReceivedMessage):
            if renewable.is_deleted or renewable.is_peeked or not renewable.has_lock:
                raise ValueError("a message without a lock has nothing to be renewed")
            if receiver.session is not None:
                raise ValueError("messages of a session have its lock: register the session")
        renewal = Renewal(
            self,
            receiver,
            renewable,
            self._duration_s if max_lock_renewal_duration is None else max_lock_renewal_duration,
            on_lock_renew_failure or self._on_failure,
        )
        self._renewals.add(renewal)
        return renewal

    def forget(self, renewal: Renewal) -> None:
        """Take note that a lock is renewed no more."""
        self._renewals.discard(renewal)

    async def close(self) -> None:
        """Renew nothing any more."""
        self._is_closed = True
        for renewal in list(self._renewals):
            renewal.cancel()
            await renewal.ended()
