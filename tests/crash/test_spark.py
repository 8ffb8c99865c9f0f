"""SIGKILL of Spark's driver, of an executor or of the broker while a queue is captured into Delta.

Whatever was acknowledged to the sender is in the table once, whatever was not at most once."""

import json
import math
import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from peeklock.client.blocking import ServiceBusClient, ServiceBusSender
from peeklock.client.exceptions import ServiceBusError
from peeklock.client.message import ServiceBusMessage
from tests.crash.spark_driver import CaptureProcess
from tests.crash.victim import chosen_number, chosen_seed
from tests.wire.broker_process import BrokerProcess

QUEUE: Final = "captured"
BATCH: Final = 100
# How long a capture may take to show that it lives, with a JVM to be started on a busy machine.
ALIVE_WITHIN_S: Final = 120.0


class Feeder:
    """Sends messages with ids of their own, and knows which of them are safe for sure."""

    def __init__(self, connection_string: str, messages: int) -> None:
        self._connection_string = connection_string
        self._messages = messages
        self.acknowledged: set[str] = set()
        self.in_doubt: set[str] = set()
        self._pool = ThreadPoolExecutor(1, "feeder")
        self._work: Future[None] | None = None
        # So many batches may be sent before more are allowed: there is something in each round.
        self._allowed = threading.Semaphore(0)

    def start(self) -> None:
        self._work = self._pool.submit(self._feed)

    def allow(self, share: float) -> None:
        """Let it send a share of all messages."""
        self._allowed.release(math.ceil(share * self._messages / BATCH))

    def join(self) -> None:
        assert self._work is not None
        self.allow(1)
        self._work.result()

    def _feed(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self._connection_string) as bus,
            bus.get_queue_sender(QUEUE) as sender,
        ):
            for first in range(0, self._messages, BATCH):
                self._allowed.acquire()
                self._send(sender, [f"m{number}" for number in range(first, first + BATCH)])

    def _send(self, sender: ServiceBusSender, ids: list[str]) -> None:
        batch = [ServiceBusMessage(b"x" * 200, message_id=each) for each in ids]
        try:
            sender.send_messages(batch)
        except ServiceBusError:
            # Never sent again: it may have been stored before the broker died.
            self.in_doubt.update(ids)
        else:
            self.acknowledged.update(ids)


def broker_in(folder: Path) -> BrokerProcess:
    queue = {"Name": QUEUE, "Properties": {"MaxDeliveryCount": 10}}
    namespace = {"Name": "sbemulatorns", "Queues": [queue]}
    config = folder / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return BrokerProcess(data=folder / "data", config=config, log=folder / "broker.log")


def kill_and_check(folder: Path, seed: int, kills: int, messages: int, master: str) -> None:
    random_source = random.Random(seed)
    broker = broker_in(folder)
    broker.start()
    capture = CaptureProcess(folder, broker.connection_string, QUEUE, master)
    feeder = Feeder(broker.connection_string, messages)
    killed: Counter[str] = Counter()
    try:
        feeder.start()
        rows = 0
        while killed.total() < kills:
            if not capture.is_running:
                # What the one before has still written says nothing of this one.
                rows = capture.count()
                capture.start(interval="1s")
            feeder.allow(1 / kills)
            rows = capture.wait_for_rows(rows, ALIVE_WITHIN_S)
            is_alive = capture.lives_on(random_source.uniform(0.0, 1.5))
            assert is_alive, "a capture goes on until it is killed"
            what = random_source.choice(["driver", "executor", "broker"])
            if what == "driver":
                capture.kill_driver()
            elif what == "broker":
                broker.kill()
                capture.lives_on(random_source.uniform(0.0, 1.0))
                broker.start()
            else:
                assert capture.kill_executor(random_source), (
                    "a capture that writes rows has workers"
                )
            killed[what] += 1
        feeder.join()
        if capture.is_running:
            capture.kill_driver()
        capture.start()
        assert capture.finish() == 0, "the last capture must end by itself, with an empty queue"
        found = Counter(capture.ids())
        twice = {each: count for each, count in found.items() if count > 1}
        assert not twice, f"rows that are there more than once: {dict(list(twice.items())[:10])}"
        lost = feeder.acknowledged - found.keys()
        assert not lost, f"{len(lost)} of {len(feeder.acknowledged)} lost: {sorted(lost)[:10]}"
        assert found.keys() <= feeder.acknowledged | feeder.in_doubt
        print(  # noqa: T201 - shown on failure and with -s
            f"PEEKLOCK_SEED={seed}: {dict(killed)} killed, {len(feeder.acknowledged)} sent, "
            f"{len(feeder.in_doubt)} in doubt, {len(found)} rows"
        )
    except BaseException as problem:
        problem.add_note(f"PEEKLOCK_SEED={seed} {dict(killed)}\n{capture.log()}")
        raise
    finally:
        if capture.is_running:
            capture.kill_driver()
        if broker.is_running:
            broker.kill()


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_kills_of_spark_and_broker_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """R-D1, R-D2: exactly once into the lake, whatever is killed."""
    kill_and_check(tmp_path, chosen_seed(), kills=5, messages=5_000, master="local[2,4]")


@pytest.mark.crash
@pytest.mark.torture
def test_many_kills_of_spark_and_broker(tmp_path: Path) -> None:
    kills = chosen_number("PEEKLOCK_KILLS", 50)
    messages = chosen_number("PEEKLOCK_MESSAGES", 100_000)
    kill_and_check(tmp_path, chosen_seed(), kills, messages, "local-cluster[2,1,1024]")
