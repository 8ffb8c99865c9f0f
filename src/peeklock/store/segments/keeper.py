"""The thread that keeps the index: it learns what was committed, trims, and has a segment ready.

It works when it is asked to, and else a while after the first commit that the index does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias, final

from peeklock.store.ledger import is_lasting
from peeklock.store.segments.files import Segments
from peeklock.store.segments.frames import APPENDED, DROPPED
from peeklock.store.segments.index import Index, Job
from peeklock.store.segments.log import PENDING_MAX, Commit, Log
from peeklock.store.store import Broken, StoreError, Unavailable

# How far the index may lag. An opening goes through what was written meanwhile.
LAG_S: Final = 1.0

Answer: TypeAlias = "asyncio.Future[int]"

_LOG: Final = logging.getLogger("peeklock.store")


@final
class Keeper:
    """Runs jobs on the index, each batch with all that was committed before it."""

    def __init__(
        self, log: Log, index: Index, segments: Segments, name: str, lag_s: float = LAG_S
    ) -> None:
        self._log = log
        self._index = index
        self._segments = segments
        self._lag_s = lag_s
        self._queue: SimpleQueue[tuple[Job, Answer] | bool] = SimpleQueue()
        # A daemon: a process that ends without close loses nothing that was answered.
        self._thread = threading.Thread(target=self._run, name=f"index-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, job: Job) -> Answer:
        """Do this soon, with whatever else there is."""
        answer: Answer = asyncio.get_running_loop().create_future()
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
        going = True
        while going:
            batch: list[tuple[Job, Answer]] = []
            going = self._wait(batch)
            self._work(batch)
            self._make_ready()

    def _wait(self, batch: list[tuple[Job, Answer]]) -> bool:
        """Wait for jobs, or until the index is late; answers whether to go on."""
        late_at = time.monotonic() + self._lag_s
        while True:
            pending = len(self._log.pending)
            left = late_at - time.monotonic()
            if pending >= PENDING_MAX or (pending and left <= 0) or (batch and self._queue.empty()):
                return True
            try:
                item = self._queue.get(timeout=max(left, 0) if pending else None)
            except Empty:
                continue
            if item is False:
                return False
            if item is True:
                self._make_ready()
                if not pending:
                    late_at = time.monotonic() + self._lag_s
            else:
                batch.append(item)

    def _work(self, batch: list[tuple[Job, Answer]]) -> None:
        log = self._log
        environment = self._index.environment
        if log.failure is None and not environment.is_in_place():
            # Others may lie in their place, whose segments are none of ours.
            log.failure = f"the files of the store in {environment.directory} are gone"
        results: list[int | StoreError]
        if log.failure is not None:
            # What rests is no longer certain: the index must not say that it does.
            results = [Broken(log.failure) for _ in batch]
        else:
            commits = log.pending[:]
            results = self._commit(commits, [job for job, _ in batch]) if commits or batch else []
        for (_, answer), result in zip(batch, results, strict=True):
            # The loop may have been closed meanwhile: nobody waits then.
            with contextlib.suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(_resolve, answer, result)

    def _commit(self, commits: list[Commit], jobs: list[Job]) -> list[int | StoreError]:
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
        segments.let_go(empty)
        return results

    def _failed(self, error: Exception, count: int) -> list[int | StoreError]:
        text = f"the index failed: {error!r}"
        _LOG.error("store-index-failed error=%r", str(error))
        try:
            # Nothing of the transaction is left; neither must what it changed here be.
            self._index.load()
        except StoreError as second:
            error = second
        if is_lasting(error) or isinstance(error, StoreError):
            self._log.failure = text
            return [Broken(text) for _ in range(count)]
        time.sleep(min(self._lag_s, LAG_S))  # it will not be better at once
        return [Unavailable(text) for _ in range(count)]

    def _make_ready(self) -> None:
        if self._log.failure is None and self._log.wants_next:
            try:
                self._segments.prepare()
            except OSError as error:
                # Whoever needs it hears of it, unless there is room again by then.
                _LOG.warning("store-segment-failed error=%r", str(error))


def _resolve(answer: Answer, result: int | StoreError) -> None:
    if answer.done():
        return
    if isinstance(result, StoreError):
        answer.set_exception(result)
    else:
        answer.set_result(result)
