"""The official Java client besides transactions: messages, sessions, processors, administration."""

import os
import subprocess
from pathlib import Path

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Header
from peeklock.amqp.values.types import Int
from peeklock.client import ServiceBusClient, ServiceBusReceivedMessage
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import Queues
from tests.wire.java import java_client, trusting
from tests.wire.own_client import run_with, send

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
    "scheduling": (
        "plain",
        ["waits b SCHEDULED", "came soon SCHEDULED", "came sent SCHEDULED true"],
    ),
    "session": (
        "session",
        [
            "state half way",
            "cleared true",
            "deferred blue1 true",
            "got [blue1, blue2] true",
            "next red",
            "deferred red1 true",
            "got [red1, red2] true",
        ],
    ),
    # Another client has sent the message, with strings for keys.
    "annotations": ("plain", ["own 7 text 1", "token true", "header true 7 PT0S null"]),
    # Another client has claimed the first one: a state that is no other client's would be an error.
    "claimed": ("plain", ["peeked [claimed ACTIVE true, free ACTIVE null]"]),
    "topic": ("topic", ["rule large", "all [n3, n9]", "numbers [true, true]", "large [n9]"]),
    "processor": ("plain", ["error USER_CALLBACK", "handled hard 1", "left 0"]),
    "sessions": ("session", ["[a1, a2, a3][b1, b2, b3]"]),
}


@pytest.fixture(scope="module")
def java_says(broker: BrokerProcess, queues: Queues) -> list[str]:
    """What the Java client saw, over all scenarios."""
    names = [queues.take(kind) for kind, _ in SCENARIOS.values()]
    send_with_strings(broker, names[list(SCENARIOS).index("annotations")])
    claimed = names[list(SCENARIOS).index("claimed")]
    run_with(broker.connection_string, lambda client: claim_the_first(client, claimed))
    text = sas.connection_string(broker.http_port)
    return run([*java_client("Tour.java"), text, ",".join(SCENARIOS), *names])


def send_with_strings(broker: BrokerProcess, queue: str) -> None:
    """Send a message whose annotations and footer have strings where symbols belong."""
    payload = encode_message(
        AmqpMessage(
            header=Header(durable=True, priority=7),
            message_annotations={"own": 7},
            body_kind=DATA_BODY,
            body=[b"text"],
            footer={"own": 1},
        )
    )

    async def send_it(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusReceivedMessage(payload))

    run_with(broker.connection_string, send_it)


async def claim_the_first(client: ServiceBusClient, queue: str) -> None:
    await send(client, queue, "claimed")
    wish = {"owner": "pipeline", "epoch": 1, "message-count": Int(1)}
    claimed = await client.manage(queue, "com.peeklock:claim-messages", wish)
    assert len(claimed["sequence-numbers"].items) == 1
    await send(client, queue, "free")


def run(command: list[str], **environment: str) -> list[str]:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TOURED_WITHIN_S,
        check=False,
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
        "administration into sessions true",
        "administration exists false",
        "administration accessed true Active",
        "administration below false false",
        "administration date 2024-02-29T12:00Z",
    ]
