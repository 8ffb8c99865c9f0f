"""What operators ask and do by commands, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peeklock.cli.main import app
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage
from tests.wire.broker_process import BrokerProcess
from tests.wire.conftest import make_broker

REASON = "Unreadable"


class Operator:
    """Somebody who types commands, and a client beside."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.broker = broker
        self.environment = {
            "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
            "XDG_CONFIG_HOME": str(home),
            "COLUMNS": "300",
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(arguments), env=self.environment)
        assert done.exit_code == code, done.output
        return done.output

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "-o", "json", code=code))

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.broker.connection_string)

    def kill_off(self, queue: str, count: int, **options: Any) -> None:
        """Send messages `QUEUE-N` with a property n, and dead-letter all of them."""
        with self.client() as client:
            sender = client.get_queue_sender(queue)
            for n in range(count):
                sender.send_messages(
                    ServiceBusMessage(
                        f"{queue} {n}",
                        message_id=f"{queue}-{n}",
                        application_properties={"n": n},
                        **options,
                    )
                )
            receiver = client.get_queue_receiver(queue)
            left = count
            while left:
                for message in receiver.receive_messages(left, max_wait_time=30):
                    receiver.dead_letter_message(message, REASON, f"at line {left}")
                    left -= 1

    def dead(self, queue: str) -> int:
        told = self.json("dead-letter", "list", queue)["dead_letters"]
        assert {one["reason"] for one in told} <= {REASON}
        # One cause is one group, whatever its numbers are.
        assert len(told) <= 1
        return sum(one["count"] for one in told)

    def bodies(self, queue: str) -> list[str]:
        told = self.json("peek", queue, "--count", "100")["messages"]
        return [message["Body"] for message in told]


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    process = make_broker(tmp_path_factory.mktemp("operating"), counts={})
    process.start()
    yield Operator(process, tmp_path_factory.mktemp("home"))
    assert process.stop() == 0


def test_dead_letters_are_chosen_sent_again_and_taken_back(operator: Operator) -> None:
    operator.run("queue", "create", "again")
    operator.kill_off("again", 12)
    chosen = (
        "dead-letter",
        "resubmit",
        "again",
        "--where",
        "n < 5 AND sys.MessageId LIKE 'again%'",
    )
    would = operator.json(*chosen, "--dry-run")
    assert would == {
        "dry_run": True,
        "dead_letters": [{"entity": "again", "target": "again", "count": 5}],
    }
    assert operator.dead("again") == 12
    job = operator.json(*chosen)["job"]
    assert operator.dead("again") == 7
    assert sorted(operator.bodies("again")) == [f"again {n}" for n in range(5)]
    # One of them is received; the others can be taken back, with the reason that they had.
    operator.run("receive", "again")
    assert operator.json("dead-letter", "undo", job) == {"back": 4, "gone": 1}
    assert operator.dead("again") == 11
    assert operator.bodies("again") == []
    assert "there is no job 'nothing'" in operator.run("dead-letter", "undo", "nothing", code=1)


def test_dead_letters_are_moved_and_deleted_over_several_entities(operator: Operator) -> None:
    for queue in ("one", "two", "kept"):
        operator.run("queue", "create", queue)
    operator.kill_off("one", 4)
    operator.kill_off("two", 4)
    both = ("one", "two")
    moved = operator.json(*("dead-letter", "move", *both), "--to", "kept", "--where", "n = 1")
    assert [one["count"] for one in moved["dead_letters"]] == [1, 1]
    assert operator.bodies("kept") == ["one 1", "two 1"]
    assert "stays there" in operator.run("dead-letter", "undo", moved["job"], code=1)
    purge = ("dead-letter", "purge", *both, "--where", "n > 1", "--rate", "1000")
    assert operator.json(*purge, "--dry-run") == {"would_delete": {"one": 2, "two": 2}}
    assert "--yes does it" in operator.run(*purge, code=1)
    assert operator.json(*purge, "--yes") == {"deleted": {"one": 2, "two": 2}}
    assert (operator.dead("one"), operator.dead("two")) == (1, 1)


def test_dead_letters_of_a_partitioned_queue_with_and_without_keys(operator: Operator) -> None:
    operator.run("queue", "create", "wide", "--partitioned")
    operator.kill_off("wide", 6)
    operator.kill_off("wide", 6, partition_key="k")
    assert operator.json("dead-letter", "resubmit", "wide")["dead_letters"][0]["count"] == 12
    assert operator.dead("wide") == 0
    assert len(operator.bodies("wide")) == 12


def test_what_would_be_dropped_as_a_duplicate_gets_another_id(operator: Operator) -> None:
    operator.run("queue", "create", "strict", "--duplicate-detection")
    operator.kill_off("strict", 3)
    assert "--new-ids gives" in operator.run("dead-letter", "resubmit", "strict", code=1)
    assert operator.dead("strict") == 3
    operator.run("dead-letter", "resubmit", "strict", "--new-ids")
    assert len(operator.bodies("strict")) == 3
    assert "cannot be sent to" in operator.run(
        "dead-letter", "resubmit", "t/Subscriptions/s", code=2
    )
    wrong = operator.run("dead-letter", "list", "strict", "--where", "n <", code=1)
    assert "--where cannot be read" in wrong


def test_a_story_is_told_from_the_journals(operator: Operator) -> None:
    operator.run("queue", "create", "goal")
    operator.run("topic", "create", "news")
    operator.run("subscription", "create", "news", "all", "--forward-to", "goal")
    operator.run("subscription", "create", "news", "none")
    operator.run("rule", "create", "news", "none", "never", "--nothing")
    operator.run("rule", "delete", "news", "none", "$Default", "--yes")
    operator.run("send", "news", "--body", "x", "--message-id", "told")
    operator.run("receive", "goal", "--wait", "30")
    facts: list[tuple[str, str, str]] = []
    # What nothing rests on is written within a second.
    for _ in range(200):
        told = operator.json("story", "told", "--entity", "news", "--entity", "goal")["facts"]
        facts = [(one["entity"], one.get("sub_entity", ""), one["op"]) for one in told]
        if ("goal", "", "deliver") in facts and ("goal", "", "complete") in facts:
            break
    for fact in (
        ("news", "Subscriptions/all", "send"),
        ("news", "Subscriptions/none", "filtered"),
        ("news", "Subscriptions/all", "complete"),
        ("goal", "", "take_over"),
        ("goal", "", "deliver"),
        ("goal", "", "complete"),
    ):
        assert fact in facts
    shown = operator.run("story", "told", "--entity", "news", "--entity", "goal")
    assert "filtered: no rule took it" in shown
    assert "forwarded to here" in shown
    assert "know no message 'other'" in operator.run("story", "other", "--entity", "goal", code=1)


def test_sessions_are_listed(operator: Operator) -> None:
    operator.run("queue", "create", "talks", "--sessions")
    for session, count in (("a", 2), ("b", 1)):
        operator.run(
            *("send", "talks", "--body", "x", "--session-id", session, "--count", str(count))
        )
    told = operator.json("sessions", "talks")["sessions"]
    assert [(one["session"], one["messages"]) for one in told] == [("a", 2), ("b", 1)]


def test_who_is_connected_is_told(operator: Operator) -> None:
    operator.run("queue", "create", "watched")
    with operator.client() as client, client.get_queue_receiver("watched") as receiver:
        receiver.peek_messages(1)
        receiver.receive_messages(1, max_wait_time=0.01)
        told = operator.json("connections")["connections"]
        links = [(link["role"], link["address"]) for one in told for link in one["links"]]
        assert ("receiver", "watched") in links
        assert "watched" in operator.run("connections")


def test_status_top_and_doctor_tell_how_it_is(operator: Operator) -> None:
    operator.run("queue", "create", "off", "--status", "SendDisabled")
    status = operator.json("status")
    assert set(status["stores"].values()) == {"online"}
    assert "off" in status["disabled"]
    assert status["entities"]["queue"] > 1
    looks = operator.run("top", "--count", "2", "--interval", "0.2", "-o", "jsonl").splitlines()
    assert all("counts" in json.loads(look) for look in looks)
    assert "the fullest first" in operator.run("top", "--count", "1")
    findings = {one["what"]: one for one in operator.json("doctor")["findings"]}
    assert findings["ports"]["found"] == "good"
    assert findings["off"]["advice"].startswith("`peeklock queue update off --status Active`")
    broken = operator.json("doctor", "--amqp-port", "1", code=3)["findings"]
    assert [one["what"] for one in broken if one["found"] == "bad"] == ["AMQP port"]
