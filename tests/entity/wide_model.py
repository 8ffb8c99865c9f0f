"""An entity with sessions, subscriptions, duplicates, transactions and transfers as naively as it
can be written: one list of rows, searched from its front each time.

Every line has at most one receiver here, so that the model can say who gets what; `model` is the
law for several receivers on one line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from peeklock.entity import commands as ask
from peeklock.entity.commands import MAIN, RECEIVE_AND_DELETE, TRANSFER
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_DEFERRED, STATE_SCHEDULED, LockToken
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    SESSION_REQUIRED,
    TIMED_OUT,
)
from tests.entity.claims.wide_claims import WideClaims

FOR_EVER: Final = 1 << 62

# What a subscription gets of a message.
PLAIN: Final = "plain"
CHANGED: Final = "changed"
FAILED: Final = "failed"
CHANGE: Final = b"!"

Answer = tuple[Any, ...]


@dataclass
class Rules:
    """What the model must know about one lane."""

    has_sessions: bool = False
    life_ms: int = -1
    buries_expired: bool = False
    count_max: int = 10
    lock_ms: int = 60_000


@dataclass(eq=False)
class Row:
    """One message, or one copy of it."""

    sequence: int
    lane: int
    content: bytes
    session: str | None
    enqueued_at: int
    state: int = STATE_ACTIVE
    expires_at: int = 0
    scheduled_at: int = 0
    life_ms: int = -1
    count: int = 0
    reason: str | None = None
    changes: dict[str, bytes] = field(default_factory=dict)
    past: tuple[int, int, str] = (0, 0, "")
    destination: str = ""
    message: Message | None = None  # of one that is scheduled
    number: int = 0
    locked_until: int = 0
    owner: str = ""  # who has claimed it

    def view(self, state: int | None = None) -> tuple[Any, ...]:
        seen_as = self.state if state is None else state
        instants = (self.enqueued_at, self.expires_at, self.scheduled_at)
        story = (self.count, self.reason, self.changes, self.past, self.destination)
        return (self.sequence, seen_as, *instants, *story, self.content)


@dataclass(eq=False)
class ModelReceiver:
    """A receiver: of a whole lane, or of a session that it holds until an instant."""

    lane: int
    mode: int
    session: str | None = None
    until: int = FOR_EVER
    limit: int = 0
    delivered: int = 0
    size_limit: int = 0
    size_delivered: int = 0
    drain: bool = False
    watch: bool = False
    is_watching: bool = False


class WideModel:
    """The rows, and the laws about them."""

    def __init__(self, rules: dict[int, Rules], window_ms: int, is_partitioned: bool) -> None:
        self.rules = rules
        self.window_ms = window_ms
        self.is_partitioned = is_partitioned
        self.wants: Callable[[Message], list[tuple[int, str]]] | None = None  # of a topic
        self.rows: list[Row] = []
        self.removed: dict[int, Row] = {}  # by receive-and-delete
        self.next_sequence = 1
        self.receivers: dict[Any, ModelReceiver] = {}
        self.waiting: list[ask.AcceptSession] = []
        self.states: dict[tuple[int, str], bytes] = {}
        self.seen: dict[tuple[str | None, str], int] = {}
        self.taken: dict[str, set[int]] = {}
        self.answers: list[Answer] = []
        self.claims = WideClaims(self)

    def decide(self, command: ask.Command, now: int) -> list[Answer]:
        """Everything that is answered to one command, deliveries included."""
        self.answers = []
        self.carry_out(command, now)
        self.serve_waiting(now)
        for origin, receiver in self.receivers.items():
            self.deliver(origin, receiver, now)
        for origin, receiver in self.receivers.items():
            if receiver.drain:
                receiver.drain, receiver.is_watching = False, receiver.watch
                is_left = len(self.ready(receiver.lane, receiver.session)) > 0
                has_more = is_left and receiver.limit > receiver.delivered
                receiver.delivered = max(receiver.delivered, receiver.limit)
                self.answers.append(("drained", origin, has_more))
            if receiver.is_watching and self.ready(receiver.lane, receiver.session):
                receiver.is_watching = False
                self.answers.append(("ready", origin))
        return self.answers

    def carry_out(self, command: ask.Command, now: int) -> None:
        match command:
            case ask.SendMany():
                for tag, message in zip(command.tags, command.messages, strict=True):
                    if not self.refuse_sends(command.origin, tag, [message]):
                        self.enter(message, now)
                        self.answers.append(("accepted", command.origin, tag))
            case ask.Schedule():
                if not self.refuse_sends(command.origin, command.tag, command.messages):
                    numbers = [self.enter(each, now) or self.number() for each in command.messages]
                    self.numbered(command, numbers)
            case ask.CancelScheduled():
                self.say(command, self.why_not_cancel(command.sequences))
                if self.answers[-1][0] == "numbered":
                    self.cancel(command.sequences)
            case ask.TakeOver():
                self.take_over(command, now)
            case ask.SettleMany():
                outcome, changes = command.settlement.outcome, command.settlement.changes
                for tag, token in zip(command.tags, command.tokens, strict=True):
                    refusal = self.why_not_settle(outcome, [token], now)
                    if refusal is None:
                        self.settle(outcome, [token], changes, now)
                        self.answers.append(("settled", command.origin, tag, outcome))
                    else:
                        self.answers.append(("refused", command.origin, tag, refusal))
            case ask.Commit():
                self.say(command, self.why_not_commit(command.work, now))
                if self.answers[-1][0] == "numbered":
                    self.commit(command.work, now)
            case ask.OpenReceiver():
                self.receivers[command.origin] = ModelReceiver(command.lane, command.mode)
            case ask.Grant():
                receiver = self.receivers.get(command.origin)
                if receiver is not None:
                    receiver.limit, receiver.drain = command.limit, receiver.drain or command.drain
                    receiver.watch, receiver.is_watching = command.watch, False
                    receiver.size_limit = command.size_limit
            case ask.CloseReceiver():
                self.close(command.origin, now)
            case ask.Requeue():
                for delivery in command.deliveries:
                    row = self.removed.pop(delivery.sequence)
                    self.rows.append(row)
                    self.expire(row, now)
            case ask.Tick():
                self.tick(now)
            case _:
                self.carry_out_rare(command, now)

    def carry_out_rare(self, command: ask.Command, now: int) -> None:
        match command:
            case ask.AcceptSession():
                self.accept(command, now)
            case ask.RenewSession():
                receiver = self.holder(command.lane, command.session_id)
                if receiver is None:
                    self.say(command, SESSION_LOCK_LOST)
                else:
                    receiver.until = now + self.rules[command.lane].lock_ms
                    self.numbered(command, [receiver.until])
            case ask.SetSessionState():
                receiver = self.holder(command.lane, command.session_id)
                self.say(command, SESSION_LOCK_LOST if receiver is None else None)
                if receiver is not None:
                    self.states.pop((command.lane, command.session_id), None)
                    if command.state is not None:
                        self.states[command.lane, command.session_id] = command.state
            case ask.ReceiveDeferred():
                self.receive_deferred(command, now)
            case ask.Configure():
                for lane, rules in self.rules.items():
                    lock_ms = command.blueprint.lanes[lane].lock_duration_ms
                    if rules.lock_ms != lock_ms:
                        rules.lock_ms = lock_ms
                        self.drop_locks(lane, now)
            case ask.ClaimMessages():
                self.answers.append(self.claims.claim(command))
            case ask.SettleClaims():
                self.claims.settle(command, now)
            case ask.DeleteMany():
                ready = self.ready(command.lane, self.session_in(command.lane, command.session_id))
                old = [row for row in ready if row.enqueued_at < command.enqueued_before]
                for row in old[: command.count_max]:
                    self.rows.remove(row)
                self.numbered(command, [len(old[: command.count_max])])
            case _:
                raise AssertionError(f"the model does not know {command!r}")

    def say(self, command: Any, refusal: str | None) -> None:
        if refusal is None:
            self.numbered(command, [])
        else:
            self.answers.append(("refused", command.origin, command.tag, refusal))

    def numbered(self, command: Any, numbers: list[int]) -> None:
        self.answers.append(("numbered", command.origin, command.tag, numbers))

    # Entering.

    def number(self) -> int:
        self.next_sequence += 1
        return self.next_sequence - 1

    def why_not_send(self, messages: list[Message]) -> str | None:
        needed = self.wants is None and self.rules[MAIN].has_sessions
        missing = [message for message in messages if message.session_id is None]
        return SESSION_REQUIRED if needed and missing else None

    def refuse_sends(self, origin: Any, tag: int, messages: list[Message]) -> bool:
        refusal = self.why_not_send(messages)
        if refusal is not None:
            self.answers.append(("refused", origin, tag, refusal))
        return refusal is not None

    def enter(self, message: Message, now: int) -> int:
        if self.window_ms and message.message_id:
            key = message.session_id if message.session_id is not None else message.partition_key
            seen_as = (key if self.is_partitioned else None, message.message_id)
            if now < self.seen.get(seen_as, -FOR_EVER) + self.window_ms:
                return 0
            self.seen[seen_as] = now
        past = (message.enqueue_sequence, message.hops, message.dead_letter_source)
        row = Row(0, MAIN, message.content, message.session_id, now, past=past)
        row.life_ms = message.time_to_live_ms
        if message.scheduled_at > now:
            row.sequence, row.state = self.number(), STATE_SCHEDULED
            row.scheduled_at, row.message = message.scheduled_at, message
            self.rows.append(row)
        elif self.wants is None:
            row.sequence, row.expires_at = self.number(), self.end_of_life(row, now)
            self.rows.append(row)
        else:
            return self.publish(row, message, now)
        return row.sequence

    def publish(self, origin: Row, message: Message, now: int) -> int:
        assert self.wants is not None
        copies = self.wants(message)
        first = self.next_sequence
        for lane, kind in [each for each in copies if each[1] != CHANGED] + [
            each for each in copies if each[1] == CHANGED
        ]:
            row = replace(origin, sequence=self.number(), lane=lane, changes={})
            row.past = (origin.past[0] or first, *origin.past[1:])
            row.content += CHANGE if kind == CHANGED else b""
            row.expires_at = self.end_of_life(row, row.enqueued_at)
            self.rows.append(row)
            if kind == FAILED:
                bury(row, "FilterException")
            elif self.rules[lane].has_sessions and row.session is None:
                bury(row, "Session id is null.")
            else:
                self.expire(row, now)
        return first if copies else 0

    def end_of_life(self, row: Row, born_at: int) -> int:
        lives = [life for life in (row.life_ms, self.rules[row.lane].life_ms) if life >= 0]
        return born_at + min(lives) if lives else 0

    def why_not_cancel(self, sequences: list[int]) -> str | None:
        scheduled = {row.sequence for row in self.rows if row.state == STATE_SCHEDULED}
        return None if scheduled.issuperset(sequences) else MESSAGE_NOT_FOUND

    def cancel(self, sequences: list[int]) -> None:
        self.rows = [row for row in self.rows if row.sequence not in sequences]

    def take_over(self, command: ask.TakeOver, now: int) -> None:
        taken = self.taken.setdefault(command.source, set())
        pairs = zip(command.numbers, command.messages, strict=True)
        fresh = [(number, message) for number, message in pairs if number not in taken]
        if self.refuse_sends(command.origin, command.tag, [message for _, message in fresh]):
            return
        taken.difference_update(command.forget)
        for number, message in fresh:
            taken.add(number)
            self.enter(message, now)
        self.answers.append(("accepted", command.origin, command.tag))

    # Transactions.

    def why_not_commit(self, works: list[Any], now: int) -> str | None:
        for work in works:
            refusal: str | None = None
            match work:
                case ask.SendMany() | ask.Schedule():
                    refusal = self.why_not_send(work.messages)
                case ask.SettleAll():
                    refusal = self.why_not_settle(work.settlement.outcome, work.tokens, now)
                case ask.CancelScheduled():
                    refusal = self.why_not_cancel(work.sequences)
            if refusal is not None:
                return refusal
        return None

    def commit(self, works: list[Any], now: int) -> None:
        for work in works:
            match work:
                case ask.SendMany() | ask.Schedule():
                    for message in work.messages:
                        self.enter(message, now)
                case ask.SettleAll():
                    settlement = work.settlement
                    self.settle(settlement.outcome, work.tokens, settlement.changes, now)
                case ask.CancelScheduled():
                    self.cancel(work.sequences)
                case ask.TransferMessage():
                    message = work.message
                    row = Row(self.number(), TRANSFER, message.content, message.session_id, now)
                    row.past = (message.enqueue_sequence, message.hops, message.dead_letter_source)
                    row.destination = work.destination
                    self.rows.append(row)

    # Settling.

    def held(self, token: LockToken, now: int) -> Row | None:
        for row in self.rows:
            if (row.sequence, row.number) == (token.sequence, token.number):
                return row if now < row.locked_until else None
        return None

    def why_not_settle(self, outcome: int, tokens: list[LockToken], now: int) -> str | None:
        rows = [self.held(token, now) for token in tokens]
        if None in rows or len(set(rows)) < len(rows):
            return SESSION_LOCK_LOST if self.is_sessions(tokens[0].number >> 48) else LOCK_LOST
        if outcome == ask.DEAD_LETTER and any(token.number >> 48 & 1 for token in tokens):
            return NOT_ALLOWED
        return None

    def settle(
        self, outcome: int, tokens: list[LockToken], changes: dict[str, bytes] | None, now: int
    ) -> None:
        for token in tokens:
            row = self.held(token, now)
            assert row is not None
            if changes and outcome in (ask.ABANDON, ask.DEFER, ask.DEAD_LETTER):
                row.changes = {**row.changes, **changes}
            self.end_lock(row, outcome, now)

    def end_lock(self, row: Row, outcome: int, now: int) -> None:
        row.number, row.locked_until = 0, 0
        is_dead = row.lane & 1 == 1
        if outcome in (ask.ABANDON, ask.DEFER) and not is_dead:
            row.count += 1
        if outcome == ask.COMPLETE:
            self.rows.remove(row)
        elif outcome == ask.DEFER:
            row.state = STATE_DEFERRED
        elif outcome == ask.DEAD_LETTER:
            bury(row, None)
        elif outcome == ask.ABANDON and not is_dead and row.count >= self.rule(row).count_max:
            bury(row, "MaxDeliveryCountExceeded")
        else:
            self.expire(row, now)

    def rule(self, row: Row) -> Rules:
        return self.rules.get(row.lane & ~1, self.rules[MAIN])

    def drop_locks(self, lane: int, now: int) -> None:
        """Another lock duration ends all locks that have one, uncounted (R-L4)."""
        lanes = {lane, lane | 1} | ({TRANSFER, TRANSFER | 1} if lane == MAIN else set())
        for row in list(self.rows):
            if row.lane in lanes and row.number and row.locked_until != FOR_EVER:
                self.end_lock(row, ask.RELEASE, now)
        for origin, receiver in list(self.receivers.items()):
            if receiver.lane == lane and receiver.session is not None:
                self.answers.append(("closed", origin, SESSION_LOCK_LOST))
                self.close(origin, now)

    # Time.

    def tick(self, now: int) -> None:
        for row in list(self.rows):
            if row.number and row.locked_until <= now and not self.is_sessions(row.lane):
                self.end_lock(row, ask.ABANDON, now)
        for origin, receiver in list(self.receivers.items()):
            if receiver.until <= now:
                del self.receivers[origin]
                self.answers.append(("closed", origin, SESSION_LOCK_LOST))
                for row in self.locked_in(receiver):
                    self.end_lock(row, ask.ABANDON, now)
        for waiting in [each for each in self.waiting if each.wait_until <= now]:
            self.waiting.remove(waiting)
            self.answers.append(("refused", waiting.origin, waiting.tag, TIMED_OUT))
        due = [row for row in self.rows if row.state == STATE_SCHEDULED and row.scheduled_at <= now]
        for row in sorted(due, key=lambda row: (row.scheduled_at, row.sequence)):
            row.enqueued_at, row.state = row.scheduled_at, STATE_ACTIVE
            if self.wants is None:
                row.sequence, row.expires_at = self.number(), self.end_of_life(row, row.enqueued_at)
            else:
                assert row.message is not None
                self.rows.remove(row)
                self.publish(row, row.message, now)
        for row in list(self.rows):
            self.expire(row, now)

    def expire(self, row: Row, now: int) -> None:
        is_ready = row.state == STATE_ACTIVE and not row.number and row.lane & 1 == 0
        if is_ready and 0 < row.expires_at <= now:
            if self.rule(row).buries_expired:
                bury(row, "TTLExpiredException")
            else:
                self.rows.remove(row)

    # Sessions.

    def is_sessions(self, lane: int) -> bool:
        return lane in self.rules and self.rules[lane].has_sessions

    def session_in(self, lane: int, session: str | None) -> str | None:
        """The session, where the lane knows any."""
        return session if self.is_sessions(lane) else None

    def holder(self, lane: int, session: str | None) -> ModelReceiver | None:
        for receiver in self.receivers.values():
            if session is not None and (receiver.lane, receiver.session) == (lane, session):
                return receiver
        return None

    def is_taken(self, lane: int, session: str) -> bool:
        """Whether a receiver holds the session, or an owner has claimed of it."""
        return self.holder(lane, session) is not None or self.claims.has(lane, session)

    def accept(self, command: ask.AcceptSession, now: int) -> None:
        if command.session_id is None:
            self.waiting.append(command)
            return  # whoever can be served is served before the decision ends
        if self.is_taken(command.lane, command.session_id):
            self.say(command, SESSION_CANNOT_BE_LOCKED)
            return
        self.give(command, command.session_id, now)

    def give(self, command: ask.AcceptSession, session: str, now: int) -> None:
        until = now + self.rules[command.lane].lock_ms
        self.receivers[command.origin] = ModelReceiver(command.lane, command.mode, session, until)
        self.answers.append(("session", command.origin, command.tag, session, until))

    def serve_waiting(self, now: int) -> None:
        """The free session with the oldest ready message goes to who waits longest."""
        for waiting in list(self.waiting):
            for row in self.ready(waiting.lane, None):
                assert row.session is not None
                if not self.is_taken(waiting.lane, row.session):
                    self.waiting.remove(waiting)
                    self.give(waiting, row.session, now)
                    break

    def close(self, origin: Any, now: int) -> None:
        self.waiting = [each for each in self.waiting if each.origin is not origin]
        receiver = self.receivers.pop(origin, None)
        if receiver is not None and receiver.session is not None:
            for row in self.locked_in(receiver):
                self.end_lock(row, ask.RELEASE, now)

    def locked_in(self, receiver: ModelReceiver) -> list[Row]:
        rows = [row for row in self.rows if row.number and row.lane == receiver.lane]
        return [row for row in rows if row.session == receiver.session]

    def names(self, lane: int) -> list[str]:
        """The sessions that are listed."""
        with_rows = {
            row.session or ""
            for row in self.rows
            if row.lane == lane and row.state != STATE_SCHEDULED
        }
        return sorted(with_rows | {name for number, name in self.states if number == lane})

    # Handing out.

    def ready(self, lane: int, session: str | None) -> list[Row]:
        rows = [row for row in self.rows if row.lane == lane and row.state == STATE_ACTIVE]
        free = [row for row in rows if not row.number and session in (None, row.session)]
        return sorted(free, key=lambda row: row.sequence)

    def deliver(self, origin: Any, receiver: ModelReceiver, now: int) -> None:
        got: list[Row] = []
        for row in self.ready(receiver.lane, receiver.session):
            if (
                receiver.delivered < receiver.limit
                and receiver.size_delivered < receiver.size_limit
            ):
                receiver.delivered += 1
                receiver.size_delivered += len(row.content)
                got.append(row)
        self.hand_out(got, receiver.mode, receiver.lane, now)
        self.answers += [("delivered", origin, row.view()) for row in got]

    def hand_out(self, rows: list[Row], mode: int, lane: int, now: int) -> None:
        for row in rows:
            if mode == RECEIVE_AND_DELETE:
                self.rows.remove(row)
                self.removed[row.sequence] = row
                continue
            row.number = -1  # told afterwards
            lasts = self.is_sessions(lane) or mode == ask.FORWARD
            row.locked_until = FOR_EVER if lasts else now + self.rule(row).lock_ms

    def told(self, sequence: int, lock_number: int) -> None:
        """Take the number of a lock as it was given."""
        for row in self.rows:
            if row.sequence == sequence and row.number == -1:
                row.number = lock_number

    def receive_deferred(self, command: ask.ReceiveDeferred, now: int) -> None:
        lane = command.lane
        if self.is_sessions(lane) and self.holder(lane, command.session_id) is None:
            self.say(command, SESSION_LOCK_LOST)
            return
        session = self.session_in(lane, command.session_id)
        found = [
            row
            for row in self.rows
            if row.lane == lane and row.state == STATE_DEFERRED and not row.number
            if row.sequence in command.sequences and session in (None, row.session)
        ]
        if len(found) < len(command.sequences):
            self.say(command, MESSAGE_NOT_FOUND)
            return
        self.answers.append(("found", command.origin, [row.view() for row in found]))
        self.hand_out(found, command.mode, lane, now)

    # Looking.

    def seen_in(self, lane: int, session: str | None) -> list[tuple[Any, ...]]:
        rows = [row for row in self.rows if row.lane == lane and session in (None, row.session)]
        rows.sort(key=lambda row: row.sequence)
        return [row.view() for row in rows]

    def counts(self, lane: int) -> tuple[int, ...]:
        """Active, dead, scheduled, deferred, locked."""
        rows = [row for row in self.rows if row.lane == lane]
        locked = [row for row in rows if row.number]
        free = [row.state for row in rows if not row.number]
        dead = [row for row in self.rows if row.lane == lane | 1]
        active = free.count(STATE_ACTIVE) + len(locked)
        others = (free.count(STATE_SCHEDULED), free.count(STATE_DEFERRED))
        return (active, len(dead), *others, len(locked))

    def crash(self) -> None:
        """Locks, receivers and waits live in memory only (R-L4)."""
        self.receivers, self.waiting = {}, []
        for row in self.rows:
            row.number, row.locked_until = 0, 0


def bury(row: Row, reason: str | None) -> None:
    row.lane, row.state, row.reason = row.lane | 1, STATE_ACTIVE, reason
