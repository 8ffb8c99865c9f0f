"""A configuration that is written and read again is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.configuration.content import (
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredSubscription,
    ConfiguredTopic,
)
from peeklock.configuration.writing import NotExpressible, document_of, rule_properties
from peeklock.entity.definition import (
    MEGABYTE,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.values import InstantValue
from tests.configuration.written import config, parsed, queue, topic

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "Config.example.json"

QUEUE = QueueDefinition(
    "orders/eu",
    lock_duration_ms=30_000,
    delivery_count_max=5,
    time_to_live_ms=3_600_000,
    dead_letter_on_expiration=True,
    message_size_max=1024 * 1024,
    size_max=2048 * MEGABYTE,
    batched_store_access=False,
    requires_session=False,
    duplicate_window_ms=60_000,
    forward_to="other",
    forward_dead_letters_to="letters",
    auto_delete_ms=600_000,
    partitions=4,
    unlock_on_disconnect=True,
    status="SendDisabled",
    user_metadata="ours",
)
TOPIC = TopicDefinition(
    "events",
    time_to_live_ms=1_500,
    size_max=1024 * MEGABYTE,
    duplicate_window_ms=600_000,
    partitions=16,
    filter_before_publishing=True,
    status="Disabled",
)
SUBSCRIPTION = SubscriptionDefinition(
    "events",
    "audit",
    lock_duration_ms=5_000,
    delivery_count_max=2_000,
    dead_letter_on_filter_error=False,
    requires_session=True,
    auto_delete_ms=300_000,
    status="ReceiveDisabled",
    user_metadata="x",
)
RULES = (
    Rule("$Default", TrueFilter()),
    Rule("none", FalseFilter()),
    Rule("big", SqlFilter("amount > 100"), SqlAction("SET big = true")),
    Rule(
        "german",
        CorrelationFilter(label="order", properties={"c": "de", "n": 5, "r": 0.5, "b": True}),
    ),
)
WHOLE = ConfiguredNamespace(
    "ns",
    queues=(
        ConfiguredQueue(
            QUEUE,
            (
                AuthorizationRule("shop", "key", "second", SEND),
                AuthorizationRule("reader", "k", rights=LISTEN),
            ),
        ),
        ConfiguredQueue(QueueDefinition("plain")),
    ),
    topics=(
        ConfiguredTopic(
            TOPIC,
            (AuthorizationRule("owner", "key"),),
            (
                ConfiguredSubscription(SUBSCRIPTION, RULES),
                ConfiguredSubscription(SubscriptionDefinition("events", "all"), RULES[:1]),
            ),
        ),
    ),
)


def again(namespace: ConfiguredNamespace) -> ConfiguredNamespace:
    return parsed(json.dumps(document_of(namespace)))


@pytest.mark.parametrize(
    "namespace",
    [
        WHOLE,
        ConfiguredNamespace(),
        parsed(config(queue())),
        parsed(config(Topics=[topic("t", {"Name": "s"})])),
        parsed(EXAMPLE.read_text()),
    ],
)
def test_what_is_written_is_read_again(namespace: ConfiguredNamespace) -> None:
    found = again(namespace)
    assert found.queues == namespace.queues
    assert [(t.definition, t.rules) for t in found.topics] == [
        (t.definition, t.rules) for t in namespace.topics
    ]
    assert subscriptions(found) == subscriptions(namespace)
    assert document_of(found) == document_of(namespace)


def subscriptions(namespace: ConfiguredNamespace) -> list[Any]:
    """Without what differs on purpose: a rule that was the default is then said."""
    return [
        (found.definition, found.rules)
        for topic in namespace.topics
        for found in topic.subscriptions
    ]


def test_a_plain_queue_says_what_the_emulator_would_do_otherwise() -> None:
    entry = document_of(parsed(config(queue())))["UserConfig"]["Namespaces"][0]["Queues"][0]
    assert entry == {
        "Name": "q1",
        "Properties": {
            "LockDuration": "PT1M",
            "RequiresDuplicateDetection": False,
            "DuplicateDetectionHistoryTimeWindow": "PT10M",
            "RequiresSession": False,
            "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
            "DeadLetteringOnMessageExpiration": False,
            "MaxDeliveryCount": 10,
            "ForwardTo": "",
            "ForwardDeadLetteredMessagesTo": "",
        },
    }


@pytest.mark.parametrize(
    "rule",
    [
        Rule("r", SqlFilter("a = @p", {"@p": 5})),
        Rule("r", TrueFilter(), SqlAction("SET a = @p", {"@p": 5})),
        Rule("r", CorrelationFilter(properties={"when": InstantValue(5)})),
    ],
)
def test_what_the_file_has_no_words_for_is_said(rule: Rule) -> None:
    with pytest.raises(NotExpressible, match="the rule 'r'"):
        rule_properties(rule)
