"""One store of four fails and returns while everything is in use, again and again: the rest goes
on, nothing acknowledged is lost, nothing completed comes back.

A store goes in three ways: it is taken offline and brought back by command, its directory is moved
away and back (it returns by itself then), and the broker is killed while a store is away."""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.entities import CrashEntities
from tests.crash.traffic import Crew
from tests.crash.victim import Victim, chosen_number, chosen_seed
from tests.wire.broker_process import broker_python

STORES = ("store", "store-2", "store-3", "store-4")
RETURNED_WITHIN_S = 20.0


class Vandal:
    """Takes stores away and brings them back while the crew works."""

    def __init__(
        self, broker: Victim, crash_entities: CrashEntities, random_source: random.Random
    ) -> None:
        self.broker = broker
        self.crash_entities = crash_entities
        self.random_source = random_source
        self.crew = self.gather()
        self.sent_away: Counter[str] = Counter()

    def gather(self) -> Crew:
        return Crew(self.crash_entities.jobs(self.broker.amqp_port, may_fail=True), may_fail=True)

    def work(self, least_s: float, most_s: float) -> None:
        self.crew.run(time.monotonic() + self.random_source.uniform(least_s, most_s))

    def strike(self) -> None:
        store = self.random_source.choice(STORES)
        way: Callable[[str], None] = self.random_source.choice(
            (self.switch, self.switch, self.move)
        )
        way(store)

    def switch(self, store: str) -> None:
        """By command."""
        self.tell("offline", store)
        self.work(0.1, 1.0)
        if self.random_source.random() < 0.2:
            self.restart()
        self.tell("online", store)

    def move(self, store: str) -> None:
        """As if a disk had been pulled out, and put in again."""
        place = self.broker.data / store
        away = self.broker.data / f"{store}-away"
        place.rename(away)
        self.work(0.1, 1.0)
        if self.random_source.random() < 0.2:
            self.restart()
            self.work(0.1, 0.5)
        away.rename(place)
        self.wait_for(store)

    def restart(self) -> None:
        self.broker.kill()
        self.crew.hang_up()
        self.sent_away += self.crew.sent_away
        self.broker.start()
        self.crew = self.gather()

    def tell(self, *wish: str) -> str:
        """Use the command line, and let the crew work meanwhile."""
        process = subprocess.Popen(
            [
                *(broker_python(), "-m", "peeklock", "store", *wish),
                *("--http-port", str(self.broker.http_port)),
                *("--connection-string", self.broker.connection_string),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while process.poll() is None:
            self.crew.turn(0.01)
        said, _ = process.communicate()
        assert process.returncode == 0, said
        return said

    def wait_for(self, store: str) -> None:
        until = time.monotonic() + RETURNED_WITHIN_S
        while time.monotonic() < until:
            states = json.loads(self.tell("list", "--output", "json"))["stores"]
            if any(each["name"] == store and each["state"] == "online" for each in states):
                return
            self.work(0.1, 0.2)
        raise AssertionError(f"{store} has not returned after {RETURNED_WITHIN_S} s")


def vandalise(folder: Path, seed: int, strikes: int, rate: int) -> None:
    random_source = random.Random(seed)
    crash_entities = CrashEntities(rate)
    config = crash_entities.write_config(folder / "Config.json")
    broker = Victim(folder, config, stores=len(STORES))
    broker.start()
    vandal = Vandal(broker, crash_entities, random_source)
    try:
        vandal.work(0.5, 1.0)
        for _ in range(strikes):
            vandal.strike()
            vandal.work(0.1, 1.0)
        # The locks of those who were sent away end with the process.
        vandal.restart()
        vandal.work(0.5, 0.5)
        vandal.crew.finish()
        vandal.crew.leave()
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
    said = f"PEEKLOCK_SEED={seed}; clients were sent away: {dict(vandal.sent_away)}"
    print(f"{said}\n{crash_entities.summary()}")  # noqa: T201 - shown on failure and with -s
    told = "\n".join(crash_entities.problems()[:50])
    assert not told, f"{said}\n{told}"
    # Where all partitions are asked, nobody notices that some do not answer.
    assert not vandal.sent_away.keys() & crash_entities.undisturbed(), said
    assert crash_entities.idle_places(2 * strikes) == [], (
        "too little was done there to show anything"
    )


@pytest.mark.crash
def test_a_store_that_fails_and_returns_loses_nothing(tmp_path: Path) -> None:
    """R-P1, R-T1: what is stored elsewhere is served meanwhile, and the rest afterwards."""
    vandalise(tmp_path, chosen_seed(), strikes=5, rate=60)


@pytest.mark.crash
@pytest.mark.torture
def test_stores_that_fail_and_return_all_the_time_lose_nothing(tmp_path: Path) -> None:
    strikes = chosen_number("PEEKLOCK_STRIKES", 300)
    vandalise(tmp_path, chosen_seed(), strikes, chosen_number("PEEKLOCK_RATE", 60))
