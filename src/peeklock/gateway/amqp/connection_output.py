"""One connection's way out, and how much of what came in is still under way."""

from typing import Final, Protocol, final

from peeklock.amqp.connection import Connection
from peeklock.gateway.amqp.management.timeouts import RequestTimeouts
from peeklock.gateway.amqp.namespace_context import NamespaceContext, Outlet
from peeklock.gateway.amqp.nodes.transactions import NO_DEADLINE, Transactions
from peeklock.gateway.amqp.unsent import STALLED_MS_MAX

# What is written in one step of the loop; a MB of frames takes about a millisecond.
PUSHED_MAX: Final = 2 * 1024 * 1024
# Names of containers and links are the client's choice, and each delivery is told with them.
_CONSUMER_MAX: Final = 128


class CreditNode(Protocol):
    """A node that may ask for more when deliveries have left."""

    def flowed(self) -> None:
        """Ask accordingly."""
        ...


@final
class ConnectionOutput:
    """Shared by the nodes of a connection: they fill the machine, this empties it.

    Deliveries are handed to the transport in pieces, and none while it says that the peer does not
    take them: what waits in the machine was never sent, and goes back when its link ends.

    Sends that wait for the store are counted in bytes. Clients exist that ignore credit, so that
    reading itself stops when too much waits; the estimate of what a finished send gives back is
    the mean of those under way, which is exact whenever nothing is.
    """

    __slots__ = (
        "_ahead_size",
        "_is_pausing",
        "_pushed",
        "_stalled_at",
        "_stalled_frames",
        "bytes_in_flight",
        "connection",
        "container",
        "host",
        "is_exposed",
        "is_lost",
        "is_reading_held",
        "is_writing_held",
        "messages_in_flight",
        "namespace_context",
        "outlet",
        "peer_name",
        "receivers",
        "request_timeouts",
        "transactions",
        "unsent_budget",
        "wanting",
    )

    def __init__(
        self,
        namespace_context: NamespaceContext,
        connection: Connection,
        outlet: Outlet,
        peer_name: str,
        *,
        is_exposed: bool = False,
    ) -> None:
        # That of the first namespace, until the peer has said which one it means.
        self.namespace_context = namespace_context
        self.connection: Final = connection
        self.outlet: Final = outlet
        self.peer_name: Final = peer_name
        # Others on the network can read what is said.
        self.is_exposed: Final = is_exposed
        self.transactions: Final = Transactions(
            namespace_context.limits, namespace_context.random_source
        )
        self.request_timeouts: Final = RequestTimeouts()
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
        self.wanting: dict[CreditNode, bool] = {}
        connection.bound_output(namespace_context.limits.handed_bytes_max)
        # Shared by all connections: what their peers have not taken, and what of it is ours.
        self.unsent_budget: Final = namespace_context.unsent_budget
        self._ahead_size = 0
        # How much was written at once, and whether the rest waits for another pass.
        self._pushed = 0
        self._is_pausing = False
        # Since when, and after which frame, the peer takes nothing while others wait for it.
        self._stalled_at = -1
        self._stalled_frames = 0

    def flush(self) -> None:
        """Write what the machine has gathered; who has waited for that may ask for more."""
        if self.is_lost:
            return
        self._pushed = 0
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
        self._count_ahead()

    def gone(self) -> None:
        """The connection is lost, with all that waited on it."""
        self.is_lost = True
        self.unsent_budget.count(self._ahead_size, 0)
        self._ahead_size = 0
        self.unsent_budget.serve()
        self.request_timeouts.clear()

    def next_due(self, at: int, now: int) -> int:
        """Tell when a transaction or a request is late, by the loop's time `at`."""
        due = self.request_timeouts.next_due(at)
        transactions_due = self.transactions.deadline
        if transactions_due < NO_DEADLINE:
            # These go by the clock, which may be set.
            due = min(due, at + max(0, transactions_due - now))
        return due

    def expire(self, at: int, now: int) -> None:
        """End the transactions and requests whose time is over."""
        self.transactions.expire(now)
        self.request_timeouts.expire(at)

    def is_stalled(self, at: int) -> bool:
        """Whether the peer has taken nothing for too long, while others wait for the memory. One
        that does not read is cut off by the listener; this is for a window that stays closed."""
        connection = self.connection
        is_waited_for = connection.output.queued_size and self.unsent_budget.budget.is_exhausted
        if not is_waited_for or self.is_writing_held:
            self._stalled_at = -1
            return False
        frames = 0
        for session in connection.local.values():
            frames += session.outgoing.next_outgoing_id
        if self._stalled_at < 0 or frames != self._stalled_frames:
            self._stalled_at = at
            self._stalled_frames = frames
        return at - self._stalled_at >= STALLED_MS_MAX

    def _count_ahead(self) -> None:
        size = self.connection.output.queued_size
        if self.is_writing_held:
            size += self.outlet.unread()
        if size != self._ahead_size:
            self.unsent_budget.count(self._ahead_size, size)
            self._ahead_size = size
        if self.unsent_budget.line:
            self.unsent_budget.serve()

    def _tell_relieved(self) -> None:
        """Of many links that wait, only those whose deliveries have left are looked at."""
        relieved = self.connection.output.relieved
        self.connection.output.relieved = []
        for link in relieved:
            receiver: CreditNode = link.context
            receiver.flowed()

    def push(self) -> bool:
        """Write what the machine has, while the transport takes it and this is not too much at
        once; tells whether it has taken something and would take more."""
        connection = self.connection
        if self._is_pausing and not self.is_writing_held and self._pushed < PUSHED_MAX:
            self._is_pausing = False
            connection.let_out()
        is_taken = False
        while connection.has_output:
            output = connection.take_output()
            self.outlet.write(output)
            if self.is_writing_held:
                return False
            self._pushed += len(output)
            if self._pushed >= PUSHED_MAX:
                # Somebody reads very fast, or from this machine: others have their turn.
                self._is_pausing = True
                self.outlet.go_on_soon()
                return False
            connection.let_out()
            is_taken = True
        return is_taken

    @property
    def may_have_one(self) -> bool:
        """Whether the budget of all is exhausted by others, while nothing waits for this peer."""
        if not self.unsent_budget.budget.is_exhausted:
            return False
        return self._ahead_size == 0 and self.connection.output.queued_size == 0

    @property
    def share(self) -> int:
        """How many bytes of deliveries one link may have ahead of its reader."""
        limits = self.namespace_context.limits
        share = limits.delivery_bytes_max // max(1, self.receivers)
        return max(limits.delivery_bytes_min, share)

    def consumer(self, link_name: str) -> str:
        """Name a link for the journal."""
        return f"{self.container}/{link_name}"[:_CONSUMER_MAX]

    def took(self, messages: int, size: int) -> None:
        """Note sends that are under way now."""
        self.messages_in_flight += messages
        self.bytes_in_flight += size
        if (
            self.bytes_in_flight > self.namespace_context.limits.bytes_in_flight_max
            and not self.is_reading_held
        ):
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
        return self.bytes_in_flight <= self.namespace_context.limits.bytes_in_flight_max // 2
