"""An opening keeps nobody else waiting: copies by the hundred thousand, subscriptions that were
deleted, and a receiver that wants all at once."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from peeklock.client import ServiceBusClient, ServiceBusReceiveMode
from tests.pressure.abused_broker import AbusedBroker, is_fast
from tests.pressure.conftest import StartBroker
from tests.pressure.test_slices import MB, publish_to_many, run, send_batches, topic
from tests.wire.own_client import take
from tests.wire.rest import RestClient

OPENED = re.compile(r"partition-opened partition=sbemulatorns.topic#\S+ epoch=2 messages=(\d+)")
LONG = re.compile(r"loop-step-long cpu_ms=([\d.]+) .* cause='[^']*opening")
# Of one step; ten times of what is promised where nothing is compiled.
STEP_MS_MAX = 10.0 if is_fast() else 100.0


def opened_again(
    broker: AbusedBroker, count: int, subscriptions: int, deleted: int, **more: Any
) -> None:
    publish_to_many(broker, count, subscriptions, **more)
    rest = RestClient(broker.process.http_port)
    for number in range(deleted):
        assert rest.ask("DELETE", f"/topic/Subscriptions/s{number}").status == 200
    rest.close()
    broker.process.kill()
    seen = broker.process.log_size()
    broker.process.start()
    deadline = time.monotonic() + 60
    # It is opened without being asked for; every ping beside it is a step of the loop, too.
    while not (opened := OPENED.search(broker.process.log_since(seen))):
        assert time.monotonic() < deadline
        assert broker.get("/health")[0] == 200
        time.sleep(0.02)
    # The last of them has none: they were received.
    assert int(opened[1]) >= count * (subscriptions - deleted - 1)
    long = [float(each) for each in LONG.findall(broker.process.log_since(seen))]
    assert max(long, default=0.0) <= STEP_MS_MAX, f"long steps: {long}"

    async def read(client: ServiceBusClient) -> None:
        name = f"s{subscriptions - 2}"
        async with client.get_subscription_receiver("topic", name) as receiver:
            found = await take(receiver, count)
        assert [str(each) for each in found] == [str(number) for number in range(count)]

    run(broker, read)


def test_a_topic_with_very_many_copies_opens_beside_others(start_broker: StartBroker) -> None:
    """A chunk was one step, and each deleted subscription looked at all copies of all others."""
    broker = start_broker(topics=[topic("topic", 300)])
    opened_again(broker, 400, 300, 60, grows_at_most=160 * MB)


@pytest.mark.torture
def test_the_largest_batch_for_the_most_subscriptions_opens_beside_others(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(topics=[topic("topic", 2000)])
    opened_again(broker, 1000, 2000, 300, grows_at_most=900 * MB)


def test_a_receiver_that_wants_very_many_gets_them_in_parts(start_broker: StartBroker) -> None:
    """All that its credit and its bytes allowed was one decision."""
    count = 60_000
    broker = start_broker(queues={"q": {}})
    run(broker, lambda client: send_batches(client, "q", count))

    async def read(client: ServiceBusClient) -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        options: dict[str, Any] = {"receive_mode": mode, "prefetch_count": count}
        async with client.get_queue_receiver("q", **options) as receiver:
            assert len(await take(receiver, count)) == count

    with broker.pressed(grows_at_most=128 * MB):
        run(broker, read)
