"""A broker that speaks AMQP, and clients that are wired to it without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    Event,
    LinkDetached,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.states import Rejected
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sasl import SaslCredential, anonymous
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.values.composites import decode_composite
from peeklock.amqp.values.types import Symbol
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.broker.entities import Queue
from peeklock.budgets import Budget
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.messages.wording import AmqpWording
from peeklock.gateway.amqp.namespace_context import (
    GatewayLimits,
    NamespaceContext,
    NamespaceContexts,
)
from peeklock.gateway.amqp.peer import Peer
from peeklock.gateway.quotas.connection_quota import ConnectionQuota
from peeklock.gateway.quotas.shared_limits import SharedLimits
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.memory import MemoryStore
from tests.broker.broker_harness import BrokerHarness, settle_down
from tests.broker.seeded_random import SeededRandom

HOST = "localhost"
SESSION_FILTER = Symbol("com.microsoft:session-filter")
HOUR_MS = 3_600_000
E = TypeVar("E")


class AmqpHarness:
    """The broker, its AMQP gateway, and the clock that both live by."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        limits: GatewayLimits | None = None,
        engine_limits: ConnectionLimits | None = None,
        namespaces: Namespaces | None = None,
        connections_max: int = 100,
    ) -> None:
        random_source = SeededRandom(3).number
        self.bench = BrokerHarness(store, wording=AmqpWording(random_source), namespaces=namespaces)
        self.clock = self.bench.clock

        def namespace_context(namespace: Namespace) -> NamespaceContext:
            return NamespaceContext(
                entities=self.bench.broker,
                keys=namespace.keys,
                refusal_writer=RefusalWriter(
                    clock=self.clock, random_source=random_source, namespace=namespace.name
                ),
                clock=self.clock,
                random_source=random_source,
                namespace=namespace.name,
                container_id="the-broker",
                engine_limits=engine_limits or ConnectionLimits(),
                limits=limits or GatewayLimits(),
                connection_quota=ConnectionQuota(Budget("connections", connections_max)),
            )

        self.namespace_contexts = NamespaceContexts(self.bench.broker.namespaces, namespace_context)
        self.namespace_context = self.namespace_contexts.first

    def queue(self, path: str = "q") -> Queue:
        found = self.bench.broker.find("ns", path)
        assert isinstance(found, Queue)
        return found

    async def advance(self, client: Client, duration_ms: int) -> None:
        """Move the clock; whatever falls due happens, at the gateway too."""
        await client.talk()
        await self.bench.advance(duration_ms)
        client.peer.tick(self.clock.now())
        await client.talk()

    async def connect(self, credential: SaslCredential | None = None, **options: Any) -> Client:
        """An open connection without any right yet."""
        client = Client(self, credential or anonymous(), **options)
        await client.talk()
        return client

    async def authorized(self, path: str = "q", **options: Any) -> Client:
        """An open connection with a token for a queue."""
        client = await self.connect(**options)
        await client.put_token(path)
        return client


class Pipe:
    """The way from the gateway to the client: what is written waits until the client takes it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.on_written: Callable[[], None] | None = None
        self.is_closed = False
        self.is_reading_held = False
        self.goes_on = False
        self.unread_bytes = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self.on_written is not None:
            self.on_written()

    def close(self) -> None:
        self.is_closed = True

    def hold_reading(self) -> None:
        self.is_reading_held = True

    def resume_reading(self) -> None:
        self.is_reading_held = False

    def go_on_soon(self) -> None:
        self.goes_on = True

    def unread(self) -> int:
        return self.unread_bytes

    def abort(self, text: str = "") -> None:
        self.is_closed = True


class Client:
    """A connection in the client's role; `events` are those that nobody has taken yet."""

    def __init__(
        self,
        bus: AmqpHarness,
        credential: SaslCredential | None,
        *,
        host: str | None = HOST,
        shared_limits: SharedLimits | None = None,
        is_exposed: bool = False,
    ) -> None:
        now = bus.clock.now()
        self.bus = bus
        self.pipe = Pipe()
        self.peer = Peer(
            bus.namespace_contexts,
            self.pipe,
            "test:1",
            now,
            host="test",
            shared_limits=shared_limits,
            is_exposed=is_exposed,
        )
        self.connection = Connection(
            role=CLIENT,
            container_id="the-client",
            limits=ConnectionLimits(max_message_size=0),
            now=now,
            hostname=host,
            credential=credential,
        )
        self.connection.start()
        self.session: Session = self.connection.begin_session()
        self.events: list[Event] = []
        # How many passes there were for what did not fit the first one.
        self.passes = 0
        self._tag = 0
        self._cbs: tuple[Link, Link] | None = None

    async def talk(self) -> None:
        """Carry bytes to and fro until neither side has anything to say."""
        quiet = 0
        while quiet < 2:
            now = self.bus.clock.now()
            said = self.connection.take_output()
            if said and not self.pipe.is_closed:
                self.peer.receive(said, now)
            while self.peer.is_behind or self.pipe.goes_on:
                self.pipe.goes_on = False
                self.passes += 1
                self.peer.receive(b"", now)
            await settle_down()
            heard = b"".join(self.pipe.written)
            self.pipe.written.clear()
            if heard:
                self.events += self.connection.receive(heard, now)
            while self.connection.splitter.rest:
                self.events += self.connection.receive(b"", now)
            quiet = 0 if said or heard else quiet + 1

    def take(self, kind: type[E]) -> list[E]:
        """The events of one kind, which are then forgotten."""
        found: list[E] = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    # --- links

    async def sender(self, address: str = "q", **options: Any) -> Link:
        return await self._attached(
            self.session.attach_sender(self._name(), Target(address=address), **options)
        )

    async def receiver(self, address: str = "q", *, credit: int = 0, **options: Any) -> Link:
        source = options.pop("source", None) or Source(address=address)
        link = await self._attached(self.session.attach_receiver(self._name(), source, **options))
        if credit:
            link.grant(credit)
            await self.talk()
        return link

    def ask_session(
        self, wanted: Any, address: str = "q", *, timeout_ms: Any = None, **options: Any
    ) -> Link:
        """Ask for the receiver of a session, as the official clients do."""
        properties = None if timeout_ms is None else {Symbol("com.microsoft:timeout"): timeout_ms}
        return self.session.attach_receiver(
            self._name(),
            Source(address=address, filter={SESSION_FILTER: wanted}),
            properties=properties,
            **options,
        )

    async def session_receiver(
        self, wanted: Any, address: str = "q", *, credit: int = 0, **options: Any
    ) -> Link:
        """The receiver of a session that is given at once."""
        link = await self._attached(self.ask_session(wanted, address, **options))
        if credit:
            link.grant(credit)
            await self.talk()
        return link

    async def refused(self, link: Link) -> AmqpError:
        """The error with which a link was turned away or ended."""
        await self.talk()
        detached = self.take(LinkDetached)
        self.events += [event for event in detached if event.link is not link]
        found = [event for event in detached if event.link is link]
        assert len(found) == 1
        assert found[0].error is not None
        return found[0].error

    def ask_sender(self, address: str) -> Link:
        return self.session.attach_sender(self._name(), Target(address=address))

    def ask_receiver(self, source: Source) -> Link:
        return self.session.attach_receiver(self._name(), source)

    async def _attached(self, link: Link) -> Link:
        await self.talk()
        assert link in [event.link for event in self.take(AttachAnswered)]
        return link

    def _name(self) -> str:
        self._tag += 1
        return f"link-{self._tag}"

    # --- messages

    def post(self, link: Link, payload: bytes, *, settled: bool = False, form: int = 0) -> None:
        """Send a message and look at nothing yet."""
        self._tag += 1
        link.send(self._tag.to_bytes(4, "big"), payload, b"", settled, self._tag, form)

    async def outcomes(self) -> list[tuple[Any, int]]:
        """What the gateway said of messages that were sent: outcome and how many."""
        await self.talk()
        return [
            (decode_composite(event.outcome)[0], len(event.deliveries))
            for event in self.take(SettlementsReceived)
        ]

    async def send(self, link: Link, *payloads: bytes, **options: Any) -> Any:
        """Send messages and give the one outcome that all of them have."""
        for payload in payloads:
            self.post(link, payload, **options)
        outcomes = await self.outcomes()
        assert len(outcomes) == 1, outcomes
        assert outcomes[0][1] == len(payloads)
        return outcomes[0][0]

    def arrived(self, link: Link) -> list[IncomingDelivery]:
        """What came on a link and was not taken yet."""
        found = self.take(TransfersReceived)
        self.events += [event for event in found if event.link is not link]
        return [d for event in found if event.link is link for d in event.deliveries]

    async def settle(self, link: Link, ids: list[int], state: bytes) -> list[Any]:
        """Tell an outcome as the official clients do, and give the answers."""
        link.settle(ids, state, settled=False)
        await self.talk()
        return [decode_composite(event.state)[0] for event in self.take(AnswersReceived)]

    # --- request nodes

    async def put_token(
        self,
        path: str,
        *,
        rule: str = ROOT_RULE_NAME,
        key: str = DEVELOPMENT_KEY,
        life_ms: int = HOUR_MS,
        message_id: Any = "id-1",
    ) -> AmqpMessage:
        """Put a token for a queue and give the answer."""
        audience = f"sb://{HOST}/{path}"
        token = generate_sas(audience, rule, key, self.bus.clock.now() + life_ms)
        properties = {"operation": "put-token", "type": "jwt", "name": audience}
        if self._cbs is None:
            self._cbs = await self.request_links("$cbs")
        return await self.request(self._cbs, properties, token, message_id=message_id)

    async def request_links(self, address: str) -> tuple[Link, Link]:
        """The two links of a request node: for requests, and for their answers."""
        source = Source(address=address)
        target = Target(address=address)
        return (
            await self.sender(address, source=source),
            await self.receiver(source=source, target=target, credit=100),
        )

    async def request(
        self,
        links: tuple[Link, Link],
        properties: dict[Any, Any],
        body: Any,
        *,
        message_id: Any = "id-1",
    ) -> AmqpMessage:
        """Ask and give the answer."""
        requests, responses = links
        self.post(requests, request(properties, body, message_id))
        await self.talk()
        self.take(SettlementsReceived)
        answers = self.arrived(responses)
        assert len(answers) == 1
        assert answers[0].settled
        return decode_message(answers[0].payload)

    async def manage(
        self, links: tuple[Link, Link], operation: str, body: Any = None, **more: Any
    ) -> tuple[int, Any]:
        """Ask a management node and give status and body of the answer."""
        answer = await self.management_answer(links, operation, body, **more)
        assert answer.application_properties is not None
        return answer.application_properties["statusCode"], answer.body

    async def management_answer(
        self,
        links: tuple[Link, Link],
        operation: str,
        body: Any = None,
        *,
        on_behalf_of: str | None = None,
    ) -> AmqpMessage:
        """Ask a management node, on behalf of a link, and give the whole answer."""
        name = operation if ":" in operation else f"com.microsoft:{operation}"
        properties = {"operation": name}
        if on_behalf_of is not None:
            properties["associated-link-name"] = on_behalf_of
        return await self.request(links, properties, body)


def serve(
    test: Callable[[AmqpHarness], Awaitable[None]],
    *definitions: QueueDefinition,
    rules: list[AuthorizationRule] | None = None,
    **options: Any,
) -> None:
    """Run a test against a broker with these queues, or with the queue `q`."""

    async def whole() -> None:
        bus = AmqpHarness(**options)
        await bus.bench.broker.start()
        # Without batched store access nothing waits for company, and no time passes unseen.
        plain = QueueDefinition("q", batched_store_access=False)
        for definition in definitions or (plain,):
            await bus.bench.broker.put_queue(definition, rules or [])
        await test(bus)
        await bus.bench.broker.close()

    asyncio.run(whole())


def plain(body: str, **properties: Any) -> bytes:
    """A message with a text for its body."""
    return encode_message(
        AmqpMessage(
            properties=Properties(**properties) if properties else None,
            body_kind=DATA_BODY,
            body=[body.encode()],
        )
    )


def request(properties: dict[Any, Any], body: Any, message_id: Any) -> bytes:
    """A request as clients write it."""
    return encode_message(
        AmqpMessage(
            properties=Properties(message_id=message_id),
            application_properties=properties,
            body=body,
        )
    )


def body_of(payload: bytes) -> str:
    """The text of a message with one data section."""
    (part,) = decode_message(payload).body
    return bytes(part).decode()


def bodies(deliveries: list[IncomingDelivery]) -> list[str]:
    return [body_of(delivery.payload) for delivery in deliveries]


def annotation(payload: bytes, name: str) -> Any:
    """What the broker says of a message."""
    return (decode_message(payload).message_annotations or {}).get(name)


def condition_of(outcome: Any) -> str:
    """The condition of a rejection."""
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return outcome.error.condition
