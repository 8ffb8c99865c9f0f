"""One link: a one-way road for messages, with credit, drain and settlement [2.6, 2.7].

The first half of `Link` is for its owner, the second half is called by the session with what the
peer said. A link that is gone takes every call of its owner and does nothing: the owner may learn
of a detach later than the machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from peeklock.amqp.errors import (
    DETACH_FORCED,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpError,
)
from peeklock.amqp.frames.fast import TAG_SIZE_MAX, transfer_run
from peeklock.amqp.frames.headers import SERIAL_MASK, TRANSFER, serial_distance
from peeklock.amqp.frames.parsed import ParsedFlow, ParsedTransfer
from peeklock.amqp.held_bytes import PIECE_BYTES
from peeklock.amqp.sessions.delivery import Assembly, IncomingDelivery, OutgoingDelivery
from peeklock.amqp.sessions.sent_runs import SentRuns
from peeklock.amqp.transitions import (
    ATTACH_SENT,
    ATTACHED,
    DETACHED,
    DETACHING,
    DROP,
    LINK_MOVES,
    REQUESTED,
)

if TYPE_CHECKING:
    from peeklock.amqp.events import AnswersReceived, RunReceived, SettlementsReceived
    from peeklock.amqp.frames.performatives import Attach
    from peeklock.amqp.sessions.session import Session

# Our role on a link; the numbers are the wire's [2.8.1].
SENDER: Final = 0
RECEIVER: Final = 1

NULL: Final = b"\x40"
EMPTY_SOURCE: Final = b"\x00\x53\x28\x45"
EMPTY_TARGET: Final = b"\x00\x53\x29\x45"


@final
class Link:
    """A link of either role; `context` is the owner's."""

    __slots__ = (
        "answered",
        "arrived",
        "assembly",
        "attach_size",
        "awaited",
        "context",
        "credit",
        "credit_floor",
        "delivery_count",
        "drain",
        "flowed",
        "handle",
        "initial_delivery_count",
        "kept",
        "lead",
        "max_message_size",
        "model",
        "name",
        "peer_max_message_size",
        "properties",
        "queued",
        "queued_size",
        "rcv_settle_mode",
        "refused",
        "remote_handle",
        "role",
        "run",
        "sent",
        "session",
        "settling",
        "snd_settle_mode",
        "source",
        "source_raw",
        "state",
        "tail",
        "takes_runs",
        "target",
        "target_raw",
        "touched",
        "unsent",
        "wants_room",
    )

    def __init__(
        self, session: Session, name: str, *, handle: int, role: int, state: int, overdraft: int
    ) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_handle = -1
        self.role = role
        self.state = state
        self.context: Any = None
        # What the peer's attach said; the raw forms are echoed byte for byte.
        self.source: Any = None
        self.target: Any = None
        self.source_raw = NULL
        self.target_raw = NULL
        self.snd_settle_mode: int | None = None
        self.rcv_settle_mode: int | None = None
        self.properties: dict[Any, Any] | None = None
        self.peer_max_message_size = 0
        self.refused = False
        # What we announce; zero means no limit.
        self.max_message_size = 0
        # What is left; on a receiving link it falls below zero for a peer that ignores it.
        self.credit = 0
        self.credit_floor = -overdraft
        # Whether the owner takes messages that have nothing special as a RunReceived.
        self.takes_runs = False
        # The last whole transfer, and what those of this link have in common: field count and
        # handle at the beginning, and what follows the message format.
        self.model: ParsedTransfer | None = None
        self.lead = b""
        self.tail = b""
        self.delivery_count = 0
        self.initial_delivery_count = 0
        # Sender: the peer asked to use up the credit, and was not answered. Receiver: we asked.
        self.drain = False
        # Messages that are sent for the owner but wait for the session's window or the output.
        self.queued = 0
        self.queued_size = 0
        # The owner wants to know when some of them have left.
        self.wants_room = False
        # Of a link that is gone: what it never sent. Half a message is none.
        self.unsent: list[OutgoingDelivery] = []
        # Where to look in the session for what was sent on this link and is not settled.
        self.sent = SentRuns()
        # What is settled for the time being only; the session has it too, with that of its others.
        self.kept: dict[int, OutgoingDelivery] = {}
        # What we received here and told the outcome of, while the sender has not settled it.
        self.awaited: set[int] = set()
        self.assembly: Assembly | None = None
        # What is held for the attach.
        self.attach_size = 0
        # What this pass has gathered; the connection resets it when the pass ends.
        self.touched = False
        self.arrived: list[IncomingDelivery] | None = None
        self.run: RunReceived | None = None
        self.settling: SettlementsReceived | None = None
        self.answered: AnswersReceived | None = None
        self.flowed = False

    @property
    def attached(self) -> bool:
        """Whether both sides are attached."""
        return self.state == ATTACHED

    # --- the owner's answer to AttachRequested

    def accept(
        self,
        *,
        source: bytes | None = None,
        target: bytes | None = None,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        initial_delivery_count: int = 0,
    ) -> bool:
        """Attach our side; tell False when the peer has given up meanwhile.

        `source` and `target` are encoded; None echoes the peer's. Credit that the peer granted
        before is in `credit` already.
        """
        if self.state != REQUESTED:
            return False
        if max_message_size is None:
            max_message_size = self.session.connection.limits.max_message_size
        self.max_message_size = max_message_size
        if self.role == SENDER:
            self.initial_delivery_count = initial_delivery_count
            self.delivery_count = initial_delivery_count
        self.state = ATTACHED
        self.session.write_attach(
            self,
            source=_terminus(self.source_raw if source is None else source, EMPTY_SOURCE),
            target=_terminus(self.target_raw if target is None else target, EMPTY_TARGET),
            properties=properties,
        )
        return True

    def refuse(self, error: AmqpError) -> None:
        """Turn the request down [2.6.3]: no source, no target, and a detach with the reason."""
        if self.state == REQUESTED:
            self.detach(error)

    def detach(
        self, error: AmqpError | None = None, *, closed: bool = True
    ) -> list[OutgoingDelivery]:
        """End the link from our side and return what was sent on it and never settled."""
        if self.state in (DETACHING, DETACHED):
            return []
        if self.state == REQUESTED:
            self.session.write_attach(self, source=NULL, target=NULL, properties=None)
        lost = self.session.forget(self)
        self.state = DETACHING
        self.drop_assembly()
        self.session.write_detach(self, error, closed)
        return lost.unsettled

    # --- sending

    def send(
        self,
        tag: bytes,
        head: bytes,
        body: bytes,
        settled: bool,
        context: Any,
        message_format: int = 0,
        state: bytes | None = None,
    ) -> int:
        """Send one message, whose bytes are `head` and then `body`, and return its delivery id.
        `state` is encoded: the transaction that the message is sent in.

        Returns -1, and sends nothing, when the credit is used up or the link is gone. A message
        that has to wait for the peer's window leaves later. Its id is the one that events carry: it
        moves when another link of the session goes away while both wait.
        """
        if self.credit <= 0 or self.state != ATTACHED or self.role != SENDER:
            return -1
        self.credit -= 1
        self.delivery_count += 1
        return self.session.outgoing.send(
            self, tag, head, body, settled, context, message_format, state
        )

    def send_parts(self, tag: bytes, parts: list[bytes]) -> bool:
        """Send one message whose bytes lie in many places, settled; tell False, and send nothing,
        when the credit is used up or the link is gone."""
        if self.credit <= 0 or self.state != ATTACHED or self.role != SENDER:
            return False
        self.credit -= 1
        self.delivery_count += 1
        self.session.outgoing.send_parts(self, tag, parts)
        return True

    def send_run(
        self,
        tags: list[bytes],
        heads: list[bytes],
        bodies: list[bytes],
        settled: bool,
        contexts: list[Any],
    ) -> int:
        """Send the first of several messages, as `send` would one after another, as far as credit
        and window allow at once; return how many. The tags have 16 bytes each."""
        if self.credit < len(tags) or self.state != ATTACHED or self.role != SENDER:
            return 0
        sent = self.session.outgoing.send_run(self, tags, heads, bodies, settled, contexts)
        self.credit -= sent
        self.delivery_count += sent
        return sent

    def drained(self) -> None:
        """Tell the peer that there is nothing more to send: the rest of the credit is used up."""
        if not self.drain or self.state != ATTACHED or self.role != SENDER:
            return
        self.delivery_count += self.credit
        self.credit = 0
        self.drain = False
        self.session.write_drained(self)

    # --- receiving

    def grant(self, credit: int) -> None:
        """Let the peer send this many messages from now on, whatever was left before."""
        if self.state in (ATTACHED, ATTACH_SENT) and self.role == RECEIVER:
            self.credit = credit
            self.drain = False
            self.session.write_link_flow(self, drain=False)

    def drain_credit(self) -> None:
        """Ask the peer to send what it has and use up the rest; a FlowReceived tells the end."""
        if self.state in (ATTACHED, ATTACH_SENT) and self.role == RECEIVER:
            self.drain = True
            self.session.write_link_flow(self, drain=True)

    # --- both

    def settle(self, delivery_ids: list[int], state: bytes, *, settled: bool = True) -> None:
        """Tell the outcome of deliveries; the next output has it gathered into ranges.

        As receiver, `settled=False` waits for the sender to settle first (an AnswersReceived).
        """
        if self.state == ATTACHED:
            self.session.settling.settle(self, delivery_ids, state, settled)

    def settle_for_now(self, delivery_ids: list[int], state: bytes) -> None:
        """Settle what was sent, and still takes another outcome for it until it is forgotten: an
        outcome within a transaction may turn out to be none."""
        if self.state == ATTACHED:
            settling = self.session.settling
            kept = settling.found(delivery_ids)
            settling.settle(self, delivery_ids, state, True)
            settling.keep(kept)

    def forget(self, delivery_ids: list[int]) -> None:
        """Take no other outcome for what was settled for the time being."""
        self.session.settling.release(delivery_ids)

    def unsettled(self) -> list[OutgoingDelivery]:
        """List what was sent on this link and is not settled."""
        return self.sent.living(self, self.session.outgoing.unsettled)

    # --- what the peer said

    def on_attach(self, attach: Attach, source_raw: bytes, target_raw: bytes) -> None:
        """Note the peer's side of the link."""
        self.remote_handle = attach.handle
        self.source = attach.source
        self.target = attach.target
        self.source_raw = source_raw
        self.target_raw = target_raw
        self.properties = attach.properties
        self.peer_max_message_size = attach.max_message_size or 0
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        if self.role == RECEIVER:
            self.delivery_count = attach.initial_delivery_count or 0
        # A null terminus on the peer's own side is a refusal; its detach with the reason follows.
        self.refused = attach.target is None if self.role == SENDER else attach.source is None

    def on_flow(self, flow: ParsedFlow) -> None:
        """Take the link's part of a flow [2.6.7]."""
        if self.role == SENDER:
            self._on_credit(flow)
        else:
            self._on_sender_flow(flow)
        if flow.echo and self.state == ATTACHED:
            self.session.write_link_flow(self, drain=self.drain)

    def _on_credit(self, flow: ParsedFlow) -> None:
        if flow.link_credit >= 0:
            # The peer counts from what it has seen; what is still on its way uses up credit too.
            seen = self.initial_delivery_count if flow.delivery_count < 0 else flow.delivery_count
            unseen = serial_distance(self.delivery_count & SERIAL_MASK, seen)
            # A peer may grant all that a number holds, and claim to have seen more than there was.
            self.credit = min(SERIAL_MASK, max(0, flow.link_credit - unseen))
        self.drain = flow.drain
        self.session.connection.pass_events.flow(self)
        if self.credit == 0:
            self.drained()

    def _on_sender_flow(self, flow: ParsedFlow) -> None:
        if flow.delivery_count >= 0:
            used = serial_distance(flow.delivery_count, self.delivery_count & SERIAL_MASK)
            if used > 0:
                self.delivery_count += used
                self.credit = max(0, self.credit - used)
        if self.drain and flow.drain and self.credit <= 0:
            self.drain = False
            self.session.connection.pass_events.flow(self)

    def on_transfer(self, transfer: ParsedTransfer, data: bytes, end: int) -> None:
        """Take one frame of a message; the message is told when its last frame is here."""
        if self.state != ATTACHED or self.role != RECEIVER:
            self._unexpected_transfer()
            return
        if self.assembly is not None or transfer.more or transfer.aborted:
            self._assemble(transfer, data, end)
            return
        tag = transfer.delivery_tag
        if transfer.delivery_id < 0 or tag is None or len(tag) > TAG_SIZE_MAX:
            self._fault(INVALID_FIELD, "a first transfer needs a delivery-id and a delivery-tag")
            return
        start = transfer.payload_at
        if self.max_message_size and end - start > self.max_message_size:
            self._too_large(transfer.delivery_id, end - start)
            return
        message_format = max(0, transfer.message_format)
        settled = transfer.settled is True
        if self.takes_runs and message_format == 0 and transfer.state is None:
            self._run(transfer.delivery_id, settled, data[start:end])
            return
        self._arrive(
            IncomingDelivery(
                transfer.delivery_id, tag, message_format, settled, data[start:end], transfer.state
            )
        )

    def take_run(self, data: bytes, position: int, length: int) -> int:
        """Take the transfers that follow one of this link and are like it; return where the first
        other frame begins."""
        model = self.model
        run = self.run
        arrived = self.arrived
        if model is None or self.state != ATTACHED or (run is None and arrived is None):
            return position
        ids: list[int] = [] if run is None else run.ids
        payloads: list[bytes] = [] if run is None else run.payloads
        tags: list[bytes] | None = [] if run is None else None
        before = len(ids)
        position = transfer_run(
            data,
            position,
            length,
            # A data offset of two words, the type of AMQP frames, the peer's channel [2.3.1].
            0x02000000 | self.session.remote_channel,
            self.session.connection.limits.max_frame_size,
            self.lead,
            self.tail,
            self.max_message_size,
            self.credit - self.credit_floor,
            ids,
            tags,
            payloads,
        )
        count = len(ids) - before
        if count:
            self.credit -= count
            self.delivery_count += count
            self.session.ran(count)
            if arrived is not None and tags is not None:
                settled = model.settled is True
                for at in range(count):
                    arrived.append(
                        IncomingDelivery(ids[at], tags[at], 0, settled, payloads[at], model.state)
                    )
        return position

    def _arrive(self, delivery: IncomingDelivery) -> None:
        if self._use_credit():
            arrived = self.arrived
            if arrived is None:
                arrived = self.session.connection.pass_events.transfers(self)
            arrived.append(delivery)

    def _run(self, delivery_id: int, settled: bool, payload: bytes) -> None:
        if self._use_credit():
            run = self.run
            if run is None or run.settled is not settled:
                run = self.session.connection.pass_events.run(self, settled)
            run.ids.append(delivery_id)
            run.payloads.append(payload)

    def _use_credit(self) -> bool:
        """Count one message; return whether there was credit for it."""
        self.credit -= 1
        self.delivery_count += 1
        if self.credit >= self.credit_floor:
            return True
        self._fault(TRANSFER_LIMIT_EXCEEDED, "more messages than there was credit for")
        return False

    def _assemble(self, transfer: ParsedTransfer, data: bytes, end: int) -> None:
        assembly = self.assembly
        if assembly is None:
            tag = transfer.delivery_tag
            if transfer.delivery_id < 0 or tag is None or len(tag) > TAG_SIZE_MAX:
                self._fault(
                    INVALID_FIELD, "a first transfer needs a delivery-id and a delivery-tag"
                )
                return
            assembly = Assembly(transfer.delivery_id, tag, max(0, transfer.message_format))
            self.assembly = assembly
        elif transfer.delivery_id >= 0 and transfer.delivery_id != assembly.id:
            # The official clients repeat the id on every frame; it must stay the same [2.7.5].
            self._fault(INVALID_FIELD, f"delivery {assembly.id} is not complete")
            return
        if transfer.aborted:
            self.drop_assembly()
            self.credit -= 1
            self.delivery_count += 1
            return
        start = transfer.payload_at
        assembly.size += end - start
        if self.max_message_size and assembly.size > self.max_message_size:
            self._too_large(assembly.id, assembly.size)
            return
        if end > start:
            held = end - start + PIECE_BYTES
            if not self.session.connection.held.take(held):
                text = "The unfinished messages of this connection hold too much; send it again."
                self._fault(DETACH_FORCED, text)
                return
            assembly.held += held
            assembly.parts.append(data[start:end])
        assembly.settled = assembly.settled or transfer.settled is True
        if transfer.state is not None:
            assembly.state = transfer.state
        if not transfer.more:
            self.drop_assembly()
            self._arrive(assembly.delivery())

    def drop_assembly(self) -> None:
        """Hold no unfinished message any more."""
        if self.assembly is not None:
            self.session.connection.held.give_back(self.assembly.held)
            self.assembly = None

    def _too_large(self, delivery_id: int, size: int) -> None:
        self._fault(
            MESSAGE_SIZE_EXCEEDED,
            f"The message of delivery {delivery_id} has {size} bytes or more, "
            f"and this link takes {self.max_message_size}.",
        )

    def _unexpected_transfer(self) -> None:
        if LINK_MOVES.get((self.state, TRANSFER)) == DROP:
            return
        if self.role == SENDER:
            self._fault(NOT_ALLOWED, "a transfer to the sender of a link")
        else:
            self._fault(ILLEGAL_STATE, "a transfer on a link that is not attached")

    def _fault(self, condition: str, text: str) -> None:
        self.end(AmqpError(condition, text))

    def end(self, error: AmqpError) -> None:
        """End the link because of what the peer did, and tell the owner."""
        lost = self.session.forget(self)
        if self.state == REQUESTED:
            self.session.write_attach(self, source=NULL, target=NULL, properties=None)
        self.state = DETACHING
        self.drop_assembly()
        self.session.write_detach(self, error, True)
        self.session.connection.pass_events.detached(self, True, error, lost)


def _terminus(raw: bytes, empty: bytes) -> bytes:
    """Return what an accepted attach must carry: both termini, even where the peer sent null."""
    return empty if raw == NULL else raw
