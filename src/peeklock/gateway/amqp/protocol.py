"""The thin skin between asyncio and a peer: bytes in, bytes out, one timer."""

import asyncio
import logging
from time import monotonic
from typing import Final, Protocol, final

from peeklock.gateway import logbook
from peeklock.gateway.amqp.namespace_context import NamespaceContexts
from peeklock.gateway.amqp.peer import Peer
from peeklock.gateway.exposure import is_exposed
from peeklock.gateway.quotas.shared_limits import SharedLimits

# Less than this is never waited: a deadline in the past is looked at in the next turn of the loop.
_WAIT_S_MIN: Final = 0.001

_LOG: Final = logbook.Sparing(logging.getLogger("peeklock.connections"))


class Connections(Protocol):
    """Who counts the connections of a listener."""

    output_bytes_max: int
    shared_limits: SharedLimits

    def joined(self, connection: "AmqpProtocol") -> None:
        """Take a connection in."""
        ...

    def left(self, connection: "AmqpProtocol") -> None:
        """Forget a connection."""
        ...


@final
class AmqpProtocol(asyncio.Protocol):
    """One connection of the AMQP listener. Nothing here happens per frame."""

    def __init__(self, namespace_contexts: NamespaceContexts, connections: Connections) -> None:
        self._namespace_contexts = namespace_contexts
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._is_held = False
        # Whether something that has come waits for another turn of the loop, and whether that turn
        # is asked for.
        self._is_behind = False
        self._goes_on = False
        self._is_lost = False

    def told(self) -> dict[str, object]:
        """Tell who it is and what it is here for."""
        peer = self._peer
        if peer is None:
            return {}
        links = [
            {"name": name, "role": role, "address": address} for name, role, address in peer.links()
        ]
        return {
            "peer": peer.output.peer_name,
            "container": peer.output.container,
            "namespace": peer.output.namespace_context.namespace,
            "links": links,
        }

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        address = transport.get_extra_info("peername") or ("unknown", 0)
        self._connections.joined(self)
        self._peer = Peer(
            self._namespace_contexts,
            self,
            f"{address[0]}:{address[1]}",
            self._now(),
            host=address[0],
            shared_limits=self._connections.shared_limits,
            is_exposed=is_exposed(transport),
        )
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Bytes came; whatever follows from them is written once."""
        peer = self._peer
        assert peer is not None
        # As `_now`, which would be two calls more for each piece of data.
        peer.receive(data, int(monotonic() * 1000))
        if peer.deadline < self._timer_due:
            self._set_timer(peer.deadline)
        self._keep_up(peer)

    def _keep_up(self, peer: Peer) -> None:
        """Go on where a pass has left something: others have their turn before, and no more is
        read until all is done."""
        if peer.is_behind:
            self._is_behind = True
            self.hold_reading()
            self.go_on_soon()
        elif self._is_behind:
            self._is_behind = False
            if not peer.output.is_reading_held:
                self.resume_reading()

    def _go_on(self) -> None:
        self._goes_on = False
        if self._is_lost:
            self._come_apart()
        elif self._peer is not None:
            self.data_received(b"")

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        self._is_held = True
        if self._peer is not None:
            self._peer.hold_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_held = False
        if self._peer is not None:
            self._peer.resume_writing()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._is_lost = True
        self._come_apart()

    def _come_apart(self) -> None:
        """Take apart what is left of the peer, in as many passes as it takes."""
        peer = self._peer
        if peer is not None and not peer.lost():
            self.go_on_soon()
            return
        # Each holds the other: what is gone should not wait in memory for a rare collection.
        self._peer = None
        self._connections.left(self)

    # --- what the peer calls

    def write(self, data: bytes) -> None:
        """Send bytes; a client that lets too many answers pile up is cut off."""
        transport = self._transport
        if transport is None:
            return  # nobody is there any more
        transport.write(data)
        if self._is_held and transport.get_write_buffer_size() > self._connections.output_bytes_max:
            self.abort("The client reads too few of the answers that it asks for.")

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def hold_reading(self) -> None:
        """Take nothing more from the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        if self._is_behind:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def go_on_soon(self) -> None:
        """Have another pass, when others have had their turn."""
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on)

    def unread(self) -> int:
        """How many bytes wait for the client to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- what the listener calls

    @property
    def namespace(self) -> str:
        """The namespace that it belongs to, or that of the first while it has not said."""
        return "" if self._peer is None else self._peer.output.namespace_context.namespace

    def look(self, ahead_ms: int = 0) -> None:
        """Act on what is due: somebody has moved the clock by which rights and transactions end,
        or wants to know what so much silence would lead to."""
        if self._peer is not None:
            self._tick(ahead_ms)

    def shut_down(self) -> None:
        """Close politely: the client is told, and answers."""
        if self._peer is not None:
            self._peer.shut_down()
            self._set_timer(self._peer.deadline)

    def rights_changed(self) -> int:
        """Rules were changed; answers how many grants are to be reviewed for that."""
        return 0 if self._peer is None else self._peer.rights_changed()

    def review(self, count: int) -> None:
        """Review so many grants: links whose key is gone end."""
        if self._peer is not None:
            self._peer.review(count)
            self._set_timer(self._peer.deadline)
            self._keep_up(self._peer)

    def abort(self, text: str = "The connection was ended at once.") -> None:
        """Close at once, and say why in the log."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            address = transport.get_extra_info("peername") or ("unknown", 0)
            unread = transport.get_write_buffer_size()
            peer = f"{address[0]}:{address[1]}"
            _LOG.write(logging.INFO, "cut-off", peer=peer, unread=unread, text=text)
        if transport is not None:
            transport.abort()

    # --- the one timer

    def _now(self) -> int:
        # Silence and deadlines of a connection go by the loop's time, which nobody can set.
        return int(self._loop.time() * 1000)

    def _tick(self, ahead_ms: int = 0) -> None:
        assert self._peer is not None
        self._peer.tick(self._now() + ahead_ms)
        self._set_timer(self._peer.deadline)
        self._keep_up(self._peer)

    def _set_timer(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        wait_s = max(_WAIT_S_MIN, (deadline - self._now()) / 1000)
        self._timer = self._loop.call_later(wait_s, self._tick)
