"""One request at the entity that it names, once it was let in."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.gateway.amqp.address import Address
from peeklock.gateway.amqp.namespace_context import Entity
from peeklock.gateway.http.messages.places import MessagePath
from peeklock.gateway.http.request import HttpRequest


@final
@dataclass(slots=True, init=False)
class Visit:
    """A request, its path taken apart, and whom it concerns."""

    request: Final[HttpRequest]
    place: Final[MessagePath]
    address: Final[Address]
    entity: Final[Entity]

    def __init__(
        self, request: HttpRequest, place: MessagePath, address: Address, entity: Entity
    ) -> None:
        self.request = request
        self.place = place
        self.address = address
        self.entity = entity

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
