"""Backups of a broker that serves: whatever was acknowledged before is there, and only once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peeklock.cli.main import app
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage
from tests.wire.broker_process import BrokerProcess

CIRCLE = ("one", "two", "three")
STORES = 3
BATCH = 20
# Far beyond what it takes; a message that never rests is named before the test is broken off.
REST_S = 90
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": queue, "Properties": {"ForwardTo": CIRCLE[(at + 1) % len(CIRCLE)]}}
                    for at, queue in enumerate(CIRCLE)
                ]
                + [{"Name": "kept", "Properties": {"EnablePartitioning": True}}],
            }
        ]
    }
}


def broker_at(data: Path, directory: Path) -> BrokerProcess:
    config = directory / "Config.json"
    config.write_text(json.dumps(CONFIG))
    options = ("--stores", str(STORES))
    return BrokerProcess(data=data, config=config, log=directory / "broker.log", options=options)


def run(broker: BrokerProcess | None, *arguments: str, code: int = 0) -> Any:
    environment: dict[str, str | None] = {"COLUMNS": "200"}
    if broker is not None:
        environment |= {
            "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        }
    done = CliRunner().invoke(app, [*arguments, "-o", "json"], env=environment)
    assert done.exit_code == code, done.output
    return json.loads(done.output) if code == 0 else done.output


class Sender(threading.Thread):
    """Sends to a queue all the time, and knows what was acknowledged."""

    def __init__(self, broker: BrokerProcess, queue: str) -> None:
        super().__init__()
        self.queue = queue
        # With the instants of the answers, by the clock that the broker has too.
        self.acknowledged: list[tuple[str, float]] = []
        self.is_over = threading.Event()
        self._broker = broker

    def run(self) -> None:
        string = self._broker.connection_string
        with ServiceBusClient.from_connection_string(string) as client:
            sender = client.get_queue_sender(self.queue)
            number = 0
            while not self.is_over.is_set():
                names = [f"{self.queue}-{number + n}" for n in range(BATCH)]
                sender.send_messages(
                    [ServiceBusMessage(name, message_id=name, partition_key="k") for name in names]
                )
                answered_at = time.time()
                self.acknowledged += [(name, answered_at) for name in names]
                number += BATCH


def all_ids(broker: BrokerProcess) -> Counter[str]:
    """The ids of all messages, once those in the circle have come to rest as dead letters."""
    found: Counter[str] = Counter()
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        for path in ("kept", *(f"{queue}/$DeadLetterQueue" for queue in CIRCLE)):
            receiver = client.get_queue_receiver(path)
            first = 0
            while page := receiver.peek_messages(250, sequence_number=first):
                found.update(str(message.message_id) for message in page)
                first = (page[-1].sequence_number or 0) + 1
    return found


def wait_until_it_rests(broker: BrokerProcess) -> None:
    until = time.monotonic() + REST_S
    while True:
        queues = run(broker, "queue", "list")["queues"]
        counts = {queue["Name"]: queue["Runtime"]["ActiveMessageCount"] for queue in queues}
        moving = {queue: counts[queue] for queue in CIRCLE if counts[queue]}
        if not moving:
            return
        assert time.monotonic() < until, f"still on their way after {REST_S} s: {moving}"
        time.sleep(0.1)


@pytest.mark.plain_only("it brings its own entities, one of them partitioned")
@pytest.mark.timeout(240)
def test_nothing_is_missing_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """Three queues in three stores forward to each other in a circle, four hops for each message,
    while a partitioned one is filled."""
    broker = broker_at(tmp_path / "data", tmp_path)
    broker.start()
    senders = [Sender(broker, "one"), Sender(broker, "kept")]
    backups: list[tuple[Path, list[str]]] = []
    for sender in senders:
        sender.start()
    try:
        for number in range(2):
            # Many are on their way whenever a backup is made.
            while len(senders[0].acknowledged) < 300 * (number + 1):
                assert senders[0].is_alive()
                time.sleep(0.01)
            told = run(broker, "backup", f"number-{number}")
            assert told["stores"] == STORES
            instant = datetime.fromisoformat(told["at"]).timestamp()
            before = [
                name
                for sender in senders
                for name, answered_at in list(sender.acknowledged)
                if answered_at < instant
            ]
            assert len(before) >= 300
            backups.append((Path(told["path"]), before))
        assert "already; choose" in run(broker, "backup", "number-0", code=1)
    finally:
        for sender in senders:
            sender.is_over.set()
            sender.join()
    assert broker.stop() == 0
    for number, (path, before) in enumerate(backups):
        data = tmp_path / f"restored-{number}"
        assert run(None, "restore", str(path), "--data", str(data))["stores"] == STORES
        restored = broker_at(data, tmp_path)
        restored.start()
        wait_until_it_rests(restored)
        found = all_ids(restored)
        assert restored.stop() == 0
        assert set(before) - set(found) == set()
        assert [name for name, count in found.items() if count > 1] == []


def test_a_broker_in_memory_has_no_backups(tmp_path: Path) -> None:
    broker = broker_at(tmp_path / "data", tmp_path)
    broker.options = ("--store", "memory")
    broker.start()
    assert "in memory has no backups" in run(broker, "backup", code=1)
    assert "letters, digits" in run(broker, "backup", ".hidden", code=1)
    assert broker.stop() == 0
