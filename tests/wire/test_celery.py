"""Celery through Kombu's transport for Service Bus, which cannot be told a port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.broker_process import BrokerProcess
from tests.wire.conftest import CELERY_HOST
from tests.wire.entities import ROOT_KEY, ROOT_RULE

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "celery"
READY_WITHIN_S = 40
DONE_WITHIN_S = 60


@pytest.fixture
def environment(usual_ports: BrokerProcess, tmp_path: Path) -> dict[str, str]:
    """What the application and its worker find: the namespace on this machine, and trust in it."""
    (tmp_path / "results").mkdir()
    return os.environ | {
        "TASKS_BROKER": f"azureservicebus://{ROOT_RULE}:{ROOT_KEY}@peeklock",
        "TASKS_RESULTS": f"file://{tmp_path / 'results'}",
        "CELERY_TEST_HOST": CELERY_HOST,
        "CELERY_TEST_TRUST": str(usual_ports.authority),
        "REQUESTS_CA_BUNDLE": str(usual_ports.authority),
        "PYTHONPATH": str(Path(__file__).parent / "celery_site"),
    }


@pytest.fixture
def worker(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """A worker, and its log."""
    path = tmp_path / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker"]
    with path.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--pool", "solo", "--loglevel", "info"],
            cwd=EXAMPLE,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while " ready." not in path.read_text():
            assert process.poll() is None, path.read_text()
            assert time.monotonic() < deadline, path.read_text()
            time.sleep(0.05)
        yield path
        process.send_signal(signal.SIGTERM)
        process.wait(READY_WITHIN_S)
    finally:
        process.kill()
        process.wait()


def test_tasks_are_carried_out(worker: Path, environment: dict[str, str]) -> None:
    """R-F1: queues made over HTTPS, tasks over AMQP with TLS, results as the worker made them."""
    code = (
        "from tasks import add\n"
        "waiting = [add.delay(number, 2) for number in range(10)]\n"
        f"print(*(each.get(timeout={DONE_WITHIN_S}) for each in waiting))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DONE_WITHIN_S + 30,
        check=False,
    )
    assert done.stdout.split() == [str(number + 2) for number in range(10)], (
        done.stderr + worker.read_text()
    )
