"""Restarts again: what topics, duplicate detection and forwarding remember over them.

One broker is filled, killed, and stopped politely after that; the tests look at what is left.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, LoopThread, bodies, number, peek_all, receive, receive_one
from tests.wire.conftest import make_broker
from tests.wire.javascript import JAVASCRIPT, node

KINDS = {
    "dedup": 1,
    "partitioned-dedup": 1,
    "topic": 2,
    "partitioned-topic": 1,
    "relay": 1,
    "relay-partitioned": 1,
    "crowd": 1,
}
DEDUP_QUEUES = ("dedup-001", "partitioned-dedup-001")
TOPICS = ("topic-001", "partitioned-topic-001")
RELAYS = {"relay-001": None, "relay-partitioned-001": "s"}
DEAD = ServiceBusSubQueue.DEAD_LETTER

RULES = """
import { ServiceBusClient } from "@azure/service-bus";
const client = new ServiceBusClient(process.env.PEEKLOCK_CONNECTION);
const rules = client.createRuleManager("topic-002", "a");
if (process.argv.at(-1) === "change") {
  await rules.createRule("red", { sqlExpression: "colour = 'red'" }, { sqlExpression: "SET n = 1" });
  await rules.createRule("blue", { applicationProperties: { colour: "blue" } });
  await rules.deleteRule("$Default");
}
const names = [];
for await (const rule of rules.listRules()) names.push(rule.name);
console.log(JSON.stringify(names.sort()));
await client.close();
"""  # noqa: E501


class Survivor:
    """A broker that was killed and stopped, and what its clients knew before."""

    def __init__(self, process: BrokerProcess, bus: Bus) -> None:
        self.process = process
        self.bus = bus
        self.due = datetime.now(UTC)
        self.deferred: dict[str, ServiceBusReceivedMessage] = {}

    def fill(self) -> None:
        for queue in DEDUP_QUEUES:
            self._remember_ids(queue)
        self.due = datetime.now(UTC) + timedelta(seconds=8)
        for topic in TOPICS:
            self._settle_some(topic)
        self.bus.publish("crowd-001", numbered(1234), numbered(-1), everybody())
        assert self.rules("change") == ["blue", "red"]
        # Last, so that the end comes in the middle of it.
        for group, session in RELAYS.items():
            self._send_many(group, session)
        self.bus.drain()

    def _remember_ids(self, queue: str) -> None:
        self.bus.send(queue, message("m", "1"), [message("n", "2")])
        with self.bus.receiver(queue) as receiver:
            for each in receive(receiver, 2):
                receiver.complete_message(each)

    def _settle_some(self, topic: str) -> None:
        with self.bus.publisher(topic) as publisher:
            publisher.send_messages([message(f"{index}", f"{index}") for index in range(4)])
            publisher.schedule_messages(message("later", "later"), self.due)
        with self.bus.subscriber(topic, "a") as receiver:
            first, second, third = receive(receiver, 3)
            receiver.complete_message(first)
            receiver.dead_letter_message(second)
            receiver.defer_message(third)
        self.deferred[topic] = third

    def _send_many(self, group: str, session: str | None) -> None:
        with self.bus.sender(f"{group}/in") as sender:
            for start in range(0, 600, 200):
                numbers = range(start, start + 200)
                sender.send_messages(
                    [
                        ServiceBusMessage(
                            f"{index}", session_id=session, partition_key=session or "k"
                        )
                        for index in numbers
                    ]
                )

    def rules(self, word: str) -> list[str]:
        """The names of the rules of a subscription, after they were changed or not."""
        done = subprocess.run(
            [node(), "--input-type=module", "-", word],
            input=RULES,
            cwd=JAVASCRIPT,
            env=os.environ | {"PEEKLOCK_CONNECTION": self.process.connection_string},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory, loop: LoopThread) -> Iterator[Survivor]:
    process = make_broker(tmp_path_factory.mktemp("survivor"), counts=KINDS)
    process.start()
    made = Survivor(process, Bus("sync", process.connection_string, loop))
    try:
        made.fill()
        process.kill()
        process.start()
        assert process.stop() == 0
        process.start()
        yield made
        made.bus.close()
    finally:
        if process.is_running:
            process.kill()


def message(message_id: str, text: str, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=message_id, **options)


def numbered(number: int) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {"n": number}
    return ServiceBusMessage(f"{number}", application_properties=properties, partition_key="k")


def everybody() -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {"all": True}
    return ServiceBusMessage("all", application_properties=properties, partition_key="k")


@pytest.mark.parametrize("queue", DEDUP_QUEUES)
def test_message_ids_are_remembered(survivor: Survivor, queue: str) -> None:
    """R-S9: those of completed messages too, whether they came alone or in a batch."""
    bus = survivor.bus
    bus.send(queue, message("m", "3"), [message("n", "4")], message("new", "5"))

    with bus.receiver(queue) as receiver:
        assert bodies([receive_one(receiver)]) == [b"5"]
        assert len(peek_all(receiver)) == 1


@pytest.mark.parametrize("topic", TOPICS)
def test_subscriptions_keep_what_they_have(survivor: Survivor, topic: str) -> None:
    """R-T1, R-L4: each its own state; scheduled messages are published when they are due."""
    bus = survivor.bus
    with bus.subscriber(topic, "a") as receiver:
        assert bodies(receive(receiver, 2)) == [b"3", b"later"]
        assert datetime.now(UTC) >= survivor.due - timedelta(milliseconds=50)
        deferred = number(survivor.deferred[topic])
        assert bodies(receiver.receive_deferred_messages(deferred)) == [b"2"]
    with bus.subscriber(topic, "a", sub_queue=DEAD) as dead_letters:
        assert bodies(receive(dead_letters, 1)) == [b"1"]
    with bus.subscriber(topic, "b") as receiver:
        assert sorted(bodies(receive(receiver, 5))) == [b"0", b"1", b"2", b"3", b"later"]


@pytest.mark.parametrize("group", RELAYS)
def test_forwarding_goes_on(survivor: Survivor, group: str) -> None:
    """R-P8: an end in the middle of it loses nothing and doubles nothing."""
    session = RELAYS[group]
    options: dict[str, Any] = {} if session is None else {"session_id": session}
    with survivor.bus.receiver(f"{group}/out", **options) as receiver:
        got = receive(receiver, 600)
        assert len(peek_all(receiver)) == 600
    assert [int(each) for each in bodies(got)] == list(range(600))


def test_rules_that_were_changed_stay_changed(survivor: Survivor) -> None:
    """The file gives this subscription no rules, so that those of its clients are kept."""
    bus = survivor.bus
    assert survivor.rules("list") == ["blue", "red"]
    for colour in ("red", "blue", "green"):
        bus.publish(
            "topic-002", ServiceBusMessage(colour, application_properties={"colour": colour})
        )
    with bus.subscriber("topic-002", "a") as receiver:
        assert bodies(receive(receiver, 2)) == [b"red", b"blue"]
        assert len(peek_all(receiver)) == 2


def test_two_thousand_subscriptions(survivor: Survivor) -> None:
    """R-F7: each has what is for it, from before the end and from after it."""
    bus = survivor.bus
    bus.publish("crowd-001", numbered(1999), numbered(0), everybody())

    wanted = {"s0000": [b"all", b"0", b"all"], "s0777": [b"all", b"all"]}
    wanted |= {"s1234": [b"1234", b"all", b"all"], "s1999": [b"all", b"1999", b"all"]}
    for name, expected in wanted.items():
        with bus.subscriber("crowd-001", name) as receiver:
            assert bodies(peek_all(receiver)) == expected
