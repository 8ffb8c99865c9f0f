"""One request at the entity that it names, once it was let in."""

from dataclasses import dataclass
from typing import final

from peeklock.gateway.amqp.address import Address
from peeklock.gateway.amqp.namespace_context import Entity
from peeklock.gateway.http.messages.places import MessagePath
from peeklock.gateway.http.request import HttpRequest


@final
@dataclass(frozen=True, slots=True)
class EntityRequest:
    """A request, its path taken apart, and whom it concerns."""

    request: HttpRequest
    place: MessagePath
    address: Address
    entity: Entity

    @property
    def lane(self) -> int:
        """Where the messages of the address rest."""
        return self.address.lane(self.entity.lane)

    def location(self, sequence: int, token: str) -> str:
        """Where a locked message is settled: below the path that its receiver has used."""
        request = self.request
        host = request.headers.get("host", "")
        if not host or not host.isascii():
            host = "localhost"
        return f"{request.scheme}://{host}/{self.place.entity}/messages/{sequence}/{token}"
