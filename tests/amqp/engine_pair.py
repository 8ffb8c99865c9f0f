"""Two machines back to back, and the frames of a stream in readable form."""

from collections.abc import Callable, Iterable
from typing import Any

from peeklock.amqp.connection import CLIENT, SERVER, Connection
from peeklock.amqp.events import AttachRequested, Event, SaslInitReceived
from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER, frame_head, frame_size
from peeklock.amqp.frames.sasl_frames import SaslInit
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import anonymous
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.values.composites import decode_composite, encode_composite

Cut = Callable[[bytes], Iterable[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def server(limits: ConnectionLimits | None = None, now: int = 0) -> Connection:
    return Connection(
        role=SERVER,
        container_id="server",
        limits=ConnectionLimits() if limits is None else limits,
        now=now,
        sasl_mechanisms=["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"],
    )


def client(limits: ConnectionLimits | None = None, now: int = 0) -> Connection:
    return Connection(
        role=CLIENT,
        container_id="client",
        limits=ConnectionLimits() if limits is None else limits,
        now=now,
        hostname="localhost",
        credential=anonymous(),
    )


def is_closed(machine: Connection) -> bool:
    """Asks anew each time; a type checker takes a property for a constant."""
    return machine.closed


class Pair:
    """A client and a server that accept everything, and all events of both."""

    def __init__(
        self,
        *,
        cut: Cut = whole,
        client_limits: ConnectionLimits | None = None,
        server_limits: ConnectionLimits | None = None,
        accept: bool = True,
    ) -> None:
        self.cut = cut
        self.accept = accept
        self.client = client(client_limits)
        self.server = server(server_limits)
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.client.start()

    def exchange(self) -> None:
        """Carries bytes to and fro until both are silent."""
        while self.client.has_output or self.server.has_output:
            self.to_server()
            self.to_client()

    def to_server(self) -> list[Event]:
        told: list[Event] = []
        for part in self.cut(self.client.take_output()):
            told += self.server.receive(part, 0)
            for event in told[:]:
                if isinstance(event, SaslInitReceived):
                    told += self.server.accept_sasl()
        for event in told:
            if self.accept and isinstance(event, AttachRequested):
                event.link.accept()
        self.server_events += told
        return told

    def to_client(self) -> list[Event]:
        told: list[Event] = []
        for part in self.cut(self.server.take_output()):
            told += self.client.receive(part, 0)
        self.client_events += told
        return told

    def clear(self) -> None:
        self.client_events.clear()
        self.server_events.clear()

    def sending(self, session: Session, name: str = "to") -> tuple[Link, Link]:
        """Attaches a link on which the client sends; gives the client's end and the server's."""
        link = session.attach_sender(name, Target(address="q"), source=Source(address="me"))
        self.exchange()
        return link, server_end(self, link)

    def receiving(self, session: Session, name: str = "from") -> tuple[Link, Link]:
        """Attaches a link on which the client receives; gives the client's end and the server's."""
        link = session.attach_receiver(
            name, Source(address="q"), target=Target(address="me"), rcv_settle_mode=1
        )
        self.exchange()
        return link, server_end(self, link)


def server_end(pair: Pair, link: Link) -> Link:
    found = [other for other in pair.server.links() if other.name == link.name]
    return next(other for other in found if other.role != link.role)


def events_of(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def frame(value: Any, channel: int = 0, payload: bytes = b"", kind: int = 0) -> bytes:
    """Writes one frame by the tables, as a peer would."""
    body = value if isinstance(value, bytes) else encode_composite(value)
    return frame_head(8 + len(body) + len(payload), channel, kind) + body + payload


def frames(stream: bytes) -> list[tuple[int, Any, bytes]]:
    """Reads a stream of frames: channel, performative (None for an empty frame), payload."""
    found: list[tuple[int, Any, bytes]] = []
    position = 0
    while position < len(stream):
        if stream[position : position + 4] == b"AMQP":
            found.append((0, stream[position : position + 8], b""))
            position += 8
            continue
        end = position + frame_size(stream, position)
        channel = int.from_bytes(stream[position + 6 : position + 8], "big")
        body = position + 4 * stream[position + 4]
        if body == end:
            found.append((channel, None, b""))
        else:
            value, after = decode_composite(stream, body, end)
            found.append((channel, value, stream[after:end]))
        position = end
    return found


def values(stream: bytes) -> list[Any]:
    return [value for _, value, _ in frames(stream)]


def kinds(stream: bytes) -> list[str]:
    """Names what a stream says."""
    return [
        "header" if isinstance(v, bytes) else "empty" if v is None else type(v).__name__.lower()
        for v in values(stream)
    ]


def sasl_prelude() -> bytes:
    """What a client says until it is let in; the rest may follow at once."""
    init = frame(SaslInit(mechanism="ANONYMOUS", initial_response=b"", hostname="h"), kind=1)
    return SASL_HEADER + init + AMQP_HEADER
