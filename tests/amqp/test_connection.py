"""Connections: headers, opening, closing, time, limits, and garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import AttachRequested, Closed, Opened, SaslInitReceived
from peeklock.amqp.frames.headers import AMQP_FRAME, AMQP_HEADER, HEARTBEAT, SASL_FRAME, SASL_HEADER
from peeklock.amqp.frames.performatives import Attach, Begin, Close, End, Open
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.heartbeat import PEER_IDLE_MS_MIN
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.transitions import CLOSED, FRAME_MOVES, HEADER_PHASES, OPENED, SASL_DECIDING
from peeklock.amqp.values.composites import encode_rejected
from tests.amqp.engine_pair import (
    Pair,
    byte_by_byte,
    client,
    events_of,
    frame,
    is_closed,
    kinds,
    sasl_prelude,
    server,
    values,
    whole,
)

OPEN = Open(container_id="peer", max_frame_size=65_536, channel_max=100, idle_time_out=60_000)


def opened_server(limits: ConnectionLimits | None = None, open: Open = OPEN) -> Connection:
    """A server past a bare AMQP header and open, its output taken."""
    machine = server(limits)
    machine.receive(AMQP_HEADER + frame(open), 0)
    machine.take_output()
    return machine


def begin(channel: int = 0) -> bytes:
    return frame(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100), channel)


@pytest.mark.parametrize("cut", [whole, byte_by_byte], ids=["whole", "byte by byte"])
def test_a_client_and_a_server_open_and_close(cut: object) -> None:
    pair = Pair(cut=cut)  # type: ignore[arg-type]  # both cuts are functions of bytes
    pair.client.begin_session()
    pair.exchange()
    (server_opened,) = events_of(pair.server_events, Opened)
    (client_opened,) = events_of(pair.client_events, Opened)
    assert (server_opened.open.container_id, server_opened.authenticated) == ("client", True)
    assert client_opened.open.container_id == "server"
    assert server_opened.open.hostname == "localhost"

    pair.client.close()
    assert not is_closed(pair.client)
    pair.exchange()
    assert is_closed(pair.client)
    assert pair.server.closed
    assert events_of(pair.server_events, Closed) == [Closed(None, True, [])]
    assert events_of(pair.client_events, Closed) == [Closed(None, False, [])]


def test_a_client_pipelines_everything_behind_its_outcome() -> None:
    machine = client()
    machine.start()
    session = machine.begin_session()
    session.attach_sender("a", Target(address="q"))
    assert machine.take_output() == SASL_HEADER
    other = server()
    other.receive(SASL_HEADER, 0)
    machine.receive(other.take_output(), 0)
    other.receive(machine.take_output(), 0)
    other.accept_sasl()
    machine.receive(other.take_output(), 0)
    assert kinds(machine.take_output()) == ["header", "open", "begin", "attach"]


def test_a_peer_may_skip_sasl() -> None:
    """protocol.md 1.4: rhea opens with the bare header when it has no key name."""
    machine = server()
    events = machine.receive(AMQP_HEADER + frame(OPEN), 0)
    assert events == [Opened(OPEN, False)]
    assert kinds(machine.take_output()) == ["header", "open"]
    bare = Connection(role=CLIENT, container_id="c", limits=ConnectionLimits(), now=0)
    bare.start()
    assert kinds(bare.take_output()) == ["header", "open"]


def test_what_is_sent_ahead_of_the_outcome_is_held_and_then_handled() -> None:
    machine = server()
    ahead = frame(OPEN) + begin()
    (init,) = machine.receive(sasl_prelude() + ahead[:10], 0)
    assert isinstance(init, SaslInitReceived)
    assert machine.receive(ahead[10:], 0) == []
    assert kinds(machine.take_output()) == ["header", "saslmechanisms"]
    assert machine.accept_sasl() == [Opened(OPEN, True)]
    assert kinds(machine.take_output()) == ["sasloutcome", "header", "open", "begin"]
    assert machine.accept_sasl() == []


def test_too_much_ahead_of_the_outcome_closes() -> None:
    machine = server()
    machine.receive(sasl_prelude(), 0)
    (closed,) = machine.receive(bytes(70_000), 0)
    assert isinstance(closed, Closed)
    assert is_closed(machine)


@pytest.mark.parametrize("header", [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / HT"])
def test_another_protocol_is_told_which_one_is_spoken(header: bytes) -> None:
    machine = server()
    (closed,) = machine.receive(header, 0)
    assert isinstance(closed, Closed)
    assert machine.take_output() == SASL_HEADER
    assert is_closed(machine)
    assert machine.receive(AMQP_HEADER, 0) == []
    assert not machine.has_output


def test_every_field_of_open_and_begin_is_set() -> None:
    """protocol.md 1.6: what the clients need in the server's frames."""
    machine = server()
    machine.receive(AMQP_HEADER + frame(OPEN) + begin(1), 0)
    output = machine.take_output()
    _, opened, begun = values(output)
    assert opened.container_id == "server"
    assert (opened.max_frame_size, opened.channel_max) == (65_536, 4_999)
    assert opened.idle_time_out == 240_000
    assert (begun.remote_channel, begun.next_outgoing_id) == (1, 100_000)
    assert (begun.incoming_window, begun.handle_max) == (5_000, 4_999)


def test_a_close_of_the_peer_is_answered_once_and_names_the_links() -> None:
    machine = opened_server()
    attach = Attach(name="a", handle=0, role=False, source=Source(), target=Target(address="q"))
    (asked,) = machine.receive(begin() + frame(attach), 0)
    assert isinstance(asked, AttachRequested)
    asked.link.accept()
    machine.take_output()
    error = AmqpError("amqp:internal-error", "x", None)
    events = machine.receive(frame(Close(error=error)) + frame(Close()), 0)
    assert events == [Closed(error, True, [asked.link])]
    assert kinds(machine.take_output()) == ["close"]
    assert is_closed(machine)
    # The link takes every call and does nothing.
    asked.link.grant(5)
    asked.link.settle([1], b"\x40")
    assert asked.link.detach() == []
    assert not asked.link.attached
    assert machine.take_output() == b""


def test_our_close_waits_for_the_answer_and_drops_the_rest() -> None:
    machine = opened_server()
    machine.receive(begin(), 0)
    machine.take_output()
    machine.close(AmqpError("amqp:connection:forced", "bye"))
    machine.close()
    (said,) = values(machine.take_output())
    assert said.error == AmqpError("amqp:connection:forced", "bye", None)
    assert machine.receive(begin(7) + HEARTBEAT + frame(End()), 0) == []
    assert not is_closed(machine)
    assert machine.receive(frame(Close()), 0) == [Closed(None, False, [])]
    assert is_closed(machine)
    assert machine.take_output() == b""


def test_our_close_does_not_wait_for_ever() -> None:
    machine = opened_server()
    machine.tick(1_000)
    machine.close()
    machine.take_output()
    assert machine.tick(1_500) == 6_000
    assert not is_closed(machine)
    assert machine.tick(6_000) is None
    assert is_closed(machine)
    assert machine.tick(7_000) is None


def test_a_close_before_open_says_open_first() -> None:
    machine = server()
    machine.receive(AMQP_HEADER, 0)
    machine.take_output()
    machine.close(AmqpError("amqp:connection:forced", "shutting down"))
    assert kinds(machine.take_output()) == ["open", "close"]
    assert is_closed(machine)
    assert [type(event) for event in machine.receive(b"", 0)] == [Closed]


# --- time


def test_heartbeats_come_at_half_of_the_peers_time() -> None:
    machine = opened_server()
    assert machine.tick(0) == 30_000
    assert machine.tick(29_999) == 30_000
    assert not machine.has_output
    assert machine.tick(30_000) == 60_000
    assert machine.take_output() == HEARTBEAT
    # Anything that is written counts as well.
    machine.receive(begin(), 45_000)
    machine.take_output()
    assert machine.tick(60_000) == 75_000
    assert not machine.has_output


def test_a_peer_without_idle_time_gets_no_heartbeat() -> None:
    machine = opened_server(open=Open(container_id="py"))
    assert machine.tick(0) == 480_000
    machine = opened_server(ConnectionLimits(idle_timeout_ms=0), open=Open(container_id="py"))
    assert machine.tick(10**12) is None
    assert not machine.has_output
    assert not is_closed(machine)


def test_a_silent_peer_is_closed_after_twice_the_announced_time() -> None:
    machine = opened_server(open=Open(container_id="py"))
    machine.receive(HEARTBEAT, 100_000)
    assert machine.tick(579_999) == 580_000
    assert machine.tick(580_000) is None
    assert is_closed(machine)
    (said,) = values(machine.take_output())
    assert said.error.condition == "amqp:resource-limit-exceeded"
    assert machine.error is not None
    assert [type(event) for event in machine.receive(b"", 580_000)] == [Closed]


def test_a_peer_that_dawdles_is_closed() -> None:
    """peers.md 6: slow-loris time-outs."""
    machine = server(now=1_000)
    machine.receive(SASL_HEADER, 2_000)
    assert machine.tick(3_000) == 31_000
    assert machine.tick(31_000) is None
    assert is_closed(machine)


def test_a_peer_cannot_ask_for_a_storm_of_heartbeats() -> None:
    machine = opened_server(open=Open(container_id="x", idle_time_out=PEER_IDLE_MS_MIN))
    assert machine.tick(0) == PEER_IDLE_MS_MIN // 2
    machine = opened_server(open=Open(container_id="x", idle_time_out=PEER_IDLE_MS_MIN - 1))
    assert is_closed(machine)
    assert machine.error is not None
    assert "idle-time-out" in str(machine.error.description)


# --- the closed table


def machine_in(phase: int) -> Connection:
    """A machine in a phase of the table, reached by force: it is the table that is tested."""
    machine = opened_server()
    machine.receive(begin(), 0)
    machine.take_output()
    machine.phase = phase
    return machine


@pytest.mark.parametrize("phase", sorted({phase for phase, _, _ in FRAME_MOVES}))
@pytest.mark.parametrize("kind", [AMQP_FRAME, SASL_FRAME, 2])
def test_what_is_not_in_the_table_ends_the_connection(phase: int, kind: int) -> None:
    """peers.md 6: frame type x state is closed; no AMQP frame is heard inside SASL."""
    for code in [*range(0x10, 0x19), *range(0x40, 0x45)]:
        if (phase, kind, code) in FRAME_MOVES:
            continue
        machine = machine_in(phase)
        raw = b"\x00\x53" + bytes([code]) + b"\x45"
        events = machine.receive(frame(raw, kind=kind), 0)
        assert [type(event) for event in events] == [Closed], (phase, kind, code)
        assert machine.phase == CLOSED


def test_the_fast_way_follows_the_table() -> None:
    for code in (0x13, 0x14, 0x15):
        assert FRAME_MOVES[(OPENED, AMQP_FRAME, code)] == OPENED
        assert {p for p, _, c in FRAME_MOVES if c == code} == {OPENED, 9}
    assert SASL_DECIDING not in HEADER_PHASES


def test_an_amqp_frame_inside_sasl_closes_without_a_word() -> None:
    machine = server()
    machine.receive(SASL_HEADER, 0)
    machine.take_output()
    (closed,) = machine.receive(frame(OPEN), 0)
    assert isinstance(closed, Closed)
    assert machine.take_output() == b""


# --- limits


def test_frames_are_small_before_open() -> None:
    machine = server()
    machine.receive(AMQP_HEADER, 0)
    large = Open(container_id="x" * 9_000)
    (closed,) = machine.receive(frame(large)[:8], 0)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"
    assert kinds(machine.take_output()) == ["header", "open", "close"]


def test_a_frame_may_be_as_large_as_announced_and_no_larger() -> None:
    machine = opened_server(ConnectionLimits(max_frame_size=1_024))
    assert machine.receive((1_024).to_bytes(4, "big") + b"\x02\x00\x00\x00", 0) == []
    machine = opened_server(ConnectionLimits(max_frame_size=1_024))
    events = machine.receive((1_025).to_bytes(4, "big") + b"\x02\x00\x00\x00", 0)
    assert [type(event) for event in events] == [Closed]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x03\x00\x00\x00",
        b"\x00\x00\x00\x09\x02\x00\x00\x00\x40",
        frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 5_000),
        begin(3) + begin(3),
        frame(End(), 9),
        frame(b"\x00\x53\x17\x45\x40"),
        frame(Begin(remote_channel=4, next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
    ],
    ids=[
        "too short",
        "offset into the head",
        "offset behind the end",
        "no performative",
        "channel above the maximum",
        "channel in use",
        "channel without a session",
        "bytes behind the performative",
        "answer to nothing",
    ],
)
def test_a_broken_frame_closes_the_connection(raw: bytes) -> None:
    machine = opened_server()
    events = machine.receive(raw, 0)
    assert isinstance(events[-1], Closed)
    assert not events[-1].by_peer
    assert events[-1].error is not None
    assert kinds(machine.take_output())[-1] == "close"


def test_a_peer_with_tiny_frames_is_refused() -> None:
    machine = server()
    events = machine.receive(AMQP_HEADER + frame(Open(container_id="x", max_frame_size=511)), 0)
    assert [type(event) for event in events] == [Closed]


def test_a_frame_that_the_peer_cannot_take_closes() -> None:
    machine = opened_server(open=Open(container_id="x", max_frame_size=512))
    attach = Attach(name="a", handle=0, role=False, source=Source(), target=Target())
    events = machine.receive(begin() + frame(attach), 0)
    assert isinstance(events[0], AttachRequested)
    link = events[0].link
    link.refuse(AmqpError("amqp:not-found", "x" * 600))
    assert is_closed(machine)
    assert machine.error is not None
    assert machine.error.condition == "amqp:frame-size-too-small"
    assert kinds(machine.take_output()) == ["begin", "attach", "close"]


def test_a_client_knows_how_many_sessions_the_peer_takes() -> None:
    pair = Pair(server_limits=ConnectionLimits(channel_max=1))
    pair.exchange()
    pair.client.begin_session()
    pair.client.begin_session()
    with pytest.raises(ValueError, match="no more than 2"):
        pair.client.begin_session()


def test_what_is_left_to_say_may_be_too_large_when_the_end_comes() -> None:
    machine = opened_server(open=Open(container_id="x", max_frame_size=512))
    attach = Attach(name="a", handle=0, role=False, source=Source(), target=Target())
    (asked,) = machine.receive(begin() + frame(attach), 0)
    assert isinstance(asked, AttachRequested)
    asked.link.accept()
    machine.take_output()
    asked.link.settle([0], encode_rejected(AmqpError("amqp:internal-error", "x" * 600)))
    (closed,) = machine.receive(b"\xff" * 8, 0)
    assert isinstance(closed, Closed)
    assert closed.links == [asked.link]
    assert kinds(machine.take_output()) == ["close"]
    assert is_closed(machine)


def test_both_sides_may_begin_sessions() -> None:
    pair = Pair()
    pair.exchange()
    pair.client.begin_session()
    pair.server.begin_session()
    pair.exchange()
    assert sorted(pair.client.local) == sorted(pair.server.local) == [0, 1]
    assert not is_closed(pair.client)


# --- garbage

PRELUDES = [
    b"",
    SASL_HEADER,
    AMQP_HEADER,
    AMQP_HEADER + frame(OPEN),
    AMQP_HEADER + frame(OPEN) + begin(),
]


@given(st.sampled_from(PRELUDES), st.lists(st.binary(max_size=60), max_size=8))
def test_garbage_never_raises(prelude: bytes, parts: list[bytes]) -> None:
    """peers.md 6: one bad connection never kills the process."""
    machine = server()
    machine.receive(prelude, 0)
    for part in parts:
        machine.receive(part, 0)
        machine.take_output()


@given(
    st.sampled_from(PRELUDES[2:]),
    st.lists(
        st.tuples(
            st.sampled_from([*range(0x10, 0x19), 0x40, 0x41, 0x44, 0x70]), st.binary(max_size=80)
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_framed_garbage_never_raises(prelude: bytes, bodies: list[tuple[int, bytes]]) -> None:
    machine = server()
    machine.receive(prelude, 0)
    for code, rest in bodies:
        size = min(len(rest), 250)
        body = b"\x00\x53" + bytes([code]) + b"\xc0" + bytes([size + 1, min(size, 14)]) + rest
        machine.receive(frame(body), 0)
        machine.take_output()


def test_a_frame_byte_by_byte_costs_its_size() -> None:
    machine = opened_server()
    claim = (60_000).to_bytes(4, "big") + b"\x02\x00\x00\x00"
    machine.receive(claim, 0)
    for _ in range(59_991):
        assert machine.receive(b"\x00", 0) == []
    assert not is_closed(machine)
    assert len(machine.splitter.partial) == 59_999
