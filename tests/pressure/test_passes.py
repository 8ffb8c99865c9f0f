"""What one read, one batch, one answer or one lost connection costs: it is done in passes, and
others have their turn between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.dialect import BATCH_FORMAT
from peeklock.amqp.frames.performatives import Disposition, Transfer
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.composites import ACCEPTED, decode_composite
from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.gateway.amqp.nodes.batches import BATCH_COUNT_MAX
from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker
from tests.pressure.raw import RECEIVER, SENDER, Raw, frame
from tests.wire import sas
from tests.wire.own_client import run_with, take

# The smallest message there is, a data section with nothing in it, as a part of a batch.
TINY = b"\x00\x53\x75\xa0\x00"
PART = b"\x00\x53\x75\xa0\x05" + TINY
FRAME = 60_000
MB = 1 << 20


def send_large(peer: Raw, payload: bytes, number: int, message_format: int = 0) -> None:
    """Send one message in as many frames as it takes."""
    for at in range(0, len(payload), FRAME):
        transfer = Transfer(
            handle=0,
            delivery_id=number,
            delivery_tag=b"t",
            message_format=message_format,
            more=at + FRAME < len(payload),
        )
        peer.send(frame(transfer, payload=payload[at : at + FRAME]))


@contextmanager
def sender(broker: AbusedBroker) -> Iterator[Raw]:
    with broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q", SENDER)
        yield peer


def test_batches_of_tiny_messages_keep_nobody_waiting(start_broker: StartBroker) -> None:
    """A batch was read in one step, however many messages it had: 452 ms for 900,000 of them."""
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 10 * 1024}})
    with broker.pressed(grows_at_most=96 * MB), sender(broker) as peer:
        for number in range(3):
            send_large(peer, PART * BATCH_COUNT_MAX, number, BATCH_FORMAT)
            assert peer.wait_for(Disposition).state == decode_composite(ACCEPTED)[0]
        for number in range(3, 6):
            send_large(peer, PART * 900_000, number, BATCH_FORMAT)
            error = peer.wait_for(Disposition).state.error
            assert error.condition == "amqp:link:message-size-exceeded"
        send_large(peer, PART, 6)
        assert peer.wait_for(Disposition).state == decode_composite(ACCEPTED)[0]


def test_messages_of_tiny_sections_keep_nobody_waiting(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 10 * 1024}})
    with broker.pressed(grows_at_most=96 * MB), sender(broker) as peer:
        for number in range(3):
            send_large(peer, TINY * 1_000_000, number)
            assert peer.wait_for(Disposition).state.error is not None


# A link to a partitioned queue is a receiver in each of its partitions; with more of them others
# wait longer (reliability.md, known gaps).
@pytest.mark.parametrize(("address", "links"), [("q", 2_000), ("partitioned", 500)])
def test_a_lost_connection_of_many_links_keeps_nobody_waiting(
    start_broker: StartBroker, address: str, links: int
) -> None:
    """It was one step, of 16 to 31 ms for hundreds of links."""
    broker = start_broker(queues={"q": {}, "partitioned": {"EnablePartitioning": True}})
    with broker.pressed(grows_at_most=128 * MB):
        with broker.raw() as peer:
            peer.open()
            peer.begin()
            for handle in range(links):
                peer.attach(address, RECEIVER, handle=handle)
                peer.grant(1, handle=handle)
        time.sleep(0.3)


def requests(channel: int, payload: bytes, count: int) -> bytes:
    data = b""
    for number in range(count):
        transfer = Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True)
        data += frame(transfer, channel, payload=payload)
    return data


def ask_many(broker: AbusedBroker, address: str, payload: bytes) -> None:
    """Ask a thousand times in a few reads, over as many sessions as the credit needs."""
    with broker.raw() as peer:
        peer.open()
        data = b""
        for channel in range(10):
            peer.begin(channel)
            peer.attach(address, SENDER, handle=0, channel=channel)
            peer.attach(address, RECEIVER, handle=1, channel=channel)
            peer.grant(100, handle=1, channel=channel)
            data += requests(channel, payload, 100)
        peer.send(data)
        for _ in range(1_000):
            peer.wait_for(Transfer)


def test_a_read_full_of_tokens_keeps_nobody_waiting(start_broker: StartBroker) -> None:
    """Each costs a signature: those of one read were one step of 14 ms."""
    broker = start_broker(queues={"q": {}})
    audience = "sb://localhost/q"
    request = AmqpMessage(
        properties=Properties(message_id="1"),
        application_properties={"operation": "put-token", "type": "x", "name": audience},
        body_kind=VALUE_BODY,
        body=sas.token(audience),
    )
    with broker.pressed():
        ask_many(broker, "$cbs", encode_message(request))


def test_a_read_full_of_requests_keeps_nobody_waiting(start_broker: StartBroker) -> None:
    """A partition answered all that had come in one step, 250 messages to each."""
    broker = start_broker(queues={"q": {}})
    with sender(broker) as peer:
        send_large(peer, PART * 250, 0, BATCH_FORMAT)
        peer.wait_for(Disposition)
    request = AmqpMessage(
        properties=Properties(message_id="1"),
        application_properties={"operation": "com.microsoft:peek-message"},
        body_kind=VALUE_BODY,
        body={"from-sequence-number": 0, "message-count": 250},
    )
    with broker.pressed():
        ask_many(broker, "q/$management", encode_message(request))


def test_long_requests_keep_nobody_waiting(start_broker: StartBroker) -> None:
    """One with 250,000 empty lists took 58 ms to read."""
    broker = start_broker(queues={"q": {}})
    message = {"message-id": "m", "message": TINY}
    bodies: list[tuple[str, Any]] = [
        ("schedule-message", {"messages": [message] * 4_000}),
        ("renew-lock", {"lock-tokens": [UUID(int=1)] * 4_000}),
        ("renew-lock", {"lock-tokens": [[]] * 250_000}),
    ]
    with broker.pressed(), broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q/$management", SENDER, handle=0)
        peer.attach("q/$management", RECEIVER, handle=1)
        peer.grant(100, handle=1)
        for number, (operation, body) in enumerate(bodies * 2):
            request = AmqpMessage(
                properties=Properties(message_id="1"),
                application_properties={"operation": f"com.microsoft:{operation}"},
                body_kind=VALUE_BODY,
                body=body,
            )
            send_large(peer, encode_message(request), number)
            peer.wait_for(Disposition)
        time.sleep(0.5)


def test_a_large_answer_keeps_nobody_waiting(start_broker: StartBroker) -> None:
    """Deferred messages of 32 MB were put together in one step of 86 ms."""
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 1024}})
    body = bytes(1_000_000)

    async def defer(client: ServiceBusClient) -> None:
        async with (
            client.get_queue_sender("q") as sender,
            client.get_queue_receiver("q") as receiver,
        ):
            for _ in range(32):
                await sender.send_messages(ServiceBusMessage(body))
            numbers: list[int] = []
            for message in await take(receiver, 32):
                assert message.sequence_number is not None
                numbers.append(message.sequence_number)
                await receiver.defer_message(message)
            with broker.pressed(grows_at_most=160 * MB):
                found = await receiver.receive_deferred_messages(numbers)
            assert [bytes(each) for each in found] == [body] * 32

    run_with(broker.connection_string, defer)


def test_batches_by_http_keep_nobody_waiting(start_broker: StartBroker) -> None:
    """Each was parsed and read in one step: 15,000 tiny messages took 200 ms and more, and a flat
    array 50 ms for each megabyte. Then each turn of everybody else's requests had a part of it, and
    they took 40 to 110 ms."""
    broker = start_broker(queues={"q": {"MaxMessageSizeInKilobytes": 1024}})
    headers = {
        "Authorization": sas.token("sb://localhost/q"),
        "Content-Type": "application/vnd.microsoft.servicebus.json",
    }
    # Made before: to make millions of values would hold up those who ping, in the same process.
    bodies = [
        (("[" + ",".join([entry] * count) + "]").encode(), status)
        for entry, count, status in (
            ('{"Body":""}', 15_000, 201),
            ('{"Body":""}', BATCH_COUNT_MAX + 1, 400),
            ("1", MB, 400),
            ('{"Body":"","X":[' + "1," * MB + "1]}", 1, 400),
        )
    ]

    def post(body: bytes, status: int) -> None:
        connection = HTTPConnection("127.0.0.1", broker.process.http_port, timeout=30)
        connection.request("POST", "/q/messages", body, headers)
        assert connection.getresponse().status == status
        connection.close()

    with broker.pressed(at_least_s=0.0, others_wait_ms=40.0):
        for _ in range(5):
            post(*bodies[0])
    for body, status in bodies[1:]:
        with broker.pressed(at_least_s=0.5):
            post(body, status)
