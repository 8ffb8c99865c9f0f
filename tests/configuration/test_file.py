"""The emulator's Config.json: the file, its namespace and the names in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.rights import ALL_RIGHTS, LISTEN, SEND, AuthorizationRule, development_rule
from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.file import load_configuration, parse_configuration
from peeklock.configuration.start import exposure_problem
from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.settings import Settings
from tests.configuration.written import NAMESPACE, config, parsed, problems, queue, topic

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
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": {
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "RequiresDuplicateDetection": false
            },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": {
                  "DeadLetteringOnMessageExpiration": false,
                  "DefaultMessageTimeToLive": "PT1H",
                  "LockDuration": "PT1M",
                  "MaxDeliveryCount": 3,
                  "ForwardDeadLetteredMessagesTo": "",
                  "ForwardTo": "",
                  "RequiresSession": false
                },
                "Rules": [
                  {
                    "Name": "by-fields",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/text",
                        "CorrelationId": "c",
                        "Label": "l",
                        "MessageId": "m",
                        "ReplyTo": "r",
                        "ReplyToSessionId": "rs",
                        "SessionId": "s",
                        "To": "t"
                      }
                    }
                  },
                  {
                    "Name": "by-text",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND colour = 'red'" },
                      "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
                    }
                  }
                ]
              },
              { "Name": "subscription.2" }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""

OPEN = Settings(host="0.0.0.0")


def test_the_emulators_file_is_accepted_unchanged() -> None:
    configuration = parsed(EMULATOR_FILE)
    assert configuration.name == "sbemulatorns"
    assert configuration.rules == (development_rule(),)
    assert [q.definition for q in configuration.queues] == [
        QueueDefinition("queue.1", time_to_live_ms=3_600_000, delivery_count_max=3)
    ]
    assert configuration.queues[0].rules == ()
    (events,) = configuration.topics
    assert events.definition == TopicDefinition("topic.1", time_to_live_ms=3_600_000)
    filtered, unfiltered = events.subscriptions
    assert filtered.definition == SubscriptionDefinition(
        "topic.1", "subscription.1", time_to_live_ms=3_600_000, delivery_count_max=3
    )
    by_fields = CorrelationFilter(
        content_type="application/text",
        correlation_id="c",
        label="l",
        message_id="m",
        reply_to="r",
        reply_to_session_id="rs",
        session_id="s",
        to="t",
    )
    by_text = SqlFilter("sys.MessageId = '1' AND colour = 'red'")
    assert filtered.rules == (
        Rule("by-fields", by_fields),
        Rule("by-text", by_text, SqlAction("SET sys.To = 'Entity'")),
    )
    assert unfiltered.definition == SubscriptionDefinition("topic.1", "subscription.2")
    assert unfiltered.rules == (Rule(DEFAULT_RULE_NAME, TrueFilter()),)


def test_the_emulators_caps_are_lifted() -> None:
    many = [queue(f"q{number}", MaxDeliveryCount=100) for number in range(200)]
    assert len(parsed(config(*many, Name="my-namespace")).queues) == 200
    topics = [topic(f"t{number}") for number in range(100)]
    assert len(parsed(config(Topics=topics)).topics) == 100
    long_lived = parsed(config(queue(DefaultMessageTimeToLive="P365D"))).queues[0].definition
    assert long_lived.time_to_live_ms == 365 * 86_400_000


def test_authorization_rules_are_read_on_the_namespace_and_on_entities() -> None:
    on_queue = {"Name": "sender", "PrimaryKey": "k1", "SecondaryKey": "k2", "Rights": ["Send"]}
    on_namespace = [
        {"Name": "root", "PrimaryKey": "k3", "Rights": ["Manage"]},
        {"Name": "reader", "PrimaryKey": "k4", "Rights": ["listen"]},
    ]
    on_topic = {"Name": "audit", "PrimaryKey": "k5", "Rights": ["Listen"]}
    text = config(
        {"Name": "q1", "AuthorizationRules": [on_queue]},
        Topics=[{"Name": "t1", "AuthorizationRules": [on_topic]}],
        AuthorizationRules=on_namespace,
    )
    configuration = parsed(text)
    assert configuration.queues[0].rules == (AuthorizationRule("sender", "k1", "k2", SEND),)
    assert configuration.topics[0].rules == (AuthorizationRule("audit", "k5", "", LISTEN),)
    assert [rule.name for rule in configuration.all_rules()] == [
        "root",
        "reader",
        "sender",
        "audit",
    ]
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
    on_topic = [{"Name": "t1", "AuthorizationRules": known}]
    hidden = parsed(config(Topics=on_topic, AuthorizationRules=own))
    assert exposure_problem(OPEN, hidden.all_rules())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "must be an object, not a list"),
        ("{}", "UserConfig: is missing"),
        ('{"UserConfig": 1}', "UserConfig: must be an object, not a number"),
        ('{"UserConfig": {}}', "UserConfig.Namespaces: must have at least one entry"),
        ('{"UserConfig": {"Namespaces": {}}}', "UserConfig.Namespaces: must be a list, not an ob"),
        (config(Name="-bad-"), "UserConfig.Namespaces[0].Name: '-bad-' is not a name"),
        (config(Name=None), "UserConfig.Namespaces[0].Name: is missing"),
        (config(Name=5), "UserConfig.Namespaces[0].Name: must be text, not a number"),
        (config(Quues=[]), "UserConfig.Namespaces[0].Quues: is not a known key; is Queues meant?"),
        (config(Queues={}), "UserConfig.Namespaces[0].Queues: must be a list, not an object"),
        (config(Topics="t"), "UserConfig.Namespaces[0].Topics: must be a list, not text"),
        (
            '{"UserConfig": {"Namespaces": [], "Logging": {"Type": "Paper"}}}',
            "UserConfig.Logging.Type: must be one of File; Console",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, expected: str) -> None:
    assert [problem for problem in problems(text) if problem.startswith(expected)]


@pytest.mark.parametrize(
    ("queues", "topics", "expected"),
    [
        ([queue("a"), queue("A")], [], "Queues[1].Name: 'A' is given twice"),
        ([], [topic("a"), topic("b"), topic("A")], "Topics[2].Name: 'A' is given twice"),
        ([queue("a")], [topic("A")], "Topics[0].Name: 'A' is the name of a queue too"),
    ],
)
def test_queues_and_topics_share_their_names(queues: Any, topics: Any, expected: str) -> None:
    assert problems(config(*queues, Topics=topics)) == [f"{NAMESPACE}.{expected}"]


def test_a_name_that_is_missing_is_not_one_that_stands_twice() -> None:
    found = problems(config({}, {}, Topics=[{}]))
    assert found == [
        f"{NAMESPACE}.{place}.Name: is missing" for place in ("Queues[0]", "Queues[1]", "Topics[0]")
    ]


R = f"{NAMESPACE}.AuthorizationRules"


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
    found = problems(config(queue("a", LockDuration="x"), queue("b", ForwardTo="/"), Extra=1))
    assert len(found) == 3


def test_a_file_is_read_with_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(EMULATOR_FILE, encoding="utf-8-sig")
    assert load_configuration(path).namespaces == (parsed(EMULATOR_FILE),)


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


def several(*names: str) -> str:
    entries = [{"Name": name, "Queues": [queue(f"q-{name}")]} for name in names]
    return json.dumps({"UserConfig": {"Namespaces": entries}})


def test_a_file_has_as_many_namespaces_as_it_likes() -> None:
    """R-F7: each with its own entities and keys, in the order of the file."""
    found = parse_configuration(several("one", "two", "Three"), "Config.json")
    assert [namespace.name for namespace in found.namespaces] == ["one", "two", "Three"]
    assert [n.queues[0].definition.path for n in found.namespaces] == ["q-one", "q-two", "q-Three"]
    assert len(found.all_rules()) == 3


def test_namespaces_differ_by_more_than_case() -> None:
    assert problems(several("one", "two", "One")) == [
        "UserConfig.Namespaces[2].Name: 'One' is given twice"
    ]


def test_the_name_of_a_namespace_has_no_slash() -> None:
    (problem,) = problems(config(Name="a/b"))
    assert problem.startswith(f"{NAMESPACE}.Name: 'a/b' is not a name")


def test_one_of_several_namespaces_is_chosen_by_its_name() -> None:
    found = parse_configuration(several("one", "two"), "Config.json")
    assert found.chosen("TWO") is found.namespaces[1]
    with pytest.raises(LookupError, match=r"must be chosen; there are: 'one', 'two'"):
        found.chosen(None)
    with pytest.raises(LookupError, match="no namespace 'three'"):
        found.chosen("three")
    assert Configuration().chosen(None).name == "sbemulatorns"
