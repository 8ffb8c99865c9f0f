"""Who is connected: `GET /$connections`, for whoever manages the first namespace."""

from collections.abc import Iterator
from typing import Any, Final, Protocol, final

from peeklock.auth.rights import MANAGE
from peeklock.gateway.http.answer import Answer, not_allowed, not_found
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.turns import TURNS

NODE: Final = "$connections"

# Told in a row; others are served between. A connection may have thousands of links.
_AT_ONCE: Final = 64
# An answer is for people; the rest is counted.
CONNECTIONS_MAX: Final = 1_000
LINKS_MAX: Final = 100


class Connected(Protocol):
    """What this node needs of the connections."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def told(self) -> Iterator[dict[str, Any]]:
        """Tell of one after the other."""
        ...


@final
class ConnectionsNode:
    """Answers with the AMQP connections and their links, in no order."""

    def __init__(self, connected: Connected, guard: TokenGuard) -> None:
        self._connected = connected
        self._guard = guard

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        refusal = self._guard.check(request, "", MANAGE)
        if refusal is not None:
            return refusal
        if request.segments()[1:]:
            return not_found(request.path)
        if request.method not in ("GET", "HEAD"):
            return not_allowed(request.method, ["GET", "HEAD"])
        found: list[dict[str, Any]] = []
        for connection in self._connected.told():
            links = connection["links"]
            found.append(connection | {"link_count": len(links), "links": links[:LINKS_MAX]})
            if len(found) == CONNECTIONS_MAX:
                break
            if len(found) % _AT_ONCE == 0:
                await TURNS.give_way()
        return Answer(200, {"count": self._connected.count, "connections": found})
