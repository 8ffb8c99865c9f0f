"""The AMQP engine in both roles, with an owner that answers everything at once.

The first byte of an input says in which pieces the rest of it arrives, the second one what it is:
the peer's bytes as they are, or frames without what a fuzzer seldom guesses, their sizes, behind a
connection that was opened well.
"""

from typing import Any, Final

from peeklock.amqp.connection import CLIENT, SERVER, Connection
from peeklock.amqp.errors import NOT_FOUND, AmqpError
from peeklock.amqp.events import (
    AttachAnswered,
    AttachRequested,
    Event,
    FlowReceived,
    RunReceived,
    SaslInitReceived,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER, frame_head
from peeklock.amqp.frames.performatives import Open
from peeklock.amqp.frames.sasl_frames import SaslInit, SaslMechanisms, SaslOutcome
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import anonymous
from peeklock.amqp.sessions.link import RECEIVER, Link
from peeklock.amqp.values.composites import encode_composite

ACCEPTED: Final = b"\x00\x53\x24\x45"
BARE: Final = b"\x00\x53\x75\xa0\x03tea"
TAG: Final = bytes(16)
CREDIT: Final = 100
# Small, so that inputs of a few kilobytes reach them.
LIMITS: Final = ConnectionLimits(
    max_frame_size=1024, channel_max=7, handle_max=7, max_message_size=2048, incoming_window=8
)


def _frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    return frame_head(8 + len(body), channel, kind) + body


def _opening(*sasl: Any) -> bytes:
    frames = b"".join(_frame(encode_composite(value), kind=1) for value in sasl)
    opened = _frame(encode_composite(Open(container_id="peer", max_frame_size=512)))
    return SASL_HEADER + frames + AMQP_HEADER + opened


BY_CLIENT: Final = _opening(SaslInit(mechanism="ANONYMOUS"))
BY_SERVER: Final = _opening(
    SaslMechanisms(sasl_server_mechanisms=["ANONYMOUS"]), SaslOutcome(code=0)
)


def server(data: bytes) -> str:
    """A client's bytes, at a server."""
    machine = Connection(
        role=SERVER,
        container_id="server",
        limits=LIMITS,
        now=0,
        sasl_mechanisms=["MSSBCBS", "PLAIN", "ANONYMOUS"],
    )
    return _run(machine, data, BY_CLIENT)


def client(data: bytes) -> str:
    """A server's bytes, at a client that has asked for a link of each kind."""
    machine = Connection(
        role=CLIENT,
        container_id="client",
        limits=LIMITS,
        now=0,
        hostname="localhost",
        credential=anonymous(),
    )
    machine.start()
    session = machine.begin_session()
    session.attach_sender("to", Target(address="q"), source=Source(address="me"))
    session.attach_receiver("from", Source(address="q"), target=Target(address="me")).grant(CREDIT)
    return _run(machine, data, BY_SERVER)


def framed(data: bytes) -> bytes:
    """Frames made of five bytes each and what follows them: how many bytes that are, channel,
    performative, how many fields it has, how many of the bytes are a payload."""
    frames: list[bytes] = []
    at = 0
    while at + 5 <= len(data):
        size, channel, code, count, rest = data[at : at + 5]
        at += 5
        content = data[at : at + size]
        at += size
        fields = content[: len(content) - rest] if rest else content
        # A list of four-byte size and count.
        head = bytes((0, 0x53, code, 0xD0)) + (4 + len(fields)).to_bytes(4, "big")
        body = head + count.to_bytes(4, "big") + fields + content[len(fields) :]
        frames.append(_frame(body, channel))
    return b"".join(frames)


def _run(machine: Connection, data: bytes, opening: bytes) -> str:
    piece, form = data[:2].ljust(2, b"\0")
    if form:
        data = data[:2] + opening + framed(data[2:])
    told: list[str] = []
    written = 0
    at = 2
    while at < len(data):
        after = at + piece if piece else len(data)
        for event in machine.receive(data[at:after], at):
            _answer(machine, event, told)
        written += len(machine.take_output())
        at = after
    machine.tick(1 << 40)
    written += len(machine.take_output())
    error = machine.error
    condition = None if error is None else (error.condition, error.description)
    return f"{told} {machine.phase} {condition} {len(machine.links())} {written}"


def _answer(machine: Connection, event: Event, told: list[str]) -> None:
    told.append(type(event).__name__)
    if isinstance(event, SaslInitReceived):
        if event.mechanism == "PLAIN":
            machine.refuse_sasl()
            return
        for more in machine.accept_sasl():
            _answer(machine, more, told)
    elif isinstance(event, AttachRequested):
        _attach(event.link)
    elif isinstance(event, AttachAnswered | FlowReceived):
        _send(event.link)
    elif isinstance(event, TransfersReceived):
        told.extend(str(len(delivery.payload)) for delivery in event.deliveries)
        _settle(event.link, [delivery.id for delivery in event.deliveries])
    elif isinstance(event, RunReceived):
        told.extend(str(len(payload)) for payload in event.payloads)
        _settle(event.link, event.ids)
    elif isinstance(event, SettlementsReceived) and not event.settled:
        event.link.settle([delivery.id for delivery in event.deliveries], event.outcome or ACCEPTED)


def _attach(link: Link) -> None:
    if link.name == "no":
        link.refuse(AmqpError(NOT_FOUND, "there is nothing of that name"))
        return
    link.accept()
    if link.role == RECEIVER:
        link.takes_runs = True
        link.grant(CREDIT)
    else:
        _send(link)


def _send(link: Link) -> None:
    if link.role == RECEIVER:
        return
    context: Any = None
    if link.send(TAG, b"", BARE, False, context) >= 0:
        link.send_run([TAG, TAG], [b"", b""], [BARE, BARE], True, [None, None])
    link.drained()


def _settle(link: Link, ids: list[int]) -> None:
    link.settle(ids, ACCEPTED)
    if link.credit <= 0:
        link.grant(CREDIT)
