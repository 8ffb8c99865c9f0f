"""The end of a link where messages come: a buffer, the waits for it, and what becomes of them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

from peeklock.amqp.dialect import (
    SESSION_FILTER,
    SESSION_LOCKED_UNTIL,
    TICKS_AT_1970,
    TICKS_PER_MS,
    TIMEOUT,
)
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.states import Rejected
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.sessions.delivery import IncomingDelivery, OutgoingDelivery
from peeklock.amqp.values.composites import ACCEPTED, REJECTED_PLAIN, RELEASED, decode_composite
from peeklock.amqp.values.types import Symbol, Uint
from peeklock.client.connections.attachment import DETACHED_WITHIN_S, Attachment
from peeklock.client.connections.transport import Transport
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    from_error,
)
from peeklock.client.receiving.prefetch import Prefetch

_SESSION_FILTER: Final = Symbol(SESSION_FILTER)
_ATTACH_TIMEOUT: Final = Symbol(TIMEOUT)

# Settle modes [2.8.2, 2.8.3]: the sender settles at once or not at all, the receiver after it.
_UNSETTLED: Final = 0
_SETTLED: Final = 1
# How long the answer to a drain is waited for before the link is given up.
_DRAINED_WITHIN_S: Final = 60.0
# Forms of a yes that are remembered.
_GOOD_MAX: Final = 16
# How a state within a transaction begins [4.5.6].
_IN_TRANSACTION: Final = b"\x00\x53\x34"
_FIRST: Final = 0
_SECOND: Final = 1


@final
class ReceiverLink:
    """A link on which messages come, in a session or not."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        address: str,
        *,
        deletes: bool,
        session_id: str | None,
        any_session: bool,
        wait_s: float,
        answered_within_s: float,
    ) -> None:
        self.name: Final = name
        # Whether messages are gone when they are given (receive and delete).
        self.deletes: Final = deletes
        # The session that was given, None where there is none; its lock lasts until then.
        self.session_id: str | None = None
        self.locked_until_ms = 0
        # Called once, when the link is gone, with the reason; for whoever opened it.
        self.when_gone: Callable[[ServiceBusError], None] | None = None
        self.transport: Final = transport
        self._loop: Final = transport.loop
        is_session = any_session or session_id is not None
        self._link: Final = transport.entity_session().attach_receiver(
            name,
            Source(address=address, filter={_SESSION_FILTER: session_id} if is_session else None),
            snd_settle_mode=_SETTLED if deletes else _UNSETTLED,
            rcv_settle_mode=_FIRST if deletes else _SECOND,
            properties={_ATTACH_TIMEOUT: Uint(max(1, round(wait_s * 1000)))}
            if is_session
            else None,
        )
        self._attachment: Final = Attachment(transport, self._link, self)
        self._arrived: deque[IncomingDelivery] = deque()
        # How much may come in advance, from the first call that says so on; and how many messages
        # the present call wants.
        self._prefetch: Prefetch | None = None
        self._asked = 0
        # One call of `receive` at a time; the others wait for their turn.
        self._turn: Final = asyncio.Lock()
        self._waiter: asyncio.Future[None] | None = None
        # Done when the broker has answered a drain; None when there is none under way.
        self._drained: asyncio.Future[None] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._is_taken_back = False
        self._awaited: dict[int, PendingSettlement] = {}
        # How long an answer to a settlement may take; one timer looks at all that are awaited.
        self._answered_within_s: Final = answered_within_s
        self._late_timer: asyncio.TimerHandle | None = None
        # Answers that are known to be a yes.
        self._good: set[bytes] = {ACCEPTED, REJECTED_PLAIN, RELEASED}

    @property
    def is_open(self) -> bool:
        """Whether messages can come; a link that is gone never comes back, open another one."""
        return self._attachment.is_open

    @property
    def credit(self) -> int:
        """How many messages may still come without another grant."""
        return max(0, self._link.credit)

    @property
    def buffered(self) -> int:
        """How many messages have come and were not taken."""
        return len(self._arrived)

    async def wait_open(self, within_s: float) -> None:
        """Wait until the broker has attached its side."""
        await self._attachment.wait(within_s)

    # --- receiving

    async def receive(
        self, count_max: int, wait_s: float | None, prefetch: Prefetch | None = None
    ) -> list[IncomingDelivery]:
        """Take up to so many messages: what is there, or what comes within a time (None: ever).

        Without `prefetch` the credit is taken back before this returns, so that nothing comes (and
        is locked) afterwards. With it, messages go on coming as far as it allows.
        Whatever comes while nobody waits, also when a call was cancelled, is kept for the next.
        When the link is gone and nothing is kept, its exception is raised.
        """
        if count_max < 1:
            raise ValueError(f"at least one message must be asked for, not {count_max}")
        async with self._turn:
            if prefetch is None:
                await self._fill(count_max, wait_s)
                return self._take(count_max)
            self._prefetch = prefetch
            self._asked = count_max
            try:
                self._top_up()
                if not self._arrived:
                    await self._wait(wait_s)
                return self._take(count_max)
            finally:
                # What was asked for beyond the cache is not to come into it; what was taken is.
                self._asked = 0
                self._cut_back()
                self._top_up()

    def _top_up(self) -> None:
        """Let as much come as the cache takes and the present call wants."""
        prefetch = self._prefetch
        if prefetch is None or self._drained is not None or not self.is_open:
            return
        credit = prefetch.grant(self._asked, len(self._arrived), self.credit)
        if credit >= 0:
            self.grant(credit)

    def _cut_back(self) -> None:
        """Let no more come than the cache takes."""
        prefetch = self._prefetch
        if prefetch is None or self._drained is not None or not self.is_open:
            return
        credit = prefetch.rest(len(self._arrived), self.credit)
        if credit >= 0:
            self.grant(credit)

    def grant(self, count: int) -> None:
        """Let this many messages come from now on, whatever was left before."""
        self._link.grant(count)
        self.transport.wake()

    async def _fill(self, count_max: int, wait_s: float | None) -> None:
        """Ask for what is there; if nothing is, wait for the first and what else comes with it."""
        try:
            if self._drained is not None:
                await asyncio.shield(self._drained)  # a call that was cancelled has left it to us
            missing = count_max - len(self._arrived)
            if missing <= 0 or not self.is_open:
                return
            self._link.grant(missing)
            if missing > 1 or wait_s == 0:
                await self._drain()
                if self._arrived or wait_s == 0 or not self.is_open:
                    return
                self._link.grant(count_max)
            # One message uses up its credit by itself, there is nothing to be drained behind it.
            self.transport.wake()
            await self._wait(wait_s)
            if len(self._arrived) < count_max and self.is_open:
                await self._drain()
        except asyncio.CancelledError:
            self._take_back()
            raise

    def _take(self, count_max: int) -> list[IncomingDelivery]:
        arrived = self._arrived
        if not arrived and self._attachment.error is not None:
            raise self._attachment.failure()
        if len(arrived) <= count_max:
            taken = list(arrived)
            arrived.clear()
            return taken
        return [arrived.popleft() for _ in range(count_max)]

    async def _wait(self, wait_s: float | None) -> None:
        """Wait until something is there, the link is gone, or the time is up."""
        if self._arrived or wait_s == 0 or self._attachment.error is not None:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiter = waiter
        timer = None if wait_s is None else self._loop.call_later(wait_s, _resolve, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _drain(self) -> None:
        """Let the broker use up the credit; what is on its way comes before its answer."""
        drained = self._drained
        if drained is None:
            if self._link.credit <= 0:
                return
            drained = self._begin_drain()
            self._is_taken_back = False
            self._link.drain_credit()
            self.transport.wake()
        # Shielded: who comes next waits for the same answer when this call is cancelled.
        await asyncio.shield(drained)

    def _begin_drain(self) -> asyncio.Future[None]:
        self._drained = self._loop.create_future()
        self._drain_timer = self._loop.call_later(_DRAINED_WITHIN_S, self._give_up)
        return self._drained

    def _give_up(self) -> None:
        """A broker that does not answer a drain may have forgotten the link; open another one."""
        self._attachment.leave(ServiceBusConnectionError("a drain of credit was not answered"))

    def _take_back(self) -> None:
        """Take the credit back without waiting; what comes until then is kept."""
        if self._drained is not None or self._link.credit <= 0 or not self.is_open:
            return
        self._begin_drain()
        self._is_taken_back = not self.deletes
        if not self.deletes:
            # What is removed already when it is given must come; what is only locked need not.
            self._link.grant(0)
        self._link.drain_credit()
        self.transport.wake()

    # --- what becomes of messages

    def settle(
        self, deliveries: Sequence[IncomingDelivery], outcome: bytes
    ) -> asyncio.Future[None]:
        """Tell the outcome of messages; the future tells when the broker has taken all of it.

        It fails with what was wrong with the first of them that was refused, or when no answer
        comes in time.
        """
        if self.deletes:
            raise ValueError("messages that are deleted when they are received cannot be settled")
        future: asyncio.Future[None] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(self._attachment.failure())
        elif not deliveries:
            future.set_result(None)
        else:
            ids = [delivery.id for delivery in deliveries]
            settlement = PendingSettlement(
                future, len(ids), self._loop.time() + self._answered_within_s
            )
            for delivery_id in ids:
                self._awaited[delivery_id] = settlement
            self._link.settle(ids, outcome, settled=False)
            if self._late_timer is None:
                self._late_timer = self._loop.call_at(settlement.due, self._give_up_late)
            self.transport.wake()
        return future

    def _give_up_late(self) -> None:
        """Tell those whose answer has not come in time, and look again when the next is due."""
        self._late_timer = None
        now = self._loop.time()
        late = [each for each, settlement in self._awaited.items() if settlement.due <= now]
        for delivery_id in late:
            self._awaited.pop(delivery_id).give_up(self._answered_within_s)
        if self._awaited:
            due = min(settlement.due for settlement in self._awaited.values())
            self._late_timer = self._loop.call_at(due, self._give_up_late)

    def release(self, deliveries: Sequence[IncomingDelivery]) -> None:
        """Give messages back as if they had not been handed out; nothing is answered."""
        if deliveries and self.is_open and not self.deletes:
            self._link.settle([delivery.id for delivery in deliveries], RELEASED)
            self.transport.wake()

    async def close(self) -> None:
        """Give back what was not taken, and detach."""
        self._prefetch = None
        if self.is_open and not self.deletes:
            self._take_back()
            drained = self._drained
            if drained is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DETACHED_WITHIN_S):
                        await asyncio.shield(drained)
            self.release(self._arrived)
            self._arrived.clear()
        await self._attachment.detach()

    # --- what the transport calls

    def on_attached(self) -> None:
        """The broker has attached its side, and said which session it gives."""
        source, properties = self._link.source, self._link.properties
        given = source.filter if isinstance(source, Source) else None
        if given:
            session_id = given.get(_SESSION_FILTER)
            self.session_id = session_id if isinstance(session_id, str) else None
        ticks = (properties or {}).get(SESSION_LOCKED_UNTIL)
        if isinstance(ticks, int):
            self.locked_until_ms = (int(ticks) - TICKS_AT_1970) // TICKS_PER_MS
        self._attachment.attached()

    def on_transfers(self, deliveries: list[IncomingDelivery]) -> None:
        """Messages came: whoever waits takes them, or they are kept."""
        self._arrived.extend(deliveries)
        if self._prefetch is not None:
            # Only now it is known how large they are.
            self._prefetch.saw(deliveries)
            self._top_up()
        if self._waiter is not None:
            _resolve(self._waiter)
        if self._drained is not None and self._link.credit <= 0 and not self._is_taken_back:
            # All of the credit came back as messages; a broker need not say so in a flow as well.
            self._end_drain()

    def on_flow(self) -> None:
        """The broker has used up the credit, as it was asked to."""
        if not self._link.drain:
            self._end_drain()

    def _end_drain(self) -> None:
        drained, self._drained = self._drained, None
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        if drained is not None:
            _resolve(drained)

    def on_answers(self, state: bytes, ids: list[int]) -> None:
        """The broker has settled messages, or said why not."""
        awaited = self._awaited
        refusal = None if state in self._good else self._refusal(state)
        for delivery_id in ids:
            settlement = awaited.pop(delivery_id, None)
            if settlement is None:
                continue
            settlement.left -= 1
            if refusal is not None and settlement.refusal is None:
                settlement.refusal = refusal
            if settlement.left == 0:
                settlement.finish()

    def _refusal(self, state: bytes) -> bytes | None:
        """Return whether an answer is a no; the few forms of a yes are read once."""
        error = _read_error(state)
        if error is None:
            # With what was changed in a message, or the id of a transaction, each is different;
            # those are not worth keeping.
            if len(self._good) < _GOOD_MAX and not state.startswith(_IN_TRANSACTION):
                self._good.add(state)
            return None
        return state

    def on_gone(self, error: ServiceBusError, lost: list[OutgoingDelivery]) -> None:  # noqa: ARG002
        """The link is no more: whoever waits is told."""
        if not self._attachment.gone(error):
            return
        if self.session_id is not None and not self.deletes:
            # Its messages went back with the session; without one they stay locked and usable, and
            # what was deleted when it was handed out is nowhere else.
            self._arrived.clear()
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        awaited, self._awaited = self._awaited, {}
        for settlement in awaited.values():
            if not settlement.future.done():
                settlement.future.set_exception(self._attachment.failure())
        if self._waiter is not None:
            _resolve(self._waiter)
        self._end_drain()
        if self.when_gone is not None:
            self.when_gone(self._attachment.failure())

    def on_outcomes(
        self,
        outcome: bytes,
        is_settled: bool,  # noqa: ARG002
        deliveries: list[OutgoingDelivery],
    ) -> None:
        """Nothing is sent on a link where we receive; the engine sees to that."""
        raise AssertionError(f"{len(deliveries)} outcomes on a receiving link: {outcome!r}")

    def pump(self) -> None:
        """There is nothing to send."""


@final
class PendingSettlement:
    """What was told of some messages at once, and how many answers are missing."""

    __slots__ = ("due", "future", "left", "refusal")

    def __init__(self, future: asyncio.Future[None], left: int, due: float) -> None:
        self.future = future
        self.left = left
        self.due = due
        self.refusal: bytes | None = None

    def give_up(self, within_s: float) -> None:
        """Tell whoever waits that nobody knows how it went."""
        if not self.future.done():
            self.future.set_exception(
                OperationTimeoutError(
                    f"a settlement was not answered within {within_s} s: nobody can tell whether "
                    "it was carried out"
                )
            )

    def finish(self) -> None:
        """Tell whoever waits how it went."""
        if self.future.done():
            return
        error = None if self.refusal is None else _read_error(self.refusal)
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


def _read_error(state: bytes) -> ServiceBusError | None:
    """Read why an answer is a no: rejected with an error, whatever was asked for."""
    if not state:
        return None
    try:
        value = decode_composite(state)[0]
    except DecodeError as error:
        return ServiceBusError(f"the answer to a settlement cannot be read: {error.text}")
    if isinstance(value, Rejected) and value.error is not None:
        return from_error(value.error, "the settlement was refused")
    return None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
