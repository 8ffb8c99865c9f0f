"""A broker that is told to end does so, whatever it has in memory."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage
from tests.pressure.conftest import StartBroker
from tests.pressure.test_slices import run, topic
from tests.wire.own_client import take

ENDED_WITHIN_S = 2.0
# Also of CPU time: a busy machine is not the broker's doing.
ENDING_CPU_S_MAX = 0.15


@pytest.mark.parametrize(
    ("count", "subscriptions"), [(500, 1000), pytest.param(1000, 2000, marks=pytest.mark.torture)]
)
def test_many_copies_in_memory_do_not_delay_the_end(
    start_broker: StartBroker, count: int, subscriptions: int
) -> None:
    """After its last word it took many seconds to give their memory back, one by one."""
    broker = start_broker(topics=[topic("topic", subscriptions)])

    async def publish(client: ServiceBusClient) -> None:
        async with client.get_topic_sender("topic") as sender:
            batch = await sender.create_message_batch()
            for number in range(count):
                batch.add_message(ServiceBusMessage(str(number)))
            await sender.send_messages(batch)
        # Copies are made in the order of subscriptions: these are the last ones.
        last = f"s{subscriptions - 1}"
        async with client.get_subscription_receiver("topic", last) as receiver:
            await take(receiver, count)

    run(broker, publish)
    spent_s = -cpu_s(broker.pid) - ended_cpu_s()
    begun = time.monotonic()
    assert broker.process.stop() == 0
    taken_s = time.monotonic() - begun
    spent_s += ended_cpu_s()
    assert "stopped" in broker.log()
    assert taken_s <= ENDED_WITHIN_S
    assert spent_s <= ENDING_CPU_S_MAX
    broker.process.start()
    run(broker, lambda client: look(client, count))


def cpu_s(pid: int) -> float:
    """Tell what a living process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_cpu_s() -> float:
    """Tell what the processes have worked that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def look(client: ServiceBusClient, count: int) -> None:
    async with client.get_subscription_receiver("topic", "s0") as receiver:
        assert len(await take(receiver, count)) == count
