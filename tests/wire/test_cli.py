"""The command line against a real broker: `python -m peeklock ...` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peeklock.cli.broker_access import BrokerAccess
from peeklock.cli.connection import parse_connection
from peeklock.client.administration import atom, places
from peeklock.client.administration.atom import Description
from tests.wire.broker_process import BrokerProcess, broker_python
from tests.wire.conftest import make_broker

KEYS = {"Name": "shop", "PrimaryKey": "one", "SecondaryKey": "two", "Rights": ["Send"]}
BIG = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "amount > 100"}}
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    # The destination comes after who needs it.
                    {"Name": "imported/first", "Properties": {"ForwardTo": "imported/last"}},
                    {
                        "Name": "imported/last",
                        "AuthorizationRules": [KEYS],
                        "Properties": {
                            "LockDuration": "PT30S",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": True,
                            "DuplicateDetectionHistoryTimeWindow": "PT5M",
                            "MaxSizeInMegabytes": 2048,
                        },
                    },
                    {
                        "Name": "imported/wide",
                        "Properties": {"EnablePartitioning": True, "MaxSizeInMegabytes": 2048},
                    },
                    {"Name": "imported/wider", "Properties": {"EnablePartitioning": True}},
                ],
                "Topics": [
                    {
                        "Name": "imported/events",
                        "Properties": {"DefaultMessageTimeToLive": "PT1H"},
                        "Subscriptions": [
                            {"Name": "all"},
                            {
                                "Name": "some",
                                "Properties": {"ForwardTo": "imported/last"},
                                "Rules": [
                                    {"Name": "big", "Properties": BIG},
                                    {
                                        "Name": "german",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "Label": "x",
                                                "Properties": {"country": "de", "n": 5},
                                            },
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ]
    }
}


class Shell:
    """Types commands, and gives what they say."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def run(
        self, *arguments: str, input: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PEEKLOCK_")}
        ours = {
            "PEEKLOCK_CONNECTION_STRING": self.broker.connection_string,
            "PEEKLOCK_HTTP_PORT": str(self.broker.http_port),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        return subprocess.run(
            [broker_python(), "-m", "peeklock", *arguments],
            env={**kept, **ours, **environment},
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def json(self, *arguments: str, input: str = "") -> Any:
        """Run a command that must succeed and read what it prints."""
        done = self.run(*arguments, "--output", "json", input=input)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fails(self, *arguments: str, code: int = 1, **environment: str) -> str:
        """Run a command that must fail and give what it says about it."""
        done = self.run(*arguments, **environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def bodies(self, *arguments: str) -> list[str]:
        return [message["Body"] for message in self.json(*arguments)["messages"]]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    process = make_broker(tmp_path_factory.mktemp("cli"), counts={})
    process.start()
    yield Shell(process)
    assert process.stop() == 0


@pytest.mark.smoke
def test_a_queue_lives_and_goes(shell: Shell) -> None:
    made = shell.json(
        *("queue", "create", "life/one", "--lock-duration", "30s", "--max-delivery-count", "5"),
        *("--time-to-live", "P1D", "--dead-letter-expired", "--metadata", "a <b> & c"),
        *("--max-size-mb", "2048", "--max-message-size-kb", "2048", "--no-batched-operations"),
    )
    assert made["Properties"] == made["Properties"] | {
        "LockDuration": "PT30S",
        "MaxDeliveryCount": 5,
        "DefaultMessageTimeToLive": "P1D",
        "DeadLetteringOnMessageExpiration": True,
        "UserMetadata": "a <b> & c",
        "MaxSizeInMegabytes": 2048,
        "MaxMessageSizeInKilobytes": 2048,
        "EnableBatchedOperations": False,
    }
    assert made["Runtime"]["EntityAvailabilityStatus"] == "Available"
    changed = shell.json("queue", "update", "life/one", "--status", "SendDisabled")
    assert changed["Properties"] == made["Properties"] | {"Status": "SendDisabled"}
    assert "SendDisabled" in shell.run("queue", "list").stdout
    assert "deleted" in shell.run("queue", "delete", "life/one", "--yes").stdout
    assert shell.fails("queue", "show", "life/one").startswith("there is no queue 'life/one' (")


def test_counts_are_shown(shell: Shell) -> None:
    shell.json("queue", "create", "counted")
    shell.json("send", "counted", "--body", "x", "--count", "3")
    shell.json("send", "counted", "--body", "x", "--at", "2100-01-01T00:00:00Z")
    runtime = shell.json("queue", "show", "counted")["Runtime"]
    assert (runtime["ActiveMessageCount"], runtime["ScheduledMessageCount"]) == (3, 1)
    assert runtime["MessageCount"] == 4


def test_lists_come_in_pages(shell: Shell) -> None:
    shell.json("topic", "create", "paged")
    for number in range(3):
        shell.json("subscription", "create", "paged", f"s{number}")
    names = [one["Name"] for one in shell.json("subscription", "list", "paged")["subscriptions"]]
    assert names == ["s0", "s1", "s2"]
    page = shell.json("subscription", "list", "paged", "--skip", "1", "--top", "1")
    assert [one["Name"] for one in page["subscriptions"]] == ["s1"]
    assert shell.json("topic", "show", "paged")["Runtime"]["SubscriptionCount"] == 3
    shell.json("subscription", "update", "paged", "s0", "--lock-duration", "10s")
    assert (
        shell.json("subscription", "show", "paged", "s0")["Properties"]["LockDuration"] == "PT10S"
    )
    shell.json("subscription", "delete", "paged", "s0", "--yes")
    shell.json("topic", "update", "paged", "--metadata", "x")
    shell.json("topic", "delete", "paged", "--yes")
    assert "paged" not in shell.run("topic", "list").stdout


def test_rules_decide_what_a_subscription_gets(shell: Shell) -> None:
    shell.json("topic", "create", "ruled")
    shell.json("subscription", "create", "ruled", "s")
    where = ("ruled", "s")
    shell.json("rule", "create", *where, "big", "--sql", "amount > 100", "--action", "SET big = 1")
    shell.json(
        *("rule", "create", *where, "german"),
        *("--correlation", "country=de", "--correlation", "sys.subject=order"),
    )
    shell.json("rule", "delete", *where, "$Default", "--yes")
    rules = {one["Name"]: one["Properties"] for one in shell.json("rule", "list", *where)["rules"]}
    assert rules["german"]["CorrelationFilter"] == {
        "Label": "order",
        "Properties": {"country": "de"},
    }
    for amount in ("50", "500"):
        shell.json("send", "ruled", "--body", amount, "-p", f"amount={amount}")
    shell.json("send", "ruled", "--body", "german", "-p", "country=de", "--subject", "order")
    assert shell.bodies("receive", "ruled/Subscriptions/s", "--count", "9") == ["500", "german"]
    changed = shell.json("rule", "update", *where, "big", "--sql", "amount > 10")
    assert changed["Properties"]["Action"]["SqlExpression"] == "SET big = 1"
    without = shell.json("rule", "update", *where, "big", "--action", "")
    assert "Action" not in without["Properties"]
    assert without["Properties"]["SqlFilter"]["SqlExpression"] == "amount > 10"
    assert "amount > 10" in shell.run("rule", "show", *where, "big").stdout
    assert "Failed to parse" in shell.fails("rule", "create", *where, "bad", "--sql", "a >")


@pytest.mark.smoke
def test_messages_go_and_come(shell: Shell) -> None:
    shell.json("queue", "create", "mail")
    shell.json(
        *("send", "mail", "--subject", "s", "--content-type", "text/plain", "--message-id", "m"),
        *("-p", "n=5", "-p", 't="5"', "--ttl", "1h"),
        input="from standard input",
    )
    (peeked,) = shell.json("peek", "mail")["messages"]
    (locked,) = shell.json("receive", "mail", "--peek-lock")["messages"]
    (taken,) = shell.json("receive", "mail")["messages"]
    assert peeked["Body"] == "from standard input"
    assert peeked["ApplicationProperties"] == {"n": 5, "t": "5"}
    assert (peeked["Subject"], peeked["ContentType"]) == ("s", "text/plain")
    assert peeked["SequenceNumber"] == locked["SequenceNumber"] == taken["SequenceNumber"]
    # Given back is not a failed delivery.
    assert taken["DeliveryCount"] == 0
    assert shell.bodies("receive", "mail", "--wait", "0.2") == []
    assert "no messages" in shell.run("receive", "mail", "--wait", "0.2").stdout


def test_many_messages_are_sent_peeked_deleted_and_purged(shell: Shell, tmp_path: Path) -> None:
    shell.json("queue", "create", "many")
    content = tmp_path / "content"
    content.write_bytes(b"\xff" * 3)
    shell.json("send", "many", "--file", str(content), "--count", "300", "--message-id", "m")
    messages = shell.json("peek", "many", "--count", "1000")["messages"]
    assert [one["MessageId"] for one in messages] == [f"m-{n}" for n in range(1, 301)]
    assert messages[0]["BodyBase64"] == "////"
    later = messages[200]["SequenceNumber"]
    (one,) = shell.json("peek", "many", "--from", str(later), "--count", "1")["messages"]
    assert one["MessageId"] == "m-201"
    assert len(shell.json("receive", "many", "--delete", "--count", "40")["messages"]) == 40
    assert shell.json("purge", "many", "--before", "2000-01-01T00:00:00Z", "--yes") == {
        "deleted": 0
    }
    assert shell.run("purge", "many", "--yes").stdout == "deleted 260 messages of 'many'\n"
    assert shell.json("peek", "many")["messages"] == []


def test_many_of_which_some_are_refused_are_counted(shell: Shell) -> None:
    text = shell.fails("send", "nobody", "--body", "x", "--count", "3")
    assert text.strip().endswith("sent 0 of 3 messages")
    done = shell.run("send", "nobody", "--body", "x", "--count", "3", "-o", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"sent": 0, "failed": 3}


def test_a_partitioned_queue_is_purged(shell: Shell) -> None:
    shell.json("queue", "create", "wide", "--partitioned")
    shell.json("send", "wide", "--body", "x", "--count", "50")
    assert shell.json("purge", "wide", "--yes") == {"deleted": 50}


def test_sessions(shell: Shell) -> None:
    shell.json("queue", "create", "talk", "--sessions")
    for session in ("a", "b"):
        shell.json("send", "talk", "--body", session, "--session-id", session)
    assert "sessions" in shell.fails("receive", "talk")
    assert shell.bodies("receive", "talk", "--session", "b") == ["b"]
    assert shell.bodies("peek", "talk", "--session", "a") == ["a"]
    assert shell.bodies("receive", "talk", "--next-session") == ["a"]
    assert shell.bodies("receive", "talk", "--next-session", "--wait", "0.2") == []


def test_dead_letters(shell: Shell) -> None:
    shell.json("queue", "create", "dead", "--dead-letter-expired")
    shell.json("send", "dead", "--body", "late", "--ttl", "1ms")
    path = "dead/$DeadLetterQueue"
    assert shell.bodies("receive", path) == ["late"]
    assert shell.bodies("receive", "dead", "--dead-letter", "--wait", "0.2") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["queue", "create", "no space here"], 1, "not allowed"),
        (["queue", "create", "CamelSync"], 1, "exists already"),
        (["queue", "create", "q", "--lock-duration", "soon"], 2, "--lock-duration"),
        (["queue", "create", "q", "--lock-duration", "1h"], 1, "LockDuration"),
        (["queue", "create", "q", "--status", "Odd"], 2, "--status"),
        (["queue", "create", "q", "--forward-to", "nowhere"], 1, "does not exist"),
        (["queue", "update", "nobody", "--metadata", "x"], 1, "there is no queue 'nobody'"),
        (["topic", "show", "CamelSync"], 1, "'CamelSync' is a queue and not a topic"),
        (["topic", "delete", "CamelSync"], 1, "is a queue and not a topic"),
        (["subscription", "list", "nobody"], 1, ""),
        (["rule", "create", "t", "s", "r", "--sql", "1=1", "--all"], 2, "only one of"),
        (["rule", "create", "t", "s", "r", "--correlation", "sys.odd=1"], 2, "there is no sys.odd"),
        (["send", "nobody", "--body", "x"], 1, "could not be found"),
        (["send", "CamelSync", "--body", "x", "--ttl", "soon"], 2, "--ttl"),
        (["send", "CamelSync", "--body", "x", "-p", "odd"], 2, "key=value"),
        (["send", "CamelSync", "--body", "x", "--at", "soon"], 2, "--at"),
        (["send", "CamelSync", "--body", "x" * 100_000, "--count", "1", "-p", "a=" + "y" * 120_000,
          "-p", "b=" + "z" * 100_000], 1, "exceeds"),
        (["receive", "CamelSync", "--delete", "--complete"], 2, "only one of"),
        (["receive", "CamelSync", "--session", "a"], 1, "session"),
        (["import", "no-such-file.json"], 2, "no-such-file.json"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(
    shell: Shell, arguments: list[str], code: int, said: str
) -> None:
    assert said in shell.fails(*arguments, code=code)


def test_who_may_not_is_told(shell: Shell) -> None:
    wrong = shell.broker.connection_string.replace("SAS_KEY_VALUE", "wrong")
    for command in (["queue", "list"], ["peek", "CamelSync"]):
        assert "InvalidSignature" in shell.fails(*command, PEEKLOCK_CONNECTION_STRING=wrong)
    for command in (["queue", "list"], ["peek", "CamelSync"]):
        said = shell.fails(*command, PEEKLOCK_AMQP_PORT="1", PEEKLOCK_HTTP_PORT="1")
        assert "cannot reach a broker" in said
    # Nobody trusts the broker's own authority without being told.
    for command in (["queue", "list"], ["peek", "CamelSync"]):
        assert "--ca FILE" in shell.fails(*command, "--tls")


def test_over_tls(shell: Shell) -> None:
    """Each port takes TLS, and who trusts the authority needs nothing else."""
    data = str(shell.broker.data)
    done = shell.run("certificate", "--data", data, "--output", "json")
    authority = json.loads(done.stdout)["authority"]
    assert shell.json("queue", "show", "CamelSync", "--ca", authority)["Name"] == "CamelSync"
    shell.json("send", "CamelSync", "--body", "secret", "--ca", authority)
    assert shell.bodies("receive", "CamelSync", "--ca", authority) == ["secret"]


def entities(document: dict[str, Any]) -> dict[str, Any]:
    """What a configuration says about the entities of this test, by name."""
    (namespace,) = document["UserConfig"]["Namespaces"]
    return {
        entity["Name"]: entity
        for entity in [*namespace["Queues"], *namespace.get("Topics", [])]
        if entity["Name"].startswith("imported/")
    }


@pytest.mark.parametrize("form", ["config", "arm"])
def test_a_namespace_is_imported_and_exported(
    shell: Shell, tmp_path: Path, form: str, start_broker: Any
) -> None:
    """What was exported and is imported again changes nothing, here and on another broker."""
    source = tmp_path / "Config.json"
    source.write_text(json.dumps(CONFIG))
    plan = shell.json("import", str(source), "--dry-run")
    if form == "config":
        assert [one["verb"] for one in plan["changes"]].count("create") == 8
        assert shell.fails("queue", "show", "imported/last")
    shell.json("import", str(source))
    assert shell.json("import", str(source))["changes"] == []
    file = tmp_path / "exported.json"
    done = shell.run("export", "--format", form, "--file", str(file))
    assert done.returncode == 0
    assert done.stderr == ""
    assert shell.json("import", str(file))["changes"] == []

    other_broker = start_broker(counts={})
    other_broker.start()
    other = Shell(other_broker)
    other.json("import", str(file))
    assert other.json("import", str(file))["changes"] == []
    here = entities(json.loads(shell.run("export").stdout))
    there = entities(json.loads(other.run("export").stdout))
    if form == "arm":
        # No template has keys: the other broker has made its own.
        for found in (here, there):
            (rule,) = found["imported/last"].pop("AuthorizationRules")
            assert (rule["Name"], rule["Rights"]) == ("shop", ["Send"])
    assert there == here
    for name in ("imported/last", "imported/wide"):
        assert here[name]["Properties"]["MaxSizeInMegabytes"] == 2048
    assert here["imported/first"]["Properties"]["ForwardTo"] == "imported/last"


def test_rules_that_no_file_can_say(shell: Shell) -> None:
    """No rules at all are written as one that takes nothing; others are refused by name."""
    shell.json("topic", "create", "odd")
    shell.json("subscription", "create", "odd", "s")
    shell.json("rule", "delete", "odd", "s", "$Default", "--yes")
    (namespace,) = json.loads(shell.run("export").stdout)["UserConfig"]["Namespaces"]
    (topic,) = [one for one in namespace["Topics"] if one["Name"] == "odd"]
    nothing = {"Name": "$Default", "Properties": {"FilterType": "False"}}
    assert topic["Subscriptions"][0]["Rules"] == [nothing]

    connection = parse_connection(shell.broker.connection_string)
    reach = BrokerAccess(connection, shell.broker.http_port, shell.broker.amqp_port)
    sql = {"SqlExpression": "a = @p", "Parameters": {"@p": 5}}
    rule = Description(atom.RULE, "r", {"FilterType": "Sql", "SqlFilter": sql})
    reach.administration().create(places.rule("odd", "s", "r"), rule)
    try:
        assert "the rule 'r' of 'odd/Subscriptions/s' has parameters" in shell.fails("export")
    finally:
        shell.json("topic", "delete", "odd", "--yes")


def test_import_changes_what_differs(shell: Shell, tmp_path: Path) -> None:
    def entry(lock: str, *rules: dict[str, Any]) -> Path:
        subscription = {"Name": "s", "Properties": {"LockDuration": lock}, "Rules": list(rules)}
        topic = {"Name": "changing", "Subscriptions": [subscription]}
        namespace = {"Name": "sbemulatorns", "Topics": [topic]}
        path = tmp_path / "Config.json"
        path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
        return path

    big = {"Name": "big", "Properties": BIG}
    none = {"Name": "none", "Properties": {"FilterType": "False"}}
    shell.json("import", str(entry("PT30S", big, none)))
    big = {"Name": "big", "Properties": {"FilterType": "True"}}
    more = {"Name": "more", "Properties": {"FilterType": "False"}}
    file = str(entry("PT10S", big, more))
    changes = [
        (one["verb"], one["path"].rpartition("/")[2])
        for one in shell.json("import", file, "--dry-run")["changes"]
    ]
    assert changes == [("update", "s"), ("update", "big"), ("create", "more"), ("delete", "none")]
    assert "PT30S → PT10S" in shell.run("import", file).stdout
    assert shell.run("import", file).stdout == "nothing to change\n"
    listed = shell.json("rule", "list", "changing", "s")["rules"]
    assert sorted(one["Name"] for one in listed) == ["big", "more"]


def test_a_template_is_imported_with_parameters(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    queue = {
        "type": "Microsoft.ServiceBus/namespaces/queues",
        "name": "[format('{0}/{1}', parameters('ns'), parameters('queue'))]",
        "properties": {"maxDeliveryCount": "[parameters('count')]"},
    }
    disk = {"type": "Microsoft.Storage/storageAccounts", "name": "d"}
    parameters = {
        "ns": {"type": "string", "defaultValue": "[uniqueString(resourceGroup().id)]"},
        "queue": {"type": "string", "defaultValue": "templated"},
        "count": {"type": "int"},
    }
    path.write_text(json.dumps({"resources": [queue, disk], "parameters": parameters}))
    said = shell.fails("import", str(path), "-p", "count=3")
    assert "resources[0]: the parameter 'ns' was not given" in said
    assert "uniqueString()" in said
    done = shell.json("import", str(path), "-p", "count=3", "-p", "ns=x")
    assert done["left_out"] == ["resources[1]: Microsoft.Storage/storageAccounts"]
    assert shell.json("queue", "show", "templated")["Properties"]["MaxDeliveryCount"] == 3


def test_what_cannot_be_imported_is_said(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    ours = {"UnlockOnDisconnect": True, "EnablePartitioning": True, "PartitionCount": 3}
    queue = {"Name": "ours", "Properties": ours}
    lost = {"Name": "lost", "Properties": {"ForwardTo": "nowhere"}}
    namespace = {"Name": "n", "Queues": [queue], "AuthorizationRules": [KEYS]}
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    left_out = shell.json("import", str(path))["left_out"]
    assert len(left_out) == 1
    assert "the keys of the namespace" in left_out[0]
    (whole,) = json.loads(shell.run("export").stdout)["UserConfig"]["Namespaces"]
    [exported] = [each["Properties"] for each in whole["Queues"] if each["Name"] == "ours"]
    assert ours.items() <= exported.items()
    namespace["Queues"] = [lost]
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    said = shell.fails("import", str(path))
    assert "cannot update the queue 'lost'" in said
    assert "1 of 2 changes are made" in said
    path.write_text('{"UserConfig": {}}')
    assert "Namespaces: must have at least one entry" in shell.fails("import", str(path))


def test_one_of_several_namespaces_is_imported(shell: Shell, tmp_path: Path) -> None:
    """R-F7: which one must be said."""
    path = tmp_path / "several.json"
    names = ("one", "two")
    entries = [{"Name": name, "Queues": [{"Name": f"several/{name}"}]} for name in names]
    path.write_text(json.dumps({"UserConfig": {"Namespaces": entries}}))
    said = shell.fails("import", str(path))
    assert "must be chosen; there are: 'one', 'two' (--namespace)" in said
    assert "no namespace 'three'" in shell.fails("import", str(path), "--namespace", "three")
    done = shell.json("import", str(path), "--namespace", "TWO")
    assert [change["path"] for change in done["changes"]] == ["several/two"]
