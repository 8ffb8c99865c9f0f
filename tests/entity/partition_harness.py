"""A queue or topic at hand: a partition, a clock that tests move, and short words for what is
asked."""

from dataclasses import replace
from typing import Any

from peeklock.clock import MANUAL_START
from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import (
    FIRST_SUBSCRIPTION_LANE,
    Blueprint,
    Copy,
    Router,
    queue_blueprint,
    subscription_policy,
    topic_blueprint,
)
from peeklock.entity.commands import DEAD, MAIN, PEEK_LOCK, Command
from peeklock.entity.decision import Decision
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import NEVER, NO_DURATION, NO_TRAITS, BodyBudget, Message, Traits
from peeklock.entity.partition import Partition
from peeklock.entity.records import Record
from peeklock.entity.replies import Reply
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.stint import Stint
from tests.entity.journal import Journal
from tests.entity.living_state import living, retold
from tests.entity.message_places import moved, places_of
from tests.entity.origins import by

EVERYTHING = 1 << 62


class QueueHarness:
    """One queue. Everything that was decided rests in a journal, as it does in life."""

    def __init__(
        self,
        *,
        index: int = 0,
        memory: int = 1_000_000,
        is_retold: bool = False,
        stint: Stint | None = None,
        step_bytes: int = 0,
        **properties: Any,
    ) -> None:
        self.now = MANUAL_START
        # With a stint of its own it goes on, as the worker does, until nothing is left over.
        self.stint = stint
        self.decisions = 0  # how many the last question took
        self.index = index
        self.properties = properties
        # Whether every step is followed by a replay of all that was written down.
        self.is_retold = is_retold
        # How much a step of a checkpoint tells of; 0: as much as in life.
        self.step_bytes = step_bytes
        self.budget = BodyBudget(memory)
        self.journal = Journal()
        self.numbers_drawn = 0
        self.tags = 0
        self.granted: dict[Any, int] = {}
        self.receivers: dict[Any, Any] = {}
        self.replies: list[Reply] = []
        self.records: list[Record] = []
        self.partition = self.opened()
        self.places = places_of(self.partition)

    def described(self) -> Blueprint:
        return queue_blueprint(QueueDefinition("orders", **self.properties))

    def opened(self) -> Partition:
        partition = Partition(
            self.described(), self.index, self.budget, self.random_source, self.stint
        )
        if self.step_bytes:
            partition._checkpoints.step_bytes = self.step_bytes
            partition._checkpoints.step_entries = 2
        for position, records in self.journal.replay(self.journal.replay_from):
            partition.restore(position, records)
        partition.opened()
        return partition

    def restart(self) -> None:
        """End without a word and open again from the journal."""
        self.granted = {}
        self.budget = BodyBudget(self.budget.left)
        self.partition = self.opened()
        self.places = places_of(self.partition)

    def random_source(self) -> int:
        self.numbers_drawn += 1
        return self.numbers_drawn * 0x9E3779B97F4A7C15 & (1 << 64) - 1

    def tag(self) -> int:
        self.tags += 1
        return self.tags

    # Asking.

    def ask(self, *commands: Command) -> list[Reply]:
        replies = self.keep(self.partition.decide(commands, self.now))
        self.decisions = 1
        leftovers = self.leftovers()
        while leftovers or self.partition.is_unfinished:
            self.bring_bodies()
            replies = replies + self.keep(self.partition.decide(leftovers, self.now))
            self.decisions += 1
            leftovers = self.leftovers()
            if not leftovers and ask.Tick() in commands:
                # What was published late may be over already: the timer fires at once.
                deadline = self.partition.next_deadline()
                leftovers = [ask.Tick()] if 0 < deadline <= self.now else []
        self.replies = replies
        return replies

    def leftovers(self) -> list[Command]:
        return [] if self.stint is None else self.partition.take_leftovers()

    def bring_bodies(self) -> None:
        """What the rules of a topic will read."""
        entries = self.partition.bodies_wanted(self.now)
        bodies = [self.journal.body(entry.position) for entry in entries]
        self.partition.bring_bodies(entries, bodies)

    def keep(self, decision: Decision) -> list[Reply]:
        self.partition.check()
        self.places = moved(self.places, self.partition, decision.records)
        self.partition.rests(self.journal.add(decision))
        self.records = decision.records
        self.replies = decision.replies
        if self.is_retold:
            self.retell()
        return decision.replies

    def retell(self) -> None:
        """Replaying the records gives the living state: from the last checkpoint on, and from the
        very first record on."""
        expected = living(self.partition, self.now)
        for first in {0, self.journal.replay_from}:
            copy = retold(self.described(), self.index, self.journal.replay(first))
            assert living(copy, self.now) == expected

    def checkpoint(self) -> None:
        """A whole checkpoint, step by step; what it makes needless is trimmed."""
        before = self.journal.replay_from
        while self.journal.replay_from == before:
            self.keep(self.partition.checkpoint_step(self.now))
        self.journal.trim(self.partition.live_blocks())

    def send(
        self,
        *contents: str,
        life_ms: int = NO_DURATION,
        due: int = NEVER,
        session: str | None = None,
        id: str = "",
    ) -> list[int]:
        """Send messages one by one; answers their numbers."""
        first = self.partition.next_sequence
        messages = [
            message(content, life_ms=life_ms, due=due, session=session, id=id)
            for content in contents
        ]
        tags = [self.tag() for _ in contents]
        replies = self.ask(ask.SendMany(by("sender"), tags, messages))
        assert told.SendsAccepted(by("sender"), tags) in replies
        return list(range(first, self.partition.next_sequence))

    def open(
        self, origin: Any, *, lane: int = MAIN, mode: int = PEEK_LOCK, credit: int = 0
    ) -> None:
        self.granted[origin] = credit
        self.ask(ask.OpenReceiver(origin, lane, mode), ask.Grant(origin, credit, False))

    def receive(
        self, count: int = 1, origin: Any = "receiver", *, lane: int = MAIN, mode: int = PEEK_LOCK
    ) -> list[Delivery]:
        """What a receiver gets when it asks for so many and gives the rest of the credit back."""
        # An origin is known by identity, as the gateway's objects are.
        key = self.receivers.setdefault((origin, lane, mode), (origin, lane, mode))
        if key not in self.granted:
            self.open(key, lane=lane, mode=mode)
        self.granted[key] += count
        replies = self.ask(ask.Grant(key, self.granted[key], True))
        assert told.Drained(key) in replies
        return deliveries(replies, key)

    def close(self, origin: Any = "receiver", *, broken: bool) -> None:
        key = self.receivers[(origin, MAIN, PEEK_LOCK)]
        self.ask(ask.CloseReceiver(key, broken))

    def receive_one(self, *, lane: int = MAIN) -> Delivery:
        (delivery,) = self.receive(1, lane=lane)
        return delivery

    def settle(
        self,
        outcome: int,
        *held: Delivery | LockToken,
        changes: dict[str, bytes] | None = None,
        note: tuple[str | None, str | None] = (None, None),
    ) -> list[str]:
        """Settle each on its own; answers "settled" or why not, in order."""
        tags = [self.tag() for _ in held]
        tokens = [token(each) for each in held]
        settlement = ask.Settlement(outcome, changes, *note)
        replies = self.ask(ask.SettleMany(by("settler"), tags, settlement, tokens))
        fates: dict[int, str] = {}
        for reply in replies:
            if isinstance(reply, told.Settled):
                assert reply.outcome == outcome
                fates |= dict.fromkeys(reply.tags, "settled")
            elif isinstance(reply, told.Refused):
                fates |= dict.fromkeys(reply.tags, reply.refusal.kind)
        return [fates[tag] for tag in tags]

    def settle_all(self, outcome: int, *held: Delivery | LockToken) -> str:
        """Settle all together; answers "settled" or why not."""
        tokens = [token(each) for each in held]
        return self.fate(
            ask.SettleAll(by("manager"), 7, ask.Settlement(outcome), tokens), "settled"
        )

    def renew(self, *held: Delivery | LockToken) -> str:
        """Renew all together; answers "renewed" or why not."""
        return self.fate(
            ask.RenewLocks(by("manager"), 7, [token(each) for each in held]), "renewed"
        )

    def fetch(self, *sequences: int, lane: int = MAIN, mode: int = PEEK_LOCK) -> list[Delivery]:
        """Receive deferred messages; there must be all of them."""
        self.ask(ask.ReceiveDeferred(by("manager"), 7, lane, list(sequences), mode))
        return self.found()

    def fate(self, command: Command, fine: str = "fine") -> str:
        """Ask one thing; answers the word for success or the kind of the refusal."""
        refusals = [each for each in self.ask(command) if isinstance(each, told.Refused)]
        return refusals[0].refusal.kind if refusals else fine

    def tick(self, duration_ms: int = 0) -> list[Reply]:
        """Let time pass, then let the timer fire."""
        self.now += duration_ms
        return self.ask(ask.Tick())

    # Sessions.

    def accept(
        self,
        session_id: str | None,
        origin: Any = "holder",
        *,
        lane: int = MAIN,
        mode: int = PEEK_LOCK,
        wait_ms: int = 1_000,
    ) -> str | None:
        """Accept a session; answers the name of the one granted, the kind of the refusal, or None
        where it is still waited for."""
        until = self.now + wait_ms
        self.granted[origin] = 0
        self.ask(ask.AcceptSession(origin, self.tag(), lane, mode, session_id, until))
        return self.accepted(origin)

    def accepted(self, origin: Any = "holder") -> str | None:
        """What the last step said to somebody who wants a session."""
        for reply in self.replies:
            if isinstance(reply, told.SessionAccepted) and reply.origin is origin:
                return reply.session_id
            if isinstance(reply, told.Refused) and reply.origin is origin:
                return reply.refusal.kind
        return None

    def take(self, count: int = 1, origin: Any = "holder") -> list[Delivery]:
        """What the holder of a session gets when it asks for so many."""
        self.granted[origin] += count
        return deliveries(self.ask(ask.Grant(origin, self.granted[origin], True)), origin)

    def lost(self) -> list[tuple[Any, str]]:
        """Whom the last step closed, and why."""
        closed = [each for each in self.replies if isinstance(each, told.ReceiverClosed)]
        return [(each.origin, each.refusal.kind) for each in closed]

    def state(self, session_id: str, *, lane: int = MAIN, holder: Any = "holder") -> bytes | None:
        (reply,) = self.ask(ask.GetSessionState(by("manager"), 7, lane, session_id, holder))
        assert isinstance(reply, told.StateFound)
        return reply.state

    def set_state(self, session_id: str, state: bytes | None, *, holder: Any = "holder") -> str:
        return self.fate(ask.SetSessionState(by("manager"), 7, MAIN, session_id, holder, state))

    def sessions(self, updated_after: int | None = None, skip: int = 0, top: int = 99) -> list[str]:
        (reply,) = self.ask(ask.ListSessions(by("manager"), 7, MAIN, updated_after, skip, top))
        assert isinstance(reply, told.Named)
        return reply.names

    # Looking.

    def peek(
        self,
        lane: int = MAIN,
        start: int = 0,
        count: int = EVERYTHING,
        size: int = EVERYTHING,
        session: str | None = None,
    ) -> list[Delivery]:
        self.ask(ask.Peek(by("looker"), 7, lane, start, count, size, session))
        return self.found()

    def found(self) -> list[Delivery]:
        (reply,) = [each for each in self.replies if isinstance(each, told.Found)]
        return reply.deliveries

    def numbers(self, lane: int = MAIN) -> list[int]:
        """The sequence numbers of all live messages of a lane."""
        return [delivery.sequence for delivery in self.peek(lane)]

    def dead(self) -> list[Delivery]:
        return self.peek(DEAD)

    def content(self, delivery: Delivery) -> str:
        """The body, from where the delivery says it rests."""
        return self.journal.body(delivery.position).content.decode()

    def contents(self, found: list[Delivery]) -> list[str]:
        return [self.content(each) for each in found]

    def count(self) -> told.Counted:
        (reply,) = self.ask(ask.Count(by("looker"), 7))
        assert isinstance(reply, told.Counted)
        return reply


class TopicHarness(QueueHarness):
    """One topic; each subscription has a lane. What is published goes to all of them, or where
    the test's own router sends it."""

    def __init__(self, *names: str, is_retold: bool = True, **properties: Any) -> None:
        self.lanes: dict[str, int] = {}
        self.subscriptions: dict[str, SubscriptionDefinition] = {}
        self.router: Router = self.to_all
        self.rules = TopicRules()
        self.rules.put(0, RuleSet([Rule("r", FalseFilter())]))
        for name in names:
            self.add(name)
        super().__init__(is_retold=is_retold, **properties)

    def add(self, name: str, **properties: Any) -> int:
        """A subscription more; answers its lane."""
        lane = FIRST_SUBSCRIPTION_LANE + 2 * len(self.lanes)
        self.lanes[name] = lane
        self.subscriptions[name] = SubscriptionDefinition("orders", name, **properties)
        return lane

    def change(self, name: str, **properties: Any) -> None:
        """Describe a subscription anew; what is not named stays as it was."""
        self.subscriptions[name] = replace(self.subscriptions[name], **properties)

    def described(self) -> Blueprint:
        definition = TopicDefinition("orders", **self.properties)
        blueprint = topic_blueprint(definition, lambda message, now: self.router(message, now))
        for name, subscription in self.subscriptions.items():
            blueprint.lanes[self.lanes[name]] = subscription_policy(subscription)
        if self.stint is not None:
            blueprint.rules = self.rules  # not asked, but they make a message worth a step
        return blueprint

    def configure(self) -> list[Reply]:
        """Tell the partition what has changed."""
        return self.ask(ask.Configure(self.described()))

    def to_all(self, message: Message, now: int) -> list[Copy]:
        return [Copy(self.lanes[name]) for name in self.subscriptions]

    def seen_by(self, name: str) -> list[str]:
        """The contents that a subscription holds."""
        return self.contents(self.peek(self.lanes[name]))

    def fire_timer(self, duration_ms: int = 0) -> list[Reply]:
        """Let time pass and the timer fire, with the bodies brought that rules must read."""
        self.now += duration_ms
        self.bring_bodies()
        return self.ask(ask.Tick())


def message(
    content: str,
    *,
    life_ms: int = NO_DURATION,
    due: int = NEVER,
    session: str | None = None,
    id: str = "",
    hops: int = 0,
) -> Message:
    traits = traits_if_any(
        message_id=id, time_to_live_ms=life_ms, scheduled_at=due, session_id=session, hops=hops
    )
    return Message(b"", content.encode(), traits)


def traits_if_any(**facts: Any) -> Traits | None:
    """Traits as a gateway makes them: none where nothing is to be known."""
    traits = Traits(**facts)
    is_plain = all(getattr(traits, name) == getattr(NO_TRAITS, name) for name in facts)
    return None if is_plain else traits


def routed(*copies: Copy) -> Router:
    """A router that makes these copies of every message."""

    def route(message: Message, now: int) -> list[Copy]:
        return list(copies)

    return route


def deliveries(replies: list[Reply], origin: Any) -> list[Delivery]:
    """What one receiver got."""
    got = [each for each in replies if isinstance(each, told.Delivered) and each.origin == origin]
    return [delivery for reply in got for delivery in reply.deliveries]


def token(held: LockToken) -> LockToken:
    """The right to settle, without what came with it."""
    return LockToken(held.sequence, held.number)


def sequences(found: list[Delivery]) -> list[int]:
    return [delivery.sequence for delivery in found]
