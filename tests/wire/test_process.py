"""The process: how it starts, what it tells, how it ends."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusMessage

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, LoopThread, body, receive_one

StartBroker = Callable[..., BrokerProcess]


@pytest.mark.smoke
def test_it_says_when_it_is_ready_and_how_to_connect(broker: BrokerProcess) -> None:
    """R-T1: one line that begins with its readiness, then the connection string."""
    lines = broker.log_since(0).splitlines()
    ready = next(i for i, line in enumerate(lines) if line.startswith("Peeklock is ready"))
    # Who runs the tests says which build they are meant for; a wrong path would go unnoticed.
    assert os.environ.get("PEEKLOCK_EXPECT", "") in lines[ready]
    assert "Endpoint=sb://localhost" in "".join(lines[ready:])
    assert "UseDevelopmentEmulator=true" in "".join(lines[ready:])


@pytest.mark.smoke
def test_it_tells_its_health(broker: BrokerProcess) -> None:
    """In the emulator's form, so that what waits for the emulator waits for it too."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/health") as answer:
        assert answer.status == 200
        assert json.load(answer) == {"status": "healthy", "message": "Service is healthy."}


@pytest.mark.smoke
def test_it_ends_politely(own_bus: Bus, own_broker: BrokerProcess) -> None:
    """R-T1: SIGTERM with clients attached: exit code 0, soon, and everything accepted is kept."""
    with (
        own_bus.sender("plain-001") as sender,
        own_bus.receiver("plain-002") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("kept"))
        assert receiver.peek_messages(max_message_count=1) == []
        started = time.monotonic()
        assert own_broker.stop() == 0
        assert time.monotonic() - started < 10
        own_broker.start()
    with own_bus.receiver("plain-001") as receiver:
        assert body(receive_one(receiver)) == b"kept"


def test_it_ends_politely_when_interrupted(own_broker: BrokerProcess) -> None:
    """Ctrl-C is as good as SIGTERM."""
    assert own_broker.end(signal.SIGINT) == 0


def test_one_data_directory_has_one_broker(start_broker: StartBroker) -> None:
    """R-T1: the second one says so and ends."""
    first = start_broker("one", counts={"plain": 1})
    first.start()
    second = start_broker("two", counts={"plain": 1})
    second.data = first.data
    done = run_to_its_end(second)
    assert done.returncode != 0
    assert str(first.data) in said(done)


def test_entities_of_an_older_configuration_are_kept(
    start_broker: StartBroker, loop: LoopThread
) -> None:
    """R-T1: a restart creates and updates what the file names and keeps the rest."""
    process = start_broker(counts={"plain": 2, "short-lock": 1})
    process.start()
    bus = Bus("sync", process.connection_string, loop)
    bus.send("plain-002", ServiceBusMessage("kept"))
    assert process.stop() == 0

    again = start_broker("again", counts={"plain": 1, "three-deliveries": 1})
    again.data = process.data
    again.start()
    later = Bus("sync", again.connection_string, loop)
    with later.receiver("plain-002") as receiver:
        assert body(receive_one(receiver)) == b"kept"
    later.send("three-deliveries-001", ServiceBusMessage("x"))
    later.close()
    bus.close()


def test_the_development_key_stays_at_home(start_broker: StartBroker) -> None:
    """A listener that others can reach does not start with a key that everybody knows."""
    process = start_broker(counts={"plain": 1})
    command = process.command()
    command[command.index("--host") + 1] = "0.0.0.0"
    done = run_to_its_end(process, command)
    assert done.returncode != 0
    assert re.search("RootManageSharedAccessKey|SAS_KEY_VALUE|development key", said(done))


def run_to_its_end(
    process: BrokerProcess, command: list[str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command or process.command(), capture_output=True, timeout=30, check=False
    )


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Everything it wrote, on one line, because a terminal may have broken it anywhere."""
    return re.sub(r"\s*\n\s*", "", (done.stdout + done.stderr).decode(errors="replace"))
