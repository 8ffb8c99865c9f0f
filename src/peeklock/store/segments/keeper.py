"""The thread that keeps the index: it learns what was committed, trims, and has a segment ready.

It works when it is asked to, and else a while after the first commit that the index does not know.

The log does not need the index: one that cannot be written because the disk is full is behind, and
tries again now and then. An opening goes through what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, final

import lmdb

from peeklock.store.committers import Committed, settle
from peeklock.store.entries import LmdbTransaction
from peeklock.store.environment import is_lasting
from peeklock.store.segments.files import Segments
from peeklock.store.segments.frames import APPENDED, DROPPED
from peeklock.store.segments.index import Index, Job
from peeklock.store.segments.index_copy import IndexCopy
from peeklock.store.segments.log import PENDING_MAX, Log, LogCommit
from peeklock.store.store import Broken, StoreError, Unavailable

# How far the index may lag. An opening goes through what was written meanwhile.
LAG_S: Final = 1.0

# An index that could not be written tries again after so long, with so many commits at a time:
# where little room is left, little may still be done.
_RETRY_S_MIN: Final = 0.05
_COMMITS_AT_ONCE: Final = 512

# A segment that could not be made ready is tried again after this, then twice that, and so on.
_READY_S_MIN: Final = 1.0
_READY_S_MAX: Final = 16.0

# What goes on failing is told so often.
_TELL_S: Final = 60.0

_LOG: Final = logging.getLogger("peeklock.store")


@final
class Keeper:
    """Runs jobs on the index, each batch with all that was committed before it."""

    def __init__(
        self,
        log: Log,
        index: Index,
        segments: Segments,
        name: str,
        lag_s: float = LAG_S,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_short` tells whether the disk may have been full a moment ago."""
        self._log = log
        self._index = index
        self._segments = segments
        self._copy = IndexCopy(index.environment)
        self._lag_s = lag_s
        self._is_short = is_short
        # Whether the index could not be written the last time; nobody should send meanwhile.
        self.is_behind = False
        self._retry_at = 0.0
        self._ready_at = 0.0
        self._ready_s = _READY_S_MIN
        self._told: dict[str, float] = {}
        self._queue: SimpleQueue[tuple[Job, Committed] | bool] = SimpleQueue()
        # A daemon: a process that ends without close loses nothing that was answered.
        self._thread = threading.Thread(target=self._run, name=f"index-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, job: Job) -> Committed:
        """Do this soon, with whatever else there is."""
        answer: Committed = asyncio.get_running_loop().create_future()
        self._queue.put((job, answer))
        return answer

    def wake(self) -> None:
        """Something was committed; may be called from any thread."""
        self._queue.put(True)

    async def finish(self) -> None:
        """Let the index learn the rest, and stop."""
        self._queue.put(False)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        self._copy_index()
        going = True
        while going:
            batch: list[tuple[Job, Committed]] = []
            going = self._wait(batch)
            self._work(batch)
            self._make_ready()

    def _wait(self, batch: list[tuple[Job, Committed]]) -> bool:
        """Wait for jobs, or until the index is late; return whether to go on."""
        late_at = self._retry_at if self.is_behind else time.monotonic() + self._lag_s
        while True:
            # A log that failed has nothing more to tell.
            pending = 0 if self._log.failure is not None else len(self._log.pending)
            is_waiting = pending > 0 or (self.is_behind and self._log.failure is None)
            left = late_at - time.monotonic()
            is_much = pending >= PENDING_MAX and not self.is_behind
            if is_much or (is_waiting and left <= 0) or (batch and self._queue.empty()):
                return True
            try:
                item = self._queue.get(timeout=max(left, 0) if is_waiting else None)
            except Empty:
                continue
            if item is False:
                return False
            if item is True:
                self._make_ready()
                if not is_waiting:
                    late_at = time.monotonic() + self._lag_s
            else:
                batch.append(item)

    def _work(self, batch: list[tuple[Job, Committed]]) -> None:
        log = self._log
        environment = self._index.environment
        if log.failure is None and not environment.is_in_place():
            # Others may lie in their place, whose segments are none of ours.
            log.failure = f"the files of the store in {environment.directory} are gone"
        results: list[int | StoreError]
        if log.failure is not None:
            # What rests is no longer certain: the index must not say that it does.
            results = [Broken(log.failure) for _ in batch]
        elif self.is_behind:
            results = [Unavailable("the index cannot be written at the moment") for _ in batch]
            self._catch_up()
        else:
            commits = log.pending[:]
            results = self._commit(commits, [job for job, _ in batch]) if commits or batch else []
        for (_, answer), result in zip(batch, results, strict=True):
            # The loop may have been closed meanwhile: nobody waits then.
            with contextlib.suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(settle, answer, result)

    def _catch_up(self) -> None:
        """Let the index learn what it missed, when it is time to try again."""
        log = self._log
        while log.failure is None and time.monotonic() >= self._retry_at:
            # The job tells whether it went well, also where there are no commits.
            if isinstance(
                self._commit(log.pending[:_COMMITS_AT_ONCE], [only_learn])[0], StoreError
            ):
                return
            if not log.pending:
                self.is_behind = False
                self._told.pop("store-index-failed", None)
                _LOG.warning("store-index-caught-up")
                return

    def _commit(self, commits: list[LogCommit], jobs: list[Job]) -> list[int | StoreError]:
        index, log, segments = self._index, self._log, self._segments
        try:
            results, empty = index.work(commits, segments.used, log.tails, jobs)
        except Exception as error:  # noqa: BLE001 - the thread must outlive anything
            return self._failed(error, len(jobs))
        del log.pending[: len(commits)]
        learned: dict[int, int] = {}
        for commit in commits:
            for part in commit.parts:
                if part.kind == APPENDED:
                    learned[part.number] = learned.get(part.number, 0) + 1
                elif part.kind == DROPPED:
                    log.tails.pop(part.number, None)
        for number, count in learned.items():
            tail = log.tails.get(number)
            if tail is not None:
                del tail.recent[:count]
        if empty:
            self._copy_index()
            segments.let_go(empty)
        return results

    def _copy_index(self) -> None:
        """Write down what only the segments that are let go tell, and the index."""
        try:
            self._copy.write()
        except (OSError, lmdb.Error) as error:
            # Room is needed more than a second copy of what rests.
            self._tell("store-index-copy-failed", error)

    def _failed(self, error: Exception, count: int) -> list[int | StoreError]:
        text = f"the index failed: {error!r}"
        self._tell("store-index-failed", error)
        try:
            # Nothing of the transaction is left; neither must what it changed here be.
            self._index.load()
        except StoreError as second:
            error = second
        if isinstance(error, StoreError | lmdb.PanicError) or (
            # Some file systems have no better word for a full disk.
            is_lasting(error) and not self._is_short()
        ):
            self._log.failure = text
            return [Broken(text) for _ in range(count)]
        self._retry_at = time.monotonic() + max(min(self._lag_s, LAG_S), _RETRY_S_MIN)
        self.is_behind = True
        return [Unavailable(text) for _ in range(count)]

    def _make_ready(self) -> None:
        if self._log.failure is not None or not self._log.wants_next:
            return
        now = time.monotonic()
        if now < self._ready_at:
            return
        try:
            self._segments.prepare()
            self._ready_s = _READY_S_MIN
        except OSError as error:
            # Whoever needs it hears of it, unless there is room again by then.
            self._tell("store-segment-failed", error)
            self._ready_at = now + self._ready_s
            self._ready_s = min(self._ready_s * 2, _READY_S_MAX)

    def _tell(self, event: str, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._told.get(event, now):
            self._told[event] = now + _TELL_S
            _LOG.warning("%s error=%r", event, str(error))


def only_learn(_transaction: LmdbTransaction) -> int:
    """Do nothing but what each job does: the index learns what was committed."""
    return 0
