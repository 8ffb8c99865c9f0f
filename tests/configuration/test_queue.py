"""Entries of Queues."""

from typing import Any

import pytest

from peeklock.entity.definition import FOREVER_MS, QueueDefinition
from tests.configuration.written import NAMESPACE, config, parsed, problems, queue

Q = f"{NAMESPACE}.Queues[0]"


def read(**properties: Any) -> QueueDefinition:
    return parsed(config(queue(**properties))).queues[0].definition


def test_what_the_file_leaves_out_takes_the_services_default() -> None:
    configuration = parsed(config({"Name": "plain"}, queue("empty")))
    assert [q.definition for q in configuration.queues] == [
        QueueDefinition("plain"),
        QueueDefinition("empty"),
    ]
    definition = configuration.queues[0].definition
    assert (definition.delivery_count_max, definition.time_to_live_ms) == (10, FOREVER_MS)


def test_every_property_reaches_the_definition() -> None:
    definition = read(
        AutoDeleteOnIdle="PT10M",
        DeadLetteringOnMessageExpiration=True,
        DefaultMessageTimeToLive="PT2H",
        DuplicateDetectionHistoryTimeWindow="PT30S",
        EnableBatchedOperations=False,
        EnablePartitioning=True,
        ForwardDeadLetteredMessagesTo="graves",
        ForwardTo="next",
        LockDuration="PT30S",
        MaxDeliveryCount=7,
        MaxMessageSizeInKilobytes=1024,
        MaxSizeInMegabytes=2,
        PartitionCount=4,
        RequiresDuplicateDetection=True,
        Status="ReceiveDisabled",
        UnlockOnDisconnect=True,
        UserMetadata="mine",
    )
    assert definition == QueueDefinition(
        "q1",
        auto_delete_ms=600_000,
        dead_letter_on_expiration=True,
        time_to_live_ms=7_200_000,
        duplicate_window_ms=30_000,
        batched_store_access=False,
        partitions=4,
        forward_dead_letters_to="graves",
        forward_to="next",
        lock_duration_ms=30_000,
        delivery_count_max=7,
        message_size_max=1_048_576,
        size_max=2_097_152,
        status="ReceiveDisabled",
        unlock_on_disconnect=True,
        user_metadata="mine",
    )
    assert read(RequiresSession=True) == QueueDefinition("q1", requires_session=True)


def test_the_longest_duration_never_ends() -> None:
    longest = "P10675199DT2H48M5.4775807S"
    assert read(DefaultMessageTimeToLive=longest, AutoDeleteOnIdle=longest) == QueueDefinition("q1")


def test_ids_are_remembered_only_where_duplicates_are_looked_for() -> None:
    """R-S9: ten minutes, unless the queue says otherwise."""
    assert read(DuplicateDetectionHistoryTimeWindow="PT20S").duplicate_window_ms == 0
    assert read(RequiresDuplicateDetection=True).duplicate_window_ms == 600_000


def test_a_partitioned_queue_has_sixteen_partitions_unless_it_says_otherwise() -> None:
    """R-P2: partitioning is chosen at creation."""
    assert read(EnablePartitioning=False).partitions == 1
    assert read(EnablePartitioning=True).partitions == 16
    assert read(EnablePartitioning=True, PartitionCount=2).partitions == 2
    assert read(EnablePartitioning=True, PartitionCount=32).partitions == 32


def test_a_queue_has_no_quota_unless_it_says_otherwise() -> None:
    assert read().size_max == 0
    assert read(MaxSizeInMegabytes=0).size_max == 0
    assert read(MaxSizeInMegabytes=5120).size_max == 5 << 30


@pytest.mark.parametrize("key", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ""),
        ("orders", "orders"),
        ("a/b", "a/b"),
        ("q1", "q1"),
        ("sb://localhost/orders", "orders"),
        ("sb://localhost:5672/a/b/", "a/b"),
        ("https://ns.example.org/a%2Fb", "a/b"),
    ],
)
def test_a_destination_is_a_name_or_an_address(key: str, text: str, path: str) -> None:
    definition = read(**{key: text})
    forward, dead = definition.forward_to, definition.forward_dead_letters_to
    assert (forward, dead) == ((path, "") if key == "ForwardTo" else ("", path))


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
        ({"MaxSizeInMegabytes": -1}, "MaxSizeInMegabytes: must be between 0 (no limit) and"),
        ({"MaxSizeInMegabytes": 10**13}, "MaxSizeInMegabytes: must be between 0"),
        ({"MaxSizeInMegabytes": "1"}, "MaxSizeInMegabytes: must be a whole number, not text"),
        ({"EnableBatchedOperations": "no"}, "EnableBatchedOperations: must be true or false"),
        ({"AutoDeleteOnIdle": "PT4M59S"}, "AutoDeleteOnIdle: must be at least five minutes"),
        ({"AutoDeleteOnIdle": "never"}, "AutoDeleteOnIdle: 'never' is not an ISO-8601 duration"),
        ({"UserMetadata": "x" * 1_025}, "UserMetadata: must have at most 1,024 characters"),
        ({"Status": 1}, "Status: must be text, not a number"),
        ({"Status": "Gone"}, "Status: 'Gone' is none of"),
        ({"lockDuration": "PT5S"}, "lockDuration: is not a known key; is LockDuration meant?"),
        ({"Colour": "red"}, "Colour: is not a known key"),
        ({"RequiresSession": 1}, "RequiresSession: must be true or false, not a number"),
        ({"ForwardTo": "a b"}, "ForwardTo: 'a b' is not a name of 1 to 260 letters"),
        ({"ForwardTo": "sb://localhost"}, "ForwardTo: 'sb://localhost' is not a name"),
        (
            {"ForwardTo": "t/subscriptions/s"},
            "ForwardTo: 't/subscriptions/s' is the address of a s",
        ),
        (
            {"ForwardDeadLetteredMessagesTo": "-"},
            "ForwardDeadLetteredMessagesTo: '-' is not a name",
        ),
        ({"DuplicateDetectionHistoryTimeWindow": "x"}, "DuplicateDetectionHistoryTimeWindow: 'x'"),
        (
            {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT0S"},
            "DuplicateDetectionHistoryTimeWindow: must be between 5 seconds and 7 days",
        ),
        (
            {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "P8D"},
            "DuplicateDetectionHistoryTimeWindow: must be between 5 seconds and 7 days",
        ),
        ({"EnablePartitioning": "yes"}, "EnablePartitioning: must be true or false, not text"),
        ({"PartitionCount": 4}, "PartitionCount: has no effect without EnablePartitioning"),
        (
            {"EnablePartitioning": True, "PartitionCount": 1},
            "PartitionCount: must be between 2 and",
        ),
        (
            {"EnablePartitioning": True, "PartitionCount": 0},
            "PartitionCount: must be between 2 and",
        ),
        ({"EnablePartitioning": True, "PartitionCount": 33}, "PartitionCount: must be between 2 "),
        (
            {"FilteringMessagesBeforePublishing": True},
            "FilteringMessagesBeforePublishing: is not a",
        ),
    ],
)
def test_a_wrong_property_is_named_with_its_path(properties: Any, expected: str) -> None:
    (problem,) = problems(config(queue(**properties)))
    assert problem.startswith(f"{Q}.Properties.{expected}")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("q1", f"{Q}: must be an object, not text"),
        ({"Properties": {}}, f"{Q}.Name: is missing"),
        ({"Name": ""}, f"{Q}.Name: '' is not a name"),
        (queue("a b"), f"{Q}.Name: 'a b' is not a name of 1 to 260 letters, digits and . - _ /"),
        (queue("t/Subscriptions/s"), f"{Q}.Name: 't/Subscriptions/s' is the address of a subscrip"),
        ({"Name": "q", "Properties": []}, f"{Q}.Properties: must be an object, not a list"),
        ({"Name": "q", "Extra": 1}, f"{Q}.Extra: is not a known key"),
        ({"Name": "q", "AuthorizationRules": [{}]}, f"{Q}.AuthorizationRules[0].Name: is missing"),
    ],
)
def test_a_wrong_queue_is_named_with_its_path(entry: Any, expected: str) -> None:
    assert problems(config(entry))[0].startswith(expected)
