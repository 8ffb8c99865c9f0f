"""`peeklock rule test`: the rules of a topic tell what they would do with a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from peeklock.cli.main import app

RULES: list[dict[str, Any]] = [
    {
        "Name": "german",
        "Properties": {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Label": "order", "Properties": {"country": "de"}},
        },
    },
    {
        "Name": "big",
        "Properties": {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "amount > 100"},
            "Action": {
                "SqlExpression": "SET priority = amount / 10; SET sys.Label = 'big'; REMOVE country"
            },
        },
    },
]
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "ns",
                "Topics": [
                    {
                        "Name": "orders",
                        "Subscriptions": [
                            {"Name": "all"},
                            {"Name": "some", "Rules": RULES},
                        ],
                    },
                    {"Name": "empty"},
                ],
            }
        ]
    }
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def ask(config: Path, message: Any, *arguments: str) -> Result:
    text = message if isinstance(message, str) else json.dumps(message)
    command = ["rule", "test", "--config", str(config), "--topic", "orders", *arguments]
    return CliRunner().invoke(app, command, input=text, env={"COLUMNS": "200", "NO_COLOR": "1"})


def told(config: Path, message: Any, *arguments: str) -> dict[str, Any]:
    done = ask(config, message, "--output", "json", *arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


ORDER = {
    "properties": {"MessageId": "1", "Subject": "order"},
    "application_properties": {"country": "de", "amount": 250},
}


def test_each_rule_tells_what_it_does(config: Path) -> None:
    """R-F6."""
    found = told(config, ORDER)
    assert found["topic"] == "orders"
    everything, some = found["subscriptions"]
    assert (everything["subscription"], everything["copies"]) == ("all", 1)
    assert everything["rules"][0]["rule"] == "$Default"
    assert (some["copies"], some["plain_copy"]) == (2, True)
    german, big = some["rules"]
    assert german == {
        "rule": "german",
        "takes": True,
        "truth": True,
        "filter": 'correlation: Label = "order", user.country = "de"',
        "action": None,
        "changes": None,
        "error": None,
    }
    assert big["filter"] == "amount > 100"
    assert big["changes"] == {
        "properties": {"Label": "big"},
        "application_properties": {"RuleName": "big", "priority": 25},
        "removed": ["country"],
    }


def test_what_is_not_taken_is_told_with_its_reason(config: Path) -> None:
    found = told(config, {"application_properties": {"country": "fr"}}, "--subscription", "SOME")
    (some,) = found["subscriptions"]
    assert some["copies"] == 0
    assert [(rule["takes"], rule["truth"]) for rule in some["rules"]] == [
        (False, False),
        (False, None),
    ]


def changed(config: Path, properties: dict[str, Any]) -> None:
    """Give the second rule of the second subscription other properties."""
    content = json.loads(json.dumps(CONFIG))
    topic = content["UserConfig"]["Namespaces"][0]["Topics"][0]
    topic["Subscriptions"][1]["Rules"][1]["Properties"] = properties
    config.write_text(json.dumps(content))


def test_a_rule_that_fails_is_told(config: Path) -> None:
    action = {"SqlExpression": "SET sys.TimeToLive = 'soon'"}
    filter = {"SqlExpression": "amount > 100"}
    changed(config, {"FilterType": "Sql", "SqlFilter": filter, "Action": action})
    big = told(config, ORDER)["subscriptions"][1]["rules"][1]
    assert (big["takes"], big["truth"], big["changes"]) == (False, True, None)
    assert "'soon' is not a duration" in big["error"]
    assert "error: 'soon' is not" in ask(config, ORDER).stdout


def test_people_get_a_table(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "message.json"
    path.write_text(json.dumps(ORDER))
    done = ask(config, "", "--message", str(path))
    assert done.exit_code == 0
    for word in ("orders", "german", "amount > 100", "yes", 'Label = "big"', "without country"):
        assert word in done.stdout
    assert "all: 1 copy\n" in done.stdout
    assert "some: 2 copies\n" in done.stdout


def test_typed_properties_are_read_from_text(config: Path) -> None:
    sql = "sys.TimeToLive = '00:01:00' OR sys.DeliveryCount = 0 AND sys.EnqueuedTimeUtc IS NOT NULL"
    changed(config, {"FilterType": "Sql", "SqlFilter": {"SqlExpression": sql}})
    message = {
        "properties": {
            "TimeToLive": "PT1M",
            "ScheduledEnqueueTimeUtc": "2030-01-01T00:00:00Z",
            "ForcePersistence": False,
            "Size": 12,
        }
    }
    assert told(config, message)["subscriptions"][1]["rules"][1]["takes"]


@pytest.mark.parametrize(
    ("message", "arguments", "said"),
    [
        (ORDER, ["--topic", "nowhere"], "no topic 'nowhere'"),
        (ORDER, ["--subscription", "nobody"], "no subscription 'nobody'"),
        ("not json", [], "cannot be read"),
        ([1], [], "must be a JSON object"),
        ({"body": "x"}, [], "no body"),
        ({"properties": 5}, [], "'properties' must be a JSON object"),
        ({"properties": {"Colour": "red"}}, [], "no property 'Colour'"),
        ({"properties": {"MessageId": 5}}, [], "MessageId must be a text"),
        ({"properties": {"Size": "big"}}, [], "Size must be a whole number"),
        ({"properties": {"TimeToLive": "soon"}}, [], "TimeToLive"),
        ({"application_properties": {"list": [1]}}, [], "list"),
        ({"application_properties": {"huge": 1 << 70}}, [], "beyond 64 bits"),
        (ORDER, ["--message", "no-such-file.json"], "no-such-file.json"),
    ],
)
def test_what_cannot_be_tried_is_said(
    config: Path, message: Any, arguments: list[str], said: str
) -> None:
    done = ask(config, message, *arguments)
    assert done.exit_code == 1
    assert said in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_wrong_configuration_is_said(config: Path) -> None:
    config.write_text("{}")
    done = ask(config, ORDER)
    assert done.exit_code == 1
    assert "UserConfig" in done.stderr


def test_a_topic_without_subscriptions_takes_nothing(config: Path) -> None:
    assert told(config, ORDER, "--topic", "empty")["subscriptions"] == []


def test_one_of_several_namespaces_must_be_said(config: Path) -> None:
    content = json.loads(config.read_text())
    content["UserConfig"]["Namespaces"].append({"Name": "other"})
    config.write_text(json.dumps(content))
    done = ask(config, ORDER)
    assert done.exit_code == 1
    assert "one of several namespaces must be chosen" in done.stderr
    name = content["UserConfig"]["Namespaces"][0]["Name"]
    assert told(config, ORDER, "--namespace", name.upper())["topic"] == "orders"
    assert "no topic 'orders'" in ask(config, ORDER, "--namespace", "other").stderr
