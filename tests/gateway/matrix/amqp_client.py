"""An AMQP client that shows one credential after the other."""

from __future__ import annotations

from typing import Any

from peeklock.amqp.events import AttachAnswered, LinkDetached
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.types import Symbol
from tests.gateway.amqp.amqp_harness import SESSION_FILTER, Client
from tests.gateway.matrix.credentials import HOST, Credential
from tests.gateway.matrix.watched_broker import WatchedBroker

UNAUTHORIZED = "amqp:unauthorized-access"
DESTINATION = Symbol("com.microsoft:transfer-destination-address")


class AmqpClient:
    """Asks for links and learns whether it gets them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._tokens: tuple[Link, Link] | None = None
        self._count = 0

    @classmethod
    async def of(cls, broker: WatchedBroker) -> AmqpClient:
        return cls(await broker.bus.connect())

    def leave(self) -> None:
        """Go without a word."""
        self.client.peer.lost()

    async def show(self, credential: Credential, home: str, here: str) -> bool:
        """Put its token for an address; answers whether it was taken."""
        token = credential.token(home, here, self.client.bus.clock.now())
        return token is not None and await self.put(token, here) == 202

    async def put(self, token: Any, audience: str) -> int:
        """Put a token and give the status of the answer."""
        if self._tokens is None:
            self._tokens = await self.client.request_links("$cbs")
        name = f"sb://{HOST}/{audience}"
        properties = {"operation": "put-token", "type": "jwt", "name": name}
        answer = await self.client.request(self._tokens, properties, token)
        assert answer.application_properties is not None
        status: int = answer.application_properties["status-code"]
        text = answer.application_properties["status-description"]
        assert status == 202 or "TrackingId:" in text
        return status

    async def manage(self, path: str, operation: str, body: Any) -> int:
        """Ask the management node of an entity and give the status of the answer."""
        links = await self.client.request_links(f"{path}/$management")
        status, _ = await self.client.manage(links, operation, body)
        for link in links:
            link.detach()
        await self.client.talk()
        self.client.events.clear()
        return status

    # --- links; each answers the condition of the refusal, or nothing

    async def sender(self, address: str, destination: str | None = None) -> str:
        properties = None if destination is None else {DESTINATION: destination}
        return await self._outcome(
            self.client.session.attach_sender(
                self._name(), Target(address=address), properties=properties
            )
        )

    async def receiver(self, address: str) -> str:
        source = Source(address=address)
        return await self._outcome(self.client.session.attach_receiver(self._name(), source))

    async def session_receiver(self, address: str, wanted: str | None = "a") -> str:
        source = Source(address=address, filter={SESSION_FILTER: wanted})
        return await self._outcome(self.client.session.attach_receiver(self._name(), source))

    async def coordinator(self, target: Any) -> str:
        return await self._outcome(self.client.session.attach_sender(self._name(), target))

    async def is_turned_away(self, address: str) -> bool:
        """Whether neither link of a request node is let in."""
        both = [await self.sender(address), await self.receiver(address)]
        return both == [UNAUTHORIZED, UNAUTHORIZED]

    async def _outcome(self, link: Link) -> str:
        client = self.client
        await client.talk()
        ended = [each for each in client.take(LinkDetached) if each.link is link]
        if ended:
            error = ended[0].error
            assert error is not None
            assert "TrackingId:" in (error.description or "")
            client.events.clear()
            return error.condition
        assert link in [each.link for each in client.take(AttachAnswered)]
        link.detach()
        await client.talk()
        client.events.clear()
        return ""

    def _name(self) -> str:
        self._count += 1
        return f"matrix-{self._count}"
