"""An opening keeps nobody else waiting: copies by the hundred thousand, subscriptions that were
deleted, and a receiver that wants all at once."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.client import ServiceBusClient, ServiceBusReceiveMode
from tests.pressure.conftest import MakeHouse
from tests.pressure.house import House
from tests.pressure.test_slices import MB, publish_to_many, run, send_batches, topic
from tests.wire.own_client import take
from tests.wire.rest import RestClient


def opened_again(broker: House, count: int, subscriptions: int, deleted: int, **more: Any) -> None:
    publish_to_many(broker, count, subscriptions, **more)
    rest = RestClient(broker.process.http_port)
    for number in range(deleted):
        assert rest.ask("DELETE", f"/topic/Subscriptions/s{number}").status == 200
    broker.process.kill()
    broker.process.start()

    async def read(client: ServiceBusClient) -> None:
        name = f"s{subscriptions - 2}"
        async with client.get_subscription_receiver("topic", name) as receiver:
            found = await take(receiver, count)
        assert [str(each) for each in found] == [str(number) for number in range(count)]

    with broker.pressed(**more):
        run(broker, read)
    assert "partition-opened partition=sbemulatorns|topic|0" in broker.log()


def test_a_topic_with_very_many_copies_opens_beside_others(house: MakeHouse) -> None:
    """A chunk was one step, and each deleted subscription looked at all copies of all others."""
    broker = house(topics=[topic("topic", 300)])
    opened_again(broker, 400, 300, 60, grows_at_most=160 * MB)


@pytest.mark.torture
def test_the_largest_batch_for_the_most_subscriptions_opens_beside_others(
    house: MakeHouse,
) -> None:
    broker = house(topics=[topic("topic", 2000)])
    opened_again(broker, 1000, 2000, 300, grows_at_most=900 * MB)


def test_a_receiver_that_wants_very_many_gets_them_in_parts(house: MakeHouse) -> None:
    """All that its credit and its bytes allowed was one decision."""
    count = 60_000
    broker = house(queues={"q": {}})
    run(broker, lambda client: send_batches(client, "q", count))

    async def read(client: ServiceBusClient) -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        options: dict[str, Any] = {"receive_mode": mode, "prefetch_count": count}
        async with client.get_queue_receiver("q", **options) as receiver:
            assert len(await take(receiver, count)) == count

    with broker.pressed(grows_at_most=128 * MB):
        run(broker, read)
