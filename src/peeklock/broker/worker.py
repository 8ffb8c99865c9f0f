"""The worker of one partition: drains the mailbox, decides, stores, then lets the replies go.

One coroutine is the only one that touches the partition, so there are no locks. A round takes
whatever has come in since the last one; while its records are being stored, the replies of the
round before are written out. A round whose records could not be stored leaves the partition in
doubt: it is thrown away, everybody who waits is told, and it is opened anew from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final, final

from peeklock.broker.alarm import Alarm, Alarms
from peeklock.broker.attached import Attached
from peeklock.broker.bodies import bring_bodies, fetch_bodies
from peeklock.broker.company import STORE_S_MIN, Company
from peeklock.broker.declining import DOUBT, GONE, brings_messages, declined
from peeklock.clock import Clock
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import (
    COMPLETE,
    Command,
    Configure,
    Grant,
    SendMany,
    SettleMany,
    Tick,
)
from peeklock.entity.message import BodyBudget
from peeklock.entity.partition import NO_REPLAY, Decision, Partition
from peeklock.entity.refusals import BUSY, INTERNAL, UNAVAILABLE, Refusal
from peeklock.entity.replies import (
    Accepted,
    Delivered,
    Reply,
    Settled,
)
from peeklock.store.store import Away, JournalPage, PartitionId, Store, StoreError

# Commands taken into one round: one store write must stay small beside a lock's duration.
ROUND_MAX: Final = 1024

# A completion may wait this long for a send to share its write (R-F3 would allow 20 ms), and only
# while the last send is not older than that. Measured by `python -m bench latency`.
RIDE_S_MAX: Final = 0.001
# More completions than this are worth a write of their own.
RIDERS_MAX: Final = 32
SENDS_FLOW_S: Final = 0.002

# How long a partition that could not be opened waits before it tries again.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# Bodies rewritten in one step of carrying: about a frame's worth of small messages.
CARRY_MAX: Final = 64

_log: Final = logging.getLogger("peeklock.broker")


@final
class PartitionWorker:
    """Owns one partition, here and now."""

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_alarms",
        "_attached",
        "_blueprint",
        "_budget",
        "_chance",
        "_clock",
        "_closing",
        "_company",
        "_complete_at",
        "_epoch",
        "_is_in_reach",
        "_is_lost",
        "_is_riding",
        "_is_store_back",
        "_loop",
        "_mailbox",
        "_partition",
        "_pending",
        "_sent_at",
        "_store",
        "_task",
        "_trim_due",
        "_wake",
        "has_written",
        "id",
        "journal_first",
        "on_opened",
        "on_unsent",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        blueprint: Blueprint,
        store: Store,
        clock: Clock,
        alarms: Alarms,
        budget: BodyBudget,
        chance: Callable[[], int],
    ) -> None:
        self.id: PartitionId = partition_id
        self.journal_first: int = 0
        # Whether anything was stored since the journal was last looked after.
        self.has_written: bool = False
        # Told each time that the partition has opened.
        self.on_opened: Callable[[PartitionWorker], None] | None = None
        # Asked before a send is refused of which nothing was stored: whether it goes elsewhere.
        self.on_unsent: Callable[[Command], bool] | None = None
        self._blueprint: Blueprint = blueprint
        self._store: Store = store
        self._clock: Clock = clock
        self._alarms: Alarms = alarms
        self._budget: BodyBudget = budget
        self._chance: Callable[[], int] = chance
        self._loop: asyncio.AbstractEventLoop | None = None
        self._partition: Partition | None = None
        self._epoch: int = 0
        self._mailbox: list[Command] = []
        self._pending: list[Reply] = []
        self._attached: Attached = Attached()
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: bool = False
        self._is_in_reach: bool = True
        self._is_lost: bool = False  # somebody has said that the store is gone
        self._is_store_back: bool = False  # somebody has said that it is back
        self._company: Company = Company()
        self._is_riding: bool = False  # completions wait for a send
        self._sent_at: float = -1.0  # when a round last stored sends
        self._complete_at: int = 0  # a wait for company ends when the mailbox holds so many
        self._trim_due: bool = False
        self._alarm: Alarm | None = None
        self._alarm_at: int = 0

    # From outside.

    def submit(self, command: Command) -> None:
        """Put a command into the mailbox; the first one opens the partition."""
        self._mailbox.append(command)
        if self._wake is not None:
            if self._is_riding:
                if not _is_completion(command):
                    self._awake()
            elif len(self._mailbox) >= self._complete_at:
                self._awake()
        elif self._task is None:
            self._loop = asyncio.get_running_loop()
            if self._closing:
                self._loop.call_soon(self._close_mailbox)
            else:
                self._task = self._loop.create_task(self._run())

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed; a living partition is told in its turn."""
        self._blueprint = blueprint
        if self._task is not None:
            self.submit(Configure(blueprint))

    def trim_soon(self) -> None:
        """Look after the journal in the next round; nothing to do while closed."""
        if self._task is not None:
            self._trim_due = True
            self._awake()

    @property
    def is_open(self) -> bool:
        """Whether the partition lives in memory."""
        return self._partition is not None

    async def has_journal(self) -> bool:
        """Whether anything was ever stored; a store that is out of reach counts as nothing."""
        try:
            return len((await self.journal(0, 1)).chunks) > 0
        except StoreError:
            return False

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
            self._awake()

    def store_back(self) -> None:
        """The store may be back: open now instead of after a while."""
        if self._task is None:
            self._is_in_reach = True
        elif not self._is_in_reach:
            self._is_store_back = True
            self._awake()

    async def close(self) -> None:
        """Carry out what is in the mailbox, store it, and stop."""
        self._closing = True
        if self._task is not None:
            self._awake()
            await self._task
            self._task = None
        self._call_off_alarm()

    def _awake(self) -> None:
        wake = self._wake
        if wake is not None:
            self._wake = None
            if not wake.done():
                wake.set_result(None)

    # The one coroutine.

    async def _run(self) -> None:
        backoff_ms = BACKOFF_MS_MIN
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
                if await self._open():
                    backoff_ms = BACKOFF_MS_MIN
                else:
                    await self._back_off(backoff_ms)
                    backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
                continue
            if self._mailbox or self._trim_due or self._partition.housekeeping_due:
                if self._blueprint.definition.batched_store_access:
                    if self._pending:
                        await self._wait_for_company()
                    if self._may_ride():
                        await self._wait_for_send()
                await self._round()
                continue
            if self._pending:
                self._release()
                continue  # what was let go may have brought new commands
            if self._closing:
                await self._say_last_words(self._partition)
                return
            await self._sleep()

    async def _sleep(self) -> None:
        assert self._loop is not None
        wake: asyncio.Future[None] = self._loop.create_future()
        self._wake = wake
        await wake

    async def _wait_for_company(self) -> None:
        """Let those who were just answered send again, where a shared write is worth a wait."""
        company = self._company
        if company.store_s < STORE_S_MIN:
            return
        company.answered(self._lone_answers())
        hold_s = company.hold_s(len(self._mailbox))
        if hold_s == 0.0:
            return
        self._release()
        self._complete_at = len(self._mailbox) + company.expected()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sleep(), hold_s)
        self._wake = None
        self._complete_at = 0

    def _may_ride(self) -> bool:
        """Whether all that is in the mailbox is completions, while sends are flowing: they can
        share the write of the next send, which halves the writes of a busy, shallow queue."""
        if not self._mailbox or self._loop_time() - self._sent_at > SENDS_FLOW_S:
            return False
        size = 0
        for command in self._mailbox:
            if not isinstance(command, SettleMany) or command.outcome != COMPLETE:
                return False
            size += len(command.tokens)
        return size <= RIDERS_MAX

    async def _wait_for_send(self) -> None:
        """Let the completions wait for a send to share its write, but not for long."""
        assert self._loop is not None
        self._release()
        if not self._may_ride():
            return  # what was let go has brought a send already
        self._is_riding = True
        timer = self._loop.call_later(RIDE_S_MAX, self._awake)
        await self._sleep()
        timer.cancel()
        self._is_riding = False

    def _lone_answers(self) -> int:
        """How many senders wait for the answer to a single message."""
        count = 0
        for reply in self._pending:
            if isinstance(reply, Accepted) and len(reply.tags) == 1:
                count += 1
        return count

    async def _round(self) -> None:
        """Decide on what has come in, store it, keep its replies for the next opportunity."""
        commands = self._take_commands()
        is_stored = False
        try:
            if commands:
                now = self._clock.now()
                partition = self._partition
                assert partition is not None
                await bring_bodies(self._store, self.id, partition, commands, now)
                decision = self._decide(partition, commands, now)
                await self._store_decision(decision)
                is_stored = True
                await fetch_bodies(self._store, self.id, decision.replies)
                self._pending = decision.replies
                # Not before that: where it fails, who asked is told, and must not be told again.
                leftovers = partition.take_leftovers()
                if leftovers:
                    self._mailbox = leftovers + self._mailbox
            else:
                self._release()  # nobody waits for chores
                if self._partition is not None:
                    await self._do_chores(self._partition)
            self._set_alarm()
        except StoreError as error:
            _log.error("store-failed partition=%s error=%r", self.id.key, str(error))
            is_unsent = isinstance(error, Away) and not is_stored
            self._fail(commands, Refusal(UNAVAILABLE, GONE if is_unsent else DOUBT), is_unsent)
        except Exception:  # noqa: BLE001 - whatever it was, the partition is in doubt
            _log.exception("partition-failed partition=%s", self.id.key)
            self._fail(commands, Refusal(INTERNAL, "The partition failed and is opened anew."))

    def _take_commands(self) -> list[Command]:
        commands = self._mailbox
        if len(commands) > ROUND_MAX:
            self._mailbox = commands[ROUND_MAX:]
            commands = commands[:ROUND_MAX]
        else:
            self._mailbox = []
        if self._store.full:
            commands = self._refuse_sends(commands)
        return commands

    def _decide(self, partition: Partition, commands: list[Command], now: int) -> Decision:
        for command in commands:
            if isinstance(command, SendMany):
                self._sent_at = self._loop_time()
            elif not isinstance(command, (SettleMany, Grant)):
                self._attached.asked(command)
        decision = partition.decide(commands, now)
        if decision.records and partition.housekeeping_due:
            step = partition.keep_house(now)
            decision.records += step.records
            decision.replay_from = step.replay_from
        return decision

    def _loop_time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    async def _store_decision(self, decision: Decision) -> None:
        if not decision.records:
            # Nothing to wait for, but the replies before these must leave before them.
            self._release()
            return
        replay_from = None if decision.replay_from == NO_REPLAY else decision.replay_from
        stored = self._store.append(
            self.id, self._epoch, decision.first_position, decision.records, replay_from
        )
        # The store is at work now: a good moment to write out what rests already.
        self._release()
        self.has_written = True
        begun = time.perf_counter()
        await stored
        self._company.stored(time.perf_counter() - begun)

    async def _say_last_words(self, partition: Partition) -> None:
        try:
            await self._store_decision(partition.last_words(self._clock.now()))
        except StoreError as error:
            # Nothing rests on them.
            _log.warning("notes-lost partition=%s error=%r", self.id.key, str(error))

    # Chores.

    async def _do_chores(self, partition: Partition) -> None:
        now = self._clock.now()
        if partition.housekeeping_due:
            await self._store_decision(partition.keep_house(now))
            return
        if not self._trim_due:
            return
        self._trim_due = False
        self.has_written = False
        self.journal_first = await self._store.trim(
            self.id, partition.replay_from(), partition.live_blocks(), now
        )
        entries = partition.next_to_carry(self.journal_first, CARRY_MAX)
        if entries:
            messages = await self._store.payloads(self.id, [entry.position for entry in entries])
            await self._store_decision(partition.carry(entries, messages, now))
        self._trim_due = partition.is_carrying

    # Letting go.

    def _release(self) -> None:
        """Hand out the replies whose records rest."""
        replies = self._pending
        if not replies:
            return
        self._pending = []
        origins: dict[Any, bool] = {}
        for reply in replies:
            origin: Any = reply.origin
            origins[origin] = True
            if not isinstance(reply, (Accepted, Delivered, Settled)):
                self._attached.heard(reply)
            try:
                origin.replied(reply)
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed partition=%s", self.id.key)
        for origin in origins:
            try:
                origin.flush()
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed partition=%s", self.id.key)

    def _fail(self, commands: list[Command], refusal: Refusal, is_unsent: bool = False) -> None:
        """The partition is in doubt: tell everybody who waits, and forget it."""
        self._release()
        if self._partition is not None:
            self._partition.discard()
        self._partition = None
        self._is_in_reach = False
        self._call_off_alarm()
        for command in commands:
            if is_unsent:
                self._refuse_unsent(command, refusal)
            else:
                self._refuse(command, refusal)
        self._pending += self._attached.let_go(refusal)
        self._release()

    def _refuse(self, command: Command, refusal: Refusal) -> None:
        self._attached.refused(command)
        reply = declined(command, refusal)
        if reply is not None:
            self._pending.append(reply)

    def _refuse_unsent(self, command: Command, refusal: Refusal) -> None:
        """Nothing of it was stored, so that it may still go elsewhere."""
        if self.on_unsent is None or not self.on_unsent(command):
            self._refuse(command, refusal)

    def _refuse_sends(self, commands: list[Command]) -> list[Command]:
        """The disk is nearly full: what is left of it belongs to settlements (R-T2)."""
        refusal = Refusal(BUSY, "The store is short of space and takes no messages. Try later.")
        kept: list[Command] = []
        for command in commands:
            if brings_messages(command):
                self._refuse_unsent(command, refusal)
            else:
                kept.append(command)
        if not kept:
            self._release()
        return kept

    def _refuse_mailbox(self, refusal: Refusal) -> None:
        commands = self._mailbox
        self._mailbox = []
        for command in commands:
            self._refuse_unsent(command, refusal)
        self._release()

    def _close_mailbox(self) -> None:
        refusal = Refusal(UNAVAILABLE, "The broker is shutting down.")
        commands = self._mailbox
        self._mailbox = []
        for command in commands:
            self._refuse(command, refusal)
        self._release()

    # Opening.

    async def _open(self) -> bool:
        """Replay the partition from its store; answers whether it lives now."""
        started_at = self._clock.now()
        try:
            opening = await self._store.open(self.id)
            partition = Partition(self._blueprint, self.id.index, self._budget, self._chance)
            async for replay in opening.replays:
                partition.restore(replay.first_position, replay.records)
            partition.opened()
        except StoreError as error:
            if self._is_in_reach:  # said once, however often it is tried
                _log.error("open-failed partition=%s error=%r", self.id.key, str(error))
            self._is_in_reach = False
            return False
        except Exception:  # noqa: BLE001 - one bad journal must not stop the broker
            _log.exception("open-failed partition=%s", self.id.key)
            self._is_in_reach = False
            return False
        self._epoch = opening.epoch
        self._partition = partition
        self._is_in_reach = True
        self._mailbox.insert(0, Tick())  # what fell due while nobody looked
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
            try:
                await asyncio.wait_for(self._sleep(), left)
            except TimeoutError:
                self._wake = None

    # The alarm.

    def _set_alarm(self) -> None:
        """Knock at the next deadline; an alarm that rings too early does no harm."""
        assert self._partition is not None
        deadline = self._partition.next_deadline()
        if deadline == 0 or (self._alarm_at and self._alarm_at <= deadline):
            return
        self._call_off_alarm()
        self._alarm_at = deadline
        self._alarm = self._alarms.set(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_at = 0
        if not self._closing:
            self.submit(Tick())

    def _call_off_alarm(self) -> None:
        self._alarm_at = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _is_completion(command: Command) -> bool:
    """Whether nobody waits for what this settlement does; other outcomes give messages back."""
    return isinstance(command, SettleMany) and command.outcome == COMPLETE
