"""Sessions: windows both ways, ids, ranges of outcomes, and their end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.connection import Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AttachRequested,
    Closed,
    FlowReceived,
    LinkDetached,
    SessionEnded,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.headers import AMQP_HEADER
from peeklock.amqp.frames.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED, RELEASED
from tests.amqp.engine_pair import Pair, events_of, frame, frames, kinds, server, values


def sender_link(
    window: int = 2048, credit: int = 10_000, frame_max: int = 65_536
) -> tuple[Connection, Link]:
    """A server with one link on which it sends, and a peer that is written by hand."""
    machine = server()
    (_, asked, _) = machine.receive(
        AMQP_HEADER
        + frame(Open(container_id="peer", max_frame_size=frame_max))
        + frame(Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=9))
        + frame(Attach(name="r", handle=3, role=True, source=Source(address="q"), target=Target()))
        + flow(window=window, handle=3, credit=credit),
        0,
    )
    assert isinstance(asked, AttachRequested)
    asked.link.accept()
    machine.take_output()
    return machine, asked.link


def flow(
    *,
    window: int = 2048,
    seen: int = 100_000,
    handle: int | None = None,
    credit: int | None = None,
    count: int = 0,
    drain: bool = False,
    echo: bool = False,
) -> bytes:
    return frame(
        Flow(
            next_incoming_id=seen,
            incoming_window=window,
            next_outgoing_id=0,
            outgoing_window=9,
            handle=handle,
            delivery_count=None if handle is None else count,
            link_credit=credit,
            drain=drain,
            echo=echo,
        )
    )


def settle(first: int, last: int | None = None, *, settled: bool = True) -> bytes:
    return frame(Disposition(role=True, first=first, last=last, settled=settled, state=Accepted()))


def send_many(link: Link, count: int, size: int = 10) -> list[int]:
    return [link.send(b"t", b"", bytes(size), False, number) for number in range(count)]


def test_the_peers_window_holds_back_what_it_cannot_take() -> None:
    """protocol.md 1.6: js announces 2048 and must never see more."""
    machine, link = sender_link(window=2048)
    ids = send_many(link, 3_000)
    assert ids == list(range(100_000, 103_000))
    assert kinds(machine.take_output()) == ["transfer"] * 2048
    # A wider window alone is not enough: rhea keeps 2,048 unsettled deliveries and no more.
    machine.receive(flow(seen=102_048), 0)
    assert machine.take_output() == b""
    (event,) = machine.receive(settle(100_000, 100_009), 0)
    assert isinstance(event, SettlementsReceived)
    sent = values(machine.take_output())
    assert [t.delivery_id for t in sent] == list(range(102_048, 102_058))


def test_one_old_delivery_holds_up_the_ring() -> None:
    machine, link = sender_link(window=2048)
    send_many(link, 2_050)
    machine.take_output()
    machine.receive(flow(seen=102_048) + settle(100_001, 102_047), 0)
    assert machine.take_output() == b""
    machine.receive(settle(100_000), 0)
    assert [t.delivery_id for t in values(machine.take_output())] == [102_048, 102_049]


def test_settling_ourselves_makes_room_too() -> None:
    machine, link = sender_link(window=2048)
    send_many(link, 2_049)
    machine.take_output()
    machine.receive(flow(seen=102_048), 0)
    link.settle([100_000], ACCEPTED)
    assert kinds(machine.take_output()) == ["transfer", "disposition"]


def test_a_small_window_is_a_plain_flow_window() -> None:
    machine, link = sender_link(window=3)
    send_many(link, 10)
    assert len(frames(machine.take_output())) == 3
    machine.receive(flow(window=3, seen=100_002), 0)  # one of three is still on its way
    assert len(frames(machine.take_output())) == 2
    machine.receive(flow(window=100, seen=100_005), 0)
    assert len(frames(machine.take_output())) == 5


def test_a_large_window_lets_as_many_be_unsettled() -> None:
    """R-S: 5,000 messages in flight with py, whose window is 65,536."""
    machine, link = sender_link(window=65_536)
    send_many(link, 5_000)
    assert len(frames(machine.take_output())) == 5_000


def test_a_message_in_many_frames_waits_for_the_window_in_the_middle() -> None:
    machine, link = sender_link(window=2, frame_max=512)
    link.send(b"tag", b"head", bytes(2_000), False, None)
    first = frames(machine.take_output())
    assert [(t.delivery_tag, t.more) for _, t, _ in first] == [(b"tag", True), (None, True)]
    machine.receive(flow(window=50, seen=100_002), 0)
    rest = frames(machine.take_output())
    assert [t.more for _, t, _ in rest] == [True] * (len(rest) - 1) + [False]
    payload = b"".join(p for _, _, p in first + rest)
    assert payload == b"head" + bytes(2_000)
    assert all(8 + len(p) <= 512 for _, _, p in first + rest)


def test_our_window_is_opened_again_at_half() -> None:
    pair = Pair(server_limits=ConnectionLimits(incoming_window=10))
    session = pair.client.begin_session()
    sender, receiver = pair.sending(session)
    receiver.grant(1_000)
    pair.exchange()
    for number in range(100):
        sender.send(b"t%d" % number, b"", b"x", True, None)
    pair.exchange()
    arrived = [d for e in events_of(pair.server_events, TransfersReceived) for d in e.deliveries]
    assert len(arrived) == 100


def test_flows_carry_both_ids() -> None:
    """protocol.md 1.6: rhea computes NaN without next-incoming-id."""
    machine, link = sender_link()
    machine.receive(flow(echo=True), 0)
    send_many(link, 2)
    machine.receive(flow(echo=True), 0)
    first, _, _, second = values(machine.take_output())
    assert (first.next_incoming_id, first.next_outgoing_id) == (0, 100_000)
    assert (second.next_incoming_id, second.next_outgoing_id) == (0, 100_002)
    assert first.handle is None
    assert (first.incoming_window, first.outgoing_window) == (5_000, 5_000)


# --- outcomes


def test_outcomes_become_ranges() -> None:
    pair = Pair()
    _, receiver = pair.sending(pair.client.begin_session())
    receiver.settle([5, 3, 4, 9, 1, 10], ACCEPTED)
    receiver.settle([2], ACCEPTED)
    receiver.settle([6], RELEASED)
    said = values(pair.server.take_output())
    assert [(d.first, d.last, d.settled, d.role) for d in said] == [
        (1, 5, True, True),
        (9, 10, True, True),
        (6, 6, True, True),
    ]
    assert not pair.server.has_output


@given(st.lists(st.integers(0, 300), max_size=60))
def test_ranges_cover_what_was_settled_and_nothing_else(ids: list[int]) -> None:
    pair = Pair()
    _, receiver = pair.sending(pair.client.begin_session())
    receiver.settle(ids, ACCEPTED)
    said = values(pair.server.take_output())
    covered = [number for d in said for number in range(d.first, d.last + 1)]
    assert covered == sorted(set(ids))


def test_a_range_of_the_peer_is_walked_by_what_we_sent() -> None:
    """A range of four thousand million costs what is unsettled and no more."""
    machine, link = sender_link()
    send_many(link, 5)
    (event,) = machine.receive(settle(1, 2_000_000_000), 0)
    assert isinstance(event, SettlementsReceived)
    assert [d.context for d in event.deliveries] == [0, 1, 2, 3, 4]
    assert link.unsettled() == []


def test_a_range_may_have_holes() -> None:
    machine, link = sender_link()
    send_many(link, 6)
    machine.receive(settle(100_001) + settle(100_003), 0)
    (event,) = machine.receive(settle(100_000, 100_003), 0)
    assert isinstance(event, SettlementsReceived)
    assert [d.id for d in event.deliveries] == [100_000, 100_002]
    (event,) = machine.receive(settle(100_005, 100_100), 0)
    assert isinstance(event, SettlementsReceived)
    assert [d.id for d in event.deliveries] == [100_005]


def test_a_range_backwards_ends_the_session() -> None:
    machine, _ = sender_link()
    (event,) = machine.receive(settle(100_005, 100_001), 0)
    assert isinstance(event, SessionEnded)
    assert event.error is not None
    assert event.error.condition == "amqp:invalid-field"


def test_outcomes_of_one_link_are_gathered_by_state() -> None:
    machine, link = sender_link()
    send_many(link, 6)
    told = settle(100_000) + settle(100_001) + settle(100_003, 100_004)
    (first, second) = machine.receive(told + settle(100_005, settled=False), 0)
    assert isinstance(first, SettlementsReceived)
    assert isinstance(second, SettlementsReceived)
    assert [d.id for d in first.deliveries] == [100_000, 100_001, 100_003, 100_004]
    assert (first.outcome, first.settled) == (ACCEPTED, True)
    assert ([d.id for d in second.deliveries], second.settled) == ([100_005], False)
    assert [d.id for d in link.unsettled()] == [100_002, 100_005]


def test_an_unsettled_outcome_is_answered_by_us() -> None:
    """protocol.md 5.2: disposition(role=sender, settled=true, the same outcome)."""
    machine, link = sender_link()
    send_many(link, 3)
    machine.take_output()
    (event,) = machine.receive(settle(100_000, 100_002, settled=False), 0)
    assert isinstance(event, SettlementsReceived)
    link.settle([d.id for d in event.deliveries], event.outcome)
    (said,) = values(machine.take_output())
    assert (said.role, said.first, said.last, said.settled) == (False, 100_000, 100_002, True)
    assert link.unsettled() == []
    link.settle([100_000], ACCEPTED)  # settled already: there is nothing to say
    assert machine.take_output() == b""
    assert machine.receive(settle(100_000), 0) == []


def test_ids_wrap_around() -> None:
    machine, link = sender_link()
    outgoing = link.session.outgoing
    outgoing.next_delivery_id = outgoing.oldest_id = 0xFFFFFFFE
    outgoing.next_outgoing_id = 0xFFFFFFFE
    assert send_many(link, 4) == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    (event,) = machine.receive(settle(0xFFFFFFFF, 0), 0)
    assert isinstance(event, SettlementsReceived)
    assert [d.id for d in event.deliveries] == [0xFFFFFFFF, 0]
    machine.take_output()
    machine.receive(flow(window=10, seen=0), 0)
    assert outgoing.window == 8


# --- the end


def test_an_end_of_the_peer_is_answered_once() -> None:
    machine, link = sender_link()
    error = AmqpError("amqp:internal-error", None, None)
    (event,) = machine.receive(frame(End(error=error)), 0)
    assert event == SessionEnded(link.session, [link], error)
    assert kinds(machine.take_output()) == ["end"]
    assert machine.links() == []
    # The channel is free again, and the name too.
    attach = Attach(name="r", handle=3, role=True, source=Source(), target=Target())
    begin = Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)
    (asked,) = machine.receive(frame(begin) + frame(attach), 0)
    assert isinstance(asked, AttachRequested)


def test_a_detach_behind_the_end_is_let_pass() -> None:
    """Python's client ends its session first and detaches its links afterwards."""
    machine, _ = sender_link()
    machine.receive(frame(End()) + frame(Detach(handle=3, closed=True)), 0)
    assert kinds(machine.take_output()) == ["end"]
    assert not machine.closed


def test_our_end_drops_what_crosses_it() -> None:
    machine, link = sender_link()
    link.session.end(AmqpError("amqp:session:errant-link", "x"))
    link.session.end()
    assert kinds(machine.take_output()) == ["end"]
    crossing = flow(handle=3, credit=5) + settle(1) + frame(Detach(handle=3))
    assert machine.receive(crossing + frame(Attach(name="z", handle=8, role=True)), 0) == []
    assert machine.receive(frame(End()), 0) == []
    assert machine.take_output() == b""
    assert [type(e) for e in machine.receive(flow(), 0)] == [Closed]


@pytest.mark.parametrize(
    ("raw", "condition"),
    [
        (flow(handle=77, credit=1), "amqp:session:unattached-handle"),
        (frame(Detach(handle=77)), "amqp:session:unattached-handle"),
        (
            frame(Transfer(handle=77, delivery_id=0, delivery_tag=b"x")),
            "amqp:session:unattached-handle",
        ),
        (frame(Attach(name="n", handle=3, role=True)), "amqp:session:handle-in-use"),
    ],
    ids=["flow", "detach", "transfer", "attach"],
)
def test_a_wrong_handle_ends_the_session_and_not_the_connection(raw: bytes, condition: str) -> None:
    machine, link = sender_link()
    (event,) = machine.receive(raw, 0)
    assert isinstance(event, SessionEnded)
    assert event.links == [link]
    assert event.error is not None
    assert event.error.condition == condition
    (said,) = values(machine.take_output())
    assert said.error.condition == condition
    assert not machine.closed


def test_a_handle_above_the_maximum_closes_the_connection() -> None:
    machine, _ = sender_link()
    (event,) = machine.receive(frame(Attach(name="n", handle=5_000, role=True)), 0)
    assert isinstance(event, Closed)


def test_too_many_links_end_the_session() -> None:
    machine = server(ConnectionLimits(links_max=2))
    machine.receive(
        AMQP_HEADER
        + frame(Open(container_id="p"))
        + frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)),
        0,
    )
    attaches = [frame(Attach(name=f"l{n}", handle=n, role=True)) for n in range(3)]
    events = machine.receive(b"".join(attaches), 0)
    assert [type(e) for e in events] == [AttachRequested, AttachRequested, SessionEnded]
    assert events[-1].error.condition == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]  # the type is asserted


def test_a_client_may_end_before_the_answer_comes() -> None:
    pair = Pair()
    pair.exchange()
    session = pair.client.begin_session()
    session.attach_sender("a", Target(address="q"))
    session.end()
    pair.exchange()
    assert events_of(pair.client_events, SessionEnded) == []
    assert len(events_of(pair.server_events, SessionEnded)) == 1
    assert pair.client.local == {}
    assert pair.server.local == {}


def test_two_links_share_the_ids_and_leave_no_gap() -> None:
    """rhea ends the connection at the first gap in the delivery ids of a session."""
    machine, link = sender_link(window=2)
    attach = Attach(name="r2", handle=4, role=True, source=Source(address="q"), target=Target())
    asked, _ = machine.receive(frame(attach) + flow(window=2, handle=4, credit=100), 0)
    assert isinstance(asked, AttachRequested)
    other = asked.link
    other.accept()
    machine.take_output()
    for number in range(3):
        link.send(b"a", b"", b"a%d" % number, number == 2, f"a{number}")
        other.send(b"b", b"", b"b%d" % number, False, f"b{number}")
    assert [t.delivery_id for t in values(machine.take_output())] == [100_000, 100_001]
    (gone,) = machine.receive(frame(Detach(handle=3, closed=True)), 0)
    assert isinstance(gone, LinkDetached)
    assert [d.context for d in gone.unsettled] == ["a0"]
    assert [d.context for d in gone.unsent] == ["a1", "a2"]
    assert kinds(machine.take_output()) == ["detach"]
    machine.receive(flow(window=100, seen=100_002), 0)
    sent = frames(machine.take_output())
    assert [(t.delivery_id, p) for _, t, p in sent] == [(100_002, b"b1"), (100_003, b"b2")]
    assert [d.id for d in other.unsettled()] == [100_001, 100_002, 100_003]
    assert other.send(b"b", b"", b"b3", False, None) == 100_004


def test_a_link_that_goes_leaves_the_others_messages_in_the_queue() -> None:
    machine, link = sender_link(window=2, frame_max=512)
    attach = Attach(name="r2", handle=4, role=True, source=Source(address="q"), target=Target())
    asked, _ = machine.receive(frame(attach) + flow(window=2, handle=4, credit=9, drain=True), 0)
    assert isinstance(asked, AttachRequested)
    other = asked.link
    other.accept()
    machine.take_output()
    other.send(b"b", b"", bytes(2_000), False, "large")
    link.send(b"a", b"", b"a", False, "gone")
    link.drain = True
    link.drained()
    other.send(b"b", b"", b"settled", True, None)
    other.drained()
    machine.take_output()
    (gone,) = machine.receive(frame(Detach(handle=3, closed=True)), 0)
    assert isinstance(gone, LinkDetached)
    assert ([d.context for d in gone.unsent], gone.unsettled) == (["gone"], [])
    machine.take_output()
    machine.receive(flow(window=100, seen=100_002), 0)
    sent = frames(machine.take_output())
    assert [type(v).__name__ for _, v, _ in sent] == ["Transfer"] * (len(sent) - 1) + ["Flow"]
    assert [t.delivery_id for _, t, _ in sent[:-1]] == [100_000] * (len(sent) - 2) + [100_001]
    assert sent[-2][2] == b"settled"


def test_half_a_message_is_aborted_when_its_link_goes() -> None:
    machine, link = sender_link(window=2, frame_max=512)
    link.send(b"t", b"", bytes(2_000), False, "half")
    machine.take_output()
    # The window is shut: nothing can be said about it.
    (gone,) = machine.receive(frame(Detach(handle=3, closed=True)), 0)
    assert isinstance(gone, LinkDetached)
    assert [d.context for d in gone.unsent] == ["half"]
    assert kinds(machine.take_output()) == ["detach"]


def test_half_a_message_is_aborted_while_the_window_is_open() -> None:
    machine, link = sender_link(window=2, frame_max=512)
    link.send(b"t", b"", bytes(2_000), False, "half")
    machine.take_output()
    link.session.outgoing.window = 1  # as a flow would leave it that came with the detach
    machine.receive(frame(Detach(handle=3, closed=True)), 0)
    aborted, _ = values(machine.take_output())
    assert (aborted.aborted, aborted.delivery_id) == (True, 100_000)


def test_a_flow_event_comes_once_per_pass() -> None:
    machine, link = sender_link(credit=0)
    events = machine.receive(flow(handle=3, credit=5) + flow(handle=3, credit=6), 0)
    assert events == [FlowReceived(link)]
    assert link.credit == 6
    assert machine.receive(flow(handle=3, credit=7), 0) == [FlowReceived(link)]


def test_the_peer_sends_a_disposition_as_sender() -> None:
    machine, _ = sender_link()
    raw = Disposition(role=False, first=0, last=9, settled=True)
    assert machine.receive(frame(raw), 0) == []


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("window", "credit", "size"), [(2048, 100, 10), (7, 100, 10), (99, 5, 10)])
def test_a_run_goes_out_like_its_messages_one_by_one(
    settled: bool, window: int, credit: int, size: int
) -> None:
    outputs = []
    for in_a_run in (False, True):
        machine, link = sender_link(window=window, credit=credit)
        tags = [bytes([number]) * 16 for number in range(20)]
        heads = [b"head"] * 20
        bodies = [bytes([number]) * size for number in range(20)]
        contexts = list(range(20))
        sent = link.send_run(tags, heads, bodies, settled, contexts) if in_a_run else 0
        for at in range(sent, 20):
            link.send(tags[at], heads[at], bodies[at], settled, contexts[at])
        kept = [(delivery.id, delivery.tag, delivery.context) for delivery in link.unsettled()]
        outputs.append((machine.take_output(), kept, link.credit, link.delivery_count, link.queued))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("in_a_run", [False, True])
def test_no_unsettled_delivery_is_forgotten_by_the_span_of_a_run(in_a_run: bool) -> None:
    """rhea remembers 2,048 deliveries, counted from the oldest that is unsettled."""
    machine, link = sender_link(window=2048, credit=10_000)

    def send(count: int) -> None:
        sent = 0
        if in_a_run:
            sent = link.send_run(
                [b"t" * 16] * count, [b""] * count, [b"x"] * count, False, [0] * count
            )
        for _ in range(count - sent):
            link.send(b"t" * 16, b"", b"x", False, 0)

    def settle(first: int, last: int) -> None:
        told = Disposition(role=True, first=first, last=last, settled=True)
        machine.receive(frame(told), 0)
        link.session.outgoing.window = 2_048
        link.credit = 10_000

    send(2_000)
    settle(100_000, 101_999)
    send(256)
    settle(102_001, 102_255)  # all but the first
    send(2_500)
    waiting = 256 + 2_500 - link.queued
    assert waiting == 2_048


def test_a_run_stops_at_a_message_that_needs_several_frames() -> None:
    machine, link = sender_link(frame_max=1024)
    sent = link.send_run([b"t" * 16] * 3, [b""] * 3, [b"a", b"b" * 4000, b"c"], False, [1, 2, 3])
    assert sent == 1
    assert kinds(machine.take_output()) == ["transfer"]
    assert [delivery.context for delivery in link.unsettled()] == [1]
