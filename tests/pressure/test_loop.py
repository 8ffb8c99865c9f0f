"""The loop's watchdog and its page, on a broker that really listens."""

from __future__ import annotations

import threading

from tests.pressure.conftest import MakeHouse
from tests.pressure.house import is_fast
from tests.wire.own_client import run_with, send

SCRAPES = 20


def test_steps_and_waits_are_told_while_the_broker_works(house: MakeHouse) -> None:
    broker = house(queues={"other": {}})

    with broker.pressed() as seen:
        senders = [
            threading.Thread(
                target=run_with,
                args=(
                    broker.connection_string,
                    lambda client: send(client, "other", *[b"x" * 1000] * 100),
                ),
            )
            for _ in range(3)
        ]
        for sender in senders:
            sender.start()
        # Looking is no abuse, however often it is done.
        for _ in range(SCRAPES):
            broker.metrics()
        for sender in senders:
            sender.join()

    found = broker.metrics()
    assert found["peeklock_ready", ()] == 1
    assert found["peeklock_loop_step_seconds_count", ()] > 500
    assert found["peeklock_loop_turn_seconds_count", ()] > 100
    store = (("store", "store"),)
    assert found["peeklock_store_commit_seconds_count", store] > 50
    assert found["peeklock_store_commit_bytes_sum", store] > 300 * 1000
    assert found["peeklock_store_free_bytes", store] > 0
    assert broker.steps().count > 500
    assert seen.longest_step
    if is_fast():
        assert broker.steps().long == 0, seen.longest_step


def test_looking_opens_nothing(house: MakeHouse) -> None:
    broker = house(queues={f"queue-{number}": {} for number in range(50)})
    before = broker.log()
    status, text = broker.get("/ready")
    assert (status, "ready" in text) == (200, True)
    broker.metrics()
    assert "partition-opened" not in broker.log()[len(before) :]
    home = ("namespace", "sbemulatorns")
    found = broker.metrics()
    assert found["peeklock_partitions", (home, ("state", "closed"))] == 51
    assert found["peeklock_messages", (home,)] == 0

    run_with(broker.connection_string, lambda client: send(client, "queue-7", "x", "y"))
    found = broker.metrics()
    assert found["peeklock_partitions", (home, ("state", "closed"))] == 50
    assert found["peeklock_partitions", (home, ("state", "open"))] == 1
    assert found["peeklock_messages", (home,)] == 2
    assert found["peeklock_message_memory_bytes", (home,)] > 0
