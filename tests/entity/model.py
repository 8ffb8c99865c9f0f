"""A queue partition as naively as it can be written: one list, searched from its front each time.

It is the law that the real partition is compared with, written from what a queue promises and not
from how the partition keeps it. It does not choose who gets a message: `deliver` is told who got
which, and complains when that was not lawful.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peeklock.entity import commands as ask
from peeklock.entity.commands import DEAD, MAIN, RECEIVE_AND_DELETE
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED, SEND_DISABLED, QueueDefinition
from peeklock.entity.deliveries import (
    STATE_ACTIVE,
    STATE_CLAIMED,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Delivery,
    LockToken,
)
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
)
from tests.entity.claims.claim_model import Claims

TOO_OFTEN: Final = "MaxDeliveryCountExceeded"
TOO_OFTEN_TEXT: Final = "Message could not be consumed after {} delivery attempts."
TOO_LATE: Final = "TTLExpiredException"
TOO_LATE_TEXT: Final = "The message expired and was dead lettered."

# The longest duration of the service: whoever lives that long has no end.
ENDLESS_MS: Final = 922_337_203_685_477

# A lock that was given in this very decision: its number is told afterwards.
UNTOLD: Final = -1

Answer = tuple[Any, int, str, Any]
"""Who asked, under which tag, a word (or the refusal's kind), and what belongs to it."""


@dataclass(eq=False)
class Row:
    """One message and everything that is known about it."""

    sequence: int
    message: Message
    enqueued_at: int
    lane: int = MAIN
    state: int = STATE_ACTIVE
    expires_at: int = 0
    scheduled_at: int = 0
    count: int = 0
    reason: str | None = None
    description: str | None = None
    changes: dict[str, bytes] = field(default_factory=dict)
    # The lock, if any. The state stays what it was, because that is where the message returns to.
    number: int = 0
    locked_until: int = 0
    holder: Any = None
    # Who has claimed it, if anybody has, and how often it was fetched since then.
    owner: str = ""
    attempts: int = 0

    def view(self, state: int | None = None) -> tuple[Any, ...]:
        """What a delivery or a look at the message shows."""
        instants = (self.enqueued_at, self.expires_at, self.scheduled_at)
        story = (self.count, self.reason, self.description, self.changes)
        seen_as = self.state if state is None else state
        return (self.sequence, seen_as, *instants, *story, self.message.content)


@dataclass(eq=False)
class Waiter:
    """A receiver, and how much more it takes."""

    lane: int
    mode: int
    limit: int = 0
    delivered: int = 0
    size_limit: int = 0
    size_delivered: int = 0
    drain: bool = False

    def is_hungry(self) -> bool:
        return self.limit > self.delivered and self.size_limit > self.size_delivered


class Model:
    """The list, and the laws about it."""

    def __init__(self, definition: QueueDefinition, index: int = 0) -> None:
        self.definition = definition
        self.rows: list[Row] = []
        self.removed: dict[int, Row] = {}  # by receive-and-delete
        self.next_sequence = (index << 48) + 1
        self.receivers: dict[Any, Waiter] = {}
        self.claims = Claims(self)

    def decide(self, command: ask.Command, now: int) -> list[Answer]:
        """Carry out a command and give the answers, deliveries aside."""
        match command:
            case ask.SendMany():
                sends = zip(command.tags, command.messages, strict=True)
                return [self.send(command.origin, tag, [one], now) for tag, one in sends]
            case ask.SendBatch() | ask.Schedule():
                first = self.next_sequence
                answer = self.send(command.origin, command.tag, command.messages, now)
                if isinstance(command, ask.Schedule) and answer[2] == "accepted":
                    return [(*answer[:2], "numbered", list(range(first, self.next_sequence)))]
                return [answer]
            case ask.CancelScheduled():
                return [self.cancel(command)]
            case ask.SettleMany():
                settlements = zip(command.tags, command.tokens, strict=True)
                return [self.settle(command, tag, [token], now) for tag, token in settlements]
            case ask.SettleAll():
                answer = self.settle(command, command.tag, command.tokens, now)
                return [(*answer[:2], "numbered", []) if answer[2] == "settled" else answer]
            case ask.RenewLocks():
                return [self.renew(command, now)]
            case ask.ReceiveDeferred():
                return [self.receive_deferred(command, now)]
            case ask.Peek():
                return [self.peek(command)]
            case ask.DeleteMany():
                return [self.delete(command)]
            case ask.Count():
                return [(command.origin, command.tag, "counted", self.counts())]
            case ask.OpenReceiver():
                self.receivers[command.origin] = Waiter(command.lane, command.mode)
            case ask.Grant():
                waiter = self.receivers[command.origin]
                waiter.limit, waiter.drain = command.limit, waiter.drain or command.drain
                waiter.size_limit = command.size_limit
            case ask.CloseReceiver():
                del self.receivers[command.origin]
                if command.broken and self.definition.unlock_on_disconnect:
                    for row in [each for each in self.rows if each.holder == command.origin]:
                        self.end_lock(row, ask.RELEASE, now)
            case ask.Requeue():
                self.requeue([each.sequence for each in command.deliveries], now)
            case ask.ClaimMessages() | ask.ListClaims() | ask.FetchClaims() | ask.SettleClaims():
                return [self.claims.answer(command, now)]
            case ask.Configure():
                definition = command.blueprint.definition
                assert isinstance(definition, QueueDefinition)
                self.configure(definition, now)
            case ask.Tick():
                self.tick(now)
        return []

    # Sending.

    def send(self, origin: Any, tag: int, messages: Sequence[Message], now: int) -> Answer:
        """Store all of the messages or none."""
        if self.definition.status in (DISABLED, SEND_DISABLED):
            return (origin, tag, ENTITY_DISABLED, None)
        if any(message.size > self.definition.message_size_max for message in messages):
            return (origin, tag, MESSAGE_TOO_BIG, None)
        for message in messages:
            row = Row(self.number(), message, now)
            if message.scheduled_at > now:
                row.state, row.scheduled_at = STATE_SCHEDULED, message.scheduled_at
            else:
                row.expires_at = self.end_of_life(message, now)
            self.rows.append(row)
        return (origin, tag, "accepted", None)

    def number(self) -> int:
        self.next_sequence += 1
        return self.next_sequence - 1

    def end_of_life(self, message: Message, born_at: int) -> int:
        lives = [message.time_to_live_ms, self.definition.time_to_live_ms]
        limits = [life for life in lives if life >= 0]
        return born_at + min(limits) if min(limits, default=ENDLESS_MS) < ENDLESS_MS else 0

    def cancel(self, command: ask.CancelScheduled) -> Answer:
        rows = self.find(MAIN, STATE_SCHEDULED, command.sequences)
        if rows is None:
            return (command.origin, command.tag, MESSAGE_NOT_FOUND, None)
        for row in rows:
            self.rows.remove(row)
        return (command.origin, command.tag, "numbered", [])

    # Settling.

    def settle(
        self, command: ask.SettleMany | ask.SettleAll, tag: int, tokens: list[LockToken], now: int
    ) -> Answer:
        """End all of the locks or none."""
        if self.is_closed_for_receiving():
            return (command.origin, tag, ENTITY_DISABLED, None)
        rows = self.held(tokens, now)
        if rows is None:
            return (command.origin, tag, LOCK_LOST, None)
        settlement = command.settlement
        outcome, changes = settlement.outcome, settlement.changes
        if outcome == ask.DEAD_LETTER and any(row.lane == DEAD for row in rows):
            return (command.origin, tag, NOT_ALLOWED, None)
        for row in rows:
            if changes and outcome in (ask.ABANDON, ask.DEFER, ask.DEAD_LETTER):
                row.changes = {**row.changes, **changes}
            self.end_lock(row, outcome, now, settlement)
        return (command.origin, tag, "settled", outcome)

    def held(self, tokens: list[LockToken], now: int) -> list[Row] | None:
        """The rows that these tokens lock, or None when one of them locks nothing."""
        wanted = {(token.sequence, token.number) for token in tokens}
        locked = [row for row in self.rows if row.number and now < row.locked_until]
        found = [row for row in locked if (row.sequence, row.number) in wanted]
        return found if len(found) == len(tokens) else None

    def end_lock(
        self, row: Row, outcome: int, now: int, said: ask.Settlement | None = None
    ) -> None:
        row.number, row.locked_until, row.holder = 0, 0, None
        if outcome in (ask.ABANDON, ask.DEFER) and row.lane == MAIN:
            row.count += 1
        if outcome == ask.COMPLETE:
            self.rows.remove(row)
        elif outcome == ask.DEFER:
            row.state = STATE_DEFERRED
        elif outcome == ask.DEAD_LETTER:
            bury(row, *((said.reason, said.description) if said else (None, None)))
        elif outcome == ask.ABANDON and row.lane == MAIN:
            limit = self.definition.delivery_count_max
            if row.count >= limit:
                bury(row, TOO_OFTEN, TOO_OFTEN_TEXT.format(limit))
        self.expire(row, now)

    def renew(self, command: ask.RenewLocks, now: int) -> Answer:
        if self.is_closed_for_receiving():
            return (command.origin, command.tag, ENTITY_DISABLED, None)
        rows = self.held(command.tokens, now)
        if rows is None:
            return (command.origin, command.tag, LOCK_LOST, None)
        until = now + self.definition.lock_duration_ms
        for row in rows:
            row.locked_until = until
        return (command.origin, command.tag, "numbered", [until] * len(rows))

    # Time.

    def expire(self, row: Row, now: int) -> None:
        """End the life of a message that is ready and too old."""
        if row in self.ready(MAIN) and 0 < row.expires_at <= now:
            if self.definition.dead_letter_on_expiration:
                bury(row, TOO_LATE, TOO_LATE_TEXT)
            else:
                self.rows.remove(row)

    def tick(self, now: int) -> None:
        """End locks, enqueue what was scheduled, expire what is too old."""
        for row in list(self.rows):
            if row.number and row.locked_until <= now:
                self.end_lock(row, ask.ABANDON, now)
        self.claims.tick(now)
        waiting = [row for row in self.rows if row.state == STATE_SCHEDULED]
        for row in sorted(waiting, key=lambda row: (row.scheduled_at, row.sequence)):
            if row.scheduled_at <= now:
                row.sequence, row.state = self.number(), STATE_ACTIVE
                row.enqueued_at = row.scheduled_at
                row.expires_at = self.end_of_life(row.message, row.scheduled_at)
        self.rows.sort(key=lambda row: row.sequence)
        for row in list(self.rows):
            self.expire(row, now)

    def deadlines(self) -> list[int]:
        """Every instant at which something is due."""
        locks = [row.locked_until for row in self.rows if row.number]
        schedules = [row.scheduled_at for row in self.rows if row.state == STATE_SCHEDULED]
        lives = [row.expires_at for row in self.ready(MAIN) if row.expires_at]
        return locks + schedules + lives + list(self.claims.deadlines().values())

    # Reaching messages by number or age.

    def find(self, lane: int, state: int, sequences: list[int]) -> list[Row] | None:
        """The unlocked rows with these numbers, or None when one of them is not there."""
        rows = [row for row in self.rows if (row.lane, row.state) == (lane, state)]
        found = {row.sequence: row for row in rows if not row.number}
        wanted = list(dict.fromkeys(sequences))
        return [found[each] for each in wanted] if found.keys() >= set(wanted) else None

    def receive_deferred(self, command: ask.ReceiveDeferred, now: int) -> Answer:
        if self.is_closed_for_receiving():
            return (command.origin, command.tag, ENTITY_DISABLED, None)
        rows = self.find(command.lane, STATE_DEFERRED, command.sequences)
        if rows is None:
            return (command.origin, command.tag, MESSAGE_NOT_FOUND, None)
        views = [row.view() for row in rows]
        for row in rows:
            if command.mode == RECEIVE_AND_DELETE:
                self.rows.remove(row)
            else:
                row.number, row.holder = UNTOLD, command.origin
                row.locked_until = now + self.definition.lock_duration_ms
        return (command.origin, command.tag, "found", views)

    def peek(self, command: ask.Peek) -> Answer:
        if self.is_closed_for_receiving():
            return (command.origin, command.tag, ENTITY_DISABLED, None)
        views: list[tuple[Any, ...]] = []
        size = 0
        for row in self.rows:
            if row.lane == command.lane and row.sequence >= command.from_sequence:
                size += row.message.size
                if len(views) == command.count_max or (views and size > command.bytes_max):
                    break
                views.append(row.view())
        return (command.origin, command.tag, "found", views)

    def delete(self, command: ask.DeleteMany) -> Answer:
        if self.is_closed_for_receiving():
            return (command.origin, command.tag, ENTITY_DISABLED, None)
        rows = [
            row for row in self.ready(command.lane) if row.enqueued_at < command.enqueued_before
        ]
        for row in rows[: command.count_max]:
            self.rows.remove(row)
        return (command.origin, command.tag, "numbered", [len(rows[: command.count_max])])

    def counts(self) -> tuple[int, ...]:
        """Active (locked ones too), dead-lettered, scheduled, deferred, locked, claimed, bytes."""
        main = [row for row in self.rows if row.lane == MAIN]
        locked = [row for row in main if row.number]
        free = [row.state for row in main if not row.number]
        active = free.count(STATE_ACTIVE) + len(locked)
        scheduled, deferred = free.count(STATE_SCHEDULED), free.count(STATE_DEFERRED)
        size = sum(row.message.size for row in self.rows)
        dead, claimed = len(self.rows) - len(main), free.count(STATE_CLAIMED)
        return (active, dead, scheduled, deferred, len(locked), claimed, size)

    def ready(self, lane: int) -> list[Row]:
        """What can be handed out, in order."""
        rows = [row for row in self.rows if row.lane == lane and row.state == STATE_ACTIVE]
        return [row for row in rows if not row.number]

    def is_closed_for_receiving(self) -> bool:
        return self.definition.status in (DISABLED, RECEIVE_DISABLED)

    # Delivering: the partition chose, the model judges.

    def deliver(self, origin: Any, mode: int, delivery: Delivery, now: int) -> Row:
        """A receiver got a message: was it ready, alive and asked for?"""
        waiter = self.receivers[origin]
        assert waiter.mode == mode
        assert waiter.delivered < waiter.limit, "never more than was asked for"
        assert waiter.size_delivered < waiter.size_limit, "at most one message beyond the bytes"
        assert not self.is_closed_for_receiving(), "a disabled queue hands nothing out"
        ready = [row for row in self.ready(waiter.lane) if row.sequence == delivery.sequence]
        assert ready, f"{delivery.sequence} is not ready"
        row = ready[0]
        assert row.lane == DEAD or not 0 < row.expires_at <= now, "what expired is not delivered"
        waiter.delivered += 1
        waiter.size_delivered += row.message.size
        row.number, row.holder = UNTOLD, origin
        row.locked_until = now + self.definition.lock_duration_ms
        return row

    def told(self, row: Row, delivery: Delivery, mode: int) -> None:
        """Take the lock's number as it was given, or forget what was handed out for good."""
        if mode == RECEIVE_AND_DELETE:
            assert (delivery.number, delivery.locked_until) == (0, 0)
            if row in self.rows:
                self.rows.remove(row)
                self.removed[row.sequence] = row
            return
        assert delivery.locked_until == row.locked_until
        assert delivery.number != 0
        assert delivery.number >> 48 == row.lane, "the token names its lane"
        row.number = delivery.number

    def check_rest(self, highest: dict[int, int]) -> None:
        """After a decision nobody who waits may be left without what is ready; `highest` is the
        highest number that was handed out in each lane."""
        for lane in (MAIN, DEAD):
            left = [row.sequence for row in self.ready(lane)]
            waiters = [each for each in self.receivers.values() if each.lane == lane]
            hungry = [each for each in waiters if each.is_hungry()]
            if not self.is_closed_for_receiving():
                assert not (left and hungry), f"{left} are ready and someone waits"
            assert not left or highest.get(lane, 0) < left[0], "the lowest numbers go first"

    def requeue(self, sequences: list[int], now: int) -> None:
        """Messages that were handed out for good and never sent are back where they were."""
        for sequence in sequences:
            row = self.removed.pop(sequence)
            row.number, row.locked_until, row.holder = 0, 0, None
            self.rows.append(row)
            self.rows.sort(key=lambda row: row.sequence)
            self.expire(row, now)

    def drained(self) -> list[Answer]:
        """Who gives the rest of the credit back, at the end of a decision, and whether it could
        have had more but for its bytes."""
        answers: list[Answer] = []
        for origin, waiter in self.receivers.items():
            if waiter.drain:
                waiter.drain = False
                wants = waiter.limit > waiter.delivered and not self.is_closed_for_receiving()
                has_more = wants and len(self.ready(waiter.lane)) > 0
                waiter.delivered = max(waiter.limit, waiter.delivered)
                answers.append((origin, 0, "drained", has_more))
        return answers

    def configure(self, definition: QueueDefinition, now: int) -> None:
        """A new lock duration drops all locks, uncounted (R-L4)."""
        before, self.definition = self.definition, definition
        if definition.lock_duration_ms != before.lock_duration_ms:
            for row in [each for each in self.rows if each.number]:
                self.end_lock(row, ask.RELEASE, now)

    def crash(self) -> None:
        """Locks and receivers live in memory only (R-L4)."""
        self.receivers.clear()
        for row in self.rows:
            row.number, row.locked_until, row.holder = 0, 0, None


def bury(row: Row, reason: str | None, description: str | None) -> None:
    """Move a message to the dead-letter lane."""
    row.lane, row.state = DEAD, STATE_ACTIVE
    row.reason, row.description = reason, description
