"""A message whose body is damaged on disk: its link does not notice, and waits for the next one."""

from __future__ import annotations

import pytest

from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.sessions.link import Link
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.store.memory import MemoryStore
from tests.broker.broker_harness import settle_down
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, plain, serve


def damage(bus: AmqpHarness) -> None:
    """Flip a bit of all bodies that rest, and let none rest in memory."""
    store = bus.bench.store
    assert isinstance(store, MemoryStore)
    for kept in store._partitions.values():
        kept.chunks = [chunk[:-1] + bytes([chunk[-1] ^ 1]) for chunk in kept.chunks]
    (worker,) = bus.queue().partitions.workers
    assert isinstance(worker, PartitionWorker)
    assert worker._partition is not None
    state = worker._partition._state
    for lane in state.lanes.values():
        for entry in lane.entries():
            state.release_body(entry)


async def arrived(client: Client, link: Link) -> list[object]:
    await client.talk()
    return [decode_message(each.payload).body for each in client.arrived(link)]


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_link_gets_the_next_message_instead(is_settled: bool) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        sender = await client.sender()
        await client.send(sender, plain("damaged"))
        damage(bus)
        mode = 1 if is_settled else 0
        link = await client.receiver(credit=1, snd_settle_mode=mode)
        await settle_down()
        assert await arrived(client, link) == []
        # Its credit is what it was.
        await client.send(sender, plain("whole"))
        assert await arrived(client, link) == [[b"whole"]]
        dead = await client.receiver("q/$deadletterqueue", credit=1)
        await client.talk()
        (delivery,) = client.arrived(dead)
        message = decode_message(delivery.payload)
        assert message.body == [b""]
        assert message.application_properties is not None
        assert message.application_properties["DeadLetterReason"] == "DamagedBody"

    serve(talk)
