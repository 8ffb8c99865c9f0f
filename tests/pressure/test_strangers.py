"""Peers without a token, or with a small right, that ask for more than their share."""

from __future__ import annotations

from uuid import UUID

from peeklock.amqp.composites import (
    ACCEPTED,
    Attach,
    Detach,
    Source,
    encode_composite,
)
from peeklock.amqp.fast import build_disposition
from tests.pressure.conftest import MakeHouse
from tests.pressure.raw import RECEIVER, frame
from tests.wire.own_client import run_with, send

MODULUS = (1 << 61) - 1  # of Python's hash of numbers


def test_keys_that_collide_stop_nobody(house: MakeHouse) -> None:
    """One frame of 65 KB without a token froze the broker for a second."""
    broker = house()
    colliding = {UUID(int=1 + number * MODULUS): None for number in range(3_400)}
    attach = encode_composite(
        Attach(name="a", handle=0, role=True, source=Source(address="$cbs"), properties=colliding)
    )

    with broker.pressed():
        for _ in range(10):
            with broker.raw() as peer:
                peer.open(has_key=False)
                peer.begin()
                peer.send(frame(attach))
                assert peer.is_ended_within(5)


def test_dispositions_of_far_ranges_stop_nobody(house: MakeHouse) -> None:
    """Thirty bytes walked all that was unsettled: 2,000 of them took 14 s."""
    count = 1_000
    broker = house(queues={"q": {"LockDuration": "PT5M"}})
    run_with(broker.connection_string, lambda client: send(client, "q", *["x"] * count))
    with broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q", RECEIVER)
        peer.grant(count)
        last = 0
        for _ in range(count):
            transfer = peer.next()[1]
            if transfer is not None and transfer.__class__.__name__ == "Transfer":
                last = transfer.delivery_id
        far = frame(build_disposition(True, last + 1, last + (1 << 30), False, ACCEPTED))
        with broker.pressed():
            peer.send(far * 10_000)
            peer.send(frame(Detach(handle=0, closed=True)))
            peer.wait_for(Detach)
