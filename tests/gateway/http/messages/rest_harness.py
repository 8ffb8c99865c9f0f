"""A broker with the REST API, and clients that speak HTTP to it through a pair of sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree import ElementTree

from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.entity.commands import Count
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.replies import Counted
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.messages.node import MessagesNode
from peeklock.gateway.http.protocol import HttpProtocol
from peeklock.gateway.http.router import MESSAGES, Router
from peeklock.gateway.http.token_guard import TokenGuard
from tests.broker.broker_harness import Recorder, until
from tests.broker.seeded_random import SeededRandom
from tests.gateway.amqp.amqp_harness import AmqpHarness
from tests.gateway.sockets import connected

BATCH = "application/vnd.microsoft.servicebus.json"
HOUR_MS = 3_600_000


class Answered:
    """An answer: its status, its headers by lower-case name, and its body."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.named: list[tuple[str, str]] = []
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(": ")
                self.named.append((name, value))
        self.headers = {name.lower(): value for name, value in self.named}
        self.body = body

    @property
    def properties(self) -> dict[str, Any]:
        """What the broker says of the message."""
        found: dict[str, Any] = json.loads(self.headers["brokerproperties"])
        return found

    @property
    def detail(self) -> str:
        """The text of an error in the service's form."""
        root = ElementTree.fromstring(self.body.decode())
        assert self.headers["content-type"] == "application/xml; charset=utf-8"
        assert root.findtext("Code") == str(self.status)
        return root.findtext("Detail") or ""


class Caller:
    """One connection of a client."""

    def __init__(
        self, rest: RestHarness, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.rest = rest
        self.reader = reader
        self.writer = writer

    def write(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        token: str | None = None,
    ) -> None:
        """Send a request and wait for nothing; without a token it has the root's."""
        lines = [f"{method} {path} HTTP/1.1", "Host: broker.example"]
        if token != "":
            lines.append(f"Authorization: {token or self.rest.token()}")
        lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self) -> Answered:
        """Read the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        answered = Answered(head, b"")
        if answered.status == 204:
            assert "content-length" not in answered.headers
        else:
            answered.body = await self.reader.readexactly(int(answered.headers["content-length"]))
        return answered

    async def ask(self, *args: Any, **options: Any) -> Answered:
        self.write(*args, **options)
        return await self.answer()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class RestHarness:
    """The broker, AMQP for comparison, and the REST API."""

    def __init__(self) -> None:
        self.bus = AmqpHarness()
        self.bench = self.bus.bench
        self.broker = self.bench.broker
        self.clock = self.bus.clock
        guard = TokenGuard(
            self.broker.namespaces.first.keys, self.clock, self.bus.namespace_context.refusal_writer
        )
        random_source = SeededRandom(5).number
        self.node = MessagesNode(
            self.broker,
            guard,
            self.bus.namespace_context.refusal_writer,
            self.clock,
            random_source,
            "ns",
        )
        self.router = Router(Health(), {MESSAGES: self.node})
        self.connection_quota = HttpConnectionQuota()

    def token(
        self,
        path: str = "",
        rule: str = ROOT_RULE_NAME,
        key: str = DEVELOPMENT_KEY,
        life_ms: int = HOUR_MS,
    ) -> str:
        resource = f"https://broker.example/{path}"
        return generate_sas(resource, rule, key, self.clock.now() + life_ms)

    @property
    def connections(self) -> list[HttpProtocol]:
        """The broker's side of those that are connected."""
        return [each for each in self.connection_quota if isinstance(each, HttpProtocol)]

    async def connect(self) -> Caller:
        reader, writer = await connected(
            lambda: HttpProtocol(self.router.route, self.connection_quota, bounds=self.node)
        )
        return Caller(self, reader, writer)

    async def ask(self, *args: Any, **options: Any) -> Answered:
        """One request on a connection of its own."""
        caller = await self.connect()
        answered = await caller.ask(*args, **options)
        await caller.close()
        return answered

    async def send(self, body: bytes = b"body", path: str = "q", **headers: str) -> None:
        """Send what must be accepted."""
        answered = await self.ask("POST", f"/{path}/messages", body, headers)
        assert (answered.status, answered.body) == (201, b"")

    async def lock(self, path: str = "q") -> Answered:
        """Lock a message that must be there."""
        answered = await self.ask("POST", f"/{path}/messages/head?timeout=0")
        assert answered.status == 201
        return answered

    async def take(self, path: str = "q") -> Answered:
        """Receive and delete a message that must be there."""
        answered = await self.ask("DELETE", f"/{path}/messages/head?timeout=0")
        assert answered.status == 200
        return answered

    async def is_empty(self, path: str = "q") -> bool:
        return (await self.ask("DELETE", f"/{path}/messages/head?timeout=0")).status == 204

    async def counted(self, path: str = "q") -> Counted:
        entity = self.broker.find("ns", path)
        assert entity is not None
        origin = Recorder()
        entity.submit(Count(origin, 1, entity.lane))
        await until(origin.has_replies)
        (reply,) = origin.take()
        assert isinstance(reply, Counted)
        return reply


async def nothing_stored(rest: RestHarness, path: str = "q") -> None:
    counted = await rest.counted(path)
    assert (counted.active, counted.scheduled, counted.dead_letter) == (0, 0, 0)


def queue(path: str = "q", **options: Any) -> QueueDefinition:
    # Without batched store access nothing waits for company, and no time passes unseen.
    return QueueDefinition(path, batched_store_access=False, **options)


def serve(
    test: Callable[[RestHarness], Awaitable[None]],
    *definitions: QueueDefinition,
    rules: list[AuthorizationRule] | None = None,
) -> None:
    """Run a test against a broker with these queues or the queue `q`, and the topic `t` with the
    subscriptions `s` and `with-sessions`."""

    async def whole() -> None:
        rest = RestHarness()
        broker = rest.broker
        await broker.start()
        for definition in definitions or (queue(),):
            await broker.put_queue(definition, rules or [])
        await broker.put_topic(TopicDefinition("t", batched_store_access=False))
        for name in ("s", "with-sessions"):
            await broker.put_subscription(
                SubscriptionDefinition(
                    "t",
                    name,
                    batched_store_access=False,
                    requires_session=name == "with-sessions",
                )
            )
        await asyncio.wait_for(test(rest), 20)
        await broker.close()

    asyncio.run(whole())
