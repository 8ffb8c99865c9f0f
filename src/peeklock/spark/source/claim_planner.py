"""What the reader of claims decides on the driver, as Spark asks for it.

The end offset of a batch names exactly its messages. Spark calls `latest` with the last offset only
when the batch that ends there is in its commit log, so that its messages are settled there, first
of all. What is claimed and in no offset is an orphan of a crash and becomes the next batch. After
a restart in the middle of a batch Spark calls `plan` with the offsets it had written, and the same
messages are read again.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.client.exceptions import ServiceBusError
from peeklock.spark.offsets import ClaimOffset, pack
from peeklock.spark.options import SourceOptions
from peeklock.spark.source.arrow import BATCH_MARK, Parts, number_of
from peeklock.spark.source.claim_keeper import (
    ABANDONED,
    COMPLETED,
    DEAD_LETTERS,
    DEFERRAL,
    PAGE,
    SUSPENDED,
    ClaimedMessage,
    ClaimKeeper,
)
from peeklock.spark.source.slices import divide

TASK_FAILED: Final = "SparkTaskFailed"
_POLL_S: Final = 0.02
_POLL_MAX_S: Final = 0.2
_SHOWN: Final = 10

_log: Final = logging.getLogger("peeklock.spark")


class DataLoss(Exception):
    """Messages that were planned to be read are gone."""


def data_loss(entity: str, numbers: Sequence[int]) -> DataLoss:
    """Return which messages are gone, and what can be done."""
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (" ..." if len(numbers) > _SHOWN else "")
    return DataLoss(
        f"{len(numbers)} messages of '{entity}' that this batch was to read are gone ({shown}): "
        "they were settled by somebody else, or the claim ended by its timeout. "
        "To go on without them set option failOnDataLoss to false."
    )


@final
class ClaimPlanner:
    """The claims of one query, as this process knows them."""

    def __init__(self, options: SourceOptions, keeper: ClaimKeeper) -> None:
        self._options = options
        self._keeper = keeper
        # What is claimed and not in a batch that Spark has committed; None until it was asked.
        self._held: dict[int, ClaimedMessage] | None = None
        # The last batch whose messages were settled, or given back; -1 before the first.
        self._finished = -1
        # What was given back instead of being read, by batch.
        self._given_back: dict[int, set[int]] = {}
        # The newest batch that Spark was told of by this process.
        self._newest: ClaimOffset | None = None
        # Up to where AvailableNow reads; None outside of it.
        self._upto: dict[int, int] | None = None

    @property
    def keeper_kind(self) -> str:
        """Return which kind of keeper the tasks must open."""
        return self._keeper.kind

    # --- what Spark asks for

    def stop_at_what_is_there(self) -> None:
        """Read no further than what is there now."""
        self._keeper.enter()
        self._upto = self._keeper.backlog().last_numbers

    def latest(
        self, start: ClaimOffset, rows: int, size: int, *, everything: bool = False
    ) -> ClaimOffset:
        """Settle the batch that ends at `start`, and give the next one, or `start` if none is."""
        self._keeper.enter()
        self._finish(start)
        held = self._stock()
        batch = _cut(list(held.values()), rows, size, everything)
        if not batch:
            batch = self._claim(rows, size, everything)
            held.update((claimed.number, claimed) for claimed in batch)
            if len(batch) > rows:
                # What is too much, which is possible after a lost answer, is for the next batch.
                batch = _cut(batch, rows, size, everything)
        if not batch:
            return start
        packed = pack(claimed.number for claimed in batch)
        self._newest = ClaimOffset(start.entity, start.counter + 1, packed)
        return self._newest

    def plan(self, start: ClaimOffset, end: ClaimOffset) -> list[list[int]]:
        """Divide the messages of a batch among tasks."""
        if end == start:
            return []
        numbers = end.numbers
        known = self._held or {}
        if any(number not in known for number in numbers):
            known = self._replayed(end, numbers)
        claims = [known[number] for number in numbers if number in known]
        return divide(claims, self._options.partition_bytes, self._options.partitions_min)

    def commit(self, end: ClaimOffset) -> None:
        """Settle a second time, should `latest` not have been called with this offset."""
        self._keeper.enter()
        self._finish(end)

    def report(self) -> dict[str, Any]:
        """Tell the backlog, for the progress events."""
        backlog = self._keeper.backlog()
        now = time.time_ns() // 1_000_000
        age = -1 if backlog.oldest_enqueued < 0 else max(0, now - backlog.oldest_enqueued)
        return {
            "consumerId": self._options.consumer_id,
            "claimed": len(self._held or {}),
            "active": backlog.active,
            "oldestAgeMs": age,
        }

    # --- settling

    def _finish(self, offset: ClaimOffset) -> None:
        """Settle what Spark has committed, once."""
        if offset.counter <= self._finished:
            return
        undone = set(self._given_back.get(offset.counter, ()))
        if self._newest is not None and self._newest.counter > offset.counter:
            # The same numbers again, in a later batch, are not done yet.
            undone.update(self._newest.numbers)
        numbers = [number for number in offset.numbers if number not in undone]
        if numbers and not self._options.is_manual:
            if self._held is None:
                numbers = self._truly_done(offset, numbers)
            self._keeper.settle(numbers, COMPLETED)
        if self._held is not None:
            for number in numbers:
                self._held.pop(number, None)
        self._finished = offset.counter

    def _truly_done(self, offset: ClaimOffset, numbers: list[int]) -> list[int]:
        """Leave out what the process before gave back instead of reading it, and claimed again."""
        if self._keeper.kind == DEFERRAL:
            return numbers
        claimed = {one.number for one in self._keeper.listed()}
        numbers = [number for number in numbers if number in claimed]
        again = self._marked(offset, numbers)
        return [number for number in numbers if number not in again]

    def _stock(self) -> dict[int, ClaimedMessage]:
        """Know what is claimed: after a crash it may be more than any offset says.

        Where the job settles by itself, what it had not settled comes again.
        """
        if self._held is None:
            self._held = {claimed.number: claimed for claimed in self._keeper.listed()}
        return self._held

    # --- claiming

    def _claim(self, rows: int, size: int, everything: bool) -> list[ClaimedMessage]:
        """Claim; wait a while for the first message unless what is there now is all."""
        upto = self._upto
        if everything and upto is None:
            upto = self._keeper.backlog().last_numbers
        deadline = time.monotonic() + self._options.wait_ms / 1000
        pause_s = _POLL_S
        while True:
            batch = self._claim_once(rows, size, upto, everything)
            left_s = deadline - time.monotonic()
            if batch or upto is not None or left_s <= 0:
                return batch
            time.sleep(min(left_s, pause_s))
            pause_s = min(_POLL_MAX_S, 2 * pause_s)

    def _claim_once(
        self, rows: int, size: int, upto: dict[int, int] | None, everything: bool
    ) -> list[ClaimedMessage]:
        batch: list[ClaimedMessage] = []
        sessions = self._options.sessions_max
        while everything or (len(batch) < rows and size > 0):
            asked = min(PAGE, rows if everything else rows - len(batch))
            got = self._keeper_claim(batch, asked, 0 if everything else size, upto)
            batch += got
            size -= sum(claimed.size for claimed in got)
            # A short answer is the end, or a message that failed before and must be with few.
            if not got or (len(got) < asked and not everything) or _is_over(batch, sessions):
                break
        return batch

    def _keeper_claim(
        self, batch: list[ClaimedMessage], count: int, size: int, upto: dict[int, int] | None
    ) -> list[ClaimedMessage]:
        """Claim once. When the answer is lost only the keeper knows what was claimed: what it has
        beyond this batch is that, or, where the job settles by itself, not settled yet."""
        deadline = time.monotonic() + self._options.access.retry_deadline_ms / 1000
        while True:
            try:
                return self._keeper.claim(count, size, self._options.sessions_max, upto)
            except ServiceBusError as error:
                if not error.is_retryable or time.monotonic() >= deadline:
                    raise
                _log.warning("claim result unknown; listing claims: %s", error)
            known = {claimed.number for claimed in batch}
            found = [one for one in self._keeper.listed() if one.number not in known]
            if found:
                return found
            time.sleep(_POLL_MAX_S)

    # --- a batch that was begun before

    def _replayed(self, end: ClaimOffset, numbers: list[int]) -> dict[int, ClaimedMessage]:
        """Find the messages of a batch that an earlier process had planned."""
        self._keeper.enter()
        owned = {claimed.number: claimed for claimed in self._keeper.listed()}
        mine = {number: owned[number] for number in numbers if number in owned}
        gone = [number for number in numbers if number not in owned]
        if gone and not self._options.is_manual:
            marked = self._marked(end, gone)
            self._given_back[end.counter] = marked
            buried = self._buried(gone) if self._options.bad_records == "deadletter" else set()
            gone = [number for number in gone if number not in marked | buried]
        if gone and not self._options.is_manual:
            loss = data_loss(self._options.entity, gone)
            if self._options.fails_on_loss:
                raise loss
            _log.warning("%s", loss)
        if mine and self._is_poisoned(list(mine.values())):
            self._give_back(end, list(mine))
            return {}
        return mine

    def _is_poisoned(self, claims: list[ClaimedMessage]) -> bool:
        """Return whether a batch has taken the query down too often.

        Batches with messages that failed before are small, and one failure more is enough to
        divide them further; for a lone one it takes two, because one crash may have been chance.
        """
        if self._options.entity.endswith(DEAD_LETTERS):
            return False  # Nothing is behind a dead-letter queue.
        attempts = max(claimed.attempts for claimed in claims)
        if attempts >= self._options.batch_attempts_max:
            return True
        enough = 2 if len(claims) == 1 else 1
        small = max(1, self._options.rows_max >> 3)
        if attempts < enough or len(claims) > small:
            return False
        heads = self._keeper.heads([claimed.number for claimed in claims])
        # Those that others could not consume are no suspects: to give a batch back that its sink
        # has written already would write it twice.
        mine = f"{self._options.consumer_id}#"
        return any(str(_mark_of(head)).startswith(mine) for head in heads)

    def _give_back(self, end: ClaimOffset, numbers: list[int]) -> None:
        """Dead-letter a lone message; let several come again in smaller batches."""
        note: dict[str, Any] = {"properties-to-modify": {BATCH_MARK: self._mark(end)}}
        if len(numbers) == 1:
            text = f"its batch failed in Spark {self._options.batch_attempts_max} times or alone"
            note |= {"deadletter-reason": TASK_FAILED, "deadletter-description": text}
            self._keeper.settle(numbers, SUSPENDED, note=note)
        else:
            self._keeper.settle(numbers, ABANDONED, note=note)
        self._given_back.setdefault(end.counter, set()).update(numbers)
        _log.warning(
            "batch %d of '%s' failed again and again: its %d messages were %s",
            end.counter,
            self._options.entity,
            len(numbers),
            "dead-lettered" if len(numbers) == 1 else "given back, to come in smaller batches",
        )

    def _mark(self, offset: ClaimOffset) -> str:
        return f"{self._options.consumer_id}#{offset.counter}"

    def _marked(self, offset: ClaimOffset, numbers: list[int]) -> set[int]:
        """Find those that were given back, or dead-lettered, when this batch could not be read."""
        mark = self._mark(offset)
        heads = self._keeper.heads(numbers) if numbers else []
        seen = {number_of(head) for head in heads}
        # One delivery more may have been one too many for them.
        heads += self._dead([number for number in numbers if number not in seen])
        return {
            number
            for head in heads
            if _mark_of(head) == mark and (number := number_of(head)) is not None
        }

    def _buried(self, numbers: list[int]) -> set[int]:
        """Find those that tasks have dead-lettered because they could not be decoded."""
        return {number for head in self._dead(numbers) if (number := number_of(head)) is not None}

    def _dead(self, numbers: list[int]) -> list[bytes]:
        if not numbers or self._options.entity.endswith(DEAD_LETTERS):
            return []  # Nothing is behind a dead-letter queue.
        return self._keeper.heads(numbers, sub_queue=DEAD_LETTERS)


def _cut(
    claims: list[ClaimedMessage], rows: int, size: int, everything: bool
) -> list[ClaimedMessage]:
    """Take the first claims that fit into a batch, one at least."""
    claims.sort(key=lambda claimed: claimed.number)
    if everything:
        return claims
    batch: list[ClaimedMessage] = []
    for claimed in claims[:rows]:
        size -= claimed.size
        if batch and size < 0:
            break
        batch.append(claimed)
    return batch


def _is_over(batch: list[ClaimedMessage], sessions: int) -> bool:
    """Return whether a batch has its number of sessions."""
    names = {claimed.session_id for claimed in batch if claimed.session_id is not None}
    return len(names) >= sessions


def _mark_of(head: bytes) -> object:
    try:
        return Parts(head).application.get(BATCH_MARK)
    except DecodeError:
        return None
