"""A broker that reads its file again while clients use it."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import ServiceBusError
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess

WITHIN_S = 20.0


@final
class Service(BrokerProcess):
    """One that has no terminal, as under a service manager."""

    def command(self) -> list[str]:
        return ["setsid", *super().command()]

    def write(self, key: str, **changes: Any) -> None:
        """Write the file: root has a key, a worker another, and there is a queue."""
        root = {"Name": "root", "PrimaryKey": "root-key", "Rights": ["Manage"]}
        worker = {"Name": "worker", "PrimaryKey": key, "Rights": ["Send", "Listen"]}
        queues = [{"Name": name} for name in ("orders", *changes.get("queues", ()))]
        rules = changes.get("rules", [root, worker])
        space = {"Name": "ns", "AuthorizationRules": rules, "Queues": queues}
        self.config.write_text(json.dumps({"UserConfig": {"Namespaces": [space]}}))

    def connection(self, rule: str, key: str) -> str:
        return sas.connection_string(self.amqp_port, rule=rule, key=key)

    def reload(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Ask for it as a person does."""
        return subprocess.run(
            [sys.executable, "-m", "peeklock", "reload", *options],
            env={
                **os.environ,
                "PEEKLOCK_CONNECTION_STRING": self.connection("root", "root-key"),
                "PEEKLOCK_HTTP_PORT": str(self.http_port),
            },
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while words not in self.log_since(0):
            assert time.monotonic() < deadline, f"no {words!r} in the log"
            time.sleep(0.02)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    config = tmp_path / "Config.json"
    process = Service(data=tmp_path / "data", config=config, log=tmp_path / "broker.log")
    process.write("old")
    process.start()
    yield process
    if process.is_running:
        process.kill()


def test_keys_and_queues_change_and_connections_stay(service: Service) -> None:
    """A key that is gone ends its links within a second; root's go on as if nothing was."""

    async def use() -> None:
        root = service.connection("root", "root-key")
        worker = service.connection("worker", "old")
        async with (
            asyncio.timeout(60),
            ServiceBusClient.from_connection_string(root, retry_total=0) as lasting,
            ServiceBusClient.from_connection_string(worker, retry_total=0) as passing,
            lasting.get_queue_sender("orders") as stays,
            passing.get_queue_sender("orders") as goes,
        ):
            await stays.send_messages(ServiceBusMessage("one"))
            await goes.send_messages(ServiceBusMessage("two"))
            service.write("new", queues=["later"])
            done = await asyncio.to_thread(service.reload)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines() == [
                "queue 'later' is new",
                "the rules of the namespace 'ns' are others",
            ]
            await asyncio.sleep(1.0)
            with pytest.raises(ServiceBusError):
                await goes.send_messages(ServiceBusMessage("three"))
            # Nothing was tried again: it is the same link.
            await stays.send_messages(ServiceBusMessage("four"))
        renewed = service.connection("worker", "new")
        async with (
            ServiceBusClient.from_connection_string(renewed) as client,
            client.get_queue_sender("later") as sender,
        ):
            await sender.send_messages(ServiceBusMessage("five"))

    asyncio.run(use())


def test_what_is_wrong_is_said_and_nothing_changes(service: Service) -> None:
    service.write("old", rules=[{"Name": "root", "PrimaryKey": "x", "Rights": ["Fly"]}])
    done = service.reload()
    assert done.returncode == 1
    assert "Fly" in done.stderr
    service.write("old")
    again = service.reload("-o", "json")
    assert json.loads(again.stdout) == {"changed": [], "restart": []}


def test_a_hangup_reloads_a_service(service: Service) -> None:
    """SIGHUP ended it without a word."""
    service.write("old", queues=["later"])
    os.kill(service.pid, signal.SIGHUP)
    service.wait_for("queue 'later' is new")
    service.config.write_text("{")
    os.kill(service.pid, signal.SIGHUP)
    service.wait_for("not-reloaded")
    assert service.is_running


def test_a_terminal_that_goes_ends_it_politely(service: Service) -> None:
    """It says so, and everything is flushed."""
    service.stop()
    seen = service.log_size()
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with service.log.open("ab") as log:
        process = subprocess.Popen(
            service.command()[1:],
            stdin=theirs,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=take_terminal,
        )
    os.close(theirs)
    deadline = time.monotonic() + WITHIN_S
    while "Peeklock is ready" not in service.log_since(seen):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.close(ours)
    try:
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
    assert "hangup" in service.log_since(seen)
    assert "stopped" in service.log_since(seen)


def test_what_it_makes_belongs_to_its_owner(service: Service) -> None:
    """Messages and keys rest there in clear text."""
    for path in (service.data, *(each for each in service.data.iterdir() if each.is_dir())):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
