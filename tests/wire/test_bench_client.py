"""The bench's own client: what it measures must first be true."""

import dataclasses
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import client, fairness
from bench.client import COMPILED, PLAIN
from bench.ends import Receiver
from bench.loads import Flood, Trickle
from bench.peeklock_server import Peeklock
from bench.pump import Pump
from peeklock.version import is_compiled

pytestmark = pytest.mark.plain_only(reason="the bench has a broker and a queue of its own")

FORM = "compiled" if is_compiled() else "plain"
CLIENT = COMPILED if is_compiled() else PLAIN
COUNT = 1_000
QUIET_S = 0.5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Peeklock]:
    with Peeklock(tmp_path, FORM) as started:
        yield started


@pytest.mark.smoke
def test_a_flood_goes_through_the_queue_and_is_completed(server: Peeklock) -> None:
    load = Flood(messages=COUNT, window=100, credit=100, warmup=50)
    result = client.run(server.endpoint, load, CLIENT)
    assert result.messages == COUNT
    assert result.seconds > 0
    assert result.client_cpu_us > 0
    assert arrivals(server) == 0


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("is_websocket", [False, True], ids=["amqp", "websocket"])
def test_a_flood_goes_by_every_way(server: Peeklock, is_tls: bool, is_websocket: bool) -> None:
    endpoint = dataclasses.replace(
        server.endpoint,
        authority=str(server.authority) if is_tls else "",
        is_websocket=is_websocket,
    )
    load = Flood(messages=COUNT, window=100, credit=100, warmup=50)
    assert client.run(endpoint, load, CLIENT).messages == COUNT
    assert arrivals(server) == 0


def test_a_fill_stays_in_the_queue_when_the_broker_is_killed(server: Peeklock) -> None:
    client.run(server.endpoint, Flood(messages=COUNT, window=100, credit=0), CLIENT)
    server.kill()
    server.start()
    assert arrivals(server) == COUNT


def test_deferred_messages_are_settled_and_do_not_come_again(server: Peeklock) -> None:
    load = Flood(messages=COUNT, window=100, credit=100, defer_every=10)
    assert client.run(server.endpoint, load, CLIENT).messages == COUNT
    assert arrivals(server) == 0


def test_a_trickle_keeps_its_timetable_and_notes_each_arrival(server: Peeklock) -> None:
    load = Trickle(rate=1_000, burst=5, seconds=1.0, warmup_seconds=0.1)
    result = client.run(server.endpoint, load, CLIENT)
    assert result.messages == COUNT
    assert result.seconds >= 1.0
    assert 0 < result.p50_ms <= result.p99_ms <= result.max_ms


def test_the_quiet_are_heard_beside_the_loud(tmp_path: Path) -> None:
    names = [fairness.name(number) for number in range(fairness.QUIET)]
    with (
        Peeklock(tmp_path, FORM, topics=[fairness.topic()], queues=names) as server,
        ThreadPoolExecutor() as pool,
    ):
        place = server.endpoint
        # Longer than nothing: it begins before the others and outlives them by itself.
        loud = (fairness.TOPIC, fairness.READ, fairness.STUCK, -2.0)
        rate = pool.submit(fairness.shout, place, *loud)
        found = pool.submit(fairness.listen, place, 0.5).result()
        assert 0 < found.p50_ms <= found.p99_ms <= found.max_ms
        assert rate.result() > 0


def test_what_the_server_refuses_ends_the_client(server: Peeklock) -> None:
    missing = dataclasses.replace(server.endpoint, address="missing")
    with pytest.raises(client.ClientError, match="not-found"):
        client.run(missing, Flood(messages=1, window=1, credit=0), CLIENT)


def arrivals(server: Peeklock) -> int:
    """Receive what is in the queue, until nothing has come for a moment."""
    receiver = Receiver(server.endpoint, credit=2 * COUNT)
    pump = Pump(receiver)
    seen = 0
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        pump.flush()
        pump.wait(QUIET_S)
        if receiver.received > seen:
            seen = receiver.received
            quiet_since = time.monotonic()
    pump.close()
    return seen
