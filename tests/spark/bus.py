"""The broker as tests of Spark need it: makes entities, fills them, looks at what is there."""

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from peeklock.amqp.composites import Modified, encode_composite
from peeklock.amqp.types import Int
from peeklock.cli import administration
from peeklock.cli.administration import Administration
from peeklock.cli.atom import Description
from peeklock.cli.client import NEXT_SESSION, Client
from peeklock.cli.connection import parse_connection
from peeklock.cli.letters import read_letter, write_letter
from peeklock.cli.reach import Reach
from tests.wire.broker_process import BrokerProcess

DEAD_LETTERS: Final = "/$DeadLetterQueue"
_PEEK_MAX: Final = 250
_DRAIN_MAX: Final = 1_000
_FAILED: Final = encode_composite(Modified(delivery_failed=True))


@final
class Bus:
    """One broker, spoken to by a client that is not the one under test."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        connection = parse_connection(process.connection_string)
        self._reach = Reach(connection, process.http_port, process.amqp_port)
        self._numbers = itertools.count(1)

    @property
    def connection_string(self) -> str:
        return self.process.connection_string

    @property
    def options(self) -> dict[str, str]:
        """What `.options(**bus.options)` needs to reach this broker."""
        return {
            "connectionString": self.connection_string,
            "httpPort": str(self.process.http_port),
        }

    # --- entities; every one has a name of its own

    def queue(self, name: str = "", **properties: Any) -> str:
        """Make a queue; properties as in the configuration file, RequiresSession=True and so on."""
        name = name or self._name("queue")
        self._create(administration.queue(name), properties)
        return name

    def topic(self, *subscriptions: str, name: str = "", **properties: Any) -> str:
        """Make a topic with subscriptions that take everything."""
        name = name or self._name("topic")
        self._create(administration.topic(name), properties)
        for subscription in subscriptions:
            self.subscription(name, subscription)
        return name

    def subscription(self, topic: str, name: str, **properties: Any) -> str:
        """Make a subscription, and give the path to receive from it."""
        self._create(administration.subscription(topic, name), properties)
        return f"{topic}/Subscriptions/{name}"

    def described(self, path: str) -> Description:
        """Give a queue or a subscription with its counts."""
        topic, is_subscription, name = path.partition("/Subscriptions/")
        place = (
            administration.subscription(topic, name)
            if is_subscription
            else administration.queue(path)
        )
        return Administration(self._reach).get(place)

    def _create(self, place: administration.Place, properties: dict[str, Any]) -> None:
        Administration(self._reach).create(place, Description(place.kind, place.path, properties))

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers):03}"

    # --- messages

    def send(self, entity: str, bodies: Iterable[bytes | str], **options: Any) -> None:
        """Send a message for each body; options as `write_letter` has them (subject, session_id,
        properties, ttl_ms, at ...). Ids are `m-0`, `m-1` ... unless `ids` are given."""
        ids = options.pop("ids", None)
        now = time.time_ns() // 1_000_000
        letters = [
            write_letter(
                body.encode() if isinstance(body, str) else body,
                now=now,
                message_id=f"m-{number}" if ids is None else ids[number],
                **options,
            )
            for number, body in enumerate(bodies)
        ]
        with self.client(entity) as client:
            client.send(entity, letters)

    def peek(self, entity: str, count: int = 100_000) -> list[dict[str, Any]]:
        """Tell what is there, as `peeklock peek -o json` does: SequenceNumber, MessageId, Body."""
        found: list[dict[str, Any]] = []
        first = 0
        with self.client(entity) as client:
            while len(found) < count:
                asked = {"from-sequence-number": first, "message-count": Int(_PEEK_MAX)}
                page = client.manage(entity, "peek-message", asked).get("messages", [])
                if not page:
                    break
                found += [read_letter(bytes(entry["message"])) for entry in page]
                first = int(found[-1]["SequenceNumber"]) + 1
        return found[:count]

    def drain(self, entity: str, *, sessions: bool = False) -> list[dict[str, Any]]:
        """Receive and delete everything that a receiver gets, in the order that it gets it."""
        found: list[dict[str, Any]] = []
        with self.client(entity) as client:
            while True:
                session = NEXT_SESSION if sessions else None
                link = client.open_receiver(entity, deletes=True, session_id=session, wait_s=0.2)
                if link is None:
                    return found
                while got := client.receive(link, _DRAIN_MAX, 0.2):
                    found += [read_letter(delivery.payload) for delivery in got]
                if not sessions:
                    return found
                link.detach()

    def bodies(self, entity: str) -> list[str]:
        """Give the bodies of what lies there, sorted."""
        return sorted(str(one["Body"]) for one in self.peek(entity))

    def fail(self, entity: str, count: int, times: int = 1) -> None:
        """Lock messages and give them back, so that their delivery count grows."""
        for _ in range(times):
            with self.client(entity) as client:
                link = client.open_receiver(entity, deletes=False)
                assert link is not None
                got = client.receive(link, count, 1.0)
                assert len(got) == count
                # Closing the connection writes it out; the broker reads it before the goodbye.
                link.settle([delivery.id for delivery in got], _FAILED)

    @contextmanager
    def client(self, entity: str) -> Iterator[Client]:
        """Connect, allowed to do everything with an entity."""
        client = Client(self._reach)
        try:
            client.authorize(entity)
            yield client
        finally:
            client.close()
