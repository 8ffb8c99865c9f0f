"""The loop's watchdog and its page, on a broker that really listens."""

from __future__ import annotations

import threading

import pytest

from bench import client
from bench.endpoint import Endpoint
from bench.loads import Flood
from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.step import LARGE_BYTES
from tests.pressure.abused_broker import is_fast
from tests.pressure.conftest import StartBroker
from tests.wire.entities import ROOT_KEY, ROOT_RULE
from tests.wire.own_client import run_with, send, take_one

SCRAPES = 20


def test_steps_and_waits_are_told_while_the_broker_works(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"other": {}})

    with broker.pressed() as seen:
        senders = [
            threading.Thread(
                target=run_with,
                args=(
                    broker.connection_string,
                    lambda client: send(client, "other", *[b"x" * 1000] * 100),
                ),
            )
            for _ in range(3)
        ]
        for sender in senders:
            sender.start()
        # Looking is no abuse, however often it is done.
        for _ in range(SCRAPES):
            broker.metrics()
        for sender in senders:
            sender.join()

    found = broker.metrics()
    assert found["peeklock_ready", ()] == 1
    assert found["peeklock_loop_step_seconds_count", ()] > 500
    assert found["peeklock_loop_turn_seconds_count", ()] > 100
    store = (("store", "store"),)
    assert found["peeklock_store_commit_seconds_count", store] > 50
    assert found["peeklock_store_commit_bytes_sum", store] > 300 * 1000
    assert found["peeklock_store_free_bytes", store] > 0
    assert broker.steps().count > 500
    assert seen.longest_step
    if is_fast():
        assert broker.steps().long == 0, f"long steps: {seen.longest_step}"


def test_looking_opens_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(queues={f"queue-{number}": {} for number in range(50)})
    before = broker.log()
    status, text = broker.get("/ready")
    assert (status, "ready" in text) == (200, True)
    broker.metrics()
    assert "partition-opened" not in broker.log()[len(before) :]
    home = ("namespace", "sbemulatorns")
    found = broker.metrics()
    assert found["peeklock_partitions", (home, ("state", "closed"))] == 51
    assert ("peeklock_messages", (home, ("state", "ready"))) not in found

    run_with(broker.connection_string, lambda client: send(client, "queue-7", "x", "y"))
    found = broker.metrics()
    assert found["peeklock_partitions", (home, ("state", "closed"))] == 50
    assert found["peeklock_partitions", (home, ("state", "open"))] == 1
    assert found["peeklock_messages", (home, ("state", "ready"))] == 2
    assert found["peeklock_messages", (home, ("state", "locked"))] == 0
    assert found["peeklock_message_memory_bytes", (home,)] > 0


def test_work_on_one_large_message_has_a_bound_by_its_size(start_broker: StartBroker) -> None:
    """Its bytes are checked and copied whole: 10 ms of CPU for each 4 MB in one step, no more."""
    broker = start_broker(queues={"large": {"MaxMessageSizeInKilobytes": 100 * 1024}})
    size = 20 << 20

    async def carry(client: ServiceBusClient) -> None:
        async with (
            client.get_queue_sender("large") as sender,
            client.get_queue_receiver("large") as receiver,
        ):
            await sender.send_messages(ServiceBusMessage(bytes(size)))
            message = await take_one(receiver)
            assert len(bytes(message)) == size
            await receiver.complete_message(message)

    run_with(broker.connection_string, carry)

    found = broker.metrics()
    large = "peeklock_loop_large_message_seconds"
    assert found[f"{large}_count", ()] >= 2
    if is_fast():
        bound_s = next(
            float(dict(labels)["le"])
            for (name, labels), count in sorted(found.items(), key=lambda item: item[1])
            if name == f"{large}_bucket" and count == found[f"{large}_count", ()]
        )
        assert bound_s <= size / LARGE_BYTES * 0.010
        assert broker.steps().long == 0, broker.steps().lines()


@pytest.mark.torture
def test_a_backlog_grows_without_a_long_step(start_broker: StartBroker) -> None:
    """Looking for garbage among what is new was a step of 125 ms at each million messages."""
    broker = start_broker(queues={"deep": {}})
    place = Endpoint(
        port=broker.process.amqp_port,
        user=ROOT_RULE,
        password=ROOT_KEY,
        address="deep",
        terminus_durability=0,
        is_answered=True,
        pid=broker.pid,
    )
    with broker.pressed(grows_at_most=600 << 20):
        client.run(place, Flood(2_000_000, window=2_000, credit=0))
