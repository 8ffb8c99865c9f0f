"""Entities with sessions, subscriptions, duplicates, transactions and takeovers beside a naive
model: whatever is asked, both must give the same answers and show the same messages, and a replay
of what was written down must give the living state.

`PEEKLOCK_WALKS` makes it more walks than a few."""

import os
import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    FORWARD,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    RELEASE,
    TRANSFER,
)
from peeklock.entity.deliveries import STATE_DEFERRED, Delivery, Details, LockToken
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits
from peeklock.entity.replies import Origin, Reply
from peeklock.entity.stint import Stint
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, TopicHarness, traits_if_any
from tests.entity.wide_model import CHANGE, CHANGED, FAILED, PLAIN, Answer, Rules, WideModel

STEPS: Final = 160
WALKS: Final = int(os.environ.get("PEEKLOCK_WALKS", "5"))
NAMES: Final = ("", "a", "b")
WINDOW_MS: Final = 20_000


class Both:
    """The partition and the model, asked the same at random."""

    def __init__(self, seed: int, hand: QueueHarness, model: WideModel) -> None:
        self.pick = random.Random(seed)
        # In stints the first part of what comes back may be handed out before the rest is there,
        # which this model does not foresee: nobody waits then.
        self.is_sliced = hand.stint is not None
        self.hand = hand
        self.model = model
        self.tokens: list[LockToken] = []
        self.removed: list[tuple[int, Delivery]] = []  # by receive-and-delete, with their lanes
        self.origins: list[Origin] = []
        self.made = 0
        self.taken = 0

    def step(self) -> None:
        chosen: Callable[[], None] = self.pick.choice(
            [
                *[self.send] * 6,
                *[self.accept] * 4,
                *[self.grant] * 7,
                *[self.settle] * 6,
                *[self.pass_time] * 3,
                *[self.commit] * 3,
                *[self.fetch] * 2,
                *[self.claim] * 2,
                *[self.settle_claims] * 3,
                self.schedule,
                self.cancel,
                self.open,
                self.close,
                self.take_over,
                self.requeue,
                self.requeue,
                self.hold_on,
                self.delete,
                self.change_locks,
                self.checkpoint_step,
                self.crash,
            ]
        )
        chosen()

    def ask(self, command: ask.Command) -> None:
        if isinstance(command, ask.Tick) and isinstance(self.hand, TopicHarness):
            replies = self.hand.fire_timer()
        else:
            replies = self.hand.ask(command)
        expected = self.model.decide(command, self.hand.now)
        got = [answer for reply in replies for answer in self.answers(reply)]
        assert sorted(got, key=repr) == sorted(expected, key=repr)

    # What the partition says, in the model's words.

    def answers(self, reply: Reply) -> list[Answer]:
        match reply:
            case told.SendsAccepted():
                return [("accepted", reply.origin, tag) for tag in reply.tags]
            case told.Settled():
                return [("settled", reply.origin, tag, reply.outcome) for tag in reply.tags]
            case told.Refused():
                return [("refused", reply.origin, tag, reply.refusal.kind) for tag in reply.tags]
            case told.Numbered():
                return [("numbered", reply.origin, reply.tag, reply.numbers)]
            case told.Delivered():
                if reply.mode == RECEIVE_AND_DELETE:
                    self.remember(reply)
                return [("delivered", reply.origin, self.took(each)) for each in reply.deliveries]
            case told.Found():
                return [("found", reply.origin, [self.took(each) for each in reply.deliveries])]
            case told.ClaimsMade():
                return [("claimed", reply.origin, reply.sequences, reply.session_ids)]
            case told.Drained():
                return [("drained", reply.origin, reply.has_more)]
            case told.Ready():
                return [("ready", reply.origin)]
            case told.ReceiverClosed():
                return [("closed", reply.origin, reply.refusal.kind)]
            case told.SessionAccepted():
                return [("session", reply.origin, reply.tag, reply.session_id, reply.locked_until)]
            case _:
                raise AssertionError(f"nobody expects {reply!r}")

    def took(self, delivery: Delivery) -> tuple[Any, ...]:
        if delivery.number:
            self.model.told(delivery.sequence, delivery.number)
            self.tokens.append(LockToken(delivery.sequence, delivery.number))
        return self.view(delivery)

    def view(self, delivery: Delivery) -> tuple[Any, ...]:
        details = delivery.details if delivery.details is not None else Details()
        instants = (delivery.enqueued_at, delivery.expires_at, details.scheduled_at)
        past = (details.enqueue_sequence, details.hops, details.source)
        story = (delivery.delivery_count, details.reason, details.changes or {}, past)
        content = self.hand.journal.body(delivery.position).content
        return (
            delivery.sequence,
            delivery.state,
            *instants,
            *story,
            details.destination,
            content,
        )

    def compare_looks(self) -> None:
        """Every message is where the model has it, as it has it."""
        for lane in [*self.model.rules, TRANSFER]:
            for each in (lane, lane | 1):
                names = NAMES if self.model.is_sessions(each) else ()
                for name in (None, *names):
                    seen = [self.view(found) for found in self.hand.peek(each, session=name)]
                    assert seen == self.model.seen_in(each, name)
            (reply,) = self.hand.ask(ask.Count(by("m"), 1, lane))
            assert isinstance(reply, told.Counted)
            states = (reply.active, reply.dead_letter, reply.scheduled, reply.deferred)
            assert (*states, reply.locked) == self.model.counts(lane)
            if self.model.is_sessions(lane):
                (named,) = self.hand.ask(ask.ListSessions(by("m"), 1, lane, None, 0, 99))
                assert named == told.Named(by("m"), 1, self.model.names(lane))
        assert self.hand.partition.next_sequence == self.model.next_sequence

    # What is asked.

    def message(self, due: int = NEVER) -> Message:
        pick = self.pick
        self.made += 1
        if due == NEVER and pick.random() < 0.1:
            return Message(b"", b"%d" % self.made)  # as most are
        session = pick.choice([*NAMES, *NAMES, None])
        return Message(
            b"",
            b"%d" % self.made,
            Traits(
                message_id=str(pick.randrange(12)) if pick.random() < 0.5 else "",
                session_id=session,
                partition_key=pick.choice([None, "k"]) if session is None else None,
                time_to_live_ms=pick.choice([NO_DURATION] * 4 + [3_000, 90_000]),
                scheduled_at=due,
                hops=pick.choice([0, 0, 1]),
                enqueue_sequence=pick.choice([0, 0, 7]),
                dead_letter_source=pick.choice(["", "", "there"]),
            ),
        )

    def send(self) -> None:
        count = self.pick.randrange(1, 4)
        self.ask(ask.SendMany(by("s"), list(range(count)), [self.message() for _ in range(count)]))

    def schedule(self) -> None:
        self.ask(ask.Schedule(by("s"), 1, [self.later() for _ in range(2)]))

    def later(self) -> Message:
        return self.message(self.hand.now + self.pick.choice([1, 4_000, 50_000]))

    def scheduled(self) -> list[int]:
        numbers = [row.sequence for row in self.model.rows if row.message is not None]
        return [self.pick.choice([*numbers[:3], 1])]

    def cancel(self) -> None:
        self.ask(ask.CancelScheduled(by("s"), 1, self.scheduled()))

    def lane(self) -> int:
        return self.pick.choice([lane for lane in self.model.rules if self.is_used(lane)])

    def is_used(self, lane: int) -> bool:
        """A topic's own lane hands nothing out."""
        return self.model.wants is None or lane != MAIN

    def newcomer(self) -> Origin:
        self.made += 1
        self.origins.append(by(f"r{self.made}"))
        return self.origins[-1]

    def accept(self) -> None:
        lanes = [lane for lane in self.model.rules if self.model.is_sessions(lane)]
        name = self.pick.choice(NAMES if self.is_sliced else [None, *NAMES])
        mode = self.pick.choice([PEEK_LOCK, PEEK_LOCK, RECEIVE_AND_DELETE])
        until = self.hand.now + self.pick.choice([400, 5_000])
        lane = self.pick.choice(lanes)
        self.ask(ask.AcceptSession(self.newcomer(), 1, lane, mode, name, until))

    def open(self) -> None:
        """A receiver for a line that has none."""
        lane = self.pick.choice([self.lane(), self.lane() | 1, TRANSFER, TRANSFER | 1])
        receivers = [receiver.lane for receiver in self.model.receivers.values()]
        if lane not in receivers and not self.model.is_sessions(lane):
            mode = FORWARD if lane == TRANSFER else PEEK_LOCK
            self.ask(ask.OpenReceiver(self.newcomer(), lane, mode))

    def grant(self) -> None:
        if self.model.receivers:
            origin = self.pick.choice(list(self.model.receivers))
            limit = self.model.receivers[origin].delivered + self.pick.randrange(4)
            size = self.pick.choice([0, 1, 2, 3, ask.ANY_SIZE, ask.ANY_SIZE, ask.ANY_SIZE])
            size_limit = self.model.receivers[origin].size_delivered + size
            drain = self.is_sliced or self.pick.random() < 0.5
            watch = drain and self.pick.random() < 0.5
            self.ask(ask.Grant(origin, limit, drain, watch, size_limit))

    def remember(self, reply: told.Delivered) -> None:
        """What was handed out for good, with its body, as a link has it."""
        lane = self.model.receivers[reply.origin].lane
        for delivery in reply.deliveries:
            delivery.message = self.hand.journal.body(delivery.position)
            self.removed.append((lane, delivery))

    def requeue(self) -> None:
        """A link ends and has not sent what it was given for good."""
        if self.removed:
            lane = self.pick.choice(self.removed)[0]
            back = [each for number, each in self.removed if number == lane][:2]
            self.removed = [pair for pair in self.removed if pair[1] not in back]
            self.ask(ask.Requeue(lane, back))

    def close(self) -> None:
        if self.origins:
            origin = self.origins.pop(self.pick.randrange(len(self.origins)))
            self.ask(ask.CloseReceiver(origin, self.pick.random() < 0.5))

    def some_tokens(self) -> list[LockToken]:
        count = self.pick.randrange(1, 4)
        self.pick.shuffle(self.tokens)
        some, self.tokens = self.tokens[:count], self.tokens[count:]
        if self.pick.random() < 0.1:
            self.tokens += some  # used again later, in vain
        return some

    def outcome(self) -> int:
        return self.pick.choice([COMPLETE, ABANDON, DEFER, DEFER, DEAD_LETTER, RELEASE])

    def settle(self) -> None:
        some = self.some_tokens()
        if some:
            changes = self.pick.choice([None, {"p": b"1"}, {"q": b"2"}])
            tags = list(range(len(some)))
            self.ask(ask.SettleMany(by("s"), tags, ask.Settlement(self.outcome(), changes), some))

    def commit(self) -> None:
        """Everything that a transaction may do, in any order."""
        work: list[Any] = []
        some = self.some_tokens()
        if some:
            work.append(ask.SettleAll(by("s"), 1, ask.Settlement(self.outcome()), some))
        if self.pick.random() < 0.5:
            work.append(ask.TransferMessage("there", self.message()))
        if self.pick.random() < 0.3:
            work.append(ask.CancelScheduled(by("s"), 1, self.scheduled()))
        if self.pick.random() < 0.3:
            work.append(ask.Schedule(by("s"), 1, [self.later()]))
        work.append(ask.SendMany(by("s"), [1], [self.message()]))
        self.pick.shuffle(work)
        self.ask(ask.Commit(by("t"), 1, work))

    def take_over(self) -> None:
        first = self.pick.randrange(self.taken + 1)
        self.taken += 2
        numbers = list(range(first, self.taken))
        forget = self.pick.choice([[], list(range(first))])
        messages = [self.message() for _ in numbers]
        self.ask(ask.TakeOver(by("c"), 1, "there", numbers, messages, forget))

    def hold_on(self) -> None:
        lanes = [lane for lane in self.model.rules if self.model.is_sessions(lane)]
        lane, name = self.pick.choice(lanes), self.pick.choice(NAMES)
        state = self.pick.choice([None, b"", b"state"])
        self.ask(ask.SetSessionState(by("m"), 1, lane, name, None, state))
        self.ask(ask.RenewSession(by("m"), 1, lane, name, None))

    def fetch(self) -> None:
        rows = [row for row in self.model.rows if row.state == STATE_DEFERRED]
        if rows:
            row = self.pick.choice(rows)
            mode = self.pick.choice([PEEK_LOCK, PEEK_LOCK, RECEIVE_AND_DELETE])
            name = self.pick.choice([row.session, row.session, "a", None])
            self.ask(ask.ReceiveDeferred(by("m"), 1, row.lane, [row.sequence], mode, name))

    def claim(self) -> None:
        lane = self.lane() | self.pick.choice([0, 0, 1])
        owner, count = self.pick.choice(["one", "two"]), self.pick.choice([1, 3, 10])
        sessions = self.pick.choice([1, 2, 9])
        wish = ask.ClaimMessages(by("c"), 1, lane, owner, 1, count, session_count=sessions)
        self.ask(wish)

    def settle_claims(self) -> None:
        rows = [row for row in self.model.rows if row.owner]
        if rows:
            row = self.pick.choice(rows)
            numbers = [row.sequence, *[each.sequence for each in rows if self.pick.random() < 0.5]]
            epoch = self.pick.choice([0, 1])
            settled = (row.owner, epoch, sorted(set(numbers)), ask.Settlement(self.outcome()))
            self.ask(ask.SettleClaims(by("c"), 1, row.lane, *settled))

    def delete(self) -> None:
        before = self.hand.now - self.pick.choice([-1, 0, 3_000])
        name = self.pick.choice([None, *NAMES])
        self.ask(ask.DeleteMany(by("m"), 1, self.lane(), self.pick.randrange(4), before, name))

    def pass_time(self) -> None:
        self.hand.now += self.pick.choice([1, 500, 3_000, 20_000, 60_000])
        self.ask(ask.Tick())

    def change_locks(self) -> None:
        """Locks last longer or shorter from now on, in one lane."""
        lock_ms = self.pick.choice([30_000, 60_000])
        if isinstance(self.hand, TopicHarness):
            name = self.pick.choice(list(self.hand.subscriptions))
            self.hand.change(name, lock_duration_ms=lock_ms)
        else:
            self.hand.properties["lock_duration_ms"] = lock_ms
        self.ask(ask.Configure(self.hand.described()))

    def checkpoint_step(self) -> None:
        """Steps of a checkpoint, and bodies that are written again."""
        for _ in range(self.pick.randrange(1, 8)):
            self.hand.keep(self.hand.partition.checkpoint_step(self.hand.now))
        lanes = self.hand.partition._state.lanes.values()
        entries = [entry for lane in lanes for entry in lane.entries()]
        some = self.pick.sample(entries, min(2, len(entries)))
        bodies = [self.hand.journal.body(entry.position) for entry in some]
        self.hand.keep(self.hand.partition.relocate(some, bodies, self.hand.now))
        self.hand.retell()

    def crash(self) -> None:
        self.hand.retell()
        self.hand.restart()
        self.model.crash()
        self.origins = []
        self.ask(ask.Tick())

    def walk(self) -> None:
        for count in range(STEPS):
            self.step()
            if count % 4 == 3:
                self.compare_looks()
        self.hand.retell()


@pytest.mark.parametrize("steps_max", [None, 1])
@pytest.mark.parametrize("seed", range(WALKS))
def test_a_queue_with_sessions_and_its_model_agree(seed: int, steps_max: int | None) -> None:
    """R-S9, R-P7, R-L3, R-L4 and protocol 11.5, in any mixture."""
    partitions = 1 + 3 * (seed % 2)
    hand = QueueHarness(
        requires_session=True,
        duplicate_window_ms=WINDOW_MS,
        delivery_count_max=3,
        partitions=partitions,
        dead_letter_on_expiration=seed % 3 == 0,
        memory=seed % 2 * 100,
        stint=None if steps_max is None else Stint(steps_max),
        step_bytes=seed % 4 * 40,
    )
    rules = {MAIN: Rules(has_sessions=True, buries_expired=seed % 3 == 0, count_max=3)}
    Both(seed, hand, WideModel(rules, WINDOW_MS, partitions > 1)).walk()


def wants(message: Message) -> list[tuple[int, str]]:
    """What each of three subscriptions gets of a message."""
    number = int(message.content)
    copies: list[tuple[int, str]] = []
    if number % 7 == 0:
        copies.append((4, FAILED))
    elif number % 2 == 0:
        copies.append((4, PLAIN))
    if number % 3:
        copies.append((6, PLAIN))
    if number % 5 == 0:
        copies.append((8, CHANGED))
    if number % 4:
        copies.append((8, PLAIN))
    return copies


def route(message: Message, now: int) -> list[Copy]:
    copies: list[Copy] = []
    for lane, kind in wants(message):
        if kind == CHANGED:
            traits = traits_if_any(
                session_id=message.session_id, time_to_live_ms=message.time_to_live_ms
            )
            changed = Message(b"", message.content + CHANGE, traits)
            copies.append(Copy(lane, changed))
        else:
            copies.append(Copy(lane, failure="no number" if kind == FAILED else ""))
    return copies


@pytest.mark.parametrize("steps_max", [None, 1])
@pytest.mark.parametrize("seed", range(WALKS))
def test_a_topic_and_its_model_agree(seed: int, steps_max: int | None) -> None:
    """R-P7, R-L3, R-L4 and protocol 11.7, in any mixture."""
    window_ms = WINDOW_MS * (seed % 2)
    hand = TopicHarness(
        is_retold=steps_max is not None and seed == 0,
        duplicate_window_ms=window_ms,
        memory=seed % 3 * 100,
        stint=None if steps_max is None else Stint(steps_max, bytes_max=2),
        step_bytes=seed % 4 * 40,
    )
    hand.router = route
    hand.add("plain", delivery_count_max=2)
    hand.add("sessions", requires_session=True, time_to_live_ms=5_000)
    hand.add("more", requires_session=True, dead_letter_on_expiration=True)
    hand.configure()
    rules = {
        MAIN: Rules(),
        4: Rules(count_max=2),
        6: Rules(has_sessions=True, life_ms=5_000),
        8: Rules(has_sessions=True, buries_expired=True),
    }
    model = WideModel(rules, window_ms, is_partitioned=False)
    model.wants = wants
    Both(seed, hand, model).walk()
