"""Links: attaching, refusing, credit, drain, transfers of all shapes, stealing, detaching."""

from typing import Any

import pytest

from peeklock.amqp.connection import Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AttachRequested,
    FlowReceived,
    LinkDetached,
    TransfersReceived,
)
from peeklock.amqp.frames.headers import AMQP_HEADER, SERIAL_MASK
from peeklock.amqp.frames.performatives import Attach, Begin, Detach, Flow, Open, Transfer
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sessions.link import RECEIVER, Link
from peeklock.amqp.values.composites import ACCEPTED, encode_composite
from tests.amqp.engine_pair import frame, frames, is_closed, kinds, server, values

BEGIN = Begin(next_outgoing_id=0, incoming_window=65_536, outgoing_window=65_536)
SOURCE = Source(address="from")
TARGET = Target(address="to")
# Any composite will do as a state: it stays encoded.
STATE = Source(address="state")


def begun(limits: ConnectionLimits | None = None) -> Connection:
    machine = server(limits)
    machine.receive(AMQP_HEADER + frame(Open(container_id="peer")) + frame(BEGIN), 0)
    machine.take_output()
    return machine


def requested(machine: Connection, attach: Attach) -> Link:
    (event,) = machine.receive(frame(attach), 0)
    assert isinstance(event, AttachRequested)
    return event.link


def attach(name: str = "a", handle: int = 0, *, role: bool = False, **more: Any) -> Attach:
    """A peer's attach; role False is a peer that sends."""
    return Attach(name=name, handle=handle, role=role, source=SOURCE, target=TARGET, **more)


def receiver_link(
    limits: ConnectionLimits | None = None, credit: int = 10_000
) -> tuple[Connection, Link]:
    machine = begun(limits)
    link = requested(machine, attach())
    link.accept()
    link.grant(credit)
    machine.take_output()
    return machine, link


def sender_link(credit: int = 0) -> tuple[Connection, Link]:
    machine = begun()
    link = requested(machine, attach(role=True))
    link.accept()
    if credit:
        machine.receive(flow(credit), 0)
    machine.take_output()
    return machine, link


def flow(
    credit: int | None, count: int | None = 0, *, drain: bool = False, echo: bool = False
) -> bytes:
    return frame(
        Flow(
            next_incoming_id=100_000,
            incoming_window=65_536,
            next_outgoing_id=0,
            outgoing_window=9,
            handle=0,
            delivery_count=count,
            link_credit=credit,
            drain=drain,
            echo=echo,
        )
    )


def transfer(number: int, payload: bytes = b"x", *, handle: int = 0, **more: Any) -> bytes:
    value = Transfer(handle=handle, delivery_id=number, delivery_tag=b"t%d" % number, **more)
    return frame(value, payload=payload)


# --- attaching


def test_an_accepted_attach_echoes_the_request() -> None:
    """protocol.md 3.3: both termini byte for byte, the modes as asked, a size above zero."""
    machine = begun()
    link = requested(
        machine,
        attach(
            "n", 7, snd_settle_mode=0, rcv_settle_mode=1, properties={"k": "v"}, max_message_size=9
        ),
    )
    assert (link.name, link.role, link.remote_handle) == ("n", RECEIVER, 7)
    assert (link.source, link.target) == (SOURCE, TARGET)
    assert (link.properties, link.peer_max_message_size) == ({"k": "v"}, 9)
    assert link.accept(properties={"p": 1})
    output = machine.take_output()
    (said,) = values(output)
    assert (said.name, said.handle, said.role) == ("n", 7, True)
    assert (said.snd_settle_mode, said.rcv_settle_mode) == (0, 1)
    assert (said.source, said.target) == (SOURCE, TARGET)
    assert encode_composite(SOURCE) in output
    assert said.max_message_size == 262_144
    assert said.initial_delivery_count is None
    assert said.properties == {"p": 1}
    assert not link.accept()


def test_modes_that_were_not_given_are_not_answered() -> None:
    """protocol.md 3.2: go-amqp fails when the answer differs, null for null."""
    machine = begun()
    link = requested(machine, attach(role=True))
    link.accept(max_message_size=1_000)
    (said,) = values(machine.take_output())
    assert (said.snd_settle_mode, said.rcv_settle_mode) == (None, None)
    assert (said.role, said.initial_delivery_count, said.max_message_size) == (False, 0, 1_000)


def test_other_termini_can_be_answered_and_null_ones_become_empty() -> None:
    machine = begun()
    link = requested(machine, Attach(name="s", handle=0, role=True, source=SOURCE))
    assert link.target is None
    link.accept(source=encode_composite(Source(address="other")))
    (said,) = values(machine.take_output())
    assert (said.source.address, said.target) == ("other", Target())


@pytest.mark.parametrize("role", [False, True])
def test_a_refusal_is_an_attach_without_termini_and_a_detach(role: bool) -> None:
    """protocol.md 3.4; the peer's detach is an answer and is not answered."""
    machine = begun()
    link = requested(machine, attach(role=role))
    error = AmqpError("amqp:not-found", "no such entity", None)
    link.refuse(error)
    link.refuse(error)
    said, gone = values(machine.take_output())
    assert (said.source, said.target, said.role) == (None, None, not role)
    assert gone == Detach(handle=0, closed=True, error=error)
    assert machine.receive(frame(Detach(handle=0, closed=True)), 0) == []
    assert machine.take_output() == b""
    assert machine.links() == []


def test_an_answer_may_come_late_while_other_links_go_on() -> None:
    machine = begun()
    waiting = requested(machine, attach("w", 0, role=True))
    other = requested(machine, attach("o", 1))
    other.accept()
    other.grant(5)
    (event,) = machine.receive(transfer(0, handle=1), 0)
    assert isinstance(event, TransfersReceived)
    waiting.accept()
    assert kinds(machine.take_output()) == ["attach", "flow", "attach"]


def test_a_peer_may_give_up_before_it_is_answered() -> None:
    machine = begun()
    link = requested(machine, attach(role=True))
    (event,) = machine.receive(frame(Detach(handle=0, closed=True)), 0)
    assert event == LinkDetached(link, True, None, [], [])
    said, gone = values(machine.take_output())
    assert (said.source, said.target) == (None, None)
    assert (gone.closed, gone.error) == (True, None)
    assert not link.accept()
    link.refuse(AmqpError("x"))
    assert machine.take_output() == b""


def test_credit_that_comes_before_the_answer_is_kept() -> None:
    """Proton pipelines attach and flow."""
    machine = begun()
    asked, flowed = machine.receive(frame(attach(role=True)) + flow(10, None), 0)
    assert isinstance(asked, AttachRequested)
    assert flowed == FlowReceived(asked.link)
    assert asked.link.send(b"t", b"", b"x", False, None) == -1
    asked.link.accept()
    assert asked.link.credit == 10


def test_a_transfer_before_the_answer_is_refused() -> None:
    """peers.md 6: nothing is taken on a link that nobody allowed."""
    machine = begun()
    asked, gone = machine.receive(frame(attach()) + transfer(0), 0)
    assert isinstance(asked, AttachRequested)
    assert isinstance(gone, LinkDetached)
    assert not asked.link.accept()
    assert kinds(machine.take_output()) == ["attach", "detach"]


def test_a_name_is_stolen() -> None:
    machine, link = receiver_link()
    gone, asked = machine.receive(frame(attach("a", 5)), 0)
    assert isinstance(gone, LinkDetached)
    assert gone.link is link
    assert gone.error is not None
    assert gone.error.condition == "amqp:link:stolen"
    assert isinstance(asked, AttachRequested)
    assert asked.link.accept()
    assert kinds(machine.take_output()) == ["detach", "attach"]
    # What was under way on the old link is dropped, and its detach is an answer.
    assert machine.receive(transfer(0) + frame(Detach(handle=0, closed=True)), 0) == []
    assert machine.links() == [asked.link]
    # The other direction has names of its own.
    assert isinstance(machine.receive(frame(attach("a", 6, role=True)), 0)[0], AttachRequested)


def test_a_handle_can_be_used_again() -> None:
    machine, _ = receiver_link()
    machine.receive(frame(Detach(handle=0, closed=True)), 0)
    link = requested(machine, attach("b", 0))
    link.accept()
    assert kinds(machine.take_output()) == ["detach", "attach"]
    assert link.handle == 0


# --- receiving


def test_five_thousand_transfers_in_one_pass_are_one_event() -> None:
    machine, link = receiver_link()
    data = b"".join(transfer(number, b"m%d" % number) for number in range(5_000))
    (event,) = machine.receive(data, 0)
    assert isinstance(event, TransfersReceived)
    assert [d.id for d in event.deliveries] == list(range(5_000))
    assert event.deliveries[77].payload == b"m77"
    assert event.deliveries[77].tag == b"t77"
    assert link.credit == 5_000
    link.settle([d.id for d in event.deliveries], ACCEPTED)
    link.grant(10_000)
    flowed, told = values(machine.take_output())
    assert (flowed.delivery_count, flowed.link_credit) == (5_000, 10_000)
    assert (told.first, told.last) == (0, 4_999)


def test_links_are_gathered_apart_even_when_they_alternate() -> None:
    machine, link = receiver_link()
    other = requested(machine, attach("b", 1))
    other.accept()
    other.grant(100)
    data = b"".join(transfer(n, handle=n % 2) for n in range(20))
    first, second = machine.receive(data, 0)
    assert isinstance(first, TransfersReceived)
    assert isinstance(second, TransfersReceived)
    assert (first.link, second.link) == (link, other)
    assert [d.id for d in first.deliveries] == list(range(0, 20, 2))
    # The next pass starts afresh.
    (again,) = machine.receive(transfer(20), 0)
    assert isinstance(again, TransfersReceived)
    assert len(again.deliveries) == 1


def test_a_delivery_carries_what_the_transfer_said() -> None:
    machine, _ = receiver_link()
    raw = transfer(4, b"", message_format=0x80013700, settled=True, state=STATE)
    (event,) = machine.receive(raw + transfer(5), 0)
    assert isinstance(event, TransfersReceived)
    batch, plain = event.deliveries
    assert (batch.message_format, batch.settled, batch.payload) == (0x80013700, True, b"")
    assert batch.state == encode_composite(STATE)
    assert (plain.message_format, plain.settled, plain.state) == (0, False, None)


@pytest.mark.parametrize("repeat", [True, False], ids=["as the SDKs do", "as the standard says"])
def test_a_message_in_several_frames_is_put_together(repeat: bool) -> None:
    """protocol.md 4.1: both clients repeat id, tag and format on every frame."""
    machine, link = receiver_link()
    other = requested(machine, attach("b", 1))
    other.accept()
    other.grant(9)

    def part(payload: bytes, more: bool, first: bool = False) -> bytes:
        if repeat or first:
            return transfer(0, payload, more=more, message_format=7)
        return frame(Transfer(handle=0, more=more), payload=payload)

    assert machine.receive(part(b"abc", True, True), 0) == []
    between, done = machine.receive(
        transfer(1, b"other", handle=1) + part(b"def", True) + part(b"", True) + part(b"g", False),
        0,
    )
    assert isinstance(between, TransfersReceived)
    assert between.link is other
    assert isinstance(done, TransfersReceived)
    (delivery,) = done.deliveries
    assert (delivery.id, delivery.tag, delivery.payload) == (0, b"t0", b"abcdefg")
    assert delivery.message_format == 7
    assert link.credit == 9_999


def test_the_state_of_a_message_in_several_frames_is_kept() -> None:
    machine, _ = receiver_link()
    raw = transfer(0, b"a", more=True, state=STATE) + transfer(0, b"b", settled=True)
    (event,) = machine.receive(raw, 0)
    assert isinstance(event, TransfersReceived)
    (delivery,) = event.deliveries
    assert (delivery.settled, delivery.state) == (True, encode_composite(STATE))


def test_an_aborted_message_is_dropped() -> None:
    machine, link = receiver_link(credit=10)
    aborted = transfer(0, b"half", more=True) + transfer(0, b"", aborted=True)
    (event,) = machine.receive(aborted + transfer(1, b"whole"), 0)
    assert isinstance(event, TransfersReceived)
    assert [d.payload for d in event.deliveries] == [b"whole"]
    assert link.credit == 8


@pytest.mark.parametrize(
    "raw",
    [
        transfer(0, bytes(1_001)),
        transfer(0, bytes(600), more=True) + transfer(0, bytes(401), more=True),
    ],
    ids=["one frame", "all frames together"],
)
def test_a_message_that_is_too_large_detaches_its_link(raw: bytes) -> None:
    """R-S: the size of all frames together counts, and nothing is kept of it."""
    machine = begun()
    link = requested(machine, attach())
    link.accept(max_message_size=1_000)
    link.grant(10)
    machine.take_output()
    (gone,) = machine.receive(raw, 0)
    assert isinstance(gone, LinkDetached)
    assert gone.error is not None
    assert gone.error.condition == "amqp:link:message-size-exceeded"
    (said,) = values(machine.take_output())
    assert said.closed
    assert link.assembly is None
    # The rest of it was under way already.
    assert machine.receive(transfer(0, bytes(100)), 0) == []
    assert not machine.closed


def test_a_message_of_exactly_the_limit_is_taken() -> None:
    machine = begun()
    link = requested(machine, attach())
    link.accept(max_message_size=1_000)
    link.grant(10)
    (event,) = machine.receive(transfer(0, bytes(1_000)), 0)
    assert isinstance(event, TransfersReceived)


def test_all_the_credit_that_a_number_holds_is_legal() -> None:
    """Also where the peer claims to have seen more than there was, and asks what we think."""
    machine, link = sender_link()
    for count in (0, 5):
        machine.receive(flow(SERIAL_MASK, count, echo=True), 0)
        machine.take_output()
        assert link.credit == SERIAL_MASK
    link.send(b"0123456789abcdef", b"", b"x", False, None)
    machine.receive(flow(SERIAL_MASK, 1, drain=True), 0)
    link.drained()
    machine.take_output()
    assert not is_closed(machine)
    assert link.credit == 0


def test_a_peer_may_overdraw_its_credit_a_little() -> None:
    """protocol.md 3.3: py ignores link credit."""
    machine, link = receiver_link(ConnectionLimits(credit_overdraft=3), credit=1)
    (event,) = machine.receive(b"".join(transfer(n) for n in range(4)), 0)
    assert isinstance(event, TransfersReceived)
    assert link.credit == -3
    (gone,) = machine.receive(transfer(4), 0)
    assert isinstance(gone, LinkDetached)
    assert gone.error is not None
    assert gone.error.condition == "amqp:link:transfer-limit-exceeded"


@pytest.mark.parametrize(
    "raw",
    [
        frame(Transfer(handle=0, delivery_tag=b"x")),
        frame(Transfer(handle=0, delivery_id=1)),
        frame(Transfer(handle=0, delivery_id=1, delivery_tag=bytes(33))),
        frame(Transfer(handle=0, delivery_id=1, more=True)),
        transfer(0, more=True) + transfer(1, more=True),
    ],
    ids=["no id", "no tag", "long tag", "no tag, more", "another id before the end"],
)
def test_a_broken_transfer_detaches_the_link(raw: bytes) -> None:
    machine, _ = receiver_link()
    events = machine.receive(raw, 0)
    assert isinstance(events[-1], LinkDetached)
    assert events[-1].error is not None
    assert events[-1].error.condition == "amqp:invalid-field"
    assert not machine.closed


def test_a_transfer_to_a_sender_detaches_the_link() -> None:
    machine, _ = sender_link()
    (gone,) = machine.receive(transfer(0), 0)
    assert isinstance(gone, LinkDetached)


def test_a_sender_tells_its_count() -> None:
    """protocol.md 14: py sends flows as a sender; its credit is not ours."""
    machine, link = receiver_link(credit=10)
    assert machine.receive(flow(10_000, 0, echo=True), 0) == []
    assert link.credit == 10
    (said,) = values(machine.take_output())
    assert (said.delivery_count, said.link_credit, said.handle) == (0, 10, 0)
    machine.receive(flow(0, 4), 0)
    assert (link.delivery_count, link.credit) == (4, 6)


# --- sending


def test_credit_is_counted_from_what_the_peer_has_seen() -> None:
    """protocol.md 3.6: delivery-count(peer) + link-credit - delivery-count(own), not below zero."""
    machine, link = sender_link(credit=3)
    assert link.credit == 3
    for _ in range(2):
        link.send(b"t", b"h", b"b", False, None)
    assert link.credit == 1
    machine.receive(flow(3, 0), 0)
    assert link.credit == 1
    machine.receive(flow(3, 1), 0)
    assert link.credit == 2
    machine.receive(flow(0, 0), 0)
    assert link.credit == 0
    assert link.send(b"t", b"h", b"b", False, None) == -1


def test_a_message_goes_out_as_head_and_body() -> None:
    machine, link = sender_link(credit=2)
    assert link.send(b"tag", b"head", b"body", False, None) == 100_000
    assert link.send(b"tag2", b"", b"x", True, None, 0x80013700) == 100_001
    (_, first, payload), (_, second, _) = frames(machine.take_output())
    assert (first.delivery_id, first.delivery_tag, first.message_format) == (100_000, b"tag", 0)
    assert (first.settled, first.more, payload) == (False, False, b"headbody")
    assert (second.settled, second.message_format) == (True, 0x80013700)
    assert [d.id for d in link.unsettled()] == [100_000]


def test_a_drain_is_answered_with_the_credit_used_up() -> None:
    machine, link = sender_link(credit=5)
    link.send(b"t", b"", b"x", False, None)
    assert machine.receive(flow(5, 0, drain=True), 0) == [FlowReceived(link)]
    assert (link.drain, link.credit) == (True, 4)
    link.send(b"t", b"", b"x", False, None)
    link.drained()
    link.drained()
    said = values(machine.take_output())[-1]
    assert (said.delivery_count, said.link_credit, said.drain) == (5, 0, True)
    assert (said.handle, said.next_incoming_id) == (0, 0)
    assert kinds(machine.take_output()) == []
    assert (link.drain, link.credit) == (False, 0)
    machine.receive(flow(2, 5), 0)
    assert link.credit == 2


def test_a_drain_without_credit_is_answered_at_once() -> None:
    """protocol.md 3.6: py closes a receiver with credit 0 and drain."""
    machine, link = sender_link(credit=5)
    assert machine.receive(flow(0, 0, drain=True), 0) == [FlowReceived(link)]
    (said,) = values(machine.take_output())
    assert (said.delivery_count, said.link_credit, said.drain) == (0, 0, True)


def test_a_drain_waits_for_what_is_queued() -> None:
    machine, link = sender_link(credit=5)
    link.session.outgoing.window = 1
    for _ in range(3):
        link.send(b"t", b"", b"x", True, None)
    machine.receive(
        frame(
            Flow(
                next_incoming_id=100_001,
                incoming_window=0,
                next_outgoing_id=0,
                outgoing_window=0,
                handle=0,
                delivery_count=1,
                link_credit=4,
                drain=True,
                echo=True,
            )
        ),
        0,
    )
    _, echo = values(machine.take_output())
    assert (echo.delivery_count, echo.link_credit) == (1, 4)
    link.drained()
    assert machine.take_output() == b""
    machine.receive(flow(4, 1), 0)
    sent = values(machine.take_output())
    assert [type(value).__name__ for value in sent] == ["Transfer", "Transfer", "Flow"]
    assert (sent[-1].delivery_count, sent[-1].drain) == (5, True)


def test_an_echo_is_answered_with_the_links_state() -> None:
    machine, link = sender_link(credit=5)
    link.send(b"t", b"", b"x", False, None)
    machine.take_output()
    machine.receive(flow(5, 1, echo=True), 0)
    (said,) = values(machine.take_output())
    assert (said.handle, said.delivery_count, said.link_credit) == (0, 1, 5)


def test_a_flow_may_leave_out_credit_and_count() -> None:
    machine, link = sender_link(credit=5)
    machine.receive(flow(None, None), 0)
    assert link.credit == 5
    machine, link = receiver_link(credit=5)
    machine.receive(flow(None, None), 0)
    assert link.credit == 5


# --- detaching


def test_a_detach_is_answered_once_with_the_same_flag() -> None:
    for closed in (True, False):
        machine, link = sender_link(credit=3)
        link.send(b"t", b"", b"x", False, "kept")
        machine.take_output()
        error = AmqpError("amqp:internal-error", "x", None)
        (gone,) = machine.receive(frame(Detach(handle=0, closed=closed, error=error)), 0)
        assert isinstance(gone, LinkDetached)
        assert (gone.link, gone.closed, gone.error) == (link, closed, error)
        assert [d.context for d in gone.unsettled] == ["kept"]
        assert values(machine.take_output()) == [Detach(handle=0, closed=closed)]


def test_our_detach_is_not_reported_and_its_answer_not_answered() -> None:
    """protocol.md 1.6: an extra detach makes rhea close the whole connection."""
    machine, link = sender_link(credit=3)
    link.send(b"t", b"", b"x", False, "kept")
    link.settle([100_000], ACCEPTED, settled=False)
    machine.take_output()
    error = AmqpError("amqp:link:detach-forced", "idle", None)
    assert [d.context for d in link.detach(error)] == ["kept"]
    assert link.detach() == []
    assert values(machine.take_output()) == [Detach(handle=0, closed=True, error=error)]
    crossing = flow(5) + frame(Detach(handle=0, closed=True))
    assert machine.receive(crossing, 0) == []
    assert machine.take_output() == b""
    assert link.send(b"t", b"", b"x", False, None) == -1


def test_outcomes_go_out_before_the_detach() -> None:
    machine, link = receiver_link()
    machine.receive(transfer(0), 0)
    link.settle([0], ACCEPTED)
    link.detach()
    assert kinds(machine.take_output()) == ["disposition", "detach"]
