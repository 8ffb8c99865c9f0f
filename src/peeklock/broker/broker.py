"""The broker: which entities there are, and who owns their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.alarm import Alarm, Alarms
from peeklock.broker.descriptions import read_queue, write_queue
from peeklock.broker.worker import PartitionWorker
from peeklock.clock import Clock
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import MAIN, Command
from peeklock.entity.definition import QUEUE, QueueDefinition
from peeklock.entity.message import BodyBudget
from peeklock.entity.refusals import Refusal
from peeklock.entity.rule_commands import AddRule, ListRules, RemoveRule, RuleCommand
from peeklock.store.store import Catalog, Corrupt, PartitionId, Store

# How often each open partition looks after its journal: small beside the retention of an hour,
# large beside the cost of a look.
TRIM_INTERVAL_MS: Final = 1_000

# Bodies of ready messages that rest in memory, over all partitions: what a fast receiver takes in
# a fraction of a second. Older bodies are read from the store when they are delivered.
BODY_BUDGET: Final = 32 << 20

_log: Final = logging.getLogger("peeklock.broker")


@final
class Queue:
    """A queue of this broker: its description and the worker of its one partition."""

    __slots__ = ("_guests", "definition", "namespace", "rules", "worker")

    def __init__(
        self,
        namespace: str,
        definition: QueueDefinition,
        rules: Sequence[AuthorizationRule],
        worker: PartitionWorker,
    ) -> None:
        self.namespace = namespace
        self.definition = definition
        self.rules = tuple(rules)
        self.worker = worker
        self._guests: dict[Guest, None] = {}

    kind: Final = QUEUE
    lane: Final = MAIN

    @property
    def path(self) -> str:
        """The queue's name as its owner wrote it."""
        return self.definition.path

    @property
    def status(self) -> str:
        """Whether it can be sent to and received from."""
        return self.definition.status

    @property
    def message_size_max(self) -> int:
        """The largest message it takes."""
        return self.definition.message_size_max

    @property
    def requires_session(self) -> bool:
        """Whether it can only be received from session by session."""
        return self.definition.requires_session

    @property
    def forward_to(self) -> str:
        """Where its messages go by themselves."""
        return self.definition.forward_to

    @property
    def wants_keys(self) -> bool:
        """Whether messages must come with their id, session and partition key read out."""
        definition = self.definition
        return (
            definition.requires_session
            or definition.duplicate_window_ms > 0
            or definition.partitions > 1
        )

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owner of the partition; the reply goes to the command's origin."""
        assert not isinstance(command, (AddRule, RemoveRule, ListRules)), "a queue has no rules"
        self.worker.submit(command)

    def welcome(self, guest: Guest) -> None:
        """A link is attached."""
        self._guests[guest] = None

    def farewell(self, guest: Guest) -> None:
        """A link is gone by itself."""
        self._guests.pop(guest, None)


class Guest(Protocol):
    """A link, as an entity knows it: only to tell it that it must go."""

    def dismiss(self, refusal: Refusal) -> None:
        """The entity was deleted, disabled or changed so that the link cannot stay."""
        ...


@final
class Broker:
    """Finds entities, creates and changes them, and looks after their partitions."""

    __slots__ = (
        "_alarm",
        "_alarms",
        "_budget",
        "_catalog",
        "_chance",
        "_clock",
        "_closing",
        "_queues",
        "_store",
        "keyring",
        "namespace",
    )

    def __init__(
        self,
        namespace: str,
        keyring: KeyRing,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        alarms: Alarms,
        chance: Callable[[], int],
        body_budget: int = BODY_BUDGET,
    ) -> None:
        self.namespace = namespace
        self.keyring = keyring
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._alarms = alarms
        self._chance = chance
        self._budget = BodyBudget(body_budget)
        self._queues: dict[tuple[str, str], Queue] = {}
        self._alarm: Alarm | None = None
        self._closing = False

    async def start(self) -> None:
        """Learn from the catalog which entities there are; partitions open when they are used."""
        for namespace, kind, path, text in await self._catalog.load():
            if kind == QUEUE:
                try:
                    definition, rules = read_queue(text)
                except (ValueError, KeyError, TypeError) as error:
                    raise Corrupt(f"the description of {path} cannot be read: {error!r}") from error
                self._know(namespace, definition, rules)
        self._trim_later()

    def find(self, namespace: str, path: str) -> Queue | None:
        """The queue with this name, compared without case."""
        return self._queues.get((namespace.lower(), path.lower()))

    def queues(self) -> list[Queue]:
        """All queues, by name."""
        return [queue for _, queue in sorted(self._queues.items())]

    async def put_queue(
        self,
        definition: QueueDefinition,
        rules: Sequence[AuthorizationRule] = (),
        namespace: str | None = None,
    ) -> Queue:
        """Create a queue, or change the one that has this name; durable when it returns."""
        problems = definition.problems()
        if problems:
            raise ValueError("; ".join(f"{name}: {text}" for name, text in problems))
        owner = self.namespace if namespace is None else namespace
        text = write_queue(definition, rules)
        known = self.find(owner, definition.path)
        if known is None or write_queue(known.definition, known.rules) != text:
            await self._catalog.save(owner, QUEUE, definition.path.lower(), text)
            _log.info("entity-saved namespace=%s path=%s", owner, definition.path)
        return self._know(owner, definition, rules)

    async def close(self) -> None:
        """Let every partition finish what it was asked, then close the stores."""
        self._closing = True
        if self._alarm is not None:
            self._alarm.cancel()
        await asyncio.gather(*(queue.worker.close() for queue in self._queues.values()))
        await self._store.close()
        await self._catalog.close()

    def _know(
        self, namespace: str, definition: QueueDefinition, rules: Sequence[AuthorizationRule]
    ) -> Queue:
        self.keyring.set_entity_rules(definition.path, rules)
        known = self.find(namespace, definition.path)
        if known is not None:
            known.rules = tuple(rules)
            if known.definition != definition:
                known.definition = definition
                known.worker.configure(queue_blueprint(definition))
            return known
        worker = PartitionWorker(
            PartitionId(namespace, definition.path),
            queue_blueprint(definition),
            self._store,
            self._clock,
            self._alarms,
            self._budget,
            self._chance,
        )
        queue = Queue(namespace, definition, rules, worker)
        self._queues[(namespace.lower(), definition.path.lower())] = queue
        return queue

    def _trim_later(self) -> None:
        self._alarm = self._alarms.set(self._clock.now() + TRIM_INTERVAL_MS, self._trim)

    def _trim(self) -> None:
        if self._closing:
            return
        for queue in self._queues.values():
            if queue.worker.is_open:
                queue.worker.trim_soon()
        self._trim_later()
