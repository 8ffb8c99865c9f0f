"""Where the embedded store commits: on a thread of its own, on the event loop, or where it is
cheaper at the moment.

On the thread, requests gather while a commit waits for the disk, and the following commit takes
them all; each commit wakes the event loop once. On the loop, one commit takes all requests of one
turn of the loop: no thread has to be woken, but everything waits for the disk. Which is better
depends on the disk and on the load, so the adaptive committer looks at what commits took and how
large this one is. Where there are several disks, nobody commits on the loop: one that hangs must
not stop the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias, final

from peeklock.store.store import StoreError
from peeklock.turns import TURNS


class CommitRequest(Protocol):
    """Something to be committed."""

    # The bytes that it writes, about; BULKY where it has other work to do.
    size: int


# The size of what is no small write, whatever it writes.
BULKY: Final = 1 << 30

Committed: TypeAlias = "asyncio.Future[int]"
Submission: TypeAlias = tuple[CommitRequest, Committed]
CommitAll: TypeAlias = Callable[[list[Submission]], list[int | StoreError]]

# Waking a thread and being woken by it costs about 0.1 ms of CPU, and a commit on the loop delays
# everybody by as long as it takes. Up to this the delay is the smaller evil (bench/latency.py).
INLINE_S_MAX: Final = 0.001

# Up to here a commit's bytes cost less than the fixed price; a large one leaves the loop at once,
# whatever commits took so far.
INLINE_BYTES_MAX: Final = 128 << 10

# How much one commit counts in the mean: the last eight or so decide.
_WEIGHT: Final = 0.125


class Committer(Protocol):
    """Takes requests and answers them when they rest."""

    def submit(self, submission: Submission) -> None:
        """CommitAll this soon, with whatever else there is."""
        ...

    async def finish(self) -> None:
        """CommitAll all that was handed over, and stop."""
        ...


@final
class Threaded:
    """Commits on a thread of its own, as soon as the last commit ends."""

    def __init__(self, commit: CommitAll, name: str) -> None:
        self._commit = commit
        # Requests that were handed over and not answered; only the loop's thread counts.
        self.under_way = 0
        self._queue: SimpleQueue[Submission | None] = SimpleQueue()
        # A daemon: a process that ends without close loses nothing that was answered.
        self._thread = threading.Thread(target=self._run, name=f"commit-{name}", daemon=True)
        self._thread.start()

    def submit(self, submission: Submission) -> None:
        """Hand over to the thread."""
        self.under_way += 1
        TURNS.committing += 1
        self._queue.put(submission)

    async def finish(self) -> None:
        """Let the thread end when it has done all."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        going = True
        while going:
            batch: list[Submission] = []
            going = self._take(batch)
            if batch:
                self._answer(batch, self._commit(batch))

    def _take(self, batch: list[Submission]) -> bool:
        """Wait for a request and take all that came with it; return whether to go on."""
        queue = self._queue
        while True:
            submission = queue.get()
            if submission is None:
                return False
            batch.append(submission)
            if queue.empty():
                return True

    def _answer(self, batch: list[Submission], results: list[int | StoreError]) -> None:
        # Nearly always there is one loop, and it is woken once.
        for loop in {answer.get_loop() for _, answer in batch}:
            try:
                loop.call_soon_threadsafe(self._resolve, loop, batch, results)
            except RuntimeError:
                # The loop was closed while its requests were being committed: nobody waits.
                continue

    def _resolve(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[Submission],
        results: list[int | StoreError],
    ) -> None:
        count = _resolve(loop, batch, results)
        self.under_way -= count
        TURNS.committing -= count


@final
class Inline:
    """Commits on the event loop, once for all requests of one turn of it."""

    def __init__(self, commit: CommitAll, _name: str) -> None:
        self._commit = commit
        self.waiting: list[Submission] = []
        self.size = 0  # bytes of those that wait
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, submission: Submission) -> None:
        """CommitAll in the next turn of the loop."""
        loop = submission[1].get_loop()
        # What a closed loop left behind is committed with the first request of the next one.
        if not self.waiting or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._run)
        self.waiting.append(submission)
        self.size += submission[0].size

    def take(self) -> list[Submission]:
        """Give away all that waits."""
        batch, self.waiting = self.waiting, []
        self.size = 0
        return batch

    async def finish(self) -> None:
        """CommitAll what is left."""
        if self.waiting:
            self._run()

    def _run(self) -> None:
        batch = self.take()
        if batch:
            _resolve(batch[-1][1].get_loop(), batch, self._commit(batch))


@final
class Adaptive:
    """Commits on the loop what is small while commits are short, and on the thread all else."""

    def __init__(
        self, commit: CommitAll, name: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._commit = commit
        self._clock = clock
        self._threaded = Threaded(self._timed, name)
        self._inline = Inline(self._timed, name)
        # The first commits go to the thread: nobody knows yet how long they take.
        self.mean_s = 2 * INLINE_S_MAX

    @property
    def is_inline(self) -> bool:
        """Whether the next request is committed on the loop."""
        # Two commits must not overtake each other: what is on the thread ends there first.
        return bool(self._inline.waiting) or (
            self.mean_s <= INLINE_S_MAX and self._threaded.under_way == 0
        )

    def submit(self, submission: Submission) -> None:
        """CommitAll soon, in the place that is better now."""
        inline = self._inline
        if self.is_inline and inline.size + submission[0].size <= INLINE_BYTES_MAX:
            inline.submit(submission)
            return
        # What waits for the loop goes along, before it: nobody may be overtaken.
        for earlier in inline.take():
            self._threaded.submit(earlier)
        self._threaded.submit(submission)

    async def finish(self) -> None:
        """CommitAll all that was handed over, in either place."""
        await self._inline.finish()
        await self._threaded.finish()

    def _timed(self, batch: list[Submission]) -> list[int | StoreError]:
        begun = self._clock()
        results = self._commit(batch)
        self.mean_s += (self._clock() - begun - self.mean_s) * _WEIGHT
        return results


COMMITTERS: Final[dict[str, Callable[[CommitAll, str], Committer]]] = {
    "adaptive": Adaptive,
    "thread": Threaded,
    "inline": Inline,
}


def _resolve(
    loop: asyncio.AbstractEventLoop, batch: list[Submission], results: list[int | StoreError]
) -> int:
    """Return those requests of a batch that this loop waits for; return how many these were."""
    count = 0
    for (_, answer), result in zip(batch, results, strict=True):
        if answer.get_loop() is not loop:
            continue
        count += 1
        settle(answer, result)
    return count


def settle(answer: Committed, result: int | StoreError) -> None:
    """Answer who waits, if anybody still does."""
    if answer.done():
        return
    if isinstance(result, StoreError):
        answer.set_exception(result)
    else:
        answer.set_result(result)
