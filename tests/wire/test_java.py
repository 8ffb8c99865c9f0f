"""The official Java client besides transactions: messages, sessions, processors, administration."""

import subprocess
from pathlib import Path

import pytest

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import Queues
from tests.wire.java import java_client, trusting

# One start of a virtual machine for all scenarios.
TOURED_WITHIN_S = 100
# The kind of the entity, and what is seen.
SCENARIOS: dict[str, tuple[str, list[str]]] = {
    "settling": (
        "plain",
        [
            "received [complete, abandon, defer, dead-letter, renew]",
            "renewed true",
            "again abandon 1",
            "deferred defer",
            "left 0",
            "dead dead-letter bad",
        ],
    ),
    "scheduling": ("plain", ["waits b SCHEDULED", "came soon"]),
    "session": (
        "session",
        ["state half way", "got [blue1, blue2]", "next red", "got [red1, red2]"],
    ),
    "topic": ("topic", ["rule large", "all [n3, n9]", "large [n9]"]),
    "processor": ("plain", ["error USER_CALLBACK", "handled hard 1", "left 0"]),
    "sessions": ("session", ["[a1, a2, a3][b1, b2, b3]"]),
}


@pytest.fixture(scope="module")
def java_says(broker: BrokerProcess, queues: Queues) -> list[str]:
    """What the Java client saw, over all scenarios."""
    names = [queues.take(kind) for kind, _ in SCENARIOS.values()]
    text = sas.connection_string(broker.http_port)
    return run([*java_client("Tour.java"), text, ",".join(SCENARIOS), *names])


def run(command: list[str]) -> list[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOURED_WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# The first run fetches the client.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_client(scenario: str, java_says: list[str]) -> None:
    """R-F1: what its users do, as they do it."""
    said = [line for line in java_says if line.startswith(f"{scenario} ")]
    assert said == [f"{scenario} {fact}" for fact in SCENARIOS[scenario][1]]


@pytest.mark.timeout(300)
def test_administration(usual_ports: BrokerProcess, tmp_path: Path) -> None:
    """R-F1: it knows 443 only, and needs nothing but the trusted authority."""
    command = trusting(java_client("Tour.java"), usual_ports.authority, tmp_path)
    text = sas.connection_string(None, emulator=False)
    assert run([*command, text, "administration", "java-made"]) == [
        "administration made 7 PT45S by <Java> & friends",
        "administration changed 3",
        "administration counts 1",
        "administration listed 1",
        "administration forwards https://localhost/java-made true",
        "administration exists false",
        "administration accessed true Active",
        "administration below false false",
        "administration date 2024-02-29T12:00Z",
    ]
