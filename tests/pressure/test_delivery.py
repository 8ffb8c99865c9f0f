"""Credit times size is more than a connection takes: a prefetch of 100 and messages of 1 MB.

The clients are the official Python client's, in processes of their own: one reads slowly, others
die in the middle.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiveMode

from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker
from tests.wire.own_client import run_with, send

PEEK_LOCK: Final = "peeklock"
RECEIVE_AND_DELETE: Final = "receiveanddelete"
MODES: Final = (PEEK_LOCK, RECEIVE_AND_DELETE)
SIZE: Final = 1_000_000
# More than what once was the end of a connection.
COUNT: Final = 80
PREFETCH: Final = 100
ROUNDS: Final = 2
# What the buffers of both sockets and the transport hold of messages that count as sent.
SENT_MAX: Final = 16
GROWTH_BYTES_MAX: Final = 48 << 20
# No lock ends by itself while a test lasts.
QUEUES: Final = {
    "q": {"MaxMessageSizeInKilobytes": 1024, "LockDuration": "PT5M", "MaxDeliveryCount": 3}
}

# Takes one message, says so, and reads nothing more until it is killed.
READS_ONE: Final = """
import sys, time
from azure.servicebus import ServiceBusClient
client = ServiceBusClient.from_connection_string(sys.argv[1])
receiver = client.get_queue_receiver("q", prefetch_count=int(sys.argv[3]), receive_mode=sys.argv[2])
message = receiver.receive_messages(max_message_count=1, max_wait_time=30)[0]
print(message.message_id, flush=True)
time.sleep(600)
"""


def fill(broker: AbusedBroker, queue: str = "q", count: int = COUNT) -> None:
    bodies = [f"{number:04}" + "x" * (SIZE - 4) for number in range(count)]
    run_with(broker.connection_string, lambda client: send(client, queue, *bodies))


def receive(
    broker: AbusedBroker,
    mode: str,
    *,
    pause_s: float = 0.0,
    wait_s: float = 2.0,
    count: int = COUNT,
) -> list[tuple[int, int]]:
    """All there is, one by one: the number in the text, and how often it was delivered before."""
    got: list[tuple[int, int]] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_receiver(
            "q", prefetch_count=PREFETCH, receive_mode=ServiceBusReceiveMode(mode)
        ) as receiver,
    ):
        while len(got) < count:
            messages = receiver.receive_messages(max_message_count=1, max_wait_time=wait_s)
            if not messages:
                break
            for message in messages:
                got.append((number_of(message), message.delivery_count or 0))
                if mode == PEEK_LOCK:
                    receiver.complete_message(message)
                time.sleep(pause_s)
    return got


def number_of(message: ServiceBusReceivedMessage) -> int:
    return int(b"".join(message.body)[:4])


def states(broker: AbusedBroker) -> dict[str, int]:
    """How many messages are ready, locked and dead-lettered while nobody pings."""
    found = {
        dict(labels)["state"]: int(value)
        for (name, labels), value in broker.metrics().items()
        if name == "peeklock_messages"
    }
    return {state: found[state] for state in ("ready", "locked", "dead_letter")}


def die_in_the_middle(broker: AbusedBroker, mode: str) -> None:
    """A client asks for much, takes one message, and is killed."""
    command = [sys.executable, "-c", READS_ONE, broker.connection_string, mode, str(PREFETCH)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.5)
        process.kill()


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_reader_gets_all_and_is_not_cut_off(start_broker: StartBroker, mode: str) -> None:
    """R-F4, R-S1, R-S2: each message once, none of them delivered in vain."""
    broker = start_broker(queues=QUEUES)
    fill(broker)
    with broker.pressed(grows_at_most=GROWTH_BYTES_MAX):
        got = receive(broker, mode, pause_s=0.01)
    assert got == [(number, 0) for number in range(COUNT)]
    assert "cut-off" not in broker.log()


def test_a_lock_that_was_never_sent_is_not_counted(start_broker: StartBroker) -> None:
    """R-S7: clients that die again and again dead-letter nothing that they were not sent."""
    broker = start_broker(queues=QUEUES)
    fill(broker)
    with broker.pressed(grows_at_most=GROWTH_BYTES_MAX):
        for _ in range(ROUNDS):
            die_in_the_middle(broker, PEEK_LOCK)
    sent = states(broker)["locked"]
    got = receive(broker, PEEK_LOCK, count=COUNT - sent)
    assert ROUNDS <= sent <= ROUNDS * SENT_MAX
    assert states(broker) == {"ready": 0, "locked": sent, "dead_letter": 0}
    # What was sent are the first ones, by one client and then by the next.
    assert got == [(number, 0) for number in range(sent, COUNT)]


def test_receive_and_delete_loses_only_what_was_sent(start_broker: StartBroker) -> None:
    """R-S1: what the link still held is back, in its order."""
    broker = start_broker(queues=QUEUES)
    fill(broker)
    with broker.pressed(grows_at_most=GROWTH_BYTES_MAX):
        die_in_the_middle(broker, RECEIVE_AND_DELETE)
        rest = receive(broker, RECEIVE_AND_DELETE)
    assert len(rest) >= COUNT - SENT_MAX
    assert rest == [(number, 0) for number in range(COUNT - len(rest), COUNT)]


@pytest.mark.torture
@pytest.mark.parametrize("mode", MODES)
def test_many_clients_die_in_the_middle(start_broker: StartBroker, mode: str) -> None:
    """The same on partitions, for many rounds."""
    queue = {**QUEUES["q"], "EnablePartitioning": True, "LockDuration": "PT5S"}
    queue["MaxDeliveryCount"] = 100
    broker = start_broker(queues={"q": queue})
    fill(broker, count=4 * COUNT)
    rounds = 10
    for _ in range(rounds):
        die_in_the_middle(broker, mode)
    time.sleep(6.0)
    rest = receive(broker, mode, count=4 * COUNT)
    lost = 4 * COUNT - len({number for number, _ in rest})
    assert lost <= (rounds * SENT_MAX if mode == RECEIVE_AND_DELETE else 0)
