"""Several nodes on one machine: one port, all entities through each of them, and one that dies
(R-P1, R-P4, R-T1)."""

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.wire.broker_process import BrokerProcess
from tests.wire.rest import RestClient

NODES = 2
PARTITIONED = "spread"
LONE = ("lone-1", "lone-2", "lone-3", "lone-4")


def broker_of(directory: Path, *options: str) -> BrokerProcess:
    config = directory / "Config.json"
    queues: list[dict[str, Any]] = [{"Name": name} for name in LONE]
    queues.append({"Name": PARTITIONED, "Properties": {"EnablePartitioning": True}})
    config.write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}})
    )
    return BrokerProcess(
        data=directory / "data", config=config, log=directory / "broker.log", options=options
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = broker_of(tmp_path, "--nodes", str(NODES), "--stores", "4")
    process.start()
    yield process
    if process.is_running:
        assert process.stop() == 0


def pids(broker: BrokerProcess) -> dict[int, int]:
    """The process of each node, as the log says it."""
    found = re.findall(r"node-started node=(\d+) pid=(\d+)", broker.log_since(0))
    return {int(node): int(pid) for node, pid in found}


def wait_for(broker: BrokerProcess, text: str, count: int, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while broker.log_since(0).count(text) < count:
        assert time.monotonic() < deadline, f"never {count} times: {text}"
        time.sleep(0.05)


def client(broker: BrokerProcess) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        broker.connection_string, retry_backoff_factor=0.1, retry_total=20
    )


def send(broker: BrokerProcess, queue: str, *texts: str) -> None:
    with client(broker) as bus, bus.get_queue_sender(queue) as sender:
        for text in texts:
            sender.send_messages(ServiceBusMessage(text))


def drain(broker: BrokerProcess, queue: str, count: int) -> list[str]:
    """Receive and complete so many, over as many connections as it takes."""
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        try:
            with client(broker) as bus, bus.get_queue_receiver(queue) as receiver:
                for message in receiver.receive_messages(100, max_wait_time=2):
                    found.append(str(message))
                    receiver.complete_message(message)
        except ServiceBusError:
            continue
    return found


def test_every_connection_reaches_every_queue(broker: BrokerProcess) -> None:
    """Connections are shared out among the nodes, and nobody notices which one serves."""
    for number in range(4):
        with client(broker) as bus:
            for queue in LONE:
                with bus.get_queue_sender(queue) as sender:
                    sender.send_messages(ServiceBusMessage(f"{queue} {number}"))
    with client(broker) as bus:
        for queue in LONE:
            with bus.get_queue_receiver(queue) as receiver:
                found = receiver.receive_messages(4, max_wait_time=30)
                while len(found) < 4:
                    found += receiver.receive_messages(4 - len(found), max_wait_time=30)
                assert [str(each) for each in found] == [f"{queue} {number}" for number in range(4)]
                for each in found:
                    receiver.complete_message(each)
    opened = re.findall(r"partition-opened partition=\S*lone-(\d)", broker.log_since(0))
    assert set(opened) == {"1", "2", "3", "4"}


def test_figures_stores_and_reload_are_of_all_nodes(broker: BrokerProcess) -> None:
    send(broker, PARTITIONED, *(f"{number}" for number in range(16)))
    page = urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=10)
    text = page.read().decode()
    active = re.findall(r'peeklock_messages\{(.*node="(\d)".*state="ready".*)\} (\S+)', text)
    assert {node for _, node, _ in active} == {"0", "1"}, text
    assert sum(float(count) for _, _, count in active) == 16
    rest = RestClient(broker.http_port)
    answer = rest.ask("GET", "/$stores")
    states = {each["name"]: each["state"] for each in json.loads(answer.body)["stores"]}
    assert states == dict.fromkeys(("store", "store-2", "store-3", "store-4"), "online")
    for name in states:
        assert rest.ask("POST", f"/$stores/{name}/offline").status == 200
        assert rest.ask("POST", f"/$stores/{name}/online").status == 200
    assert rest.ask("POST", "/$reload").status == 200
    assert len(drain(broker, PARTITIONED, 16)) == 16


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_dies_loses_nothing_and_comes_back(
    broker: BrokerProcess, how: signal.Signals
) -> None:
    """What was acknowledged is there again; keyless sends go elsewhere meanwhile."""
    send(broker, PARTITIONED, *(f"before {number}" for number in range(32)))
    for queue in LONE:
        send(broker, queue, "kept")
    started = broker.log_since(0).count("node-serves")
    os.kill(pids(broker)[1], how)
    # Sends that were in doubt are sent again by the client: their texts come twice.
    send(broker, PARTITIONED, *(f"after {number}" for number in range(32)))
    wait_for(broker, "node-serves", started + 1)
    expected = {f"{when} {number}" for when in ("before", "after") for number in range(32)}
    found: set[str] = set()
    deadline = time.monotonic() + 90
    while found != expected and time.monotonic() < deadline:
        found.update(drain(broker, PARTITIONED, 1))
    assert found == expected
    for queue in LONE:
        assert drain(broker, queue, 1) == ["kept"]


def test_nodes_end_with_their_parent_and_start_again(broker: BrokerProcess) -> None:
    send(broker, "lone-1", "kept")
    before = pids(broker)
    broker.kill()
    deadline = time.monotonic() + 20
    while any(_lives(pid) for pid in before.values()):
        assert time.monotonic() < deadline, "a node outlives its parent"
        time.sleep(0.05)
    broker.start()
    assert drain(broker, "lone-1", 1) == ["kept"]


def test_a_directory_with_fewer_stores_than_nodes_is_refused(tmp_path: Path) -> None:
    alone = broker_of(tmp_path)
    alone.start()
    send(alone, "lone-1", "kept")
    assert alone.stop() == 0
    several = broker_of(tmp_path, "--nodes", "2")
    with pytest.raises(RuntimeError, match="has 1 store and 2 nodes need one each"):
        several.start()
    more = broker_of(tmp_path, "--nodes", "2", "--stores", "2")
    more.start()
    assert drain(more, "lone-1", 1) == ["kept"]
    assert more.stop() == 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
