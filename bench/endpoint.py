"""Where a server is reached and how its queue is named: all that the client knows about it."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Final

from bench.way import Way

# The terminus keeps its state [3.5.5]: RabbitMQ makes its queue durable when told so.
UNSETTLED_STATE: Final = 2
# What is added to an address for the queue that is only sent to.
KEPT: Final = "-kept"


@dataclass(frozen=True)
class Endpoint:
    """One queue of one server.

    `is_answered` says whether the receiver tells outcomes unsettled and waits until the server has
    settled them: Peeklock answers each settlement. RabbitMQ 3.10 does not; there the receiver
    settles and goes on.
    """

    port: int
    user: str
    password: str
    address: str
    terminus_durability: int
    is_answered: bool
    pid: int
    # By which way the client comes in; with an authority to trust it is TLS.
    authority: str = ""
    is_websocket: bool = False

    @property
    def way(self) -> Way:
        """How lines to it are opened."""
        return Way(self.authority, self.is_websocket)

    def kept(self) -> "Endpoint":
        """Give the queue beside it that is only sent to."""
        return replace(self, address=self.address + KEPT)

    def at(self, address: str) -> "Endpoint":
        """Give another entity of the same server."""
        return replace(self, address=address)

    def to_json(self) -> str:
        """Write it for the command line of the client's process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Endpoint":
        """Read it back."""
        return Endpoint(**json.loads(text))
