"""Walks at random over everything a partition can be asked: the laws hold after every step, and
what was written down gives the living state."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
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
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import NEVER, NO_DURATION, Message, Traits
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness, TopicHarness, token

STEPS = 60
NAMES = ("", "a", "b")


class Walk:
    """One walk: chooses what to ask next and remembers what it may ask with."""

    def __init__(self, seed: int, hand: QueueHarness, lanes: list[int]) -> None:
        self.random = random.Random(seed)
        self.hand = hand
        self.lanes = lanes
        self.tokens: list[LockToken] = []
        self.fetchable: list[tuple[int, int]] = []
        self.origins: list[Any] = []
        self.scheduled: list[int] = []
        self.taken = 0

    def step(self) -> None:
        chosen: Callable[[], None] = self.random.choice(
            [
                *[self.send] * 3,
                *[self.accept] * 2,
                *[self.grant] * 4,
                *[self.settle] * 4,
                *[self.pass_time] * 2,
                self.open,
                self.close,
                self.commit,
                self.take_over,
                self.set_state,
                self.fetch,
                self.cancel,
                self.delete,
                self.checkpoint_step,
                self.relocate,
                self.restart,
                self.look,
            ]
        )
        chosen()
        for reply in self.hand.replies:
            if isinstance(reply, told.Delivered):
                self.remember(reply.deliveries)
            elif isinstance(reply, told.Found):
                self.remember([each for each in reply.deliveries if each.number])
            elif isinstance(reply, told.ReceiverClosed):
                self.origins = [each for each in self.origins if each is not reply.origin]

    def remember(self, held: list[Delivery]) -> None:
        for delivery in held:
            self.hand.content(delivery)
            if delivery.number:
                self.tokens.append(token(delivery))

    def message(self) -> Message:
        pick = self.random
        if pick.random() < 0.1:
            return Message(b"", bytes(pick.randrange(40)))  # as most are
        return Message(
            b"e",
            bytes(pick.randrange(40)),
            Traits(
                message_id=str(pick.randrange(9)) if pick.random() < 0.5 else "",
                session_id=pick.choice(NAMES),
                time_to_live_ms=pick.choice([NO_DURATION, NO_DURATION, 3_000, 90_000]),
                scheduled_at=pick.choice([NEVER, NEVER, self.hand.now, self.hand.now + 4_000]),
                hops=pick.choice([0, 0, 1]),
            ),
        )

    def messages(self) -> list[Message]:
        return [self.message() for _ in range(self.random.randrange(1, 4))]

    def send(self) -> None:
        messages = self.messages()
        if self.random.random() < 0.5:
            self.hand.ask(ask.SendMany(by("s"), list(range(len(messages))), messages))
        else:
            (reply, *_) = self.hand.ask(ask.Schedule(by("s"), 1, messages))
            if isinstance(reply, told.Numbered):
                self.scheduled += reply.numbers

    def accept(self) -> None:
        origin = by(object())
        self.origins.append(origin)
        name = self.random.choice([None, *NAMES])
        until = self.hand.now + 2_000
        mode = self.random.choice([PEEK_LOCK, PEEK_LOCK, RECEIVE_AND_DELETE])
        lane = self.random.choice(self.lanes)
        self.hand.ask(ask.AcceptSession(origin, 1, lane, mode, name, until))

    def open(self) -> None:
        origin = by(object())
        self.origins.append(origin)
        dead = self.random.choice(self.lanes) | 1
        lane, mode = self.random.choice([(dead, PEEK_LOCK), (TRANSFER, FORWARD)])
        self.hand.ask(ask.OpenReceiver(origin, lane, mode))

    def grant(self) -> None:
        if self.origins:
            limit = self.random.randrange(1, 20)
            drain = self.random.random() < 0.3
            self.hand.ask(ask.Grant(self.random.choice(self.origins), limit, drain))

    def close(self) -> None:
        if self.origins:
            origin = self.origins.pop(self.random.randrange(len(self.origins)))
            self.hand.ask(ask.CloseReceiver(origin, self.random.random() < 0.5))

    def some_tokens(self) -> list[LockToken]:
        self.random.shuffle(self.tokens)
        count = self.random.randrange(1, 4)
        some, self.tokens = self.tokens[:count], self.tokens[count:]
        return some

    def outcome(self) -> int:
        return self.random.choice([COMPLETE, COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])

    def settle(self) -> None:
        some = self.some_tokens()
        outcome = self.outcome()
        changes = {"p": b"1"} if self.random.random() < 0.3 else None
        self.hand.ask(
            ask.SettleMany(by("s"), list(range(len(some))), ask.Settlement(outcome, changes), some)
        )
        if outcome == DEFER:
            self.fetchable += [(each.number >> 48, each.sequence) for each in some]

    def commit(self) -> None:
        work: list[Any] = [ask.SendMany(by("s"), [1], [self.message()])]
        some = self.some_tokens()
        work.append(ask.SettleAll(by("s"), 1, ask.Settlement(self.outcome()), some))
        if self.random.random() < 0.5:
            work.append(ask.TransferMessage("there", self.message()))
        before = self.hand.partition.live_count
        (reply, *_) = self.hand.ask(ask.Commit(by("t"), 1, work))
        if isinstance(reply, told.Refused):
            assert self.hand.partition.live_count == before

    def take_over(self) -> None:
        first = self.random.randrange(self.taken + 1)
        self.taken += 2
        numbers = list(range(first, self.taken))
        forget = [] if self.random.random() < 0.5 else list(range(first))
        messages = [self.message() for _ in numbers]
        self.hand.ask(ask.TakeOver(by("c"), 1, "there", numbers, messages, forget))

    def set_state(self) -> None:
        state = self.random.choice([None, b"", b"state"])
        lane = self.random.choice(self.lanes)
        self.hand.ask(ask.SetSessionState(by("m"), 1, lane, self.random.choice(NAMES), None, state))

    def fetch(self) -> None:
        if self.fetchable:
            lane, sequence = self.random.choice(self.fetchable)
            name = self.random.choice(NAMES)
            mode = self.random.choice([PEEK_LOCK, RECEIVE_AND_DELETE])
            self.hand.ask(ask.ReceiveDeferred(by("m"), 1, lane, [sequence], mode, name))

    def cancel(self) -> None:
        if self.scheduled:
            self.hand.ask(ask.CancelScheduled(by("s"), 1, [self.random.choice(self.scheduled)]))

    def delete(self) -> None:
        before = self.hand.now - self.random.randrange(5_000)
        name = self.random.choice([None, *NAMES])
        self.hand.ask(ask.DeleteMany(by("m"), 1, self.random.choice(self.lanes), 2, before, name))

    def pass_time(self) -> None:
        self.hand.now += self.random.choice([1, 500, 3_000, 20_000, 60_000])
        if isinstance(self.hand, TopicHarness):
            self.hand.fire_timer()
        else:
            self.hand.tick()
        deadline = self.hand.partition.next_deadline()
        assert deadline == 0 or deadline > self.hand.now, "a timer that has fired does not go on"

    def checkpoint_step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.hand.keep(self.hand.partition.checkpoint_step(self.hand.now))

    def relocate(self) -> None:
        """Bodies move to the tail, whatever the blocks they lie in."""
        lanes = self.hand.partition._state.lanes.values()
        entries = [entry for lane in lanes for entry in lane.entries()]
        some = self.random.sample(entries, min(3, len(entries)))
        bodies = [self.hand.journal.body(entry.position) for entry in some]
        self.hand.keep(self.hand.partition.relocate(some, bodies, self.hand.now))

    def restart(self) -> None:
        self.hand.restart()
        self.hand.replies = []
        self.origins = []

    def look(self) -> None:
        for lane in self.lanes:
            for name in (None, *NAMES):
                found = self.hand.peek(lane, session=name)
                numbers = [each.sequence for each in found]
                assert numbers == sorted(numbers)
                again = (
                    self.hand.peek(lane, start=numbers[1], count=2, session=name)
                    if (len(numbers) > 1)
                    else []
                )
                assert [each.sequence for each in again] == numbers[1:3]
            self.hand.ask(
                ask.Count(by("m"), 1, lane), ask.ListSessions(by("m"), 1, lane, None, 0, 9)
            )

    def drain(self) -> None:
        """In the end nothing is left but what was deferred."""
        self.restart()
        self.hand.now += 100_000
        self.pass_time()
        for lane in {*self.lanes, TRANSFER}:
            for each in (lane, lane | 1):
                self.hand.ask(ask.DeleteMany(by("m"), 1, each, EVERYTHING, EVERYTHING))
            (left,) = self.hand.ask(ask.Count(by("m"), 1, lane))
            assert isinstance(left, told.Counted)
            assert (left.active, left.scheduled, left.locked) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_a_queue_with_sessions_keeps_its_laws(seed: int) -> None:
    hand = QueueHarness(
        requires_session=True,
        duplicate_window_ms=20_000,
        delivery_count_max=3,
        dead_letter_on_expiration=seed % 2 == 0,
        memory=seed % 3 * 100,
        is_retold=True,
        step_bytes=seed % 3 * 40,
    )
    walk = Walk(seed, hand, [MAIN])
    for _ in range(STEPS):
        walk.step()
    walk.drain()


@pytest.mark.parametrize("seed", range(12))
def test_a_topic_keeps_its_laws(seed: int) -> None:
    window_ms = 20_000 * (seed % 2)
    hand = TopicHarness(
        duplicate_window_ms=window_ms, memory=seed % 3 * 100, step_bytes=seed % 4 * 40
    )
    lanes = [
        hand.add("plain", delivery_count_max=2),
        hand.add("sessions", requires_session=True, time_to_live_ms=5_000),
        hand.add("more", requires_session=True, dead_letter_on_expiration=True),
    ]
    hand.configure()
    walk = Walk(seed, hand, lanes)
    for _ in range(STEPS):
        walk.step()
    walk.drain()
