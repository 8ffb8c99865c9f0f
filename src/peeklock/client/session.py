"""A message session that a receiver holds: its lock and its state."""

# ruff: noqa: ASYNC109  (parameters are called as they are in azure-servicebus)

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

from peeklock.client.message import moment_of
from peeklock.clock import SystemClock

if TYPE_CHECKING:
    from peeklock.client.receiver import ServiceBusReceiver

_CLOCK: Final = SystemClock()


@final
class ServiceBusSession:
    """The session of one receiver; there is one as soon as the receiver is open."""

    def __init__(self, receiver: "ServiceBusReceiver", session_id: str, locked_until: int) -> None:
        self._receiver = receiver
        self._session_id = session_id
        self._locked_until = locked_until
        # Why the lock is not renewed any more, where a renewer was to do it.
        self.auto_renew_error: Exception | None = None

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._session_id

    @property
    def locked_until_utc(self) -> datetime:
        """Until when nobody else can have the session."""
        return moment_of(self._locked_until)

    @property
    def locked_until_ms(self) -> int:
        """Until which instant nobody else can have the session."""
        return self._locked_until

    @property
    def is_lock_expired(self) -> bool:
        """Whether the lock has ended by the clock of this machine."""
        return self._locked_until <= _CLOCK.now()

    async def get_state(self, *, timeout: float | None = None) -> bytes | None:
        """Return what was kept with the session, None when there is nothing.

        Parameters:
            timeout: seconds for the answer.

        Raises:
            SessionLockLostError: the session is held no more.
        """
        answer = await self._ask("get-session-state", {}, timeout)
        state = answer.get("session-state")
        return None if state is None else bytes(state)

    async def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Keep something with the session.

        Parameters:
            state: bytes or text; None removes what is kept.
            timeout: seconds for the answer.

        Raises:
            SessionLockLostError: the session is held no more.

        Example:
            await receiver.session.set_state(b"step 2")
        """
        kept = state.encode() if isinstance(state, str) else state
        arguments = {"session-state": None if kept is None else bytes(kept)}
        await self._ask("set-session-state", arguments, timeout)

    async def renew_lock(self, *, timeout: float | None = None) -> datetime:
        """Hold the session for another lock duration.

        Parameters:
            timeout: seconds for the answer.

        Returns:
            Until when.

        Raises:
            SessionLockLostError: the session is held no more.
        """
        answer = await self._ask("renew-session-lock", {}, timeout)
        self._locked_until = int(answer["expiration"])
        return self.locked_until_utc

    async def _ask(
        self, operation: str, arguments: dict[str, Any], timeout: float | None
    ) -> dict[Any, Any]:
        named = {"session-id": self._session_id, **arguments}
        return await self._receiver.manage(operation, named, timeout)
