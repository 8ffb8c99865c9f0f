"""Faults as a test asks for them: what is to go wrong in its namespace."""

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, Final, TypedDict, Unpack, final
from uuid import UUID

from peeklock.testbed import faults
from peeklock.testbed.controls import Controls
from peeklock.testbed.faults import Fault, FaultError


class WhenOptions(TypedDict, total=False):
    """When a fault strikes: at which operation, how often, after how many, by which chance."""

    operation: str
    count: int | None
    after: int
    probability: float
    seed: int | None


@final
class BrokerFaults:
    """What goes wrong; each method lets one fault wait for its turn, and gives it.

    Without an entity it waits everywhere in the namespace. It happens once, unless `count` says how
    often (None: until it is removed); `after` lets so many operations pass before; `probability`
    and `seed` leave it to a chance that is the same in every run.
    """

    def __init__(
        self,
        call: Callable[[Coroutine[Any, Any, Any]], Any],
        controls: Controls,
        namespace: str,
    ) -> None:
        self._call: Final = call
        self._controls: Final = controls
        self._namespace: Final = namespace

    def server_busy(self, entity: str | None = None, **when: Unpack[WhenOptions]) -> Fault:
        """Refuse an operation as a busy server does; clients try again. At `send` unless said."""
        return self.add(Fault(faults.SERVER_BUSY, entity, **when))

    def drop_answer(self, entity: str | None = None, **when: Unpack[WhenOptions]) -> Fault:
        """Carry an operation out and never answer. At `send` unless said."""
        return self.add(Fault(faults.DROP_ANSWER, entity, **when))

    def delay_answer(
        self, entity: str | None = None, *, by: timedelta | float, **when: Unpack[WhenOptions]
    ) -> Fault:
        """Carry an operation out and answer so many real seconds later. At `send` unless said."""
        return self.add(Fault(faults.DELAY_ANSWER, entity, delay_ms=_ms(by), **when))

    def lose_lock(
        self,
        entity: str | None = None,
        *,
        lock_token: UUID | None = None,
        **when: Unpack[WhenOptions],
    ) -> Fault | None:
        """Let a settlement (or at `renew` a renewal) find that the lock is lost; the message is
        there again. With a token, that lock ends now."""
        if lock_token is None:
            return self.add(Fault(faults.LOSE_LOCK, entity, **when))
        if entity is None or when:
            raise FaultError("A lock that ends now takes its entity and its token, no more.")
        self._call(self._controls.lose_lock(self._namespace, entity, lock_token))
        return None

    def duplicate_delivery(self, entity: str | None = None, **when: Unpack[WhenOptions]) -> Fault:
        """Answer that a message is completed, and deliver it again."""
        return self.add(Fault(faults.DUPLICATE_DELIVERY, entity, **when))

    def detach(
        self,
        entity: str | None = None,
        *,
        condition: str = faults.DETACH_CONDITION,
        is_stored: bool = False,
        **when: Unpack[WhenOptions],
    ) -> Fault:
        """Detach the link of an operation with a condition, before it is carried out or after that
        in place of the answer (`is_stored`); `operation="now"` detaches all links at once."""
        fault = Fault(faults.DETACH, entity, condition=condition, is_stored=is_stored, **when)
        return self.add(fault)

    def cut_connection(
        self,
        entity: str | None = None,
        *,
        is_stored: bool = False,
        **when: Unpack[WhenOptions],
    ) -> Fault:
        """The same with the whole connection, and without a word."""
        return self.add(Fault(faults.CUT_CONNECTION, entity, is_stored=is_stored, **when))

    @contextlib.contextmanager
    def stall_store(self, entity: str | None = None) -> Iterator[Fault]:
        """Let whatever is written wait until the block ends."""
        fault = self.add(Fault(faults.STALL_STORE, entity))
        try:
            yield fault
        finally:
            self.remove(fault)

    def remove(self, fault: Fault) -> None:
        """Let a fault happen no more."""
        self._call(self._controls.remove_fault(fault.number))

    def waiting(self) -> list[Fault]:
        """List those that have not happened as often as they are to."""
        return self._controls.faults.all(self._namespace)

    def add(self, fault: Fault) -> Fault:
        """Let any fault wait for its turn."""
        added: Fault = self._call(self._controls.add_fault(self._namespace, fault))
        return added


def _ms(by: timedelta | float) -> int:
    return round((by.total_seconds() if isinstance(by, timedelta) else by) * 1000)
