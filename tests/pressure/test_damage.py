"""A disk has damaged the data while nobody looked: who notices, and who does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from peeklock.client import ServiceBusClient, ServiceBusReceivedMessage
from peeklock.client.exceptions import ServiceBusError
from peeklock.store.damage.inspection import inspect_store
from peeklock.store.damage.pages import DATA, why_too_short
from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker
from tests.wire.broker_process import broker_python
from tests.wire.own_client import bodies, run_with, send, take

# Long enough to be found in the file, and to be in it once.
GOOD: Final = ["the first of them, which is whole", "the last of them, which is whole"]
BAD: Final = "the one in between, of which a bit is flipped"


def flip(broker: AbusedBroker, text: str, *, is_head: bool = False) -> None:
    """Flip a bit of the message with a text, in its body or in what stands before it; in all copies
    that the engine has left."""
    store = broker.process.data / "store"
    stretches = [
        s for each in inspect_store(store, store / DATA).partitions for s in each.stretches
    ]
    values = [bytes(stretch.raw) for stretch in stretches if stretch.raw is not None]
    (chunk,) = [value for value in values if text.encode() in value]
    count = int.from_bytes(chunk[4:8], "little")
    base = 28 + 12 * count
    ends = [base + int.from_bytes(chunk[at : at + 4], "little") for at in range(28, base, 12)]
    place = chunk.index(text.encode())
    start = max([base, *(end for end in ends if end <= place)])
    damaged = bytearray(chunk)
    damaged[start + 12 if is_head else place + 5] ^= 1
    for file in store.iterdir():
        raw = file.read_bytes()
        if chunk in raw:
            file.write_bytes(raw.replace(chunk, bytes(damaged)))


def fill(broker: AbusedBroker, *queues: str) -> None:
    async def fill_all(client: ServiceBusClient) -> None:
        for queue in queues:
            await send(client, queue, GOOD[0], f"{BAD} in {queue}", GOOD[1])

    run_with(broker.connection_string, fill_all)
    broker.process.stop()


def received(broker: AbusedBroker, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []

    async def receive(client: ServiceBusClient) -> None:
        path, _, sub_queue = queue.partition("/")
        async with client.get_queue_receiver(path, sub_queue=sub_queue or None) as receiver:
            found.extend(await take(receiver, count))
            for message in found:
                await receiver.complete_message(message)

    run_with(broker.connection_string, receive)
    return found


def store(command: str, data: Path) -> subprocess.CompletedProcess[str]:
    arguments = [broker_python(), "-m", "peeklock", "store", command, "--data", str(data)]
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)


def test_a_damaged_body_is_found_among_the_dead_letters(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {}})
    fill(broker, "q")
    flip(broker, BAD)
    broker.process.start()
    assert bodies(received(broker, "q", 2)) == GOOD
    (dead,) = received(broker, "q/deadletter", 1)
    assert dead.dead_letter_reason == "DamagedBody"
    assert (dead.sequence_number, str(dead)) == (2, "")
    assert "body-damaged" in broker.log()
    assert "partition-opened" in broker.log()


def test_a_damaged_record_closes_its_queue_until_it_is_repaired(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {}, "other": {}})
    fill(broker, "q", "other")
    flip(broker, f"{BAD} in q", is_head=True)
    broker.process.start()

    async def refused(client: ServiceBusClient) -> None:
        with pytest.raises(ServiceBusError, match=r"damaged on disk and stays closed.*store check"):
            await send(client, "q", "more")

    with broker.pressed():
        run_with(broker.connection_string, refused, retry_total=0)
        assert bodies(received(broker, "other", 3)) == [GOOD[0], f"{BAD} in other", GOOD[1]]
    assert broker.log().count("partition-damaged") == 1
    told = store("check", broker.process.data)
    assert told.returncode == 1
    assert "is in use by process" in told.stderr
    broker.process.stop()
    told = store("check", broker.process.data)
    assert told.returncode == 3
    assert "stays closed until it is repaired" in told.stdout
    told = store("repair", broker.process.data)
    assert told.returncode == 0, told.stderr
    assert (broker.process.data / "store.before-repair-1").exists()
    assert '"may": "be missing", "number": 2' in (
        (broker.process.data / "store.repair-1.jsonl").read_text()
    )
    broker.process.start()
    assert bodies(received(broker, "q", 2)) == GOOD


def test_a_file_that_is_too_short_is_refused_with_a_sentence(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {}})
    fill(broker, "q")
    file = broker.process.data / "store" / "data.mdb"
    while why_too_short(file) is None:
        os.truncate(file, file.stat().st_size - 4096)
    with pytest.raises(RuntimeError, match="the broker ended with 1"):
        broker.process.start()
    assert "bytes shorter than it was" in broker.log()
    assert "Traceback" not in broker.log()
