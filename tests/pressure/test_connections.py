"""Many connections at once, and rights that end while connections live."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    ServiceBusAdministrationClient,
)

from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER, frame_size
from peeklock.amqp.frames.performatives import Attach, Begin, Detach, Flow, Open, Transfer
from peeklock.amqp.frames.sasl_frames import SaslInit
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker
from tests.pressure.raw import RECEIVER, SENDER, frame, frames
from tests.wire import sas

pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

SERVED_WITHIN_S = 30.0
WINDOW = 65_535
# What the allocator may keep: of 400 less than what stays of them without being taken apart, and of
# 10,000 less than half a KB for each.
LEFT_BYTES_MAX = {400: 2 << 20, 10_000: 4 << 20}


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.torture)])
def test_clients_of_one_address_that_reconnect_at_once_are_all_served(
    start_broker: StartBroker, count: int
) -> None:
    broker = start_broker(options=("--connections-max", str(count + 10)))

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*[token_after_s(broker) for _ in range(count)])

    before = broker.memory()
    taken = asyncio.run(all_of_them())
    assert max(taken) <= SERVED_WITHIN_S
    assert broker.memory() - before <= (16 << 20) + count * 96 * 1024


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.torture)])
def test_memory_after_lost_connections_is_what_it_was(
    start_broker: StartBroker, count: int
) -> None:
    """What each had begun stayed until a rare collection."""
    broker = start_broker(queues={"q": {}})
    for _ in range(200):
        come_and_be_lost(broker)
    before = memory_when_empty(broker)
    for _ in range(count):
        come_and_be_lost(broker)
    assert memory_when_empty(broker) - before <= LEFT_BYTES_MAX[count]


def come_and_be_lost(broker: AbusedBroker) -> None:
    """Send, receive, begin a message, and be gone without a word."""
    with broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q", SENDER, handle=0)
        peer.attach("q", RECEIVER, handle=1)
        peer.grant(10, handle=1)
        begun = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
        peer.send(frame(begun, payload=bytes(60_000)))
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def memory_when_empty(broker: AbusedBroker) -> int:
    deadline = time.monotonic() + SERVED_WITHIN_S
    while broker.metrics()["peeklock_connections", (("protocol", "amqp"),)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return broker.memory()


async def token_after_s(broker: AbusedBroker) -> float:
    """Connect as the official clients do, and tell how long it took to have a token."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.process.amqp_port)
    try:
        answer = await put_token(reader, writer)
        assert answer.application_properties is not None
        assert answer.application_properties["status-code"] == 202
        return time.monotonic() - began
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def put_token(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AmqpMessage:
    """Say all that a client says before it has a token, and give the answer."""
    init = SaslInit(mechanism="MSSBCBS", initial_response=b"", hostname="localhost")
    writer.write(SASL_HEADER + frame(init, kind=1))
    opening = frame(Open(container_id="c", hostname="localhost"))
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    writer.write(AMQP_HEADER + opening + frame(begin))
    for handle, role in enumerate((SENDER, RECEIVER)):
        link = Attach(
            name=f"cbs-{handle}",
            handle=handle,
            role=role,
            source=Source(address="$cbs"),
            target=Target(address="$cbs"),
            initial_delivery_count=None if role else 0,
        )
        writer.write(frame(link))
    for _ in range(2):
        await until(reader, Attach)
    credit = Flow(
        next_incoming_id=None,
        incoming_window=WINDOW,
        next_outgoing_id=0,
        outgoing_window=WINDOW,
        handle=1,
        delivery_count=0,
        link_credit=10,
    )
    audience = "sb://localhost/ping"
    request = AmqpMessage(
        properties=Properties(message_id="1", reply_to="cbs-1"),
        application_properties={"operation": "put-token", "type": "x", "name": audience},
        body_kind=VALUE_BODY,
        body=sas.token(audience),
    )
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True)
    writer.write(frame(credit) + frame(transfer, payload=encode_message(request)))
    return decode_message(await until(reader, Transfer))


async def until(reader: asyncio.StreamReader, kind: type) -> bytes:
    """Read until a frame of a kind comes, and give its payload."""
    while True:
        head = await reader.readexactly(8)
        if head.startswith(b"AMQP"):
            continue
        whole = head + await reader.readexactly(frame_size(head, 0) - 8)
        for _, value, payload in frames(whole):
            if isinstance(value, kind):
                return payload


def test_links_of_a_removed_key_end_within_a_second(start_broker: StartBroker) -> None:
    """It stayed good on living connections, for ever with SASL PLAIN."""
    broker = start_broker()
    clerk = ServiceBusAdministrationClient.from_connection_string(
        sas.connection_string(broker.process.http_port),
        connection_verify=str(broker.process.authority),
        retry_total=0,
    )
    with clerk:
        clerk.create_queue("q", authorization_rules=[rule("sender", "c2VjcmV0")])
        with broker.raw() as peer, broker.raw() as other:
            peer.open(key=("sender", "c2VjcmV0"))
            other.open()
            for each in (peer, other):
                each.begin()
                each.attach("q", SENDER)
            queue = clerk.get_queue("q")
            queue.authorization_rules = [rule("sender", "YW5vdGhlcg==")]
            with broker.pressed():
                clerk.update_queue(queue)
                # A change of the queue ends all links; who still has a right comes back.
                for each in (peer, other):
                    each.wait_for(Detach, 1.0)
            peer.attach("q", SENDER, handle=1)
            assert peer.wait_for(Detach).error.condition == "amqp:unauthorized-access"
            other.attach("q", SENDER, handle=1)
            with pytest.raises(TimeoutError):
                other.wait_for(Detach, 0.3)


def rule(name: str, key: str) -> Any:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name=name,
        primary_key=key,
        secondary_key=key,
    )
