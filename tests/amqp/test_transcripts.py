"""The two conversations that every server must survive (protocol.md 14), at every cut."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.connection import Connection
from peeklock.amqp.events import (
    AttachRequested,
    Event,
    FlowReceived,
    SaslInitReceived,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER
from peeklock.amqp.frames.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from peeklock.amqp.frames.sasl_frames import SaslInit
from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.sessions.link import RECEIVER, SENDER, Link
from peeklock.amqp.values.composites import ACCEPTED
from tests.amqp.engine_pair import frame, server, values


def attach(name: str, handle: int, channel: int, *, sends: bool, node: str, **more: Any) -> bytes:
    source = Source(address="me" if sends else node)
    target = Target(address=node if sends else "me")
    value = Attach(name=name, handle=handle, role=not sends, source=source, target=target, **more)
    return frame(value, channel)


def flow(handle: int, credit: int, channel: int, *, count: int = 0, drain: bool = False) -> bytes:
    value = Flow(
        next_incoming_id=100_000,
        incoming_window=2048,
        next_outgoing_id=0,
        outgoing_window=65_536,
        handle=handle,
        delivery_count=count,
        link_credit=credit,
        drain=drain,
    )
    return frame(value, channel)


def transfer(handle: int, number: int, channel: int) -> bytes:
    value = Transfer(
        handle=handle, delivery_id=number, delivery_tag=b"\x00\x00\x00\x01", message_format=0
    )
    return frame(value, channel, payload=b"\x00\x53\x77\xa1\x05token")


# Each turn is what the client says before it waits for an answer.
PY_SEND = [
    SASL_HEADER,
    frame(SaslInit(mechanism="ANONYMOUS", initial_response=b"", hostname="localhost"), kind=1),
    AMQP_HEADER
    + frame(Open(container_id="SBSender-1", hostname="localhost", max_frame_size=1_048_576))
    + frame(Begin(next_outgoing_id=0, incoming_window=65_536, outgoing_window=65_536), 1)
    + attach("cbs-r", 2, 1, sends=False, node="$cbs")
    + attach("cbs-s", 1, 1, sends=True, node="$cbs"),
    flow(2, 10_000, 1) + flow(1, 10_000, 1) + transfer(1, 0, 1),
    attach("s", 3, 1, sends=True, node="amqps://localhost/q", snd_settle_mode=0, rcv_settle_mode=1),
    flow(3, 10_000, 1) + transfer(3, 1, 1),
    frame(Detach(handle=3, closed=True), 1),
]
PY_ANSWERS = [
    ["SASL", "SaslMechanisms"],
    ["SaslOutcome"],
    ["AMQP", "Open", "Begin 1", "Attach 2", "Attach 1", "Flow 1"],
    ["Transfer 2", "Disposition 0"],
    ["Attach 3", "Flow 3"],
    ["Disposition 1"],
    ["Detach 3"],
]

JS_RECEIVE = [
    SASL_HEADER,
    frame(SaslInit(mechanism="ANONYMOUS", initial_response=b"\x00Root", hostname="h"), kind=1),
    AMQP_HEADER,
    frame(Open(container_id="uuid", hostname="h", idle_time_out=60_000)),
    frame(Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=0xFFFFFFFF), 0)
    + attach("cbs-s", 0, 0, sends=True, node="$cbs"),
    attach("cbs-r", 1, 0, sends=False, node="$cbs"),
    flow(1, 1_000, 0),
    transfer(0, 0, 0),
    frame(Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=0xFFFFFFFF), 1)
    + attach("r", 0, 1, sends=False, node="q", snd_settle_mode=0, rcv_settle_mode=1),
    flow(0, 10, 1),
    flow(0, 7, 1, count=3, drain=True),
    frame(Disposition(role=True, first=100_000, last=100_002, settled=False, state=Accepted()), 1),
    frame(Detach(handle=0, closed=True), 1) + frame(End(), 1),
    frame(Detach(handle=0, closed=True)) + frame(Detach(handle=1, closed=True)) + frame(End()),
    frame(Close()),
]
JS_ANSWERS = [
    ["SASL", "SaslMechanisms"],
    ["SaslOutcome"],
    ["AMQP"],
    ["Open"],
    ["Begin 0", "Attach 0", "Flow 0"],
    ["Attach 1"],
    [],
    ["Transfer 1", "Disposition 0"],
    ["Begin 1", "Attach 0"],
    ["Transfer 0", "Transfer 0", "Transfer 0"],
    ["Flow 0 drained at 10"],
    ["Disposition 100000 to 100002"],
    ["Detach 0", "End"],
    ["Detach 0", "Detach 1", "End"],
    ["Close"],
]

TRANSCRIPTS = [
    pytest.param(PY_SEND, PY_ANSWERS, id="py send"),
    pytest.param(JS_RECEIVE, JS_ANSWERS, id="js receive"),
]


class Owner:
    """The least that a gateway does, so that the conversation goes on."""

    def __init__(self, machine: Connection) -> None:
        self.machine = machine
        self.replies: list[Link] = []

    def act(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, SaslInitReceived):
                self.act(self.machine.accept_sasl())
            elif isinstance(event, AttachRequested):
                event.link.accept()
                if event.link.role == RECEIVER:
                    event.link.grant(100)
                elif event.link.source.address == "$cbs":
                    self.replies.append(event.link)
            elif isinstance(event, TransfersReceived):
                event.link.settle([d.id for d in event.deliveries], ACCEPTED)
                if event.link.target.address == "$cbs":
                    assert self.replies[0].send(b"r", b"", b"202", True, None) >= 0
            elif isinstance(event, FlowReceived) and event.link not in self.replies:
                self.deliver(event.link)
            elif isinstance(event, SettlementsReceived) and not event.settled:
                event.link.settle([d.id for d in event.deliveries], event.outcome)

    def deliver(self, link: Link) -> None:
        assert link.role == SENDER
        if link.drain:
            link.drained()
        else:
            for number in range(3):
                link.send(b"t%d" % number, b"head", b"body", False, number)


def told(value: Any) -> str:
    """Says in a word what a frame of the server means."""
    if isinstance(value, bytes):
        return "SASL" if value == SASL_HEADER else "AMQP"
    name = type(value).__name__
    if isinstance(value, Begin):
        return f"{name} {value.remote_channel}"
    if isinstance(value, Disposition):
        assert value.settled
        last = "" if value.last == value.first else f" to {value.last}"
        return f"{name} {value.first}{last}"
    if isinstance(value, Flow) and value.drain:
        assert value.link_credit == 0
        return f"{name} {value.handle} drained at {value.delivery_count}"
    handle = getattr(value, "handle", None)
    return name if handle is None else f"{name} {handle}"


def converse(turns: list[bytes], cut: Callable[[bytes], Iterator[bytes]]) -> list[list[str]]:
    machine = server()
    owner = Owner(machine)
    answers: list[list[str]] = []
    for turn in turns:
        output = b""
        for part in cut(turn):
            owner.act(machine.receive(part, 0))
            output += machine.take_output()
        answers.append([told(value) for value in values(output)])
    return answers


def cut_at(at: int) -> Callable[[bytes], Iterator[bytes]]:
    return lambda turn: iter([turn[:at], turn[at:]])


@pytest.mark.parametrize(("turns", "answers"), TRANSCRIPTS)
def test_a_transcript_as_it_is(turns: list[bytes], answers: list[list[str]]) -> None:
    assert converse(turns, lambda turn: iter([turn])) == answers


@pytest.mark.parametrize(("turns", "answers"), TRANSCRIPTS)
def test_a_transcript_byte_by_byte(turns: list[bytes], answers: list[list[str]]) -> None:
    assert converse(turns, lambda turn: (turn[i : i + 1] for i in range(len(turn)))) == answers


@pytest.mark.parametrize(("turns", "answers"), TRANSCRIPTS)
def test_a_transcript_at_every_cut(turns: list[bytes], answers: list[list[str]]) -> None:
    for at in range(1, max(len(turn) for turn in turns)):
        assert converse(turns, cut_at(at)) == answers, at


@given(st.sampled_from([(PY_SEND, PY_ANSWERS), (JS_RECEIVE, JS_ANSWERS)]), st.data())
def test_a_transcript_in_random_pieces(
    transcript: tuple[list[bytes], list[list[str]]], data: st.DataObject
) -> None:
    turns, answers = transcript
    size = data.draw(st.integers(1, 40))
    more = data.draw(st.lists(st.integers(0, 400), max_size=5))

    def cut(turn: bytes) -> Iterator[bytes]:
        ends = sorted({len(turn), *(end for end in more if end < len(turn))})
        start = 0
        for end in ends:
            while start < end:
                stop = min(end, start + size)
                yield turn[start:stop]
                start = stop

    assert converse(turns, cut) == answers


@given(
    st.sampled_from([PY_SEND, JS_RECEIVE]),
    st.integers(0, 14),
    st.integers(0, 2_000),
    st.integers(0, 255),
)
def test_a_flipped_byte_never_raises(turns: list[bytes], turn: int, at: int, byte: int) -> None:
    """peers.md 6: a fault of the peer ends what it belongs to, and nothing else."""
    machine = server()
    owner = Owner(machine)
    turn %= len(turns)
    for number, said in enumerate(turns):
        raw = bytearray(said)
        if number == turn:
            raw[at % len(raw)] = byte
        events = machine.receive(bytes(raw), 0)
        if number <= turn:
            calm_act(owner, events)
        machine.take_output()


def calm_act(owner: Owner, events: list[Event]) -> None:
    """Acts as far as the conversation still makes sense to the owner."""
    for event in events:
        if isinstance(event, SaslInitReceived):
            calm_act(owner, owner.machine.accept_sasl())
        elif isinstance(event, AttachRequested):
            event.link.accept()
            event.link.grant(100)
