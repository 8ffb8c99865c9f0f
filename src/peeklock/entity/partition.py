"""The partition: the unit of everything. One owner, one state machine, one stream of records.

`decide` takes commands and the time and answers with records and replies; memory has changed by
then, and the owner must store the records before it lets the replies go. If storing fails, the
partition is thrown away and opened anew from the store. Nothing here sleeps, waits or fails
halfway: a wish that cannot be granted becomes a `Refused` reply.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from peeklock.entity.bodies import BLOCK_BITS
from peeklock.entity.browsing import Browsing
from peeklock.entity.checkpoint import Housekeeping
from peeklock.entity.commands import (
    MAIN,
    CancelScheduled,
    CloseReceiver,
    Command,
    Configure,
    Count,
    DeleteMany,
    Grant,
    OpenReceiver,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    Tick,
)
from peeklock.entity.definition import DISABLED, SEND_DISABLED, QueueDefinition
from peeklock.entity.delivering import Delivering
from peeklock.entity.lane import Entry
from peeklock.entity.message import NEVER, BodyBudget, Message
from peeklock.entity.records import READY, Record
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    Refusal,
)
from peeklock.entity.replies import Accepted, Numbered, Refused, Reply
from peeklock.entity.restore import Restoring
from peeklock.entity.settling import Settling
from peeklock.entity.state import State

NO_REPLAY: Final = -1


@final
class Decision:
    """What follows from commands: records to store, then replies to let go.

    `replay_from` is the position from which the next opening can start once the records rest, or
    NO_REPLAY where that has not changed.
    """

    __slots__ = ("first_position", "records", "replay_from", "replies")

    def __init__(
        self, first_position: int, records: list[Record], replies: list[Reply], replay_from: int
    ) -> None:
        self.first_position: int = first_position
        self.records: list[Record] = records
        self.replies: list[Reply] = replies
        self.replay_from: int = replay_from


@final
class Partition:
    """One partition of a queue."""

    __slots__ = (
        "_browsing",
        "_delivering",
        "_housekeeping",
        "_restoring",
        "_settling",
        "_state",
    )

    def __init__(
        self,
        definition: QueueDefinition,
        index: int,
        budget: BodyBudget,
        chance: Callable[[], int],
    ) -> None:
        state = State(definition, index, budget, chance)
        self._state: State = state
        self._settling: Settling = Settling(state)
        self._delivering: Delivering = Delivering(state)
        self._browsing: Browsing = Browsing(state, self._delivering)
        self._housekeeping: Housekeeping = Housekeeping(state)
        self._restoring: Restoring | None = Restoring(state)

    # Opening.

    def restore(self, first_position: int, records: Sequence[Record]) -> None:
        """Take in records that were stored earlier, in order."""
        assert self._restoring is not None, "a partition is restored before it decides"
        self._restoring.apply(first_position, records)

    def opened(self) -> None:
        """All records are in: the partition lives from here on."""
        assert self._restoring is not None, "a partition is opened once"
        self._restoring.finish()
        self._housekeeping.opened(self._restoring.replayed)
        self._restoring = None

    # Living.

    def decide(self, commands: Sequence[Command], now: int) -> Decision:
        """Carry out commands, in order, then hand messages to whoever waits for them."""
        state = self._state
        first_position = state.next_position
        for command in commands:
            if isinstance(command, SendMany):
                self._send_many(command, now)
            elif isinstance(command, SettleMany):
                self._settling.settle_many(command, now)
            elif isinstance(command, Grant):
                self._delivering.grant(command)
            else:
                self._decide_other(command, now)
        self._delivering.deliver(now)
        records = state.take_records(now)
        return Decision(first_position, records, state.take_replies(), NO_REPLAY)

    def _decide_other(self, command: Command, now: int) -> None:
        if isinstance(command, SendBatch):
            self._send_batch(command, now)
        elif isinstance(command, OpenReceiver):
            self._delivering.open(command)
        elif isinstance(command, CloseReceiver):
            known = self._delivering.close(command)
            if known and command.broken and self._state.definition.unlock_on_disconnect:
                self._settling.release_all(command.origin, now)
        elif isinstance(command, SettleAll):
            self._settling.settle_all(command, now)
        elif isinstance(command, RenewLocks):
            self._settling.renew(command, now)
        elif isinstance(command, Peek):
            self._browsing.peek(command)
        elif isinstance(command, ReceiveDeferred):
            self._browsing.receive_deferred(command, now)
        elif isinstance(command, Schedule):
            self._schedule(command, now)
        elif isinstance(command, CancelScheduled):
            self._cancel(command, now)
        elif isinstance(command, DeleteMany):
            self._browsing.delete_many(command, now)
        elif isinstance(command, Configure):
            self._configure(command, now)
        elif isinstance(command, Count):
            self._browsing.count(command)
        elif isinstance(command, Tick):
            self._tick(now)
        else:
            raise AssertionError(f"no partition knows the command {command!r}")

    def next_deadline(self) -> int:
        """When to knock with a Tick; 0 while nothing is due ever."""
        deadline = NEVER
        for lane in self._state.lanes:
            earliest = lane.next_deadline()
            if earliest and (deadline == NEVER or earliest < deadline):
                deadline = earliest
        return deadline

    # Looking after the journal.

    @property
    def housekeeping_due(self) -> bool:
        """Whether a step of housekeeping would do something now."""
        return self._housekeeping.is_due

    def keep_house(self, now: int) -> Decision:
        """One small step: a slice of a checkpoint, or its beginning or end."""
        first_position = self._state.next_position
        replay_from = self._housekeeping.step(now)
        records = self._state.take_records(now)
        return Decision(first_position, records, self._state.take_replies(), replay_from)

    def live_blocks(self) -> list[int]:
        """The blocks of positions whose bodies are still needed."""
        return self._state.bodies.blocks()

    def replay_from(self) -> int:
        """The position from which the next opening starts."""
        return self._housekeeping.replay_from

    @property
    def is_carrying(self) -> bool:
        """Whether a walk for messages to carry is under way."""
        return self._housekeeping.is_carrying

    def next_to_carry(self, below: int, count_max: int) -> list[Entry]:
        """Some live messages whose bodies lie in sparse blocks below a position."""
        return self._housekeeping.next_to_carry(below, count_max)

    def carry(self, entries: list[Entry], messages: list[Message], now: int) -> Decision:
        """Write their bodies again at the tail (those that are still alive)."""
        state = self._state
        first_position = state.next_position
        self._housekeeping.carry(entries, messages, now)
        records = state.take_records(now)
        return Decision(first_position, records, state.take_replies(), NO_REPLAY)

    def discard(self) -> None:
        """The partition is thrown away: the memory of its bodies is free for other partitions."""
        for lane in self._state.lanes:
            for entry in lane.entries():
                self._state.release_body(entry)

    # Telling.

    @property
    def definition(self) -> QueueDefinition:
        """The description in force."""
        return self._state.definition

    @property
    def next_sequence(self) -> int:
        """The number that the next message gets."""
        return self._state.next_sequence

    @property
    def next_position(self) -> int:
        """The position that the next record gets."""
        return self._state.next_position

    @property
    def live_count(self) -> int:
        """How many messages live here, in all states."""
        return self._state.bodies.count

    def check(self) -> None:
        """The laws of a partition; breaks when one does not hold."""
        state = self._state
        live = 0
        size = 0
        blocks: set[int] = set()
        numbers: set[int] = set()
        for lane in state.lanes:
            lane.check()
            for entry in lane.entries():
                live += 1
                size += entry.size
                numbers.add(entry.sequence)
                blocks.add(entry.position >> BLOCK_BITS)
                assert entry.sequence < state.next_sequence, "numbers come from the counter"
                assert entry.position < state.next_position, "positions come from the counter"
        assert len(numbers) == live, "a message is in one lane, never in two"
        assert live == state.bodies.count, "every live body is counted"
        assert size == state.bodies.size, "every live byte is counted"
        assert sorted(blocks) == state.bodies.blocks(), "every live block is kept"
        assert state.budget.left >= 0, "the budget for bodies is kept"

    # Sending.

    def _send_many(self, command: SendMany, now: int) -> None:
        state = self._state
        if self._refuse_disabled(command.origin, command.tags):
            return
        size_max = state.definition.message_size_max
        refused: list[int] | None = None
        messages = command.messages
        for at in range(len(messages)):
            message = messages[at]
            if message.size > size_max:
                if refused is None:
                    refused = []
                refused.append(command.tags[at])
            elif message.scheduled_at > now:
                state.schedule(message, now)
            else:
                state.enqueue(message, now)
        if refused is None:
            state.replies.append(Accepted(command.origin, command.tags))
            return
        missing = set(refused)
        stored = [tag for tag in command.tags if tag not in missing]
        if stored:
            state.replies.append(Accepted(command.origin, stored))
        state.replies.append(Refused(command.origin, refused, self._too_big()))

    def _send_batch(self, command: SendBatch, now: int) -> None:
        tags = [command.tag]
        if self._refuse_disabled(command.origin, tags) or self._refuse_size(
            command.origin, command.tag, command.messages
        ):
            return
        self._enter(command.messages, now)
        self._state.replies.append(Accepted(command.origin, tags))

    def _schedule(self, command: Schedule, now: int) -> None:
        if self._refuse_disabled(command.origin, [command.tag]) or self._refuse_size(
            command.origin, command.tag, command.messages
        ):
            return
        numbers = self._enter(command.messages, now)
        self._state.replies.append(Numbered(command.origin, command.tag, numbers))

    def _enter(self, messages: list[Message], now: int) -> list[int]:
        state = self._state
        return [
            state.schedule(message, now)
            if message.scheduled_at > now
            else state.enqueue(message, now)
            for message in messages
        ]

    def _cancel(self, command: CancelScheduled, now: int) -> None:
        state = self._state
        sequences = list(dict.fromkeys(command.sequences))
        for sequence in sequences:
            if sequence not in state.lanes[MAIN].scheduled:
                text = f"No scheduled message has the sequence number {sequence}."
                refusal = Refusal(MESSAGE_NOT_FOUND, text)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
        if sequences:
            state.cancel(sequences, now)
        state.replies.append(Numbered(command.origin, command.tag, []))

    def _refuse_disabled(self, origin: Any, tags: list[int]) -> bool:
        definition = self._state.definition
        if definition.status not in (DISABLED, SEND_DISABLED):
            return False
        text = f"Messaging entity '{definition.path}' is currently disabled."
        self._state.replies.append(Refused(origin, tags, Refusal(ENTITY_DISABLED, text)))
        return True

    def _refuse_size(self, origin: Any, tag: int, messages: list[Message]) -> bool:
        size_max = self._state.definition.message_size_max
        if all(message.size <= size_max for message in messages):
            return False
        self._state.replies.append(Refused(origin, [tag], self._too_big()))
        return True

    def _too_big(self) -> Refusal:
        size_max = self._state.definition.message_size_max
        text = f"The received message exceeds the limit ({size_max} bytes) of this entity."
        return Refusal(MESSAGE_TOO_BIG, text)

    # Time and change.

    def _tick(self, now: int) -> None:
        self._settling.expire(now)
        lane = self._state.lanes[MAIN]
        due: list[Entry] = []
        while lane.schedules and lane.schedules[0][0] <= now:
            entry = lane.scheduled.get(heapq.heappop(lane.schedules)[1])
            if entry is not None:
                due.append(entry)
        if due:
            self._state.activate(due, now)
        expired: list[Entry] = []
        while lane.expirations and lane.expirations[0][0] <= now:
            entry = heapq.heappop(lane.expirations)[2]
            if entry.place == READY:
                expired.append(lane.drop_ready(entry))
        if expired:
            self._state.expire(lane, expired, now)

    def _configure(self, command: Configure, now: int) -> None:
        """Locks of another duration would break the order of deadlines: they are dropped, as a
        change of the entity may do (R-L4); no delivery is counted."""
        state = self._state
        before = state.definition
        state.definition = command.definition
        if command.definition.lock_duration_ms != before.lock_duration_ms:
            self._settling.release_every_lock(now)
