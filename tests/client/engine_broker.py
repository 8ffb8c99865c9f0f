"""A broker made of the engine alone, on the other end of a socket pair: it does as it is told."""

import asyncio
import socket
from typing import Any

from peeklock.amqp.connection import SERVER, Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AttachRequested,
    Event,
    FlowReceived,
    SaslInitReceived,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.termini import Coordinator, Source
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.messages.message import (
    NO_BODY,
    VALUE_BODY,
    AmqpMessage,
    decode_message,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import RECEIVER, Link
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.amqp.values.types import Int
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ClientConnection
from peeklock.client.connections.retrying import RetryPolicy
from peeklock.client.connections.transport import Transport
from peeklock.client.credentials import SasKey


class EngineBroker(asyncio.Protocol):
    """Accepts every link, answers tokens, and lets the test decide on the rest."""

    def __init__(
        self, *, credit: int, limits: ConnectionLimits | None, mechanisms: list[str] | None = None
    ) -> None:
        self.connection = Connection(
            role=SERVER,
            container_id="engine",
            limits=ConnectionLimits() if limits is None else limits,
            now=0,
            sasl_mechanisms=["ANONYMOUS"] if mechanisms is None else mechanisms,
        )
        self.credit = credit
        # What is said of each link when it is attached.
        self.link_properties: dict[Any, Any] | None = None
        self.now = 0
        self.transport: asyncio.Transport | None = None
        # What came, by the address of the link; and the links by the same.
        self.links: dict[str, Link] = {}
        self.arrived: list[IncomingDelivery] = []
        self.tokens: list[AmqpMessage] = []
        self.requests: list[AmqpMessage] = []
        self.settled: list[SettlementsReceived] = []
        self.drains = 0
        self.refusals: dict[str, AmqpError] = {}
        self.token_status = 202
        # None leaves requests to the test.
        self.answer_with: dict[str, Any] | None = {}
        self.accepts = True
        self.tops_up = True
        self.answers_drains = True
        self.answers_settlements: bytes | None = ACCEPTED
        # Messages that are there for whoever grants credit.
        self.stock: list[bytes] = []
        self.sent = 0

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        events = self.connection.receive(data, self.now)
        while events:
            more: list[Event] = []
            for event in events:
                more += self._take(event)
            events = more
        self.flush()

    def flush(self) -> None:
        if self.transport is not None and self.connection.has_output:
            self.transport.write(self.connection.take_output())
        if self.transport is not None and self.connection.closed:
            self.transport.close()

    # --- what it does by itself

    def _take(self, event: Event) -> list[Event]:
        if isinstance(event, SaslInitReceived):
            return self.connection.accept_sasl()
        if isinstance(event, AttachRequested):
            self._attach(event.link)
        elif isinstance(event, TransfersReceived):
            self._transfers(event.link, event.deliveries)
        elif isinstance(event, FlowReceived):
            self._flow(event.link)
        elif isinstance(event, SettlementsReceived):
            self.settled.append(event)
            if not event.settled and self.answers_settlements is not None:
                ids = [delivery.id for delivery in event.deliveries]
                event.link.settle(ids, self.answers_settlements)
        return []

    def _attach(self, link: Link) -> None:
        terminus = link.target if link.role == RECEIVER else link.source
        assert not isinstance(terminus, Coordinator)
        address = terminus.address
        refusal = self.refusals.get(address)
        if refusal is not None:
            link.refuse(refusal)
            return
        self.links[f"{'to' if link.role == RECEIVER else 'from'} {address}"] = link
        link.accept(properties=self.link_properties)
        if link.role == RECEIVER:
            link.grant(self.credit)

    def _transfers(self, link: Link, deliveries: list[IncomingDelivery]) -> None:
        address = link.target.address
        if address == "$cbs":
            for delivery in deliveries:
                request = decode_message(delivery.payload)
                self.tokens.append(request)
                status = {"status-code": Int(self.token_status), "status-description": "so it is"}
                self.answer("$cbs", request, status)
        elif address.endswith("$management"):
            for delivery in deliveries:
                request = decode_message(delivery.payload)
                self.requests.append(request)
                if self.answer_with is not None:
                    status = {"statusCode": Int(200), "statusDescription": "OK"}
                    self.answer(address, request, status, self.answer_with)
        else:
            self.arrived += deliveries
        if self.accepts or address.startswith("$"):
            link.settle([delivery.id for delivery in deliveries], ACCEPTED)
        if link.credit < self.credit // 2 and self.tops_up:
            link.grant(self.credit)

    def _flow(self, link: Link) -> None:
        if link.role == RECEIVER or not isinstance(link.source, Source):
            return
        while self.stock and link.credit > 0:
            self.deliver(link, self.stock.pop(0))
        if link.drain and self.answers_drains:
            self.drains += 1
            link.drained()

    # --- what the test tells it

    def serve(self, name: str) -> None:
        """Deliver what is in stock, as far as the credit of a link goes."""
        self._flow(self.links[name])
        self.flush()

    def deliver(self, link: Link, payload: bytes) -> int:
        self.sent += 1
        settled = link.snd_settle_mode == 1
        return link.send(self.sent.to_bytes(16, "big"), b"", payload, settled, None)

    def answer(
        self,
        address: str,
        request: AmqpMessage,
        properties: dict[str, Any],
        body: dict[str, Any] | None = None,
    ) -> None:
        assert request.properties is not None
        message = AmqpMessage(
            properties=Properties(correlation_id=request.properties.message_id),
            application_properties=properties,
            body_kind=NO_BODY if body is None else VALUE_BODY,
            body=body,
        )
        link = self.links[f"from {address}"]
        link.send(self.sent.to_bytes(4, "big"), b"", encode_message(message), True, None)
        self.sent += 1

    def cut(self) -> None:
        """Lose the connection without a word."""
        assert self.transport is not None
        self.transport.abort()


def config(**options: Any) -> ClientConfig:
    return ClientConfig(
        **{
            "host": "engine",
            "address": "engine",
            "port": 5672,
            "credential": SasKey("rule", "key"),
            "retry": RetryPolicy(retry_total=0),
            **options,
        }
    )


class Bench:
    """A client connection to engine brokers: each opening makes another one, of the same kind."""

    def __init__(
        self,
        *,
        credit: int = 1000,
        limits: ConnectionLimits | None = None,
        mechanisms: list[str] | None = None,
        **options: Any,
    ) -> None:
        self.brokers: list[EngineBroker] = []
        self._credit = credit
        self._limits = limits
        self._mechanisms = mechanisms
        self.connection = ClientConnection(config(**options), connector=self._connect)

    @property
    def broker(self) -> EngineBroker:
        return self.brokers[-1]

    async def __aenter__(self) -> "Bench":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.connection.close()
        for broker in self.brokers:
            if broker.transport is not None:
                broker.transport.close()
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, "closing leaves no task behind"

    async def _connect(self, config: ClientConfig) -> Transport:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        broker = EngineBroker(credit=self._credit, limits=self._limits, mechanisms=self._mechanisms)
        self.brokers.append(broker)
        try:
            await loop.connect_accepted_socket(lambda: broker, theirs)
        except asyncio.CancelledError:
            ours.close()
            raise
        _, transport = await loop.create_connection(lambda: Transport(config), sock=ours)
        return transport


async def until(done: Any, within_s: float = 5.0) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(within_s):
        while not done():  # noqa: ASYNC110  nobody tells when it is so
            await asyncio.sleep(0)


async def turns(count: int = 20) -> None:
    """Let the loop turn some times, for what must not happen."""
    for _ in range(count):
        await asyncio.sleep(0)
