"""Entities that forward to each other: workers with forwarders on one store that outlives them."""

from __future__ import annotations

from typing import Any

from peeklock.broker.forwarding.forwarder import Forwarder
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.clock import ManualClock
from peeklock.entity.blueprint import (
    Blueprint,
    Copy,
    queue_blueprint,
    subscription_policy,
    topic_blueprint,
)
from peeklock.entity.commands import (
    COMPLETE,
    DEAD_LETTER,
    MAIN,
    PEEK_LOCK,
    CloseReceiver,
    Command,
    Commit,
    Grant,
    OpenReceiver,
    Peek,
    SendMany,
    SettleMany,
    TakeOver,
    TransferMessage,
)
from peeklock.entity.definition import (
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import BodyBudget, Message, Traits
from peeklock.entity.replies import Numbered, SendsAccepted
from peeklock.entity.rules.action import Changes
from peeklock.entity.rules.values import PropertyReader
from peeklock.entity.settlement import Settlement
from peeklock.entity.topics.wording import Wording
from peeklock.store.memory import MemoryStore
from peeklock.store.store import PartitionId
from tests.broker.broker_harness import Recorder, contents, message, settle_down, token
from tests.broker.manual_timers import ManualTimers
from tests.broker.seeded_random import SeededRandom


class PlainWording:
    """Writes nothing into a message but what the entity room wants to know."""

    def reader(self, message: Message, now: int) -> PropertyReader:
        raise AssertionError("rules are not asked here")

    def changed(self, message: Message, changes: Changes) -> Message:
        raise AssertionError("actions are not carried out here")

    def lost(self) -> bytes:
        return b"lost"

    def keyed(self, message: Message) -> Message:
        return message

    def forwarded(self, delivery: Delivery, source: str) -> Message:
        before = delivery.message
        assert before is not None
        if before.content == b"unreadable":
            raise ValueError("this one cannot be read")
        return Message(
            before.envelope,
            before.content,
            Traits(
                message_id=before.message_id,
                session_id=before.session_id,
                time_to_live_ms=before.time_to_live_ms,
                scheduled_at=before.scheduled_at,
                hops=(0 if delivery.details is None else delivery.details.hops) + 1,
                dead_letter_source=source,
            ),
        )


class NetworkEntity:
    """One entity: its worker and its forwarder."""

    def __init__(self, network: Network, path: str, blueprint: Blueprint) -> None:
        self.path = path
        self.seen: list[Command] = []
        self.worker = PartitionWorker(
            PartitionId("ns", path),
            blueprint,
            network.store,
            network.clock,
            network.timers,
            BodyBudget(1 << 20),
            network.random_source.number,
        )
        self.forwarder = Forwarder(
            self.worker, blueprint, network.find, network.wording, network.clock, network.timers
        )
        self.worker.on_opened = lambda _: self.forwarder.opened()

    def submit(self, command: Command) -> None:
        """As a destination: what forwarders ask of it is remembered."""
        self.seen.append(command)
        self.worker.submit(command)

    @property
    def taken_over(self) -> list[list[int]]:
        """The numbers of each run that came."""
        return [
            command.numbers
            for command in self.seen
            if isinstance(command, TakeOver) and command.numbers
        ]

    @property
    def remembered(self) -> dict[str, dict[int, bool]]:
        """What was taken over and may come again."""
        partition = self.worker._partition
        assert partition is not None
        return partition._state.taken

    def check(self) -> None:
        """The laws of the partition hold."""
        assert self.worker._partition is not None
        self.worker._partition.check()


class Network:
    """Some entities, whose time stands still until a test moves it."""

    def __init__(
        self,
        *definitions: QueueDefinition,
        store: MemoryStore | None = None,
        wording: Wording | None = None,
        seed: int = 7,
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.store = store or MemoryStore()
        self.wording: Wording = wording or PlainWording()
        self.random_source = SeededRandom(seed)
        self.entities: dict[str, NetworkEntity] = {}
        for definition in definitions:
            self.build(definition)

    def build(self, definition: QueueDefinition) -> NetworkEntity:
        entity = NetworkEntity(self, definition.path, queue_blueprint(definition))
        self.entities[definition.path.lower()] = entity
        return entity

    def build_topic(self, path: str, *subscriptions: SubscriptionDefinition) -> NetworkEntity:
        """A topic that gives every message to all of its subscriptions."""
        lanes = [4 + 2 * at for at in range(len(subscriptions))]
        blueprint = topic_blueprint(
            TopicDefinition(path), lambda _message, _now: [Copy(lane) for lane in lanes]
        )
        for lane, subscription in zip(lanes, subscriptions, strict=True):
            blueprint.lanes[lane] = subscription_policy(subscription)
        entity = NetworkEntity(self, path, blueprint)
        self.entities[path.lower()] = entity
        return entity

    def find(self, path: str) -> NetworkEntity | None:
        return self.entities.get(path.lower())

    def __getitem__(self, path: str) -> NetworkEntity:
        return self.entities[path]

    def open(self) -> None:
        """As a broker does when it starts."""
        for entity in self.entities.values():
            entity.forwarder.opened()

    def configure(self, definition: QueueDefinition) -> None:
        entity = self.entities[definition.path.lower()]
        blueprint = queue_blueprint(definition)
        entity.worker.configure(blueprint)
        entity.forwarder.configure(blueprint)

    async def advance(self, duration_ms: int) -> None:
        self.timers.advance(duration_ms)
        await settle_down()

    async def rest(self) -> None:
        """Let so much time pass that everything that waits has been tried again."""
        await settle_down()
        for _ in range(6):
            await self.advance(6_000)

    async def close(self) -> None:
        for entity in self.entities.values():
            entity.forwarder.close()
        for entity in self.entities.values():
            await entity.worker.close()

    async def ask(self, path: str, *commands: Any) -> None:
        for command in commands:
            self.entities[path].worker.submit(command)
        await settle_down()

    async def send(self, path: str, *texts: str, **facts: Any) -> None:
        sender = Recorder()
        messages = [message(text, **facts) for text in texts]
        await self.ask(path, SendMany(sender, list(range(len(texts))), messages))
        assert [type(reply) for reply in sender.replies] == [SendsAccepted]

    async def transfer(self, path: str, destination: str, *texts: str, **facts: Any) -> None:
        """A transaction that sends elsewhere."""
        work = [TransferMessage(destination, message(text, **facts)) for text in texts]
        origin = Recorder()
        await self.ask(path, Commit(origin, 1, list(work)))
        assert origin.take() == [Numbered(origin, 1, [])]

    async def peek(self, path: str, lane: int = MAIN) -> list[Delivery]:
        origin = Recorder()
        await self.ask(path, Peek(origin, 1, lane, 1, 100_000, 1 << 30))
        return origin.deliveries()

    async def texts(self, path: str, lane: int = MAIN) -> list[str]:
        return contents(await self.peek(path, lane))

    async def reasons(self, path: str, lane: int) -> list[tuple[str | None, str | None]]:
        return [
            (each.details.reason, each.details.description)
            for each in await self.peek(path, lane)
            if each.details is not None
        ]

    async def receive(self, path: str, count: int, lane: int = MAIN) -> list[Delivery]:
        """What a client gets under locks, and no more after that."""
        origin = Recorder()
        await self.ask(path, OpenReceiver(origin, lane, PEEK_LOCK), Grant(origin, count, True))
        await self.ask(path, CloseReceiver(origin, False))
        return origin.deliveries()

    async def dead_letter(self, path: str, count: int, reason: str, lane: int = MAIN) -> None:
        held = await self.receive(path, count, lane)
        tokens = [token(each) for each in held]
        tags = [0] * len(tokens)
        settlement = Settlement(DEAD_LETTER, None, reason)
        await self.ask(path, SettleMany(Recorder(), tags, settlement, tokens))

    async def complete(self, path: str, held: list[Delivery]) -> None:
        tokens = [token(each) for each in held]
        await self.ask(
            path, SettleMany(Recorder(), [0] * len(tokens), Settlement(COMPLETE), tokens)
        )
