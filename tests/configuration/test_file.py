"""The emulator's Config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.rights import ALL_RIGHTS, LISTEN, SEND, AuthorizationRule, development_rule
from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.file import load_configuration, parse_configuration
from peeklock.configuration.start import exposure_problem
from peeklock.entity.definition import FOREVER_MS, QueueDefinition
from peeklock.settings import Settings

EMULATOR_FILE = """
{
  // The form that the emulator ships, comments included.
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": false,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "",
              "LockDuration": "PT1M",
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          },
        ],
        "Topics": []
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""

OPEN = Settings(host="0.0.0.0")


def config(*queues: Any, **namespace: Any) -> str:
    entry = {"Name": "sbemulatorns", "Queues": list(queues), **namespace}
    return json.dumps({"UserConfig": {"Namespaces": [entry], "Logging": {"Type": "Console"}}})


def queue(name: str = "q1", **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def parsed(text: str) -> Configuration:
    return parse_configuration(text, "Config.json")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert all(line.startswith("Config.json: ") for line in str(caught.value).splitlines())
    return caught.value.problems


def test_the_emulators_file_is_accepted_unchanged() -> None:
    configuration = parsed(EMULATOR_FILE)
    assert configuration.namespace == "sbemulatorns"
    assert configuration.rules == (development_rule(),)
    assert [q.definition for q in configuration.queues] == [
        QueueDefinition("queue.1", time_to_live_ms=3_600_000, delivery_count_max=3)
    ]
    assert configuration.queues[0].rules == ()


def test_what_the_file_leaves_out_takes_the_services_default() -> None:
    configuration = parsed(config({"Name": "plain"}, queue("empty")))
    assert [q.definition for q in configuration.queues] == [
        QueueDefinition("plain"),
        QueueDefinition("empty"),
    ]
    definition = configuration.queues[0].definition
    assert (definition.delivery_count_max, definition.time_to_live_ms) == (10, FOREVER_MS)


def test_the_emulators_caps_are_lifted() -> None:
    many = [queue(f"q{number}", MaxDeliveryCount=100) for number in range(200)]
    assert len(parsed(config(*many, Name="my-namespace")).queues) == 200
    long_lived = parsed(config(queue(DefaultMessageTimeToLive="P365D"))).queues[0].definition
    assert long_lived.time_to_live_ms == 365 * 86_400_000


def test_every_property_reaches_the_definition() -> None:
    text = config(
        queue(
            DeadLetteringOnMessageExpiration=True,
            DefaultMessageTimeToLive="P10675199DT2H48M5.4775807S",
            LockDuration="PT30S",
            MaxDeliveryCount=7,
            MaxMessageSizeInKilobytes=1024,
            EnableBatchedOperations=False,
            UnlockOnDisconnect=True,
            Status="ReceiveDisabled",
            UserMetadata="mine",
        )
    )
    assert parsed(text).queues[0].definition == QueueDefinition(
        "q1",
        dead_letter_on_expiration=True,
        time_to_live_ms=FOREVER_MS,
        lock_duration_ms=30_000,
        delivery_count_max=7,
        message_size_max=1_048_576,
        batched_store_access=False,
        unlock_on_disconnect=True,
        status="ReceiveDisabled",
        user_metadata="mine",
    )


def test_authorization_rules_are_read_on_the_namespace_and_on_a_queue() -> None:
    on_queue = {"Name": "sender", "PrimaryKey": "k1", "SecondaryKey": "k2", "Rights": ["Send"]}
    on_namespace = [
        {"Name": "root", "PrimaryKey": "k3", "Rights": ["Manage"]},
        {"Name": "reader", "PrimaryKey": "k4", "Rights": ["listen"]},
    ]
    text = config({"Name": "q1", "AuthorizationRules": [on_queue]}, AuthorizationRules=on_namespace)
    configuration = parsed(text)
    assert configuration.queues[0].rules == (AuthorizationRule("sender", "k1", "k2", SEND),)
    assert configuration.rules == (
        AuthorizationRule("root", "k3", "", ALL_RIGHTS),
        AuthorizationRule("reader", "k4", "", LISTEN),
    )


def test_an_empty_list_of_rules_is_no_rule_at_all() -> None:
    assert parsed(config(AuthorizationRules=[])).rules == ()


def test_the_development_key_is_noticed_wherever_it_is() -> None:
    own = [{"Name": "root", "PrimaryKey": "mine", "Rights": ["Manage"]}]
    known = [{"Name": "x", "PrimaryKey": "mine", "SecondaryKey": "SAS_KEY_VALUE", "Rights": []}]
    assert exposure_problem(OPEN, Configuration().all_rules())
    assert not exposure_problem(OPEN, parsed(config(queue(), AuthorizationRules=own)).all_rules())
    on_queue = {"Name": "q1", "AuthorizationRules": known}
    assert exposure_problem(OPEN, parsed(config(on_queue, AuthorizationRules=own)).all_rules())


Q = "UserConfig.Namespaces[0].Queues[0]"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"LockDuration": "1 minute"}, "LockDuration: '1 minute' is not an ISO-8601 duration"),
        ({"LockDuration": 60}, "LockDuration: must be an ISO-8601 duration such as PT1M, not a"),
        ({"LockDuration": "PT10M"}, "LockDuration: must be between 5 seconds and 5 minutes"),
        ({"MaxDeliveryCount": "3"}, "MaxDeliveryCount: must be a whole number, not text"),
        ({"MaxDeliveryCount": True}, "MaxDeliveryCount: must be a whole number, not true"),
        ({"MaxDeliveryCount": 2.5}, "MaxDeliveryCount: must be a whole number, not a number"),
        ({"MaxDeliveryCount": 0}, "MaxDeliveryCount: must be between 1 and"),
        ({"MaxMessageSizeInKilobytes": 0}, "MaxMessageSizeInKilobytes: must be between"),
        ({"EnableBatchedOperations": "no"}, "EnableBatchedOperations: must be true or false"),
        ({"Status": 1}, "Status: must be text, not a number"),
        ({"Status": "Gone"}, "Status: 'Gone' is none of"),
        ({"lockDuration": "PT5S"}, "lockDuration: is not a known key; is LockDuration meant?"),
        ({"Colour": "red"}, "Colour: is not a known key"),
        ({"RequiresSession": True}, "RequiresSession: is not supported yet (queue 'q1')"),
        ({"RequiresDuplicateDetection": True}, "RequiresDuplicateDetection: is not supported yet"),
        ({"EnablePartitioning": True}, "EnablePartitioning: is not supported yet"),
        ({"ForwardTo": "q2"}, "ForwardTo: is not supported yet (queue 'q1')"),
        ({"ForwardDeadLetteredMessagesTo": "q2"}, "ForwardDeadLetteredMessagesTo: is not supp"),
        ({"DuplicateDetectionHistoryTimeWindow": "x"}, "DuplicateDetectionHistoryTimeWindow: 'x'"),
    ],
)
def test_a_wrong_property_is_named_with_its_path(properties: Any, expected: str) -> None:
    (problem,) = problems(config(queue(**properties)))
    assert problem.startswith(f"{Q}.Properties.{expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "must be an object, not a list"),
        ("{}", "UserConfig: is missing"),
        ('{"UserConfig": 1}', "UserConfig: must be an object, not a number"),
        ('{"UserConfig": {}}', "UserConfig.Namespaces: must have one entry and has 0"),
        ('{"UserConfig": {"Namespaces": {}}}', "UserConfig.Namespaces: must be a list, not an ob"),
        (config(Name="-bad-"), "UserConfig.Namespaces[0].Name: '-bad-' is not a name"),
        (config(Name=None), "UserConfig.Namespaces[0].Name: is missing"),
        (config(Name=5), "UserConfig.Namespaces[0].Name: must be text, not a number"),
        (config(Quues=[]), "UserConfig.Namespaces[0].Quues: is not a known key; is Queues meant?"),
        (config("q1"), f"{Q}: must be an object, not text"),
        (config({"Properties": {}}), f"{Q}.Name: is missing"),
        (config(queue("a b")), f"{Q}.Name: 'a b' is not a name"),
        (config(queue("a"), queue("A")), "UserConfig.Namespaces[0].Queues[1].Name: 'A' is given t"),
        (config({"Name": "q", "Extra": 1}), f"{Q}.Extra: is not a known key"),
        (config(Topics=[{"Name": "t.1"}]), "UserConfig.Namespaces[0].Topics[0]: topics are not su"),
        (
            '{"UserConfig": {"Namespaces": [], "Logging": {"Type": "Paper"}}}',
            "UserConfig.Logging.Type: must be one of File; Console",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, expected: str) -> None:
    assert [problem for problem in problems(text) if problem.startswith(expected)]


def test_a_topic_is_named() -> None:
    assert "(topic 'orders')" in problems(config(Topics=[{"Name": "orders"}]))[0]


R = "UserConfig.Namespaces[0].AuthorizationRules"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"PrimaryKey": "k", "Rights": []}], f"{R}[0].Name: is missing"),
        ([{"Name": "r", "Rights": []}], f"{R}[0].PrimaryKey: is missing"),
        ([{"Name": "", "PrimaryKey": "k", "Rights": []}], f"{R}[0].Name: must not be empty"),
        ([{"Name": "r", "PrimaryKey": "", "Rights": []}], f"{R}[0].PrimaryKey: must not be empty"),
        ([{"Name": "r", "PrimaryKey": "k"}], f"{R}[0].Rights: is missing"),
        ([{"Name": "r", "PrimaryKey": "k", "Rights": "Send"}], f"{R}[0].Rights: must be a list"),
        (
            [{"Name": "r", "PrimaryKey": "k", "Rights": ["Read"]}],
            f"{R}[0].Rights: 'Read' is not a right",
        ),
        ([{"Name": "r", "PrimaryKey": "k", "Rights": []}] * 2, f"{R}[1].Name: 'r' is given twice"),
        (
            [{"Name": f"r{n}", "PrimaryKey": "k", "Rights": []} for n in range(13)],
            f"{R}: has 13 rules, at most 12 go",
        ),
    ],
)
def test_a_wrong_rule_is_refused_with_the_place(rules: Any, expected: str) -> None:
    (problem,) = problems(config(AuthorizationRules=rules))
    assert problem.startswith(expected)


def test_all_problems_are_told_at_once() -> None:
    found = problems(config(queue("a", LockDuration="x"), queue("b", ForwardTo="a"), Extra=1))
    assert len(found) == 3


def test_a_file_is_read_with_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(EMULATOR_FILE, encoding="utf-8-sig")
    assert load_configuration(path) == parsed(EMULATOR_FILE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    with pytest.raises(ConfigurationError, match=r"Config\.json: cannot be read"):
        load_configuration(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"Config\.json: cannot be read"):
        load_configuration(path)
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=r"Config\.json: is not JSON"):
        load_configuration(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigurationError, match=r"Config\.json: is not JSON"):
        load_configuration(path)
