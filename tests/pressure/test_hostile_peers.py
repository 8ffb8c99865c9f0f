"""Peers without a token, or with a small right, that ask for more than their share."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from uuid import UUID

from peeklock.amqp.frames.fast import build_disposition
from peeklock.amqp.frames.headers import SASL_HEADER
from peeklock.amqp.frames.performatives import Attach, Detach, Disposition, Transfer
from peeklock.amqp.frames.sasl_frames import SaslInit
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.composites import ACCEPTED, encode_composite
from peeklock.client import ServiceBusClient, ServiceBusMessage
from tests.pressure.conftest import StartBroker
from tests.pressure.raw import RECEIVER, SENDER, frame
from tests.pressure.test_passes import send_large
from tests.wire.own_client import run_with, send

MODULUS = (1 << 61) - 1  # of Python's hash of numbers


def test_keys_that_collide_stop_nobody(start_broker: StartBroker) -> None:
    """One frame of 65 KB without a token froze the broker for a second, a request of 126 KB for
    several."""
    broker = start_broker(queues={"q": {}})
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
        # A frame has too few values to be dear; what is asked for may have more.
        request = AmqpMessage(
            properties=Properties(message_id="1"),
            application_properties={"operation": "com.microsoft:peek-message"},
            body_kind=VALUE_BODY,
            body=colliding,
        )
        with broker.raw() as peer:
            peer.open()
            peer.begin()
            peer.attach("q/$management", SENDER)
            for number in range(10):
                send_large(peer, encode_message(request), number)
                assert peer.wait_for(Disposition).state.error is not None


def test_dispositions_of_far_ranges_stop_nobody(start_broker: StartBroker) -> None:
    """Thirty bytes walked all that was unsettled: 2,000 of them took 14 s."""
    count = 1_000
    broker = start_broker(queues={"q": {"LockDuration": "PT5M"}})
    run_with(broker.connection_string, lambda client: send(client, "q", *["x"] * count))
    with broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q", RECEIVER)
        peer.grant(count)
        last = 0
        for _ in range(count):
            transfer = peer.next()[1]
            if transfer is not None and isinstance(transfer, Transfer):
                last = transfer.delivery_id or 0
        far = frame(build_disposition(True, last + 1, last + (1 << 30), False, ACCEPTED))
        with broker.pressed():
            peer.send(far * 10_000)
            peer.send(frame(Detach(handle=0, closed=True)))
            peer.wait_for(Detach)


def test_unfinished_requests_before_a_token_hold_little(start_broker: StartBroker) -> None:
    """5,000 links with an unfinished request of 256 KB each were 1.28 GB for one connection."""
    broker = start_broker()
    # As much as a request may have there; all of them together would be 60 MB.
    piece = bytes(60_000)
    with broker.pressed(grows_at_most=24 << 20), ExitStack() as stack:
        for _ in range(10):
            peer = stack.enter_context(broker.raw())
            peer.open(has_key=False)
            peer.begin()
            with suppress(ConnectionError, TimeoutError):  # it may be cut off, or not be read
                for handle in range(100):
                    link = Attach(
                        name=f"l{handle}",
                        handle=handle,
                        role=SENDER,
                        source=Source(),
                        target=Target(address="$cbs"),
                        initial_delivery_count=0,
                    )
                    peer.send(frame(link))
                peer.is_ended_within(0.2)  # its links are attached, or refused
                for handle in range(100):
                    begun = Transfer(
                        handle=handle, delivery_id=handle, delivery_tag=b"t", more=True
                    )
                    peer.send(frame(begun, payload=piece))


def test_unfinished_messages_with_send_alone_are_bounded(start_broker: StartBroker) -> None:
    """An unfinished message on each of 150 links was 228 MB."""
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 1024}})
    piece = bytes(60_000)
    with broker.pressed(grows_at_most=140 << 20), broker.raw() as peer:
        peer.open()
        peer.begin()
        for handle in range(150):
            peer.attach("q", SENDER, handle=handle)
            begun = Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True)
            peer.send(frame(begun, payload=piece) * 17)
        # The first ones are still there.
        peer.send(frame(Transfer(handle=0, delivery_id=0, more=False), payload=b"x"))


def test_those_who_only_open_keep_nobody_out(start_broker: StartBroker) -> None:
    """They filled the places of a namespace for 18 s at a time."""
    broker = start_broker(queues={"q": {}}, options=("--connections-max", "50"))
    peers = []
    with broker.pressed(grows_at_most=32 << 20):
        for _ in range(150):
            peer = broker.raw()
            peer.open(has_key=False)
            peers.append(peer)
        for _ in range(3):
            run_with(broker.connection_string, lambda client: send(client, "q", "x"))
    assert sum(peer.is_ended_within(0.01) for peer in peers) >= 90
    for peer in peers:
        peer.close()


def test_wrong_keys_are_slowed(start_broker: StartBroker) -> None:
    """636 guesses a second were answered."""
    broker = start_broker()
    init = SaslInit(mechanism="PLAIN", initial_response=b"\0RootManageSharedAccessKey\0wrong")
    answered = 0
    with broker.pressed():
        until = time.monotonic() + 3
        while time.monotonic() < until:
            with broker.raw() as peer:
                peer.send(SASL_HEADER + frame(init, kind=1))
                answered += peer.is_ended_within(0.02)
            time.sleep(0.005)  # it is the broker that is measured, not who fights it for a core
    refused = [
        float(line.split()[-1])
        for line in broker.get("/metrics")[1].splitlines()
        if line.startswith("peeklock_budget_refused") and "amqp_wrong_keys_waiting" in line
    ]
    # The others were sent away without a look at what they showed.
    assert answered - refused[0] <= 50 + 3 * 5 + 10
    assert broker.log().count("operation=sasl") <= 320


def test_lost_connections_leave_nothing(start_broker: StartBroker) -> None:
    """60 connections of 5 MB, come and gone, were 204 MB more."""
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 1024}})
    piece = bytes(60_000)

    def come_and_go() -> None:
        with broker.raw() as peer:
            peer.open()
            peer.begin()
            for handle in range(5):
                peer.attach("q", SENDER, handle=handle)
                begun = Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", more=True)
                peer.send(frame(begun, payload=piece) * 16)

    for _ in range(3):
        come_and_go()
    with broker.pressed(grows_at_most=48 << 20):
        for _ in range(60):
            come_and_go()


def test_rules_with_long_patterns_hold_up_nobody(start_broker: StartBroker) -> None:
    """60 rules of 20 patterns on a value of 32 KB took seconds for one message."""
    filters = [
        " OR ".join(f"v LIKE '%a_{rule}{each}b%'" for each in range(20)) for rule in range(60)
    ]
    rules = [
        {
            "Name": f"r{number}",
            "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}},
        }
        for number, text in enumerate(filters)
    ]
    broker = start_broker(topics=[{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": rules}]}])

    async def publish(client: ServiceBusClient) -> None:
        async with client.get_topic_sender("t") as sender:
            for _ in range(20):
                message = ServiceBusMessage("x", application_properties={"v": "a" * 32_000})
                await sender.send_messages(message)

    with broker.pressed():
        run_with(broker.connection_string, publish)
