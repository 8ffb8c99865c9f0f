"""SIGKILL at random moments: everything acknowledged is kept, nothing completed returns.

`PEEKLOCK_SEED` chooses the moments; a failure names it. A kill does not lose what the kernel has
taken, so this shows that no reply leaves before its append, not that the disk keeps its word."""

import json
import os
import random
import secrets
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.crash.ledger import Ledger
from tests.crash.traffic import (
    DEAD_LETTERS,
    QUEUE,
    End,
    Line,
    Receiver,
    Sender,
    drain,
    finish,
    hang_up,
    run,
)
from tests.wire.broker_process import BrokerProcess

# Short, so that trimming goes on while the broker is killed.
RETENTION_MS: Final = 500
DEAD_LETTER_LIMIT: Final = 2_000


class Victim(BrokerProcess):
    """A broker that will be killed, with a journal that is trimmed early."""

    def command(self) -> list[str]:
        retention = ("--journal-retention-ms", str(RETENTION_MS))
        return [*super().command(), *retention, "--journal-retention-bytes", "0"]

    def stumble(self, within_s: float) -> None:
        """Start it and kill it before it is ready, perhaps while it reads its journal."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def victim(folder: Path) -> Victim:
    queue = {"Name": QUEUE, "Properties": {"MaxDeliveryCount": DEAD_LETTER_LIMIT}}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": []}
    config = folder / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return Victim(data=folder / "data", config=config, log=folder / "broker.log")


def ends(port: int, ledger: Ledger) -> list[End]:
    """Two senders of single messages, one of batches, and two receivers that compete."""
    return [
        Sender(Line(port), ledger, per_second=1_200, in_batches=False),
        Sender(Line(port), ledger, per_second=1_200, in_batches=False),
        Sender(Line(port), ledger, per_second=150, in_batches=True),
        Receiver(Line(port), ledger),
        Receiver(Line(port), ledger),
    ]


def empty(broker: Victim, ledger: Ledger) -> set[int]:
    """Everything that is still in the queue and in its dead-letter queue."""
    found = drain(Receiver(Line(broker.amqp_port), ledger, to_the_end=True))
    return found | drain(Receiver(Line(broker.amqp_port), ledger, DEAD_LETTERS, to_the_end=True))


def kill_and_check(folder: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    broker = victim(folder)
    ledger = Ledger()
    try:
        for _ in range(kills):
            if chance.random() < 0.2:
                broker.stumble(chance.uniform(0.0, 0.6))
            broker.start()
            working = ends(broker.amqp_port, ledger)
            run(working, time.monotonic() + chance.uniform(0.05, 1.2))
            if chance.random() < 0.2:
                # Nothing is left then that could tell the next process how far the numbers were.
                finish(working)
                empty(broker, ledger)
            broker.kill()
            hang_up(working)
        broker.start()
        found = empty(broker, ledger)
        ledger.close(found)
        # What was completed stays gone over one more end.
        broker.kill()
        broker.start()
        assert empty(broker, ledger) == set()
    except BaseException as problem:
        problem.add_note(
            f"PEEKLOCK_SEED={seed}; {ledger.summary()}\n{broker.log_since(0)[-4_000:]}"
        )
        raise
    finally:
        if broker.is_running:
            broker.kill()
    print(f"PEEKLOCK_SEED={seed}: {ledger.summary()}")  # noqa: T201 - shown on failure and with -s
    assert ledger.problems == [], f"PEEKLOCK_SEED={seed}; {ledger.summary()}"
    assert len(ledger.completed) > 50 * kills, "too little was done to show anything"


def chosen_seed() -> int:
    return int(os.environ.get("PEEKLOCK_SEED") or secrets.randbits(32))


@pytest.mark.crash
def test_twenty_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path) -> None:
    """R-T1, R-S3, R-T5: acknowledged is durable, completed is gone, batches are whole."""
    kill_and_check(tmp_path, chosen_seed(), kills=20)


@pytest.mark.crash
@pytest.mark.torture
def test_many_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path) -> None:
    kill_and_check(tmp_path, chosen_seed(), kills=500)
