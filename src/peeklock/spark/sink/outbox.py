"""Sends the parcels of one task to one entity: several under way, each session's in order.

What a broker refuses for a while is sent again after a pause. When the connection is lost nobody
knows what became of the parcels under way. With ids they are sent again, and the entity drops what
it has already. With stages the whole segment is sent again into a stage of another name; the
first one is never published. A segment is what is kept in memory for that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from peeklock.amqp.values.types import Symbol
from peeklock.client.exceptions import ServiceBusError, ServiceBusServerBusyError
from peeklock.spark.sink.pace import Pace
from peeklock.spark.sink.parcels import SIZE_MAX_DEFAULT, Parcel

STAGE: Final = "com.peeklock:stage"
SEGMENT_BYTES: Final = 16 << 20
# Under way at once: enough to fill a long line, and never more than this of memory beside it.
IN_FLIGHT_MAX: Final = 16
IN_FLIGHT_BYTES: Final = 8 << 20
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0


class ParcelLink(Protocol):
    """A link on which parcels leave, as the client has it."""

    max_message_size: int

    def submit(self, payload: bytes, *, is_batch: bool = False) -> asyncio.Future[None]:
        """Send; the future tells the outcome."""
        ...

    async def close(self) -> None:
        """Let it go; what has no outcome yet fails."""
        ...


class LinkOpener(Protocol):
    """Who opens links: a connection of the client."""

    async def open_sender(
        self, address: str, *, properties: dict[Any, Any] | None = None
    ) -> ParcelLink:
        """Open a link to an entity."""
        ...


@final
@dataclass(frozen=True, slots=True)
class _Item:
    """A parcel with its place in the order."""

    number: int
    parcel: Parcel


@final
@dataclass(slots=True)
class _Segment:
    """What went into one stage and was not refused."""

    stage: str
    items: dict[int, _Item]
    size: int = 0


@final
class Outbox:
    """All that one task sends to one entity. Belongs to one event loop."""

    def __init__(
        self,
        connection: LinkOpener,
        entity: str,
        *,
        stage_name: Callable[[], str] | None,
        deadline_s: float,
        pace: Pace | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection: Final = connection
        self._entity: Final = entity
        # Gives a name that nobody had before; None sends without stages.
        self._stage_name: Final = stage_name
        self._deadline_s: Final = deadline_s
        self._pace: Final = pace
        self._sleep: Final = sleep
        self._link: ParcelLink | None = None
        self._segment = _Segment("", {})
        self._waiting: deque[_Item] = deque()
        self._under_way: dict[asyncio.Future[None], _Item] = {}
        self._sessions: Final[set[str]] = set()
        self._bytes = 0
        self._changed: Final = asyncio.Event()
        self._problem: ServiceBusError | None = None
        self._is_lost = False
        self._failures = 0
        self._failing_since = 0.0
        self._numbers = 0
        # The stages that are complete, in order.
        self.stages: Final[list[str]] = []

    async def size_max(self) -> int:
        """Return the size of the largest transfer that the entity takes."""
        while self._link is None:
            await self._open()
        return self._link.max_message_size or SIZE_MAX_DEFAULT

    async def put(self, parcel: Parcel) -> None:
        """Send a parcel as soon as there is room for it."""
        if self._segment.size >= SEGMENT_BYTES:
            await self._seal()
        self._numbers += 1
        self._waiting.append(_Item(self._numbers, parcel))
        while self._waiting:
            await self._step()

    async def finish(self) -> None:
        """Wait until everything is taken, and let the link go."""
        await self._seal()
        await self._leave()

    async def give_up(self) -> None:
        """Let the link go, whatever is under way."""
        for future in list(self._under_way):
            future.cancel()
        await self._leave()

    # --- one step at a time: look at what failed, send what may be sent, wait for what happens

    async def _seal(self) -> None:
        """Wait for the last answer; a stage is complete then, and the next one is another's."""
        while self._waiting or self._under_way or self._problem is not None:
            await self._step()
        if self._segment.items:
            self.stages.append(self._segment.stage)
            await self._leave()

    async def _step(self) -> None:
        self._changed.clear()
        if self._problem is not None:
            await self._recover(self._problem)
        elif self._link is None:
            await self._open()
        elif self._waiting and self._has_room(self._waiting[0].parcel):
            await self._paced(self._waiting[0].parcel)
            self._submit(self._link, self._waiting.popleft())
        elif self._under_way:
            await self._changed.wait()

    async def _open(self) -> None:
        """Open a link, into a stage of its own where there are stages."""
        properties: dict[Any, Any] | None = None
        stage = ""
        if self._stage_name is not None:
            stage = self._stage_name()
            properties = {Symbol(STAGE): stage}
        try:
            self._link = await self._connection.open_sender(self._entity, properties=properties)
        except ServiceBusError as error:
            await self._pause(error)
            return
        self._segment = _Segment(stage, {})

    async def _leave(self) -> None:
        link, self._link = self._link, None
        self._segment = _Segment("", {})
        if link is not None:
            await link.close()

    def _has_room(self, parcel: Parcel) -> bool:
        if not self._under_way:
            return True
        return (
            len(self._under_way) < IN_FLIGHT_MAX
            and self._bytes + len(parcel.payload) <= IN_FLIGHT_BYTES
            and self._sessions.isdisjoint(parcel.sessions)
        )

    def _submit(self, link: ParcelLink, item: _Item) -> None:
        parcel = item.parcel
        if self._stage_name is not None:
            self._segment.items[item.number] = item
            self._segment.size += len(parcel.payload)
        future = link.submit(parcel.payload, is_batch=parcel.is_batch)
        self._under_way[future] = item
        self._sessions.update(parcel.sessions)
        self._bytes += len(parcel.payload)
        future.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[None]) -> None:
        problem = None if future.cancelled() else future.exception()
        item = self._under_way.pop(future, None)
        if item is None:
            return  # It was given up with its link, and is being sent again.
        self._sessions.difference_update(item.parcel.sessions)
        self._bytes -= len(item.parcel.payload)
        self._changed.set()
        if problem is None:
            self._failures = 0
            return
        if not isinstance(problem, ServiceBusError):
            problem = ServiceBusError(str(problem))
        self._waiting.append(item)
        if self._segment.items.pop(item.number, None) is not None:
            self._segment.size -= len(item.parcel.payload)
        # Who is busy has said that the message was not taken. After anything else nobody knows.
        self._is_lost = self._is_lost or not isinstance(problem, ServiceBusServerBusyError)
        self._problem = problem

    # --- when something failed

    async def _recover(self, problem: ServiceBusError) -> None:
        if not problem.is_retryable:
            raise problem
        if self._is_lost:
            # What has no answer yet is given up with its link, and what its stage has too.
            unanswered, self._under_way = self._under_way, {}
            self._waiting.extend(self._segment.items.values() or unanswered.values())
            self._sessions.clear()
            self._bytes = 0
            await self._leave()
        # Parcels of one session are not under way together, so that this order is theirs too.
        self._waiting = deque(sorted(self._waiting, key=lambda item: item.number))
        self._problem = None
        self._is_lost = False
        await self._pause(problem)

    async def _pause(self, problem: ServiceBusError) -> None:
        """Wait longer each time; give up when nothing was accepted for too long."""
        if not problem.is_retryable:
            raise problem
        now = asyncio.get_running_loop().time()
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        if now - self._failing_since > self._deadline_s:
            raise problem
        await self._sleep(min(_PAUSE_FIRST_S * 2.0 ** (self._failures - 1), _PAUSE_MAX_S))

    async def _paced(self, parcel: Parcel) -> None:
        if self._pace is not None:
            wait_s = self._pace.wait_s(parcel.count, asyncio.get_running_loop().time())
            if wait_s > 0:
                await self._sleep(wait_s)
