"""What a client does within transactions."""

from __future__ import annotations

from typing import Any

from peeklock.amqp.frames.headers import frame_head
from peeklock.amqp.frames.performatives import Transfer
from peeklock.amqp.frames.states import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Rejected,
    TransactionalState,
)
from peeklock.amqp.frames.termini import Coordinator
from peeklock.amqp.messages.message import DATA_BODY, decode_message, encode_message
from peeklock.amqp.messages.message import AmqpMessage as WireMessage
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import described_of, encode_composite
from peeklock.amqp.values.types import Symbol, Timestamp
from peeklock.entity.commands import MAIN, TRANSFER, Peek
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.replies import Found
from tests.broker.broker_harness import Recorder, settle_down
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    Client,
    body_of,
    request,
)

BATCH = 0x80013700
FRAME_PAYLOAD = 50_000
TWO_MINUTES_MS = 120_000


def two_queues() -> list[QueueDefinition]:
    return [QueueDefinition(name, batched_store_access=False) for name in ("q", "other")]


class Control:
    """A control link, and what a client does with it."""

    def __init__(self, client: Client, link: Link) -> None:
        self.client = client
        self.link = link

    @staticmethod
    async def of(client: Client) -> Control:
        link = client.session.attach_sender(client._name(), Coordinator())
        return Control(client, await client._attached(link))

    async def wish(self, value: Any) -> Any:
        payload = encode_message(WireMessage(body=described_of(value)))
        return await self.client.send(self.link, payload)

    async def declare(self) -> bytes:
        outcome = await self.wish(Declare())
        assert isinstance(outcome, Declared)
        assert len(outcome.txn_id) == 16
        return outcome.txn_id

    async def commit(self, txn: bytes) -> Any:
        return await self.wish(Discharge(txn_id=txn, fail=False))

    async def roll_back(self, txn: bytes) -> Any:
        return await self.wish(Discharge(txn_id=txn, fail=True))


def said_within(
    client: Client, link: Link, payload: bytes, txn: bytes, *, settled: bool = False, form: int = 0
) -> bytes:
    """What the client says when it sends a message with a transactional state. The machine has no
    word for that, so that the frame of a plain message is replaced."""
    said = client.connection.take_output()
    client._tag += 1
    tag = client._tag.to_bytes(4, "big")
    delivery_id = link.send(tag, payload, b"", settled, None, form)
    assert delivery_id >= 0
    client.connection.take_output()
    for at in range(0, len(payload), FRAME_PAYLOAD):
        part = payload[at : at + FRAME_PAYLOAD]
        transfer = encode_composite(
            Transfer(
                handle=link.handle,
                delivery_id=delivery_id,
                delivery_tag=tag,
                message_format=form,
                settled=settled,
                more=at + len(part) < len(payload),
                state=TransactionalState(txn_id=txn),
            )
        )
        size = 8 + len(transfer) + len(part)
        said += frame_head(size, link.session.channel) + transfer + part
    return said


def post_within(client: Client, link: Link, payload: bytes, txn: bytes, **options: Any) -> None:
    """Send within a transaction and look at nothing yet."""
    client.peer.receive(said_within(client, link, payload, txn, **options), client.bus.clock.now())


async def send_within(
    client: Client, link: Link, payload: bytes, txn: bytes, *, form: int = 0
) -> Any:
    """Send within a transaction and give the outcome, without its wrapping if it succeeded."""
    post_within(client, link, payload, txn, form=form)
    ((outcome, count),) = await client.outcomes()
    assert count == 1
    return unwrapped(outcome, txn)


async def settle_within(
    client: Client, link: Link, ids: list[int], txn: bytes, outcome: Any = None
) -> Any:
    state = TransactionalState(txn_id=txn, outcome=outcome or Accepted())
    (answer,) = await client.settle(link, ids, encode_composite(state))
    return unwrapped(answer, txn)


def unwrapped(outcome: Any, txn: bytes) -> Any:
    if isinstance(outcome, TransactionalState):
        assert outcome.txn_id == txn
        assert not isinstance(outcome.outcome, TransactionalState)
        return outcome.outcome
    assert isinstance(outcome, Rejected)
    return outcome


async def manage_within(
    client: Client, links: tuple[Link, Link], operation: str, body: Any, txn: bytes
) -> tuple[int, Any]:
    requests, responses = links
    name = operation if ":" in operation else f"com.microsoft:{operation}"
    properties = {"operation": name}
    post_within(client, requests, request(properties, body, "id-7"), txn, settled=True)
    await client.talk()
    (answer,) = client.arrived(responses)
    message = decode_message(answer.payload)
    assert message.application_properties is not None
    return message.application_properties["statusCode"], message.body


async def peeked(bus: AmqpHarness, path: str, lane: int = MAIN) -> list[str]:
    """The texts of the messages in a lane, whatever their state."""
    recorder = Recorder()
    found = bus.bench.broker.find("ns", path)
    assert found is not None
    found.submit(Peek(recorder, 1, lane, 0, 1_000, 1 << 20))
    await settle_down()
    (reply,) = recorder.take()
    assert isinstance(reply, Found)
    return [body_of(d.message.content) for d in reply.deliveries if d.message is not None]


async def transferred(bus: AmqpHarness, via: str, destination: str) -> list[str]:
    """What is on its way from one entity to another, or has arrived."""
    return [*await peeked(bus, destination), *await peeked(bus, via, TRANSFER)]


def scheduled(text: str, at: int) -> dict[str, Any]:
    message = WireMessage(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at)},
        body_kind=DATA_BODY,
        body=[text.encode()],
    )
    return {"message-id": text, "message": encode_message(message)}


async def group(bus: AmqpHarness, *paths: str) -> tuple[Client, Control]:
    client = await bus.authorized(paths[0])
    for path in paths[1:]:
        await client.put_token(path)
    return client, await Control.of(client)
