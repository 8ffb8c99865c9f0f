"""Transfers in a row are read in one loop, and nobody can tell but by the time it takes."""

from typing import Any

import pytest

from peeklock.amqp.errors import MESSAGE_SIZE_EXCEEDED, TRANSFER_LIMIT_EXCEEDED
from peeklock.amqp.events import Event, LinkDetached, RunReceived, TransfersReceived
from peeklock.amqp.frames.performatives import Transfer
from peeklock.amqp.limits import ConnectionLimits
from tests.amqp.engine_pair import events_of, frame, is_closed
from tests.amqp.sessions.test_link import STATE, receiver_link
from tests.amqp.sessions.test_link import transfer as written


def transfer(number: int, payload: bytes, **more: Any) -> bytes:
    """As clients write it: with the message format, which a run demands."""
    return written(number, payload, **{"message_format": 0, **more})


@pytest.mark.parametrize("odd", ["plain", "narrow-id", "more", "other-link", "format", "large"])
def test_a_run_is_read_like_its_frames_one_by_one(odd: str) -> None:
    """The short way for a run of transfers gives what single frames give, whatever stands among
    them."""
    raws = [transfer(1000 + number, b"body%d" % number) for number in range(20)]
    others = {
        "plain": transfer(5000, b"five"),
        "narrow-id": transfer(7, b"seven"),
        "more": transfer(6000, b"a", more=True) + transfer(6000, b"b"),
        "other-link": transfer(8000, b"eight", handle=3),
        "format": transfer(9000, b"nine", message_format=5),
        "large": transfer(9500, b"x" * 3000),
    }
    raws.insert(10, others[odd])
    found = []
    for pieces in (raws, [b"".join(raws)]):
        machine, _ = receiver_link(credit=100)
        events = []
        for piece in pieces:
            events += machine.receive(piece, 0)
        told = [
            (delivery.id, delivery.tag, delivery.message_format, delivery.settled, delivery.payload)
            for event in events_of(events, TransfersReceived)
            for delivery in event.deliveries
        ]
        found.append((told, is_closed(machine), machine.take_output()))
    assert found[0][:2] == found[1][:2]
    assert len(found[0][0]) >= 10


def told_in_order(events: list[Event]) -> list[tuple[int, int, bool, bytes]]:
    found = []
    for event in events:
        if isinstance(event, RunReceived):
            assert len(event.ids) == len(event.payloads) > 0
            for at in range(len(event.ids)):
                found.append((event.ids[at], 0, event.settled, event.payloads[at]))
        elif isinstance(event, TransfersReceived):
            found += [(d.id, d.message_format, d.settled, d.payload) for d in event.deliveries]
    return found


@pytest.mark.parametrize(
    "odd",
    [
        "plain",
        "narrow-id",
        "more",
        "three-parts",
        "aborted",
        "aborted-twice",
        "format",
        "large",
        "settled",
        "short",
        "state",
    ],
)
def test_an_owner_that_takes_runs_is_told_the_same_in_the_same_order(odd: str) -> None:
    raws = [transfer(1000 + number, b"body%d" % number) for number in range(20)]
    others = {
        "plain": transfer(5000, b"five"),
        "narrow-id": transfer(7, b"seven"),
        "more": transfer(6000, b"a", more=True) + transfer(6000, b"b"),
        "three-parts": transfer(6000, b"a", more=True)
        + transfer(6000, b"b", more=True)
        + transfer(6000, b"c"),
        "aborted": transfer(6000, b"a", more=True) + transfer(6000, b"", aborted=True),
        "aborted-twice": transfer(6000, b"a", aborted=True) + transfer(6001, b"b", aborted=True),
        "format": transfer(9000, b"nine", message_format=5),
        "large": transfer(9500, b"x" * 3000),
        "settled": transfer(9600, b"set", settled=True),
        "short": frame(Transfer(handle=0, delivery_id=5, delivery_tag=b"t"), payload=b"short"),
        "state": transfer(9700, b"state", state=STATE),
    }
    raws.insert(10, others[odd])
    found = []
    for takes_runs in (False, True):
        machine, link = receiver_link(credit=100)
        link.takes_runs = takes_runs
        found.append(told_in_order(machine.receive(b"".join(raws), 0)))
        assert link.credit == 100 - (22 if odd == "aborted-twice" else 21)
    assert found[0] == found[1]
    assert len(found[0]) == (20 if odd.startswith("aborted") else 21)


def test_a_run_ends_where_the_credit_does() -> None:
    machine, link = receiver_link(ConnectionLimits(credit_overdraft=20), credit=10)
    link.takes_runs = True
    data = b"".join(transfer(1000 + number, b"m") for number in range(5_000))
    events = machine.receive(data, 0)
    assert len(told_in_order(events)) == 30
    assert [event.error.condition for event in events_of(events, LinkDetached) if event.error] == [
        TRANSFER_LIMIT_EXCEEDED
    ]


@pytest.mark.parametrize("takes_runs", [False, True])
def test_a_message_that_is_too_large_ends_the_link_within_a_run_too(takes_runs: bool) -> None:
    machine, link = receiver_link()
    link.takes_runs = takes_runs
    link.max_message_size = 1_000
    sizes = [10] * 5 + [3_000] + [10] * 5
    data = b"".join(transfer(1000 + at, b"x" * size) for at, size in enumerate(sizes))
    events = machine.receive(data, 0)
    assert len(told_in_order(events)) == 5
    assert [event.error.condition for event in events_of(events, LinkDetached) if event.error] == [
        MESSAGE_SIZE_EXCEEDED
    ]
