"""One message on its way over a link, in either direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from peeklock.amqp.sessions.link import Link


@final
@dataclass(slots=True, init=False)
class IncomingDelivery:
    """One whole message that the peer sent; its payload is every frame's payload in a row."""

    id: Final[int]
    tag: Final[bytes]
    message_format: Final[int]
    settled: Final[bool]
    payload: Final[bytes]
    state: Final[bytes | None]

    def __init__(
        self,
        id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        payload: bytes,
        state: bytes | None,
    ) -> None:
        self.id = id
        self.tag = tag
        self.message_format = message_format
        self.settled = settled
        self.payload = payload
        self.state = state


class OutgoingDelivery:
    """One message that we sent and that is not settled yet; `context` is its sender's.

    `told`: the peer has said what became of it, and waits for us to settle it.
    """

    __slots__ = ("context", "id", "link", "tag", "told")

    def __init__(self, id: int, tag: bytes, link: Link, context: Any) -> None:
        self.id = id
        self.tag = tag
        self.link = link
        self.context = context
        self.told = False


@final
class Assembly:
    """A message of several frames that is not complete yet."""

    __slots__ = ("held", "id", "message_format", "parts", "settled", "size", "state", "tag")

    def __init__(self, id: int, tag: bytes, message_format: int) -> None:
        self.id = id
        self.tag = tag
        self.message_format = message_format
        self.parts: list[bytes] = []
        self.size = 0
        self.held = 0
        self.settled = False
        self.state: bytes | None = None

    def delivery(self) -> IncomingDelivery:
        """Return the whole, put together of its parts."""
        payload = b"".join(self.parts)
        return IncomingDelivery(
            self.id, self.tag, self.message_format, self.settled, payload, self.state
        )
