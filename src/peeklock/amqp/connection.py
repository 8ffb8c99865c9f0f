"""A connection as a pure machine: bytes in, events out, bytes out [2.4].

    events = connection.receive(data, now)    the owner acts on them: accept, send, settle, grant
    socket.write(connection.take_output())    everything of this pass at once
    deadline = connection.tick(now)           heartbeats and silence; then look at `closed`

No fault of the peer raises. A fault ends the smallest thing it belongs to (link, session or
connection) with an error on the wire and an event for the owner. A whole frame is never copied.
"""

from typing import Any, Final, final

from peeklock.amqp.errors import (
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    DecodeError,
    ProtocolError,
)
from peeklock.amqp.events import Closed, Event, Opened, SaslInitReceived
from peeklock.amqp.frames.fast import performative_code
from peeklock.amqp.frames.frame_splitter import PERFORMATIVE_FRAMES, FrameSplitter
from peeklock.amqp.frames.headers import (
    AMQP_FRAME,
    AMQP_HEADER,
    BEGIN,
    DISPOSITION,
    EMPTY,
    FLOW,
    FRAME_SIZE_MIN,
    HEAD_SIZE,
    HEARTBEAT,
    SASL_HEADER,
    TRANSFER,
)
from peeklock.amqp.frames.performatives import Attach, Begin, Close, Detach, End, Open
from peeklock.amqp.frames.sasl_frames import SaslInit, SaslMechanisms, SaslOutcome
from peeklock.amqp.heartbeat import Heartbeat, check_idle
from peeklock.amqp.held_bytes import HeldBytes
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.output import Output
from peeklock.amqp.pass_events import PassEvents
from peeklock.amqp.sasl import (
    OUTCOME_AUTH,
    OUTCOME_OK,
    SaslCredential,
    check_offer,
    check_outcome,
    write_init,
    write_mechanisms,
    write_outcome,
)
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.link_names import LinkNames
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.transitions import (
    BEGIN_SENT,
    CLOSED,
    CLOSING,
    DROP,
    ENDED,
    ENDING,
    FRAME_MOVES,
    HEADER_MOVES,
    HEADER_PHASES,
    MAPPED,
    OPENED,
    SASL_DECIDING,
    SESSION_MOVES,
    WAIT_AMQP_HEADER,
    WAIT_HEADER,
    WAIT_OPEN,
    WAIT_SASL_HEADER,
)
from peeklock.amqp.values.codec import ELEMENTS_FREE, ElementBudget
from peeklock.amqp.values.composites import decode_composite, encode_composite

SERVER: Final = 0
CLIENT: Final = 1

# A server counts its deliveries from here. Python's client does not look at the role of a
# disposition, so that small numbers of ours would settle its own transfers.
SERVER_FIRST_ID: Final = 100_000
CLIENT_FIRST_ID: Final = 0
# What a peer may send ahead while the owner checks its credential.
HELD_MAX: Final = 65_536
# What one performative may have in its lists and maps: official clients use some dozens.
PERFORMATIVE_ELEMENTS_MAX: Final = 2_048


@final
class Connection:
    """One connection of either role."""

    __slots__ = (
        "authenticated",
        "container_id",
        "credential",
        "dirty",
        "error",
        "heartbeat",
        "held",
        "hostname",
        "limits",
        "link_names",
        "links_max",
        "local",
        "mechanisms",
        "open_sent",
        "output",
        "pass_events",
        "peer_frame_max",
        "phase",
        "properties",
        "remote_open",
        "role",
        "running",
        "sessions",
        "sessions_max",
        "splitter",
        "waiting",
    )

    def __init__(
        self,
        *,
        role: int,
        container_id: str,
        limits: ConnectionLimits,
        now: int,
        sasl_mechanisms: list[str] | None = None,
        hostname: str | None = None,
        credential: SaslCredential | None = None,
        properties: dict[Any, Any] | None = None,
        held: HeldBytes | None = None,
    ) -> None:
        self.role = role
        self.container_id = container_id
        self.limits = limits
        # How many there may be, as the owner says, and what the peer makes us keep.
        self.links_max = limits.links_max
        self.sessions_max = limits.channel_max + 1
        self.held = HeldBytes() if held is None else held
        self.hostname = hostname
        self.properties = properties
        # A server offers mechanisms, a client presents a credential; neither means no SASL.
        self.mechanisms = [] if sasl_mechanisms is None else sasl_mechanisms
        self.credential = credential
        self.phase = WAIT_HEADER
        self.authenticated = False
        self.open_sent = False
        self.remote_open: Open | None = None
        self.error: AmqpError | None = None
        self.heartbeat = Heartbeat(limits, now)
        self.splitter = FrameSplitter(limits.max_frame_size_before_open)
        self.output = Output(released=role == SERVER)
        # Sessions that have something to write before the next output.
        self.dirty: list[Session] = []
        # Sessions that have transfers to write as soon as the output has room, in turns.
        self.waiting: dict[Session, bool] = {}
        self.peer_frame_max = 0xFFFFFFFF
        # Sessions by the peer's channel and by ours.
        self.sessions: dict[int, Session] = {}
        self.local: dict[int, Session] = {}
        self.link_names = LinkNames()
        self.pass_events = PassEvents()
        # The link whose transfer was just read, if more like it may follow.
        self.running: Link | None = None

    # --- the owner's side

    @property
    def closed(self) -> bool:
        """Whether nothing more will come or go, but for the output that is still to be taken."""
        return self.phase == CLOSED

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would give something."""
        return self.output.pending() or len(self.dirty) > 0

    def links(self) -> list[Link]:
        """List the living links of all sessions."""
        return self.link_names.links()

    def start(self) -> None:
        """Write a client's first words; open and what follows it do not wait for answers."""
        if self.credential is None:
            self.output.released = True
            self.phase = WAIT_AMQP_HEADER
        else:
            self.output.early.append(SASL_HEADER)
            self.phase = WAIT_SASL_HEADER
        self.output.parts.append(AMQP_HEADER)
        self._write_open()

    def begin_session(self) -> Session:
        """Begin a session; links can be attached on it at once."""
        channel = 0
        while channel in self.local:
            channel += 1
        if self.remote_open is not None and channel > self.remote_open.channel_max:
            raise ValueError(f"the peer takes no more than {channel} sessions")
        session = Session(self, channel, first_id=CLIENT_FIRST_ID, state=BEGIN_SENT)
        self.local[channel] = session
        session.write_begin(None)
        return session

    def accept_sasl(self) -> list[Event]:
        """Let the peer in; return the events of what it sent ahead, mostly none."""
        if self.phase != SASL_DECIDING:
            return []
        self.output.parts.append(write_outcome(OUTCOME_OK))
        self.authenticated = True
        self.phase = WAIT_AMQP_HEADER
        return self.receive(self.splitter.take(), self.heartbeat.now)

    def refuse_sasl(self) -> None:
        """Turn the peer away; the connection is closed."""
        if self.phase == SASL_DECIDING:
            self.output.parts.append(write_outcome(OUTCOME_AUTH))
            self._finish(None)

    def close(self, error: AmqpError | None = None) -> None:
        """Close from our side; `closed` follows when the peer answers or takes too long."""
        if self.phase in (CLOSING, CLOSED):
            return
        if self.phase == OPENED:
            self._write_close(error)
            self._drop_sessions()
            self.error = error
            self.phase = CLOSING
            self.heartbeat.closing_at = self.heartbeat.now
        else:
            self._abort(error)

    def take_output(self) -> bytes:
        """Hand over everything that is to be written."""
        if self.dirty:
            self._flush()
        output = self.output.take()
        if output:
            self.heartbeat.sent_at = self.heartbeat.now
        return output

    def bound_output(self, size: int) -> None:
        """Let transfers of so many bytes, or one, join each output; the rest waits its turn."""
        self.output.room = size
        self.output.room_max = size

    def hold_output(self) -> None:
        """Let no transfer join the output: the peer does not take what is written."""
        self.output.room = 0

    def let_out(self) -> None:
        """Make room for more transfers: what was taken is on its way."""
        self.output.room = self.output.room_max
        if self.waiting:
            for session in list(self.waiting):
                del self.waiting[session]
                session.outgoing.pump()
                if session in self.waiting:
                    break  # it has more, and has gone to the end: the next turn is another's

    def wait_for_output(self, session: Session) -> None:
        """Note that a session has more transfers than the output has room for."""
        self.waiting[session] = True

    def excuse(self, now: int) -> None:
        """Count the peer as heard: its owner has not listened."""
        self.heartbeat.heard_at = now

    def lost(self) -> None:
        """End without a word, because the way to the peer is gone; links have what was unsent."""
        if self.phase != CLOSED:
            self._finish(self.error)

    def tick(self, now: int) -> int | None:
        """Send a heartbeat when due, give up on a silent peer, and tell when to look again."""
        self.heartbeat.now = now
        if self.phase == CLOSED:
            return None
        if self.phase == OPENED:
            return self._tick_opened(now)
        deadline = (
            self.heartbeat.close_until() if self.phase == CLOSING else self.heartbeat.open_until()
        )
        if now < deadline:
            return deadline
        if self.phase == CLOSING:
            self._finish(self.error)
        else:
            self._abort(AmqpError(RESOURCE_LIMIT_EXCEEDED, "the connection took too long to open"))
        return None

    def _tick_opened(self, now: int) -> int | None:
        silent_until = self.heartbeat.silent_until()
        if silent_until is not None and now >= silent_until:
            self._abort(AmqpError(RESOURCE_LIMIT_EXCEEDED, "the peer was silent for too long"))
            return None
        heartbeat_at = self.heartbeat.heartbeat_at()
        if heartbeat_at is None:
            return silent_until
        if now >= heartbeat_at:
            self.output.parts.append(HEARTBEAT)
            self.heartbeat.sent_at = now
            return self._tick_opened(now)
        return heartbeat_at if silent_until is None else min(heartbeat_at, silent_until)

    # --- input

    def receive(self, data: bytes, now: int) -> list[Event]:
        """Take what the peer sent, in any cut, and return what the owner should know.

        Empty data asks for the events of a `tick` that closed the connection, and for those of
        frames that were left for another pass, as long as there is a `splitter.rest`.
        """
        self.heartbeat.now = now
        self.heartbeat.heard_at = now
        data = self.splitter.begin_pass(data)
        if self.phase != CLOSED:
            try:
                if self.splitter.partial:
                    self._continue(data)
                else:
                    self._feed(data, 0)
            except ProtocolError as error:
                self._abort(AmqpError(error.condition, error.text))
        return self.pass_events.take()

    def _feed(self, data: bytes, position: int) -> None:
        """Handle the whole frames from `position` on and keep the rest for the next pass."""
        length = len(data)
        while length - position >= HEAD_SIZE:
            phase = self.phase
            if phase != OPENED:
                if phase in HEADER_PHASES:
                    self._on_header(data[position : position + HEAD_SIZE])
                    position += HEAD_SIZE
                    continue
                if phase in (SASL_DECIDING, CLOSED):
                    break
            end = position + self.splitter.size_at(data, position)
            if end > length:
                break
            if self.splitter.ends_pass(data, position):
                return
            self._on_frame(data, position, end)
            position = self._run_on(data, end, length)
        if position < length:
            self._keep(data[position:])

    def _run_on(self, data: bytes, position: int, length: int) -> int:
        """Let the link of a transfer read those that follow it; return where to go on."""
        link = self.running
        if link is None:
            return position
        self.running = None
        return link.take_run(data, position, length)

    def _continue(self, data: bytes) -> None:
        """Complete the frame that was cut, and only that, before the rest of the data is read."""
        if self.phase == SASL_DECIDING:
            self._keep(data)
            return
        taken = self.splitter.top_up(data, header=self.phase in HEADER_PHASES)
        if taken >= 0:
            self._feed(self.splitter.take(), 0)
            self._feed(data, taken)

    def _keep(self, rest: bytes) -> None:
        if self.phase == CLOSED:
            return
        self.splitter.partial += rest
        if self.phase == SASL_DECIDING and len(self.splitter.partial) > HELD_MAX:
            raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too much was sent ahead of the outcome")

    def _on_header(self, header: bytes) -> None:
        move = HEADER_MOVES.get((self.phase, header))
        if move is None or (header == SASL_HEADER and self.role == SERVER and not self.mechanisms):
            raise ProtocolError(FRAMING_ERROR, f"not a protocol header that fits: {header!r}")
        self.phase = move
        if self.role == SERVER:
            self.output.parts.append(header)
            if header == SASL_HEADER:
                self.output.parts.append(write_mechanisms(self.mechanisms))

    def _on_frame(self, data: bytes, position: int, end: int) -> None:
        body = position + 4 * data[position + 4]
        if body < position + HEAD_SIZE or body > end:
            raise ProtocolError(FRAMING_ERROR, f"a data offset of {data[position + 4]}")
        kind = data[position + 5]
        code = EMPTY if body == end else performative_code(data, body, end)
        if self.phase == OPENED and kind == AMQP_FRAME and FLOW <= code <= DISPOSITION:
            session = self.sessions.get(data[position + 6] << 8 | data[position + 7])
            if session is not None and session.state == MAPPED:
                if code == TRANSFER:
                    session.on_transfer(data, body, end)
                    return
                self.splitter.frames_left -= 1
                if code == DISPOSITION:
                    session.settling.on_disposition(data, body, end)
                else:
                    session.on_flow(data, body, end)
                return
        self._on_performative(data, position, body, end, code)

    def _on_performative(self, data: bytes, position: int, body: int, end: int, code: int) -> None:
        self.splitter.frames_left -= PERFORMATIVE_FRAMES
        kind = data[position + 5]
        move = FRAME_MOVES.get((self.phase, kind, code))
        if move is None:
            raise ProtocolError(
                ILLEGAL_STATE, f"a frame of type {kind} with {code:#04x} has no place here"
            )
        if code == EMPTY or move == CLOSING:
            return
        channel = data[position + 6] << 8 | data[position + 7]
        if FLOW <= code <= DISPOSITION:
            self._session_for(channel, code)  # it drops what the table drops, and refuses the rest
            return
        elements = ElementBudget(min(end - body + ELEMENTS_FREE, PERFORMATIVE_ELEMENTS_MAX))
        value, after = decode_composite(data, body, end, elements)
        if after != end:
            raise DecodeError("a frame that goes on behind its performative")
        if isinstance(value, Attach):
            session = self._session_for(channel, code)
            if session is not None:
                session.on_attach(value, data, body, end)
        elif isinstance(value, Detach):
            session = self._session_for(channel, code)
            if session is not None:
                session.on_detach(value)
        elif isinstance(value, Begin):
            self._on_begin(value, channel)
        elif isinstance(value, End):
            session = self._session_for(channel, code)
            if session is not None:
                was_told = session.state == ENDING
                session.on_end(value.error)
                del self.sessions[channel]
                del self.local[session.channel]
                if was_told and self.role == SERVER:
                    session.come_apart()
        elif isinstance(value, Close):
            self._on_close(value.error)
        elif isinstance(value, Open):
            self._on_open(value)
        else:
            self.phase = move
            self._on_sasl(value)

    def _session_for(self, channel: int, code: int) -> Session | None:
        """Find the session of a channel, or None when it drops the frame [2.5.5]."""
        session = self.sessions.get(channel)
        state = ENDED if session is None else session.state
        move = SESSION_MOVES.get((state, code))
        if move is None:
            raise ProtocolError(
                ILLEGAL_STATE, f"{code:#04x} on channel {channel}: no session there"
            )
        return None if move == DROP else session

    def _on_sasl(self, frame: Any) -> None:
        if isinstance(frame, SaslInit):
            response = frame.initial_response or b""
            self.pass_events.add(SaslInitReceived(frame.mechanism, response, frame.hostname))
        elif isinstance(frame, SaslMechanisms) and self.credential is not None:
            check_offer(self.credential, frame)
            self.output.early.append(write_init(self.credential, self.hostname))
        elif isinstance(frame, SaslOutcome):
            check_outcome(frame)
            self.authenticated = True
            self.output.released = True

    def _on_open(self, open: Open) -> None:
        if open.max_frame_size < FRAME_SIZE_MIN:
            raise ProtocolError(INVALID_FIELD, f"a max-frame-size below {FRAME_SIZE_MIN}")
        check_idle(open.idle_time_out, self.role == SERVER)
        self.remote_open = open
        self.peer_frame_max = open.max_frame_size
        self.heartbeat.peer_idle_ms = open.idle_time_out or 0
        self.splitter.frame_max = self.limits.max_frame_size
        self._write_open()
        self.phase = OPENED
        self.pass_events.add(Opened(open, self.authenticated))

    def _on_begin(self, begin: Begin, channel: int) -> None:
        if channel > self.limits.channel_max:
            raise ProtocolError(NOT_ALLOWED, f"channel {channel} is above the channel-max")
        if channel in self.sessions:
            raise ProtocolError(ILLEGAL_STATE, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            if len(self.local) >= self.sessions_max:
                raise ProtocolError(RESOURCE_LIMIT_EXCEEDED, "too many sessions")
            own = channel
            while own in self.local:
                own += 1
            first_id = SERVER_FIRST_ID if self.role == SERVER else CLIENT_FIRST_ID
            session = Session(self, own, first_id=first_id, state=MAPPED)
            self.local[own] = session
            session.on_begin(begin, channel)
            session.write_begin(channel)
        else:
            asked = self.local.get(begin.remote_channel)
            if asked is None or (asked.state, BEGIN) not in SESSION_MOVES:
                raise ProtocolError(ILLEGAL_STATE, "a begin that answers none of ours")
            session = asked
            session.on_begin(begin, channel)
        self.sessions[channel] = session

    def _on_close(self, error: AmqpError | None) -> None:
        by_peer = self.phase != CLOSING
        links = self.links()
        if by_peer:
            self._write_close(None)
        self._finish(error)
        self.pass_events.add(Closed(error, by_peer, links))

    # --- output

    def write(self, channel: int, performative: bytes) -> None:
        """Write one frame that cannot be split."""
        size = HEAD_SIZE + len(performative)
        if size > self.peer_frame_max:
            text = f"a frame of {size} bytes is too large for the peer"
            self._abort(AmqpError(FRAME_SIZE_TOO_SMALL, text))
            return
        self.output.write(channel, performative)

    def _write_open(self) -> None:
        if self.open_sent:
            return
        self.open_sent = True
        limits = self.limits
        ours = Open(
            container_id=self.container_id,
            hostname=self.hostname,
            max_frame_size=limits.max_frame_size,
            channel_max=limits.channel_max,
            idle_time_out=limits.idle_timeout_ms or None,
            properties=self.properties,
        )
        self.write(0, encode_composite(ours))

    def _write_close(self, error: AmqpError | None) -> None:
        """Write close behind everything else; nothing can follow it."""
        self._flush()
        self._write_open()
        self.output.write(0, encode_composite(Close(error=error)))
        self.output.seal()

    def _flush(self) -> None:
        dirty = self.dirty
        self.dirty = []
        for session in dirty:
            session.flush()

    # --- the end

    def _abort(self, error: AmqpError | None) -> None:
        """Close at once, as far as the peer can still be told why, and tell the owner."""
        if self.phase == CLOSED:
            return
        links = self.links()
        if self.phase == WAIT_HEADER:
            # A peer with another protocol or version is told which one is spoken here [2.2].
            self.output.parts.append(SASL_HEADER if self.mechanisms else AMQP_HEADER)
        elif self.phase >= WAIT_OPEN:
            self._write_close(error)
        if self.phase != CLOSED:  # what was still to be written may have been too large
            self._finish(error)
            self.pass_events.add(Closed(error, False, links))

    def _finish(self, error: AmqpError | None) -> None:
        self.output.seal()
        self._drop_sessions()
        self.error = error
        self.phase = CLOSED
        self.splitter.clear()

    def _drop_sessions(self) -> None:
        for session in list(self.local.values()):
            session.drop()
        self.dirty = []
        self.waiting = {}
