"""Entries of Topics, and of their Subscriptions."""

from typing import Any

import pytest

from peeklock.entity.definition import SubscriptionDefinition, TopicDefinition
from tests.configuration.written import NAMESPACE, config, parsed, problems, subscription, topic

T = f"{NAMESPACE}.Topics[0]"
S = f"{T}.Subscriptions[0]"


def read(entry: Any) -> TopicDefinition:
    return parsed(config(Topics=[entry])).topics[0].definition


def read_subscription(**properties: Any) -> SubscriptionDefinition:
    (found,) = parsed(config(Topics=[topic("t1", subscription(**properties))])).topics
    return found.subscriptions[0].definition


def test_what_the_file_leaves_out_takes_the_services_default() -> None:
    assert read({"Name": "plain"}) == TopicDefinition("plain")
    assert read(topic("empty")) == TopicDefinition("empty")
    assert parsed(config(Topics=[{"Name": "plain"}])).topics[0].subscriptions == ()
    assert read_subscription() == SubscriptionDefinition("t1", "s1")
    assert read_subscription().dead_letter_on_filter_error


def test_every_property_of_a_topic_reaches_the_definition() -> None:
    """R-F6: filtering before publishing is a switch of the topic."""
    entry = topic(
        "t1",
        AutoDeleteOnIdle="PT5M",
        DefaultMessageTimeToLive="PT2H",
        DuplicateDetectionHistoryTimeWindow="PT30S",
        EnableBatchedOperations=False,
        EnablePartitioning=True,
        FilteringMessagesBeforePublishing=True,
        MaxMessageSizeInKilobytes=1024,
        MaxSizeInMegabytes=1,
        PartitionCount=8,
        RequiresDuplicateDetection=True,
        Status="SendDisabled",
        UserMetadata="mine",
    )
    assert read(entry) == TopicDefinition(
        "t1",
        auto_delete_ms=300_000,
        time_to_live_ms=7_200_000,
        duplicate_window_ms=30_000,
        batched_store_access=False,
        partitions=8,
        filter_before_publishing=True,
        message_size_max=1_048_576,
        size_max=1_048_576,
        status="SendDisabled",
        user_metadata="mine",
    )


def test_every_property_of_a_subscription_reaches_the_definition() -> None:
    definition = read_subscription(
        AutoDeleteOnIdle="P1D",
        DeadLetteringOnFilterEvaluationExceptions=False,
        DeadLetteringOnMessageExpiration=True,
        DefaultMessageTimeToLive="PT2H",
        EnableBatchedOperations=False,
        ForwardDeadLetteredMessagesTo="sb://localhost/graves",
        ForwardTo="next",
        LockDuration="PT30S",
        MaxDeliveryCount=7,
        Status="ReceiveDisabled",
        UnlockOnDisconnect=True,
        UserMetadata="mine",
    )
    assert definition == SubscriptionDefinition(
        "t1",
        "s1",
        auto_delete_ms=86_400_000,
        dead_letter_on_filter_error=False,
        dead_letter_on_expiration=True,
        time_to_live_ms=7_200_000,
        batched_store_access=False,
        forward_dead_letters_to="graves",
        forward_to="next",
        lock_duration_ms=30_000,
        delivery_count_max=7,
        status="ReceiveDisabled",
        unlock_on_disconnect=True,
        user_metadata="mine",
        remarks=(("ForwardDeadLetteredMessagesTo", "sb://localhost/graves"),),
    )
    assert read_subscription(RequiresSession=True).requires_session


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, f"{T}.Name: is missing"),
        (topic("a b"), f"{T}.Name: 'a b' is not a name of 1 to 260 letters"),
        (topic(LockDuration="PT1M"), f"{T}.Properties.LockDuration: is not a known key"),
        (topic(RequiresSession=True), f"{T}.Properties.RequiresSession: is not a known key"),
        (topic(MaxSizeInMegabytes=-1), f"{T}.Properties.MaxSizeInMegabytes: must be between"),
        (topic(PartitionCount=3), f"{T}.Properties.PartitionCount: has no effect without"),
        (topic(Status="x"), f"{T}.Properties.Status: 'x' is none of"),
        ({"Name": "t", "Subs": []}, f"{T}.Subs: is not a known key"),
        ({"Name": "t", "Subscriptions": {}}, f"{T}.Subscriptions: must be a list, not an object"),
        ({"Name": "t", "AuthorizationRules": [{}]}, f"{T}.AuthorizationRules[0].Name: is missing"),
        (topic("t", "s"), f"{S}: must be an object, not text"),
        (topic("t", {}), f"{S}.Name: is missing"),
        (topic("t", subscription("a/b")), f"{S}.Name: 'a/b' is not a name of 1 to 50 letters"),
        (topic("t", subscription("x" * 51)), f"{S}.Name: '{'x' * 51}' is not a name"),
        (topic("t", {"Name": "s", "Rule": []}), f"{S}.Rule: is not a known key; is Rules meant?"),
        (
            topic("t", subscription("s"), subscription("S")),
            f"{T}.Subscriptions[1].Name: 'S' is given twice",
        ),
    ],
)
def test_a_wrong_topic_is_named_with_its_path(entry: Any, expected: str) -> None:
    assert problems(config(Topics=[entry]))[0].startswith(expected)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"LockDuration": "PT1S"}, "LockDuration: must be between 5 seconds and 5 minutes"),
        ({"AutoDeleteOnIdle": "PT1M"}, "AutoDeleteOnIdle: must be at least five minutes"),
        ({"ForwardTo": "$"}, "ForwardTo: '$' is not a name"),
        ({"EnablePartitioning": True}, "EnablePartitioning: is not a known key"),
        ({"RequiresDuplicateDetection": True}, "RequiresDuplicateDetection: is not a known key"),
        ({"DeadLetteringOnFilterEvaluationExceptions": 0}, "DeadLetteringOnFilterEvaluationExcep"),
    ],
)
def test_a_wrong_property_of_a_subscription_is_named(properties: Any, expected: str) -> None:
    (problem,) = problems(config(Topics=[topic("t1", subscription(**properties))]))
    assert problem.startswith(f"{S}.Properties.{expected}")


def test_the_same_name_may_stand_on_two_topics() -> None:
    both = [topic("a", subscription("s")), topic("b", subscription("s"))]
    found = parsed(config(Topics=both)).topics
    assert [t.subscriptions[0].definition.path for t in found] == [
        "a/Subscriptions/s",
        "b/Subscriptions/s",
    ]


def test_a_topic_has_at_most_two_thousand_subscriptions() -> None:
    """R-F7: 2,000 subscriptions on a topic."""
    many = [{"Name": f"s{number}"} for number in range(2_001)]
    assert len(parsed(config(Topics=[topic("t", *many[:2_000])])).topics[0].subscriptions) == 2_000
    assert problems(config(Topics=[topic("t", *many)])) == [
        f"{T}.Subscriptions: has 2,001 entries, at most 2,000 go"
    ]


def test_a_topic_has_at_most_two_thousand_sql_filters() -> None:
    sql = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a=1"}}
    rules = [{"Name": f"r{number}", "Properties": sql} for number in range(2_001)]
    entry = topic("t", {"Name": "s1", "Rules": rules[:1_000]}, {"Name": "s2", "Rules": rules})
    assert problems(config(Topics=[entry])) == [
        f"{T}.Subscriptions: have 3,001 SQL filters, at most 2,000 go"
    ]
