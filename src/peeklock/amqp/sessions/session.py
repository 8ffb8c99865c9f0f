"""One session: it carries links, numbers deliveries, and keeps both windows [2.5].

Our incoming window is opened again whenever half of it is used, and it is never enforced: Python's
client counts messages where it should count frames. What bounds a peer is the credit of its links
and the size of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from peeklock.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    LINK_STOLEN,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
    ProtocolError,
)
from peeklock.amqp.frames.fast import (
    build_flow,
    parse_flow,
    parse_transfer,
)
from peeklock.amqp.frames.headers import (
    ATTACH,
    DETACH,
    FLOW,
    SERIAL_MASK,
)
from peeklock.amqp.frames.performatives import Attach, Begin, Detach, End
from peeklock.amqp.frames.termini import Coordinator, Source, Target
from peeklock.amqp.held_bytes import PIECE_BYTES
from peeklock.amqp.sessions.link import NULL, RECEIVER, SENDER, Link
from peeklock.amqp.sessions.outgoing import LinkRemains, Outgoing
from peeklock.amqp.sessions.settlements import SessionSettlements
from peeklock.amqp.transitions import (
    ATTACH_SENT,
    ATTACHED,
    BEGIN_SENT,
    DETACHED,
    DETACHING,
    DROP,
    ENDED,
    ENDING,
    LINK_MOVES,
    MAPPED,
    REQUESTED,
)
from peeklock.amqp.values.codec import skip
from peeklock.amqp.values.composites import encode_composite
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Encoded, Ubyte, Uint, Ulong

if TYPE_CHECKING:
    from peeklock.amqp.connection import Connection


# How many bytes a handle takes behind its count, by its constructor: uint0, smalluint, uint.
HANDLE_WIDTHS: Final = {0x43: 1, 0x52: 2, 0x70: 5}


@final
class Session:
    """A session of either role; it lives in one channel of each direction."""

    __slots__ = (
        "asked",
        "channel",
        "connection",
        "dirty",
        "incoming",
        "incoming_window",
        "local",
        "next_incoming_id",
        "outgoing",
        "remote_channel",
        "settling",
        "state",
        "window_low",
    )

    def __init__(self, connection: Connection, channel: int, *, first_id: int, state: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel = -1
        self.state = state
        self.outgoing = Outgoing(self, first_id)
        self.settling = SessionSettlements(self)
        self.next_incoming_id = -1
        self.incoming_window = connection.limits.incoming_window
        self.window_low = connection.limits.incoming_window // 2
        # Links by the peer's handle and by ours.
        self.incoming: dict[int, Link] = {}
        self.local: dict[int, Link] = {}
        # Links that we asked for and that are not answered, by role and name.
        self.asked: dict[tuple[int, str], Link] = {}
        self.dirty = False

    @property
    def links(self) -> list[Link]:
        """The links that are asked for or attached."""
        return [link for link in self.local.values() if link.state < DETACHING]

    # --- the owner's side

    def attach_sender(
        self,
        name: str,
        target: Target | Coordinator,
        *,
        source: Source | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int = 0,
        properties: dict[Any, Any] | None = None,
    ) -> Link:
        """Ask for a link on which we send; AttachAnswered or LinkDetached follows."""
        return self._ask(
            name,
            SENDER,
            Source() if source is None else source,
            target,
            snd_settle_mode,
            rcv_settle_mode,
            max_message_size,
            properties,
        )

    def attach_receiver(
        self,
        name: str,
        source: Source,
        *,
        target: Target | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int = 0,
        properties: dict[Any, Any] | None = None,
    ) -> Link:
        """Ask for a link on which we receive; AttachAnswered or LinkDetached follows."""
        return self._ask(
            name,
            RECEIVER,
            source,
            Target() if target is None else target,
            snd_settle_mode,
            rcv_settle_mode,
            max_message_size,
            properties,
        )

    def end(self, error: AmqpError | None = None) -> None:
        """End the session from our side, with all its links."""
        if self.state in (BEGIN_SENT, MAPPED):
            self.flush()
            self._close_links()
            self.state = ENDING
            self.write(encode_composite(End(error=error)))

    def _ask(
        self,
        name: str,
        role: int,
        source: Source,
        target: Target | Coordinator,
        snd_settle_mode: int | None,
        rcv_settle_mode: int | None,
        max_message_size: int,
        properties: dict[Any, Any] | None,
    ) -> Link:
        link = self._new_link(name, role, self._free_handle(0), ATTACH_SENT)
        self.asked[(role, name)] = link
        link.snd_settle_mode = snd_settle_mode
        link.rcv_settle_mode = rcv_settle_mode
        link.max_message_size = max_message_size
        self.write_attach(
            link,
            source=encode_composite(source),
            target=encode_composite(target),
            properties=properties,
        )
        return link

    # --- what links ask of their session

    def forget(self, link: Link) -> LinkRemains:
        """Write what was to be told on a link that goes away, and drop its deliveries."""
        self.flush()
        self.connection.link_names.free_name(link)
        self.settling.forget(link)
        return self.outgoing.forget(link)

    def mark_dirty(self) -> None:
        """Ask for a flush at the next output."""
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def flush(self) -> None:
        """Write the gathered outcomes, and open the window again where it is due."""
        self.dirty = False
        if self.state != MAPPED:
            return
        if self.settling.told:
            self.settling.flush()
        if self.incoming_window <= self.window_low:
            self.write_flow()

    # --- writing

    def write(self, performative: bytes) -> None:
        """Write one frame on this session's channel."""
        self.connection.write(self.channel, performative)

    def write_begin(self, remote_channel: int | None) -> None:
        """Begin our side of the session."""
        limits = self.connection.limits
        begin = Begin(
            remote_channel=remote_channel,
            next_outgoing_id=self.outgoing.next_outgoing_id,
            incoming_window=self.incoming_window,
            outgoing_window=limits.incoming_window,
            handle_max=limits.handle_max,
        )
        self.write(encode_composite(begin))

    def write_attach(
        self, link: Link, *, source: bytes, target: bytes, properties: dict[Any, Any] | None
    ) -> None:
        """Attach our side of a link; source and target are encoded already."""
        sends = link.role == SENDER
        fields = [
            link.name,
            Uint(link.handle),
            not sends,
            None if link.snd_settle_mode is None else Ubyte(link.snd_settle_mode),
            None if link.rcv_settle_mode is None else Ubyte(link.rcv_settle_mode),
            Encoded(source),
            Encoded(target),
            None,
            False,
            Uint(link.delivery_count & SERIAL_MASK) if sends else None,
            Ulong(link.max_message_size) if link.max_message_size else None,
            None,
            None,
            properties,
        ]
        self.write(encode(Described(Ulong(ATTACH), fields)))

    def write_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Detach our side of a link."""
        detach = Detach(handle=link.handle, closed=closed, error=error)
        self.write(encode_composite(detach))

    def write_flow(self) -> None:
        """Tell the session's windows alone."""
        self._write_flow(-1, -1, -1, False)

    def write_link_flow(self, link: Link, *, drain: bool) -> None:
        """Tell a link's credit and count, and the windows with it."""
        count = link.delivery_count & SERIAL_MASK
        credit = max(0, link.credit)
        if link.role == SENDER:
            # What waits in the queue is not sent yet, in the eyes of the peer.
            count = (count - link.queued) & SERIAL_MASK
            credit = min(SERIAL_MASK, credit + link.queued)
        elif link.state == ATTACH_SENT:
            count = -1  # unknown until the sender has attached [2.7.4]
        self._write_flow(link.handle, count, credit, drain)

    def write_drained(self, link: Link) -> None:
        """Answers a drain, after everything that was sent before it."""
        if link.queued:
            self.outgoing.queue_drained(link)
        else:
            self.write_link_flow(link, drain=True)

    def _write_flow(self, handle: int, delivery_count: int, credit: int, drain: bool) -> None:
        limits = self.connection.limits
        self.incoming_window = limits.incoming_window
        flow = build_flow(
            next_incoming_id=self.next_incoming_id,
            incoming_window=self.incoming_window,
            next_outgoing_id=self.outgoing.next_outgoing_id,
            outgoing_window=limits.incoming_window,
            handle=handle,
            delivery_count=delivery_count,
            link_credit=credit,
            drain=drain,
        )
        self.write(flow)

    # --- what the peer said

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """Take the peer's windows; the session is whole now."""
        self.remote_channel = remote_channel
        self.next_incoming_id = begin.next_outgoing_id
        self.outgoing.on_begin(begin.incoming_window)
        if self.state == BEGIN_SENT:
            self.state = MAPPED

    def on_transfer(self, data: bytes, position: int, end: int) -> None:
        """Take a transfer frame."""
        transfer = parse_transfer(data, position, end)
        self.next_incoming_id = (self.next_incoming_id + 1) & SERIAL_MASK
        self.incoming_window -= 1
        if self.incoming_window <= self.window_low and not self.dirty:
            self.mark_dirty()
        link = self.incoming.get(transfer.handle)
        if link is None:
            self._unattached(transfer.handle)
        else:
            link.on_transfer(transfer, data, end)
            is_whole = not (transfer.more or transfer.aborted)
            if is_whole and transfer.tail_at >= 0 and data[position + 3] == 0xC0:
                # More of the same may follow; the width of the handle is told by its code.
                width = HANDLE_WIDTHS.get(data[position + 6], 0)
                if width:
                    link.model = transfer
                    link.lead = data[position + 5 : position + 6 + width]
                    link.tail = data[transfer.tail_at : transfer.payload_at]
                    self.connection.running = link

    def ran(self, count: int) -> None:
        """Count transfers that were read as a run."""
        self.next_incoming_id = (self.next_incoming_id + count) & SERIAL_MASK
        self.incoming_window -= count
        if self.incoming_window <= self.window_low and not self.dirty:
            self.mark_dirty()

    def on_flow(self, data: bytes, position: int, end: int) -> None:
        """Take the peer's windows and, when the flow names a link, its credit."""
        flow = parse_flow(data, position, end)
        self.next_incoming_id = flow.next_outgoing_id
        self.outgoing.on_flow(flow.next_incoming_id, flow.incoming_window)
        if flow.handle < 0:
            if flow.echo:
                self.write_flow()
            return
        link = self.incoming.get(flow.handle)
        if link is None:
            self._unattached(flow.handle)
        elif LINK_MOVES.get((link.state, FLOW)) != DROP:
            link.on_flow(flow)

    def on_attach(self, attach: Attach, data: bytes, position: int, end: int) -> None:
        """Take the peer's side of a link: a request, or the answer to ours."""
        source_raw, target_raw = _raw_termini(data, position, end)
        handle = attach.handle
        if handle > self.connection.limits.handle_max:
            raise ProtocolError(FRAMING_ERROR, f"handle {handle} is above the handle-max")
        if handle in self.incoming:
            self.fail(HANDLE_IN_USE, f"handle {handle} is attached already")
            return
        role = SENDER if attach.role else RECEIVER
        link = self.asked.pop((role, attach.name), None)
        if link is not None:
            self.incoming[handle] = link
            link.on_attach(attach, source_raw, target_raw)
            if link.state == ATTACH_SENT:
                link.state = ATTACHED
                if not link.refused:
                    self.connection.pass_events.answered(link)
            return
        connection = self.connection
        if connection.link_names.count >= connection.links_max:
            self.fail(RESOURCE_LIMIT_EXCEEDED, "too many links on this connection")
            return
        # The link keeps what its attach says.
        size = end - position + PIECE_BYTES
        if not connection.held.take(size):
            self.fail(RESOURCE_LIMIT_EXCEEDED, "the links of this connection hold too much")
            return
        rival = connection.link_names.find(role, attach.name)
        if rival is not None:
            rival.end(AmqpError(LINK_STOLEN, f"link {attach.name} was attached anew"))
        link = self._new_link(attach.name, role, self._free_handle(handle), REQUESTED)
        link.attach_size = size
        self.incoming[handle] = link
        link.on_attach(attach, source_raw, target_raw)
        connection.pass_events.requested(link)

    def on_detach(self, detach: Detach) -> None:
        """Take the end of a link, and answers it unless it is an answer itself."""
        link = self.incoming.get(detach.handle)
        if link is None or (link.state, DETACH) not in LINK_MOVES:
            self._unattached(detach.handle)
            return
        if link.state != DETACHING:
            lost = self.forget(link)
            if link.state == REQUESTED:
                self.write_attach(link, source=NULL, target=NULL, properties=None)
            self.write_detach(link, None, detach.closed)
            self.connection.pass_events.detached(link, detach.closed, detach.error, lost)
        link.state = DETACHED
        link.drop_assembly()
        if self.incoming.pop(detach.handle, None) is not None:
            del self.local[link.handle]
            self.connection.link_names.count -= 1
            self.connection.held.give_back(link.attach_size)

    def on_end(self, error: AmqpError | None) -> None:
        """Take the end of the session, and answers it unless it is an answer itself."""
        if self.state == MAPPED:
            links = self._close_links()
            self.write(encode_composite(End()))
            self.connection.pass_events.ended(self, links, error)
        self.state = ENDED

    def fail(self, condition: str, text: str) -> None:
        """End the session because the peer broke a rule, and tell the owner."""
        error = AmqpError(condition, text)
        self.flush()
        links = self._close_links()
        self.state = ENDING
        self.write(encode_composite(End(error=error)))
        self.connection.pass_events.ended(self, links, error)

    def _unattached(self, handle: int) -> None:
        self.fail(UNATTACHED_HANDLE, f"handle {handle} is not attached")

    def _new_link(self, name: str, role: int, handle: int, state: int) -> Link:
        link = Link(
            self,
            name,
            handle=handle,
            role=role,
            state=state,
            overdraft=self.connection.limits.credit_overdraft,
        )
        self.local[handle] = link
        self.connection.link_names.add(link)
        return link

    def _free_handle(self, wish: int) -> int:
        """Return the wished handle, or the lowest free one."""
        handle = wish
        if handle in self.local:
            handle = 0
            while handle in self.local:
                handle += 1
        return handle

    def drop(self) -> None:
        """Forget everything, because the connection is over."""
        self._close_links()
        self.state = ENDED

    def come_apart(self) -> None:
        """Let go of what it had, because nobody will ask for it any more."""
        self.outgoing.unsettled.clear()
        for delivery in self.settling.kept.values():
            delivery.link.kept.clear()
        self.outgoing.queue.clear()
        self.settling.clear()
        # Both point back here. What has ended asks them for nothing.
        del self.outgoing.session
        del self.settling.session

    def _close_links(self) -> list[Link]:
        """Mark all links as gone and return those that were alive."""
        alive = self.links
        self.connection.link_names.count -= len(self.local)
        for link in self.local.values():
            self.connection.link_names.free_name(link)
            link.state = DETACHED
            link.drop_assembly()
            self.connection.held.give_back(link.attach_size)
        self.local.clear()
        self.incoming.clear()
        self.asked.clear()
        self.outgoing.drop()
        self.settling.clear()
        return alive


def _raw_termini(data: bytes, position: int, end: int) -> tuple[bytes, bytes]:
    """Cut the encoded source and target out of an attach that decodes well."""
    position = skip(data, position + 1, end)  # the descriptor
    width = 1 if data[position] == 0xC0 else 4
    count_at = position + 1 + width
    count = int.from_bytes(data[count_at : count_at + width], "big")
    position = count_at + width
    raw = [NULL, NULL]
    for index in range(min(count, 7)):
        after = skip(data, position, end)
        if index >= 5:
            raw[index - 5] = data[position:after]
        position = after
    return raw[0], raw[1]
