"""Several stores: one goes away and returns, by hand or with its disk, and the rest goes on."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    Bus,
    LoopThread,
    bodies,
    body,
    by_partition,
    partition,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import PARTITIONS_DEFAULT, POSTGRES

STORES = 4
LOST = "store-2"
LOST_PARTITIONS = PARTITIONS_DEFAULT // STORES
# R-P4: the clients' own timeouts are longer.
REFUSED_WITHIN_S = 15
KEYS = [f"key-{index}" for index in range(60)]
QUEUE = "partitioned-001"
SESSIONS = "partitioned-session-001"

StartBroker = Callable[..., BrokerProcess]

pytestmark = pytest.mark.plain_only(reason="these queues are partitioned in either case")


@pytest.fixture
def stores_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker with four stores; partitioned queues have a quarter of their partitions in each."""
    process = start_broker(counts={"partitioned": 2, "partitioned-session": 1}, stores=STORES)
    process.start()
    return process


@pytest.fixture
def bus(stores_broker: BrokerProcess, loop: LoopThread) -> Iterator[Bus]:
    made = Bus("sync", stores_broker.connection_string, loop, retry_total=0)
    yield made
    made.close()


def ask(stores_broker: BrokerProcess, *words: str) -> dict[str, str]:
    """Give the command `peeklock store`, and get the state of each store."""
    command = [sys.executable, "-m", "peeklock", "store", *words, "--output", "json"]
    where = [
        "--connection-string",
        stores_broker.connection_string,
        "--http-port",
        str(stores_broker.http_port),
    ]
    done = subprocess.run([*command, *where], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    return {store["name"]: store["state"] for store in document["stores"]}


def fill(bus: Bus, queue: str = QUEUE) -> dict[str, int]:
    """Send a message for each key, and tell in which partition it rests."""
    bus.send(queue, *[ServiceBusMessage(key, partition_key=key) for key in KEYS])
    with bus.receiver(queue) as receiver:
        found = {body(message).decode(): partition(message) for message in peek_all(receiver)}
    assert sorted(found) == sorted(KEYS)
    assert len(set(found.values())) == PARTITIONS_DEFAULT
    return found


def lost_partitions(bus: Bus, entities: dict[str, int]) -> set[int]:
    """Which partitions are gone: those that peeking does not show any more."""
    with bus.receiver(QUEUE) as receiver:
        seen = set(by_partition(peek_all(receiver), body))
    return set(entities.values()) - seen


def complete_all(bus: Bus, count: int, queue: str = QUEUE) -> list[bytes]:
    with bus.receiver(queue) as receiver:
        messages = receive(receiver, count)
        for message in messages:
            receiver.complete_message(message)
    return bodies(messages)


def test_a_store_is_taken_away_and_brought_back(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P4, R-P6: the rest is sent to, received from and peeked at; then all is there again."""
    entities = fill(bus)
    assert ask(stores_broker, "offline", LOST)[LOST] == "offline"
    lost = lost_partitions(bus, entities)
    assert len(lost) == LOST_PARTITIONS

    # Without a key a message goes where it can.
    bus.send(QUEUE, *[ServiceBusMessage(f"keyless {n}") for n in range(40)])
    acknowledged = [f"keyless {n}" for n in range(40)]
    # With one it goes to its partition, or fails soon and in a way that is worth a retry.
    reachable = [key for key in KEYS if entities[key] not in lost]
    bus.send(QUEUE, *[ServiceBusMessage(f"again {k}", partition_key=k) for k in reachable])
    acknowledged += [f"again {key}" for key in reachable]
    for home in lost:
        key = next(key for key in KEYS if entities[key] == home)
        started = time.monotonic()
        with pytest.raises(ServiceBusError, match="out of reach") as refused:
            bus.send(QUEUE, ServiceBusMessage("never", partition_key=key))
        assert time.monotonic() - started < REFUSED_WITHIN_S
        assert refused.value._retryable

    got = complete_all(bus, len(reachable) + len(acknowledged))
    assert sorted(got) == sorted(text.encode() for text in reachable + acknowledged)
    with bus.receiver(QUEUE) as receiver:
        assert peek_all(receiver) == []

    assert set(ask(stores_broker, "online", LOST).values()) == {"online"}
    got = complete_all(bus, len(KEYS) - len(reachable))
    assert sorted(got) == sorted(key.encode() for key in KEYS if entities[key] in lost)
    bus.send(QUEUE, *[ServiceBusMessage(key, partition_key=key) for key in KEYS])
    assert sorted(complete_all(bus, len(KEYS))) == sorted(key.encode() for key in KEYS)


def test_receivers_live_through_it(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P5: one that is open all the time gets what is there, and the rest when it is back."""
    with bus.receiver(QUEUE) as receiver:
        assert receiver.peek_messages(max_message_count=1) == []
        entities = fill(bus)
        ask(stores_broker, "offline", LOST)
        lost = lost_partitions(bus, entities)
        reachable = [key for key in KEYS if entities[key] not in lost]
        messages = receive(receiver, len(reachable))
        for message in messages:
            receiver.complete_message(message)
        timer = threading.Timer(1.0, ask, (stores_broker, "online", LOST))
        timer.start()
        rest = receive(receiver, len(KEYS) - len(reachable))
        for message in rest:
            receiver.complete_message(message)
        timer.join()
        assert peek_all(receiver) == []
    assert sorted(bodies(messages + rest)) == sorted(key.encode() for key in KEYS)


def test_what_was_locked_comes_again(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P4, R-L3: it cannot be completed while its store is away; afterwards it is there."""
    entities = fill(bus)
    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, len(KEYS))
        ask(stores_broker, "offline", LOST)
        lost = lost_partitions(bus, entities)
        for message in messages:
            if partition(message) not in lost:
                receiver.complete_message(message)
        away = [message for message in messages if partition(message) in lost]
        for message in away[:3]:
            started = time.monotonic()
            with pytest.raises(ServiceBusError):
                receiver.complete_message(message)
            assert time.monotonic() - started < REFUSED_WITHIN_S
            # The client shut its link; it opens another one to ask for something new.
            assert receiver.peek_messages(max_message_count=1) == []
        ask(stores_broker, "online", LOST)
        again = receive(receiver, len(away))
        for message in again:
            receiver.complete_message(message)
        assert peek_all(receiver) == []
    assert sorted(bodies(again)) == sorted(bodies(away))


def test_sessions_go_on_elsewhere(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P4: the next session is one that is there; a named one that is not is refused soon."""
    names = [f"s{index}" for index in range(10)]
    bus.send(SESSIONS, *[ServiceBusMessage(name, session_id=name) for name in names])
    ask(stores_broker, "offline", LOST)
    refused = []
    for name in names:
        started = time.monotonic()
        try:
            with bus.receiver(SESSIONS, session_id=name) as receiver:
                assert body(receive_one(receiver)) == name.encode()
        except ServiceBusError:
            refused.append(name)
        assert time.monotonic() - started < REFUSED_WITHIN_S
    assert 0 < len(refused) < len(names) // 2
    seen = set()
    for _ in range(len(names) - len(refused)):
        with bus.receiver(
            SESSIONS, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
        ) as receiver:
            message = receive_one(receiver)
            receiver.complete_message(message)
            seen.add(message.session_id)
    assert seen == set(names) - set(refused)
    ask(stores_broker, "online", LOST)
    for name in refused:
        with bus.receiver(SESSIONS, session_id=name) as receiver:
            assert body(receive_one(receiver)) == name.encode()


def test_nothing_acknowledged_is_lost_under_load(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P4: stores go and return while messages are sent, received and completed."""
    acknowledged: list[str] = []
    completed: list[str] = []
    failures = 0
    ended = threading.Event()

    def send() -> None:
        nonlocal failures
        index = 0
        with bus.sender(QUEUE) as sender:
            while not ended.is_set():
                index += 1
                key = KEYS[index % len(KEYS)] if index % 2 else None
                message = ServiceBusMessage(f"{index}", partition_key=key, message_id=f"{index}")
                try:
                    sender.send_messages(message)
                    acknowledged.append(f"{index}")
                except ServiceBusError:
                    assert key is not None, "a message without a key goes elsewhere"
                    failures += 1

    def take() -> None:
        with bus.receiver(QUEUE) as receiver:
            while not ended.is_set():
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=1):
                    try:
                        receiver.complete_message(message)
                        completed.append(body(message).decode())
                    except (ServiceBusError, ValueError):
                        # Refused, or on a link that the client shut because of that.
                        continue

    threads = [threading.Thread(target=work) for work in (send, take)]
    for thread in threads:
        thread.start()
    for name in ("store-2", "store-4", "store-2"):
        time.sleep(1)
        ask(stores_broker, "offline", name)
        time.sleep(1)
        ask(stores_broker, "online", name)
    ended.set()
    for thread in threads:
        thread.join(30)
    with bus.receiver(QUEUE) as receiver:
        left = [body(message).decode() for message in peek_all(receiver)]
    assert failures > 0
    assert set(acknowledged) <= set(completed) | set(left)
    # What was completed is gone: nothing of it is left, nothing came twice.
    assert len(set(completed)) == len(completed)
    assert not set(completed) & set(left)


@pytest.mark.skipif(POSTGRES, reason="a database has no directory")
def test_a_disk_is_missing_at_the_start(bus: Bus, stores_broker: BrokerProcess) -> None:
    """R-P9: the broker starts without it, serves the rest, and makes no empty one in its place."""
    entities = fill(bus)
    assert stores_broker.stop() == 0
    disk, elsewhere = stores_broker.data / LOST, stores_broker.data / "unplugged"
    disk.rename(elsewhere)
    stores_broker.start()
    assert ask(stores_broker, "list") == {
        "store": "online",
        LOST: "offline",
        "store-3": "online",
        "store-4": "online",
    }
    lost = lost_partitions(bus, entities)
    assert len(lost) == LOST_PARTITIONS
    assert not disk.exists()
    bus.send(QUEUE, *[ServiceBusMessage(f"keyless {n}") for n in range(20)])
    elsewhere.rename(disk)
    assert ask(stores_broker, "online", LOST)[LOST] == "online"
    expected = [*KEYS, *[f"keyless {n}" for n in range(20)]]
    assert sorted(complete_all(bus, len(expected))) == sorted(text.encode() for text in expected)


def test_a_store_that_was_taken_away_is_back_after_a_restart(
    bus: Bus, stores_broker: BrokerProcess
) -> None:
    """Taking one away is for the moment; it also ends politely without it."""
    fill(bus)
    ask(stores_broker, "offline", LOST)
    assert stores_broker.stop() == 0
    stores_broker.start()
    assert set(ask(stores_broker, "list").values()) == {"online"}
    assert sorted(complete_all(bus, len(KEYS))) == sorted(key.encode() for key in KEYS)
