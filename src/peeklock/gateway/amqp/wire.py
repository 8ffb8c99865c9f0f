"""One connection's way out, and how much of what came in is still under way."""

from typing import Final, Protocol, final

from peeklock.amqp.connection import Connection
from peeklock.gateway.amqp.door import Door, Outlet
from peeklock.gateway.amqp.transactions import Transactions

# Names of containers and links are the client's choice, and each delivery is told with them.
_CONSUMER_MAX: Final = 128


class Receiver(Protocol):
    """A node that may ask for more when deliveries have left."""

    def flowed(self) -> None:
        """Ask accordingly."""
        ...


@final
class Wire:
    """Shared by the nodes of a connection: they fill the machine, this empties it.

    Deliveries are handed to the transport in pieces, and none while it says that the peer does not
    take them: what waits in the machine was never sent, and goes back when its link ends.

    Sends that wait for the store are counted in bytes. Clients exist that ignore credit, so that
    reading itself stops when too much waits; the estimate of what a finished send gives back is
    the mean of those under way, which is exact whenever nothing is.
    """

    __slots__ = (
        "bytes_in_flight",
        "connection",
        "container",
        "door",
        "host",
        "is_lost",
        "is_reading_held",
        "is_writing_held",
        "messages_in_flight",
        "outlet",
        "peer_name",
        "receivers",
        "transactions",
        "wanting",
    )

    def __init__(self, door: Door, connection: Connection, outlet: Outlet, peer_name: str) -> None:
        # That of the first namespace, until the peer has said which one it means.
        self.door = door
        self.connection: Final = connection
        self.outlet: Final = outlet
        self.peer_name: Final = peer_name
        self.transactions: Final = Transactions(door.limits, door.chance)
        # How the peer calls us; known when it has opened.
        self.host = "localhost"
        # How the peer calls itself.
        self.container = ""
        self.messages_in_flight = 0
        self.bytes_in_flight = 0
        self.is_reading_held = False
        # The peer does not take what we write: nobody should produce more for it.
        self.is_writing_held = False
        self.is_lost = False
        # How many links receive here: they share what a connection may have ahead.
        self.receivers = 0
        # Those of them that want more as soon as the peer reads again.
        self.wanting: dict[Receiver, bool] = {}
        connection.bound_output(door.limits.handed_bytes_max)

    def flush(self) -> None:
        """Write what the machine has gathered; who has waited for that may ask for more."""
        if self.is_lost:
            return
        self.push()
        if self.connection.closed:
            self.is_lost = True
            self.outlet.close()
        elif not self.is_writing_held:
            if self.connection.output.relieved:
                self._tell_relieved()
            if self.wanting:
                wanting = self.wanting
                self.wanting = {}
                for receiver in wanting:
                    receiver.flowed()

    def _tell_relieved(self) -> None:
        """Of many links that wait, only those whose deliveries have left are looked at."""
        relieved = self.connection.output.relieved
        self.connection.output.relieved = []
        for link in relieved:
            receiver: Receiver = link.context
            receiver.flowed()

    def push(self) -> bool:
        """Write what the machine has, while the transport takes it; tells whether it has taken
        something and would take more."""
        connection = self.connection
        is_taken = False
        while connection.has_output:
            self.outlet.write(connection.take_output())
            if self.is_writing_held:
                return False
            connection.let_out()
            is_taken = True
        return is_taken

    @property
    def share(self) -> int:
        """How many bytes of deliveries one link may have ahead of its reader."""
        limits = self.door.limits
        share = limits.delivery_bytes_max // max(1, self.receivers)
        return max(limits.delivery_bytes_min, share)

    def consumer(self, link_name: str) -> str:
        """Name a link for the journal."""
        return f"{self.container}/{link_name}"[:_CONSUMER_MAX]

    def took(self, messages: int, size: int) -> None:
        """Note sends that are under way now."""
        self.messages_in_flight += messages
        self.bytes_in_flight += size
        if self.bytes_in_flight > self.door.limits.bytes_in_flight_max and not self.is_reading_held:
            self.is_reading_held = True
            self.outlet.hold_reading()

    def finished(self, messages: int) -> None:
        """Note sends that were answered."""
        under_way = self.messages_in_flight
        left = under_way - messages
        if left <= 0:
            self.messages_in_flight = 0
            self.bytes_in_flight = 0
        else:
            self.messages_in_flight = left
            self.bytes_in_flight = self.bytes_in_flight * left // under_way
        if self.is_reading_held and not self.is_writing_held and self._is_light:
            self.is_reading_held = False
            self.outlet.resume_reading()

    def hold_writing(self) -> None:
        """The peer is slow to read: take nothing more from it either, its answers would pile up."""
        self.is_writing_held = True
        self.connection.hold_output()
        if not self.is_reading_held:
            self.is_reading_held = True
            self.outlet.hold_reading()

    def resume_writing(self) -> None:
        """The peer reads again: what waits may leave."""
        self.is_writing_held = False
        self.connection.let_out()
        if self.is_reading_held and self._is_light:
            self.is_reading_held = False
            self.outlet.resume_reading()

    @property
    def _is_light(self) -> bool:
        # Half the limit, so that reading does not flicker.
        return self.bytes_in_flight <= self.door.limits.bytes_in_flight_max // 2
