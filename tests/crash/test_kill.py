"""SIGKILL at random moments: everything acknowledged is kept, nothing completed returns.

`PEEKLOCK_SEED` chooses the moments; a failure names it. A kill does not lose what the kernel has
taken, so this shows that no reply leaves before its append, not that the disk keeps its word."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.crash.entities import DELIVERIES_MAX, CrashEntities
from tests.crash.promises import Ledger, Place
from tests.crash.traffic import Crew, End, Line, Receiver, Sender, drain
from tests.crash.victim import Victim, chosen_number, chosen_seed
from tests.store.postgres.server import shared_server

# Brokers are killed and started again and again, on a machine that others may use.
pytestmark = pytest.mark.timeout(300)

QUEUE: Final = "crash"
STORES: Final = 4


# --- one plain queue, as busy as can be


def victim(folder: Path, store: str = "") -> Victim:
    queue = {"Name": QUEUE, "Properties": {"MaxDeliveryCount": DELIVERIES_MAX}}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": []}
    config = folder / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return Victim(folder, config, store=store)


def jobs(port: int, ledger: Ledger) -> list[Callable[[], End]]:
    """Two senders of single messages, one of batches, and two receivers that compete."""
    (place,) = ledger.places
    return [
        lambda: Sender(Line(port), ledger, per_second=1_200),
        lambda: Sender(Line(port), ledger, per_second=1_200),
        lambda: Sender(Line(port), ledger, per_second=150, in_batches=True),
        lambda: Receiver(Line(port), place),
        lambda: Receiver(Line(port), place),
    ]


def empty(broker: Victim, place: Place) -> set[int]:
    """Everything that is still in the queue and in its dead-letter queue."""
    found = drain(Receiver(Line(broker.amqp_port), place, to_the_end=True))
    dead = Receiver(Line(broker.amqp_port), place, dead_letters=True, to_the_end=True)
    return found | drain(dead)


def kill_and_check(folder: Path, seed: int, kills: int, store: str = "") -> None:
    random_source = random.Random(seed)
    broker = victim(folder, store)
    place = Place(QUEUE)
    ledger = Ledger(QUEUE, place)
    try:
        for _ in range(kills):
            if random_source.random() < 0.2:
                broker.stumble(random_source.uniform(0.0, 0.6))
            broker.start()
            crew = Crew(jobs(broker.amqp_port, ledger))
            crew.run(time.monotonic() + random_source.uniform(0.05, 1.2))
            if random_source.random() < 0.2:
                # Nothing is left then that could tell the next process how far the numbers were.
                crew.finish()
                empty(broker, place)
            broker.kill()
            crew.hang_up()
        broker.start()
        ledger.close({place: empty(broker, place)})
        # What was completed stays gone over one more end.
        broker.kill()
        broker.start()
        assert empty(broker, place) == set()
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
    assert len(place.completed) > 50 * kills, "too little was done to show anything"


@pytest.mark.crash
@pytest.mark.parametrize("store", ["lmdb", "segments"])
def test_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path, store: str) -> None:
    """R-T1, R-S3, R-T5: acknowledged is durable, completed is gone, batches are whole."""
    kill_and_check(tmp_path, chosen_seed(), kills=20, store=store)


@pytest.mark.crash
@pytest.mark.torture
def test_many_kills_of_a_broker_on_a_database_lose_nothing(tmp_path: Path) -> None:
    """R-T1: what the killed one left open in the database keeps nobody from going on."""
    kills = chosen_number("PEEKLOCK_KILLS", 200)
    kill_and_check(tmp_path, chosen_seed(), kills, store=shared_server().new_database())


@pytest.mark.crash
@pytest.mark.torture
def test_many_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path) -> None:
    kill_and_check(tmp_path, chosen_seed(), kills=chosen_number("PEEKLOCK_KILLS", 500))


# --- every kind of entity at once, over several stores


def kill_the_house(folder: Path, seed: int, kills: int, rate: int) -> None:
    random_source = random.Random(seed)
    crash_entities = CrashEntities(rate)
    broker = Victim(folder, crash_entities.write_config(folder / "Config.json"), stores=STORES)
    try:
        for _ in range(kills):
            if random_source.random() < 0.1:
                broker.stumble(random_source.uniform(0.0, 0.8))
            broker.start()
            crew = Crew(crash_entities.jobs(broker.amqp_port))
            crew.run(time.monotonic() + random_source.uniform(0.1, 2.0))
            if random_source.random() < 0.1:
                crew.finish()
                crew.leave()
                crash_entities.empty(broker.amqp_port)
            broker.kill()
            crew.hang_up()
        broker.start()
        crash_entities.close(crash_entities.empty(broker.amqp_port))
        broker.kill()
        broker.start()
        left = crash_entities.empty(broker.amqp_port)
        assert {place.address: ids for place, ids in left.items() if ids} == {}
    except BaseException as problem:
        problem.add_note(
            f"PEEKLOCK_SEED={seed}\n{crash_entities.summary()}\n{crash_entities.problems()[:20]}\n"
            f"{broker.log_since(0)[-4_000:]}"
        )
        raise
    finally:
        if broker.is_running:
            broker.kill()
    print(f"PEEKLOCK_SEED={seed}\n{crash_entities.summary()}")  # noqa: T201 - shown on failure and with -s
    told = "\n".join(crash_entities.problems()[:50])
    assert not told, f"PEEKLOCK_SEED={seed}\n{told}"
    assert crash_entities.idle_places(2 * kills) == [], "too little was done there to show anything"


@pytest.mark.crash
def test_kills_break_no_promise_of_any_entity(tmp_path: Path) -> None:
    """R-T1, R-T3: topics, forwarding, sessions, duplicates, transactions; plain and partitioned."""
    kill_the_house(tmp_path, chosen_seed(), kills=8, rate=100)


@pytest.mark.crash
@pytest.mark.torture
def test_many_kills_break_no_promise_of_any_entity(tmp_path: Path) -> None:
    kills = chosen_number("PEEKLOCK_KILLS", 300)
    kill_the_house(tmp_path, chosen_seed(), kills, chosen_number("PEEKLOCK_RATE", 100))
