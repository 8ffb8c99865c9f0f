"""The worker of one partition: drains the mailbox, decides, stores, then lets the replies go.

One coroutine is the only one that touches the partition, so there are no locks. A round takes
whatever has come in since the last one; while its records are being stored, the replies of the
round before are written out. A round whose records could not be stored leaves the partition in
doubt: it is thrown away, everybody who waits is told, and it is opened anew from the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, final

from peeklock.broker.timers import Timer, Timers
from peeklock.broker.worker.chores import Chores
from peeklock.broker.worker.cold_bodies import bring_bodies, fetch_bodies
from peeklock.broker.worker.mailbox import Mailbox
from peeklock.broker.worker.memory_mark import Forecast, MemoryMark
from peeklock.broker.worker.opening import take_in
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.pending_replies import PendingReplies
from peeklock.broker.worker.refusing import (
    DOUBT,
    GONE,
    SHORT_OF_MEMORY,
    SHORT_OF_SPACE,
    STEPPED_DOWN,
    brings_messages,
    closed_text,
)
from peeklock.broker.worker.write_batching import WriteBatching
from peeklock.clock import Clock
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Command, Configure, Grant, SendMany, SettleMany, Tick
from peeklock.entity.decision import NO_REPLAY, Decision
from peeklock.entity.message import BodyBudget
from peeklock.entity.partition import Partition
from peeklock.entity.refusals import BUSY, INTERNAL, UNAVAILABLE, Refusal
from peeklock.entity.replies import Reply
from peeklock.step import STEP
from peeklock.store.store import (
    Away,
    Corrupt,
    Damaged,
    Fenced,
    JournalPage,
    PartitionId,
    Store,
    StoreError,
)
from peeklock.turns import TURNS

# Commands taken into one round. All of them are answered in one step, each perhaps by a write to a
# socket of its own.
ROUND_MAX: Final = 128
# And the bytes of their messages, beside one command's own.
ROUND_BYTES: Final = 1 << 20
# And how many they are: tiny ones cost more than their bytes.
ROUND_MESSAGES: Final = 4096

# How long a partition that could not be opened waits before it tries again.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

_log: Final = logging.getLogger("peeklock.broker")


@final
class PartitionWorker(PartitionDoor):
    """Owns one partition, here and now."""

    __slots__ = (
        "_blueprint",
        "_budget",
        "_chores",
        "_clock",
        "_closing",
        "_epoch",
        "_expected_bytes",
        "_forecast",
        "_is_fenced",
        "_is_in_reach",
        "_is_lost",
        "_is_store_back",
        "_loop",
        "_lost_content",
        "_mailbox",
        "_memory",
        "_memory_bytes",
        "_partition",
        "_random_source",
        "_store",
        "_task",
        "_timer",
        "_timer_at",
        "_timers",
        "_write_batching",
        "pending_replies",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        blueprint: Blueprint,
        store: Store,
        clock: Clock,
        timers: Timers,
        budget: BodyBudget,
        random_source: Callable[[], int],
        lost_content: bytes = b"",
        memory: MemoryMark | None = None,
    ) -> None:
        super().__init__(partition_id)
        self.pending_replies: Final[PendingReplies] = PendingReplies(partition_id.key)
        self.pending_replies.on_handed_out = self._handed_out
        self._blueprint: Blueprint = blueprint
        self._store: Store = store
        self._clock: Clock = clock
        self._timers: Timers = timers
        self._budget: BodyBudget = budget
        self._random_source: Callable[[], int] = random_source
        self._lost_content: bytes = lost_content
        self._memory: MemoryMark = memory or MemoryMark()
        self._memory_bytes: int = 0  # what this partition is counted for
        self._expected_bytes: int = 0  # of these, for copies that are yet to come
        self._forecast: Final[Forecast] = Forecast()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._partition: Partition | None = None
        self._epoch: int = 0
        self._mailbox: Mailbox = Mailbox()
        self._task: asyncio.Task[None] | None = None
        self._closing: bool = False
        self._is_fenced: bool = False  # somebody else owns the partition now
        self._is_in_reach: bool = True
        self._is_lost: bool = False  # somebody has said that the store is gone
        self._is_store_back: bool = False  # somebody has said that it is back
        self._write_batching: WriteBatching = WriteBatching()
        self._chores: Chores = Chores(partition_id, self._mailbox.awake, lost_content)
        self._timer: Timer | None = None
        self._timer_at: int = 0

    # From outside.

    def submit(self, command: Command) -> None:
        """Put a command into the mailbox; the first one opens the partition."""
        self._mailbox.put(command)
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            if self._closing:
                self._loop.call_soon(self._close_mailbox)
            else:
                self._task = self._loop.create_task(self._run(), name=self.id.key)

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed; a living partition is told in its turn."""
        self._blueprint = blueprint
        if self._task is not None:
            self.submit(Configure(blueprint))

    def set_on_unsent(self, on_unsent: Callable[[Command], bool]) -> None:
        """Say who finds another place for what was not stored here."""
        self.pending_replies.on_unsent = on_unsent

    def trim_soon(self) -> None:
        """Look after the journal in the next round; nothing to do while closed."""
        if self._task is not None:
            self._chores.trim_due = True
            self._mailbox.awake()

    @property
    def is_open(self) -> bool:
        """Whether the partition lives in memory."""
        return self._partition is not None

    @property
    def is_asleep(self) -> bool:
        """Whether nobody has asked anything yet, so that it is neither open nor being opened."""
        return self._task is None

    def depths(self) -> Iterable[tuple[int, list[int]]]:
        """How many messages are in which state, in parts that are added up (`depths_of`); none
        where nothing is open, and nothing is opened for this."""
        return () if self._partition is None else self._partition.depths()

    @property
    def memory_bytes(self) -> int:
        """What they take in memory beside their bodies, about."""
        return 0 if self._partition is None else self._partition.memory_bytes

    @property
    def has_written(self) -> bool:
        """Whether anything was stored since the journal was last looked after."""
        return self._chores.has_written

    async def journal(self, after: int, limit_bytes: int) -> JournalPage:
        """Raw chunks of what is stored, read beside the partition, which need not be open."""
        return await self._store.journal(self.id, after, limit_bytes)

    @property
    def is_available(self) -> bool:
        """Whether the store was within reach when it was last needed."""
        return self._is_in_reach

    @property
    def can_be_asked(self) -> bool:
        """Whether a command has a chance: while the store is out of reach and tried again and
        again, it has none."""
        return self._is_in_reach or self._task is None

    def store_lost(self) -> None:
        """The store was taken away: as if it had failed. An idle partition tries when asked."""
        self._is_in_reach = False
        self._is_store_back = False
        if self._task is not None:
            self._is_lost = True
            self._mailbox.awake()

    def store_back(self) -> None:
        """The store may be back: open now instead of after a while."""
        if self._task is None:
            self._is_in_reach = True
        elif not self._is_in_reach:
            self._is_store_back = True
            self._mailbox.awake()

    async def close(self) -> None:
        """Carry out what is in the mailbox, store it, and stop."""
        self._closing = True
        if self._task is not None:
            self._mailbox.awake()
            await self._task
            self._task = None
        await self._chores.finish()
        self._weigh(None)
        self._call_off_timer()

    # The one coroutine.

    async def _run(self) -> None:
        backoff_ms = BACKOFF_MS_MIN
        mailbox = self._mailbox
        pending_replies = self.pending_replies
        while True:
            if self._is_lost:
                self._is_lost = False
                if self._partition is not None:
                    _log.error("store-lost partition=%s", self.id.key)
                    self._fail([], Refusal(UNAVAILABLE, GONE))
            if self._partition is None:
                if self._closing:
                    self._close_mailbox()
                    return
                if self._is_fenced:
                    await self._stay_closed(Refusal(UNAVAILABLE, STEPPED_DOWN))
                    self._is_fenced = False
                    continue
                # A store that opens and takes nothing is not opened without a pause.
                if pending_replies.has_failed_again() or not await self._open():
                    if self.damage:
                        await self._stay_closed(Refusal(INTERNAL, self.damage))
                    else:
                        await self._back_off(backoff_ms)
                        backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
                continue
            self._chores.begin(self._store, self._partition, self._clock.now())
            is_unfinished = self._partition.is_unfinished and not self._closing
            if mailbox.commands or is_unfinished or self._chores.is_due(self._partition):
                if self._blueprint.definition.batched_store_access:
                    if pending_replies.pending:
                        await mailbox.wait_for_company(self._write_batching, pending_replies)
                    if mailbox.may_ride(self._loop_time()):
                        await mailbox.wait_for_send(pending_replies)
                await self._round()
                # Asked by a property: compiled, the attribute is taken for what it was before.
                if self.is_open:
                    backoff_ms = BACKOFF_MS_MIN
                continue
            if pending_replies.pending:
                pending_replies.release()
                continue  # what was let go may have brought new commands
            if self._closing:
                await self._say_last_words(self._partition)
                return
            await mailbox.sleep()

    async def _round(self) -> None:
        """Decide on what has come in, store it, keep its replies for the next opportunity."""
        is_late = self._chores.is_late(self._loop_time())
        commands = [] if is_late else self._take_commands()
        is_stored = False
        try:
            partition = self._partition
            assert partition is not None
            if not is_late and (commands or partition.is_unfinished):
                now = self._clock.now()
                while not partition.skip_some(self._clock.skipped_ms):
                    await TURNS.give_way()  # there are very many locks
                    STEP.work = "clock"
                    now = self._clock.now()
                damaged = await bring_bodies(self._store, self.id, partition, commands, now)
                if damaged:
                    await self._carry_out(
                        partition, partition.quarantine(damaged, self._lost_content, now), now
                    )
                decision = self._decide(partition, commands, now)
                await self._store_decision(partition, decision)
                is_stored = True
                await self._fetch_bodies(partition, decision.replies, now)
                self.pending_replies.pending = decision.replies
                partition.told()
                # Not before that: where it fails, who asked is told, and must not be told again.
                leftovers = partition.take_leftovers()
                if leftovers:
                    self._mailbox.put_first(leftovers)
                if leftovers or partition.is_unfinished:
                    await TURNS.give_way()
                elif self._mailbox.is_cut:
                    await asyncio.sleep(0)  # the others on this loop have their turn before
            else:
                self.pending_replies.release()  # nobody waits for chores
                await self._do_chores(partition)
            self._set_timer()
        except Fenced as error:
            # Whoever has it now would be fenced in turn by an opening without a new assignment.
            _log.error("stepped-down partition=%s error=%r", self.id.key, str(error))
            self._is_fenced = True
            self._fail(commands, Refusal(UNAVAILABLE, STEPPED_DOWN), not is_stored)
        except StoreError as error:
            _log.error("store-failed partition=%s error=%r", self.id.key, str(error))
            is_unsent = isinstance(error, Away) and not is_stored
            self._fail(commands, Refusal(UNAVAILABLE, GONE if is_unsent else DOUBT), is_unsent)
        except Exception:  # noqa: BLE001 - whatever it was, the partition is in doubt
            _log.exception("partition-failed partition=%s", self.id.key)
            self._fail(commands, Refusal(INTERNAL, "The partition failed and is opened anew."))

    def _take_commands(self) -> list[Command]:
        commands = self._mailbox.take(ROUND_MAX, ROUND_BYTES, ROUND_MESSAGES)
        if self._store.full:
            commands = self._refuse_sends(commands, SHORT_OF_SPACE)
        if self._memory.is_short:
            commands = self._refuse_sends(commands, SHORT_OF_MEMORY)
        elif self._blueprint.router is not None or self._memory.may_be_passed(commands):
            commands = self._refuse_large(commands)
        return commands

    def _decide(self, partition: Partition, commands: list[Command], now: int) -> Decision:
        for command in commands:
            if isinstance(command, SendMany):
                self._mailbox.sent_at = self._loop_time()
            elif not isinstance(command, (SettleMany, Grant)):
                self.pending_replies.attached.asked(command)
        # A word for the watchdog, should it be long: of many, the first says what kind they are.
        STEP.work = type(commands[0]).__name__ if commands else "copies"
        decision = partition.decide(commands, now)
        if partition.is_unfinished:
            TURNS.worked()
        self._weigh(partition)
        if decision.records and partition.checkpoint_due:
            step = partition.checkpoint_step(now)
            decision.records += step.records
            decision.replay_from = step.replay_from
        return decision

    def _weigh(self, partition: Partition | None) -> None:
        after, expected = 0, 0
        if partition is not None:
            after, expected = partition.memory_bytes, partition.memory_expected
        self._memory_bytes = self._memory.weigh(self._memory_bytes, after)
        self._expected_bytes = self._memory.expect(self._expected_bytes, expected)

    def _handed_out(self) -> None:
        if self._partition is not None:
            self._partition.handed_out()

    def _loop_time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    async def _store_decision(self, partition: Partition, decision: Decision) -> None:
        if not decision.records:
            # Nothing to wait for, but the replies before these must leave before them.
            self.pending_replies.release()
            return
        replay_from = None if decision.replay_from == NO_REPLAY else decision.replay_from
        stored = self._store.append(
            self.id, self._epoch, decision.first_position, decision.records, replay_from
        )
        # The store is at work now: a good moment to write out what rests already.
        self.pending_replies.release()
        begun = time.perf_counter()
        size = await stored
        self._write_batching.stored(time.perf_counter() - begun)
        self._chores.wrote(size)
        partition.rests(size)

    async def _do_chores(self, partition: Partition) -> None:
        now = self._clock.now()
        decision = await self._chores.step(self._store, partition, now, self._loop_time())
        if decision is not None:
            await self._carry_out(partition, decision, now)

    async def _carry_out(self, partition: Partition, decision: Decision, now: int) -> None:
        """Store what nobody asked for; somebody may get messages by it."""
        await self._store_decision(partition, decision)
        await self._fetch_bodies(partition, decision.replies, now)
        self.pending_replies.pending += decision.replies
        partition.told()

    async def _fetch_bodies(self, partition: Partition, replies: list[Reply], now: int) -> None:
        """Give deliveries their bodies; where one is damaged, its message is set apart, and
        somebody may get another one instead."""
        while True:
            try:
                await fetch_bodies(self._store, self.id, replies)
                return
            except Damaged as error:
                _log.error("body-damaged partition=%s error=%r", self.id.key, str(error))
                step = partition.undeliver(replies, error.positions, self._lost_content, now)
                await self._store_decision(partition, step)
                replies += step.replies

    async def _say_last_words(self, partition: Partition) -> None:
        try:
            await self._store_decision(partition, partition.last_words(self._clock.now()))
        except StoreError as error:
            # Nothing rests on them.
            _log.warning("notes-lost partition=%s error=%r", self.id.key, str(error))

    # Letting go.

    def _fail(self, commands: list[Command], refusal: Refusal, is_unsent: bool = False) -> None:
        """The partition is in doubt: tell everybody who waits, and forget it."""
        self.pending_replies.release()
        if self._partition is not None:
            self._partition.discard()
        self._partition = None
        self._weigh(None)
        self._chores.forget()
        self._is_in_reach = False
        self._call_off_timer()
        for command in commands:
            if is_unsent:
                self.pending_replies.refuse_unsent(command, refusal)
            else:
                self.pending_replies.refuse(command, refusal)
        self.pending_replies.let_everybody_go(refusal)

    def _refuse_sends(self, commands: list[Command], text: str) -> list[Command]:
        """Disk or memory is nearly full: what is left of it belongs to settlements (R-T2)."""
        refusal = Refusal(BUSY, text)
        kept: list[Command] = []
        for command in commands:
            if brings_messages(command):
                if text == SHORT_OF_MEMORY:
                    if not self._memory.must_wait(command):
                        kept.append(command)
                        continue
                    self._memory.refused()
                self.pending_replies.refuse_unsent(command, refusal)
            else:
                kept.append(command)
        if not kept:
            self.pending_replies.release()
        return kept

    def _refuse_large(self, commands: list[Command]) -> list[Command]:
        """Refuse beforehand what would be too much for the memory there is, with all its copies in
        a topic; where that takes long to know, the rest of the commands are for the next round."""
        now = self._clock.now()
        forecast = self._forecast
        partition = self._partition
        assert partition is not None
        forecast.begin(commands, partition.copies_expected, partition.has_session)
        kept: list[Command] = []
        for at, command in enumerate(commands):
            if forecast.is_over:
                self._mailbox.put_first(commands[at:])
                break
            if self._memory.takes(self._blueprint, command, forecast, now):
                kept.append(command)
            else:
                self._memory.refused()
                self.pending_replies.refuse_unsent(command, Refusal(BUSY, SHORT_OF_MEMORY))
        if not kept:
            self.pending_replies.release()
        return kept

    def _refuse_mailbox(self, refusal: Refusal) -> None:
        for command in self._mailbox.take_all():
            self.pending_replies.refuse_unsent(command, refusal)
        self.pending_replies.release()

    def _close_mailbox(self) -> None:
        refusal = Refusal(UNAVAILABLE, "The broker is shutting down.")
        for command in self._mailbox.take_all():
            self.pending_replies.refuse(command, refusal)
        self.pending_replies.release()
        self.pending_replies.close()

    # Opening.

    async def _open(self) -> bool:
        """Replay the partition from its store; answers whether it lives now."""
        started_at = self._clock.now()
        try:
            opening = await self._store.open(self.id)
            partition = Partition(self._blueprint, self.id.index, self._budget, self._random_source)
            await take_in(opening, partition)
            # The clock may have been set back while nobody was here.
            self._clock.not_before(partition.latest_at)
            partition.opened(self._clock.skipped_ms)
        except Corrupt as error:
            self._found_damaged(error)
            return False
        except StoreError as error:
            if self._is_in_reach:  # said once, however often it is tried
                _log.error("open-failed partition=%s error=%r", self.id.key, str(error))
            self._is_in_reach = False
            self._is_fenced = isinstance(error, Fenced)
            return False
        except MemoryError:
            _log.exception("open-failed partition=%s", self.id.key)
            self._is_in_reach = False
            return False  # there may be more of it later
        except Exception as error:  # noqa: BLE001 - one bad journal must not stop the broker
            _log.exception("open-failed partition=%s", self.id.key)
            self._found_damaged(Corrupt(f"its journal makes no sense: {error}"))
            return False
        self.damage = ""
        self._epoch = opening.epoch
        self._partition = partition
        self._is_in_reach = True
        self._chores.opened(self._store)
        # What fell due while nobody looked, and what could not be put back before.
        self._mailbox.put_first([Tick(), *self.pending_replies.take_requeues()])
        _log.info(
            "partition-opened partition=%s epoch=%d messages=%d took_ms=%d",
            self.id.key,
            opening.epoch,
            partition.live_count,
            self._clock.now() - started_at,
        )
        if self.on_opened is not None:
            self.on_opened(self)
        return True

    def _found_damaged(self, problem: Exception) -> None:
        """What replay needs is damaged: the partition stays closed, and says so."""
        self._is_in_reach = False
        self.damage = closed_text(self.id.index, self._blueprint.path, problem)
        _log.error("partition-damaged partition=%s error=%r", self.id.key, str(problem))

    async def _stay_closed(self, refusal: Refusal) -> None:
        """Refuse everything until the store is given to this worker anew."""
        while not self._closing and not self._is_store_back:
            self._refuse_mailbox(refusal)
            await self._mailbox.sleep()
        self._is_store_back = False

    async def _back_off(self, backoff_ms: int) -> None:
        """Wait before the next try; whoever asks meanwhile is told at once."""
        assert self._loop is not None
        refusal = Refusal(UNAVAILABLE, "The store is out of reach. Try again later.")
        until = self._loop.time() + backoff_ms / 1000
        while not self._closing:
            if self._is_store_back:
                self._is_store_back = False
                return  # who has come since then waits for the opening
            self._refuse_mailbox(refusal)
            left = until - self._loop.time()
            if left <= 0:
                return
            await self._mailbox.sleep_at_most(left)

    # The timer.

    def _set_timer(self) -> None:
        """Wake at the next deadline; a timer that fires too early does no harm."""
        assert self._partition is not None
        deadline = self._partition.next_deadline()
        if deadline == 0 or (self._timer_at and self._timer_at <= deadline):
            return
        self._call_off_timer()
        self._timer_at = deadline
        self._timer = self._timers.set(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = 0
        if not self._closing:
            self.submit(Tick())

    def _call_off_timer(self) -> None:
        self._timer_at = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
