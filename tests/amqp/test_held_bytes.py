"""What a peer makes us keep is counted, and given back whatever ends it."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.connection import PERFORMATIVE_ELEMENTS_MAX, Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import AttachRequested, LinkDetached, SessionEnded
from peeklock.amqp.frames.headers import AMQP_HEADER
from peeklock.amqp.frames.performatives import Attach, Begin, Detach, End, Open, Transfer
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.held_bytes import PIECE_BYTES, HeldBytes
from peeklock.amqp.parting import come_apart, drop_unfinished
from peeklock.amqp.sessions.link import Link
from peeklock.budgets import Budget
from tests.amqp.engine_pair import events_of, frame, is_closed, server

LIMIT = 100_000


def opened(limit: int = LIMIT, shared: Budget | None = None) -> Connection:
    machine = server()
    machine.held = HeldBytes(limit, shared)
    machine.receive(AMQP_HEADER + frame(Open(container_id="x")), 0)
    begin(machine)
    return machine


def begin(machine: Connection, channel: int = 0) -> None:
    machine.receive(
        frame(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100), channel), 0
    )


def attach(machine: Connection, handle: int = 0, **fields: Any) -> Link:
    events = machine.receive(
        frame(
            Attach(
                name=f"l{handle}",
                handle=handle,
                role=False,
                source=Source(),
                target=Target(address="q"),
                initial_delivery_count=0,
                **fields,
            )
        ),
        0,
    )
    (asked,) = events_of(events, AttachRequested)
    link: Link = asked.link
    link.accept(max_message_size=0)
    link.grant(100)
    return link


def part(handle: int, size: int, *, more: bool = True, aborted: bool = False) -> bytes:
    transfer = Transfer(
        handle=handle, delivery_id=handle, delivery_tag=b"t", more=more, aborted=aborted
    )
    return frame(transfer, payload=bytes(size))


@pytest.mark.parametrize("end", ["last", "aborted", "detach", "detached", "end", "close", "apart"])
def test_what_is_held_is_given_back(end: str) -> None:
    shared = Budget("shared", LIMIT)
    machine = opened(shared=shared)
    link = attach(machine)
    attached = shared.used
    assert 0 < attached < 500
    machine.receive(part(0, 1_000) + part(0, 1_000), 0)
    assert shared.used == machine.held.used == attached + 2 * (1_000 + PIECE_BYTES)
    if end == "last":
        machine.receive(part(0, 10, more=False), 0)
    elif end == "aborted":
        machine.receive(part(0, 0, aborted=True), 0)
    elif end == "detach":
        link.detach()
    elif end == "detached":
        machine.receive(frame(Detach(handle=0, closed=True)), 0)
    elif end == "end":
        machine.receive(frame(End()), 0)
    elif end == "close":
        machine.close()
    else:
        come_apart(machine)
    assert shared.used == machine.held.used
    assert shared.used == (attached if end in ("last", "aborted", "detach") else 0)


def test_a_message_that_would_hold_too_much_ends_its_link_only() -> None:
    machine = opened()
    attach(machine, 0)
    attach(machine, 1)
    machine.receive(part(0, 60_000), 0)
    events = machine.receive(part(1, 60_000), 0)
    (detached,) = events_of(events, LinkDetached)
    assert detached.error.condition == "amqp:link:detach-forced"
    assert detached.link.name == "l1"
    events = machine.receive(part(0, 10, more=False), 0)
    assert len(events) == 1


def test_pieces_count_for_what_they_really_take() -> None:
    machine = opened()
    attach(machine)
    events = machine.receive(part(0, 1) * (LIMIT // PIECE_BYTES + 1), 0)
    assert len(events_of(events, LinkDetached)) == 1


def test_attaches_count_and_end_their_session() -> None:
    machine = opened()
    attach(machine, 0, properties={"x": "y" * 60_000})
    large = Attach(name="l1", handle=1, role=False, properties={"x": "y" * 60_000})
    (ended,) = events_of(machine.receive(frame(large), 0), SessionEnded)
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    assert machine.held.used == 0


def test_sessions_and_links_have_limits_that_move() -> None:
    machine = opened()
    machine.sessions_max = 2
    begin(machine, 1)
    machine.links_max = 1
    attach(machine, 0)
    second = Attach(name="l1", handle=1, role=False)
    (ended,) = events_of(machine.receive(frame(second), 0), SessionEnded)
    assert "too many links" in str(ended.error.description)
    machine.receive(frame(End()), 0)
    machine.links_max = 2
    begin(machine)
    attach(machine, 0)
    begin(machine, 2)
    assert is_closed(machine)


def test_elements_of_a_performative_have_a_limit() -> None:
    machine = opened(limit=1 << 30)
    many = list(range(PERFORMATIVE_ELEMENTS_MAX))
    machine.receive(frame(Attach(name="l", handle=0, role=False, properties={"x": many})), 0)
    assert is_closed(machine)


def test_what_is_unfinished_can_be_dropped() -> None:
    machine = opened()
    attach(machine, 0)
    attach(machine, 1)
    machine.receive(part(0, 1_000), 0)
    before = machine.held.used
    events = drop_unfinished(machine, AmqpError("x", "memory"))
    assert [event.link.name for event in events_of(events, LinkDetached)] == ["l0"]
    assert machine.held.used == before - 1_000 - PIECE_BYTES


def test_who_asks_for_more_than_all_may_have_has_room_made() -> None:
    shared = Budget("shared", 1_000)
    rich, poor = HeldBytes(10_000, shared), HeldBytes(10_000, shared)
    assert rich.take(900)
    assert not poor.take(200)

    def make_room() -> bool:
        rich.give_back(500)
        return True

    poor.make_room = make_room
    assert poor.take(200)
    assert (rich.used, poor.used, shared.used) == (400, 200, 600)
    poor.move(50_000, None)
    assert shared.used == 400
    assert poor.take(40_000)
