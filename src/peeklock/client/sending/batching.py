"""Implicit batching (R-F2): what is asked for and not waited for travels together.

Sends and completes are held for the flush interval and leave as one. While an earlier batch is
under way the next one fills, and leaves when the earlier one is answered, whatever the interval.
What is sent and has no outcome yet is bounded by number and size; beyond that messages wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, final

from peeklock.client.batch import ServiceBusMessageBatch
from peeklock.client.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from peeklock.client.reporting import Outcome, Reporting
from peeklock.client.sending.buffer import Buffered, SendBuffer

# As long as the service's documentation recommends.
FLUSH_INTERVAL_S: Final = 0.02
# Full batches under way at once: enough to fill a long line, few enough for the next to fill.
WINDOW: Final = 4
# What is wrong with the entity or the key is wrong for each message.
_WRONG_FOR_ALL: Final = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)


@final
class BatchedMessage:
    """One message on its way into a batch."""

    __slots__ = ("key", "outcome", "payload", "room", "subject")

    def __init__(self, subject: Any, payload: bytes, key: str | None, outcome: Outcome) -> None:
        self.subject: Final = subject
        self.payload: Final = payload
        self.key: Final = key
        self.outcome: Final = outcome
        # Done when the buffer has taken the message; None when it did not have to wait.
        self.room: asyncio.Future[None] | None = None


@final
class _Filling:
    """A batch that is being filled."""

    def __init__(self, size_max: int, key: str | None) -> None:
        self.batch: Final = ServiceBusMessageBatch(size_max)
        self.entries: Final[list[BatchedMessage]] = []
        self.key: Final = key

    def take(self, entry: BatchedMessage) -> bool:
        if not self.batch.add_payload(entry.payload):
            return False
        self.entries.append(entry)
        return True

    @property
    def has_one_key(self) -> bool:
        return len({entry.key for entry in self.entries}) < 2


@final
class SendBatching:
    """The implicit batches of one sender."""

    def __init__(
        self,
        send: Callable[[bytes, bool], Awaitable[None]],
        size_max: Callable[[], int],
        interval_s: float,
        reporting: Reporting,
        buffer: SendBuffer,
    ) -> None:
        """Send takes bytes and whether they are a batch; size_max tells how large one may be."""
        self._send = send
        self._buffer = buffer
        # Entries that wait for room in the buffer; what is dropped from here was never taken.
        self._line: deque[BatchedMessage] = deque()
        self._size_max = size_max
        self._interval_s = interval_s
        self._reporting = reporting
        self._filling: dict[str | None, _Filling] = {}
        self._full: deque[_Filling] = deque()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Whether the interval has passed while the line was used up.
        self._is_due = False
        # An entity that is partitioned may refuse batches of several keys; one refusal teaches it.
        self._keeps_keys_apart = False

    def put(self, subject: Any, payload: bytes, key: str | None) -> Buffered:
        """Take a message; it leaves with others, soon, or waits while the buffer is full."""
        loop = asyncio.get_running_loop()
        entry = BatchedMessage(subject, payload, key, Outcome(loop=loop))
        if not self._line and self._buffer.take(len(payload)):
            self._add(entry)
            return Buffered(entry.outcome)
        entry.room = loop.create_future()
        self._line.append(entry)
        if len(self._under_way) < WINDOW:
            # Nothing can join the batches that are being filled: they need not wait for it.
            self.push()
        return Buffered(entry.outcome, entry.room, partial(self._give_up, entry))

    def _give_up(self, entry: BatchedMessage) -> None:
        """Whoever waited for room was cancelled: the message is not sent."""
        room, entry.room = entry.room, None
        if room is not None:
            self._line.remove(entry)
            room.set_result(None)
            entry.outcome.cancel()

    def _finished(self, entries: list[BatchedMessage]) -> None:
        """The outcome of messages is known; let those in that wait for their room."""
        for entry in entries:
            self._buffer.give_back(len(entry.payload))
        line = self._line
        while line and self._buffer.take(len(line[0].payload)):
            entry = line.popleft()
            room, entry.room = entry.room, None
            if room is not None and not room.done():
                room.set_result(None)
            if entry.outcome.cancelled():
                self._buffer.give_back(len(entry.payload))
            else:
                self._add(entry)
        if line and len(self._under_way) < WINDOW:
            self.push()

    def _add(self, entry: BatchedMessage) -> None:
        """Put a message that has room into a batch."""
        loop = asyncio.get_running_loop()
        if self._interval_s <= 0:
            self._start(self._send_one(entry))
            return
        group = entry.key if self._keeps_keys_apart else None
        filling = self._filling.get(group)
        if filling is None or not filling.take(entry):
            if filling is not None:
                self._full.append(self._filling.pop(group))
            fresh = _Filling(self._size_max(), group)
            if fresh.take(entry):
                self._filling[group] = fresh
            else:
                # Larger than a batch may be: it goes by itself, behind what came before it.
                self.push()
                self._start(self._send_one(entry))
        self._dispatch_full()
        if self._filling and self._timer is None:
            self._timer = loop.call_later(self._interval_s, self._on_time)

    async def give_way(self) -> None:
        """Let all that is held leave now; what is sent after this comes behind it."""
        line = list(self._line)
        while line:
            # From the last one on: when that has room, so have those before it.
            room = line.pop().room
            if room is not None:
                await asyncio.shield(room)
        self.push()
        if self._under_way:
            # They hand their messages over in their first turn of the loop, which is the next.
            await asyncio.sleep(0)

    def push(self) -> None:
        """Let all that is held leave now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = False
        batches = [*self._full, *self._filling.values()]
        self._full.clear()
        self._filling.clear()
        for filling in batches:
            self._start(self._send_batch(filling))

    async def flush(self) -> None:
        """Let all that is held leave, and wait until each outcome is known."""
        self.push()
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _on_time(self) -> None:
        self._timer = None
        # With the line used up they stay and fill; the next answer sends them on.
        self._is_due = True
        if len(self._under_way) < WINDOW:
            self.push()

    def _dispatch_full(self) -> None:
        while self._full and len(self._under_way) < WINDOW:
            self._start(self._send_batch(self._full.popleft()))

    def _start(self, work: Any) -> None:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # Our own mistake: outcomes are told in the work itself.
        self._dispatch_full()
        if self._filling and (self._is_due or self._line or not self._under_way):
            self.push()

    async def _send_batch(self, filling: _Filling) -> None:
        entries = filling.entries
        if len(entries) == 1:
            await self._send_one(entries[0])
            return
        try:
            await self._send(filling.batch.encoded(), True)
        except Exception as error:  # noqa: BLE001  whoever waits for the outcomes is told
            if not _may_be_of_one(error):
                for entry in entries:
                    self._reporting.fail(entry.outcome, entry.subject, error)
                self._finished(entries)
                return
            # One of them may be to blame; the others must not suffer for it.
            if await self._send_singly(entries) and not filling.has_one_key:
                self._keeps_keys_apart = True
        except asyncio.CancelledError:
            for entry in entries:
                entry.outcome.cancel()
            self._finished(entries)
            raise
        else:
            for entry in entries:
                entry.outcome.succeed()
            self._finished(entries)

    async def _send_singly(self, entries: list[BatchedMessage]) -> bool:
        """Send messages each by itself; they overlap and keep their order. Tells if all is well."""
        return all(await asyncio.gather(*(self._send_one(entry) for entry in entries)))

    async def _send_one(self, entry: BatchedMessage) -> bool:
        try:
            await self._send(entry.payload, False)
        except Exception as error:  # noqa: BLE001  whoever waits for the outcome is told
            self._reporting.fail(entry.outcome, entry.subject, error)
            return False
        except asyncio.CancelledError:
            entry.outcome.cancel()
            raise
        else:
            entry.outcome.succeed()
            return True
        finally:
            self._finished([entry])


def _may_be_of_one(error: Exception) -> bool:
    """Return whether one message of a batch may be to blame.

    It is not for what may pass, for what is wrong with the entity, and for what did not come from
    the broker at all: a client that was closed, a credential that gives no token.
    """
    if not isinstance(error, ServiceBusError) or error.is_retryable:
        return False
    return not isinstance(error, _WRONG_FOR_ALL)


@final
class CompleteBatching:
    """The completes of one receiver that nobody waits for."""

    def __init__(
        self,
        complete: Callable[[list[Any]], list[asyncio.Future[None]]],
        interval_s: float,
        count_max: int,
        reporting: Reporting,
    ) -> None:
        """Complete takes messages and gives a future for each, all of it in one write."""
        self._complete = complete
        self._interval_s = interval_s
        self._count_max = count_max
        self._reporting = reporting
        self._held: list[tuple[Any, Outcome]] = []
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    def put(self, message: Any) -> Outcome:
        """Take a message; it is completed with others, soon."""
        loop = asyncio.get_running_loop()
        outcome = Outcome(loop=loop)
        self._held.append((message, outcome))
        if self._interval_s <= 0 or len(self._held) >= self._count_max:
            self.push()
        elif self._timer is None:
            self._timer = loop.call_later(self._interval_s, self._on_time)
        return outcome

    def push(self) -> None:
        """Let all that is held leave now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        self._under_way += len(held)
        told = self._complete([message for message, _ in held])
        for (message, outcome), future in zip(held, told, strict=True):
            future.add_done_callback(partial(self._ended, message, outcome))

    async def flush(self) -> None:
        """Let all that is held leave, and wait until each outcome is known."""
        self.push()
        while self._under_way:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _on_time(self) -> None:
        self._timer = None
        self.push()

    def _ended(self, message: Any, outcome: Outcome, future: asyncio.Future[None]) -> None:
        self._under_way -= 1
        if future.cancelled():
            outcome.cancel()
        elif (error := future.exception()) is None:
            outcome.succeed()
        else:
            assert isinstance(error, Exception)
            self._reporting.fail(outcome, message, error)
        if not self._under_way and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
