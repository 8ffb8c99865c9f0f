"""Descriptions of queues, topics and subscriptions: defaults, and what in them cannot be."""

import pytest

from peeklock.entity.definition import (
    ACTIVE,
    FOREVER_MS,
    SIZE_MAX_MAX,
    STATUSES,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
    destination_path,
    is_entity_name,
    is_entity_path,
    is_rule_name,
)


def wrong(definition: QueueDefinition | TopicDefinition | SubscriptionDefinition) -> list[str]:
    return [name for name, _ in definition.problems()]


def test_a_queue_that_says_nothing_takes_the_defaults_of_the_service() -> None:
    """R-L1: a lock lasts 60 s unless the queue says otherwise."""
    plain = QueueDefinition("orders")
    assert plain.lock_duration_ms == 60_000
    assert plain.delivery_count_max == 10
    assert plain.time_to_live_ms == FOREVER_MS
    assert plain.message_size_max == 262_144
    assert plain.status == ACTIVE
    assert plain.batched_store_access
    assert not plain.dead_letter_on_expiration
    assert not plain.unlock_on_disconnect
    assert (plain.partitions, plain.duplicate_window_ms, plain.size_max) == (1, 0, 0)
    assert plain.auto_delete_ms == FOREVER_MS
    assert plain.problems() == []


def test_topics_and_subscriptions_that_say_nothing_are_well() -> None:
    assert TopicDefinition("events").problems() == []
    plain = SubscriptionDefinition("events", "audit")
    assert plain.problems() == []
    assert plain.path == "events/Subscriptions/audit"
    assert plain.lock_duration_ms == 60_000
    assert plain.dead_letter_on_filter_error


@pytest.mark.parametrize(
    ("lock_ms", "is_fine"), [(4_999, 0), (5_000, 1), (300_000, 1), (300_001, 0)]
)
def test_a_lock_lasts_between_five_seconds_and_five_minutes(lock_ms: int, is_fine: int) -> None:
    """R-L1: at most five minutes."""
    expected = [] if is_fine else ["LockDuration"]
    assert wrong(QueueDefinition("orders", lock_duration_ms=lock_ms)) == expected
    assert wrong(SubscriptionDefinition("t", "s", lock_duration_ms=lock_ms)) == expected


@pytest.mark.parametrize(("count", "is_fine"), [(0, 0), (1, 1), (2_000, 1), (2_001, 0), (-1, 0)])
def test_at_least_one_delivery_and_at_most_two_thousand(count: int, is_fine: int) -> None:
    expected = [] if is_fine else ["MaxDeliveryCount"]
    assert wrong(QueueDefinition("orders", delivery_count_max=count)) == expected
    assert wrong(SubscriptionDefinition("t", "s", delivery_count_max=count)) == expected


@pytest.mark.parametrize(("life_ms", "is_fine"), [(FOREVER_MS, 1), (1_000, 1), (999, 0), (0, 0)])
def test_a_life_is_a_second_or_longer_or_has_no_end(life_ms: int, is_fine: int) -> None:
    expected = [] if is_fine else ["DefaultMessageTimeToLive"]
    assert wrong(QueueDefinition("orders", time_to_live_ms=life_ms)) == expected
    assert wrong(TopicDefinition("events", time_to_live_ms=life_ms)) == expected
    assert wrong(SubscriptionDefinition("t", "s", time_to_live_ms=life_ms)) == expected


@pytest.mark.parametrize(
    ("size", "is_fine"), [(1_023, 0), (1_024, 1), (104_857_600, 1), (104_857_601, 0)]
)
def test_the_largest_message_is_between_one_kilobyte_and_a_hundred_megabytes(
    size: int, is_fine: int
) -> None:
    expected = [] if is_fine else ["MaxMessageSizeInKilobytes"]
    assert wrong(QueueDefinition("orders", message_size_max=size)) == expected
    assert wrong(TopicDefinition("events", message_size_max=size)) == expected


@pytest.mark.parametrize(
    ("size", "is_fine"), [(-1, 0), (0, 1), (1, 1), (SIZE_MAX_MAX, 1), (SIZE_MAX_MAX + 1, 0)]
)
def test_a_quota_is_a_number_of_bytes_or_none(size: int, is_fine: int) -> None:
    expected = [] if is_fine else ["MaxSizeInMegabytes"]
    assert wrong(QueueDefinition("orders", size_max=size)) == expected
    assert wrong(TopicDefinition("events", size_max=size)) == expected


@pytest.mark.parametrize(
    ("window_ms", "is_fine"),
    [(0, 1), (4_999, 0), (5_000, 1), (604_800_000, 1), (604_800_001, 0), (-1, 0)],
)
def test_ids_are_remembered_for_five_seconds_to_seven_days_or_not(
    window_ms: int, is_fine: int
) -> None:
    expected = [] if is_fine else ["DuplicateDetectionHistoryTimeWindow"]
    assert wrong(QueueDefinition("orders", duplicate_window_ms=window_ms)) == expected
    assert wrong(TopicDefinition("events", duplicate_window_ms=window_ms)) == expected


@pytest.mark.parametrize(
    ("idle_ms", "is_fine"), [(FOREVER_MS, 1), (300_000, 1), (299_999, 0), (0, 0)]
)
def test_an_entity_stays_for_five_idle_minutes_or_for_ever(idle_ms: int, is_fine: int) -> None:
    expected = [] if is_fine else ["AutoDeleteOnIdle"]
    assert wrong(QueueDefinition("orders", auto_delete_ms=idle_ms)) == expected
    assert wrong(TopicDefinition("events", auto_delete_ms=idle_ms)) == expected
    assert wrong(SubscriptionDefinition("t", "s", auto_delete_ms=idle_ms)) == expected


@pytest.mark.parametrize(
    ("count", "is_fine"), [(1, 1), (2, 1), (16, 1), (32, 1), (33, 0), (0, 0), (-2, 0)]
)
def test_an_entity_has_one_partition_or_2_to_32(count: int, is_fine: int) -> None:
    """R-P2: partitioning is chosen at creation."""
    expected = [] if is_fine else ["PartitionCount"]
    assert wrong(QueueDefinition("orders", partitions=count)) == expected
    assert wrong(TopicDefinition("events", partitions=count)) == expected


def test_an_entity_with_sessions_may_forward() -> None:
    queue = QueueDefinition("q", requires_session=True, forward_to="r", forward_dead_letters_to="r")
    subscription = SubscriptionDefinition(
        "t", "s", requires_session=True, forward_to="r", forward_dead_letters_to="r"
    )
    assert wrong(queue) == wrong(subscription) == []


@pytest.mark.parametrize("path", ["/", "a b", "t/subscriptions/s", "x" * 261])
def test_a_destination_is_the_path_of_a_queue_or_topic(path: str) -> None:
    expected = ["ForwardTo", "ForwardDeadLetteredMessagesTo"]
    queue = QueueDefinition("q", forward_to=path, forward_dead_letters_to=path)
    assert wrong(queue) == expected
    subscription = SubscriptionDefinition("t", "s", forward_to=path, forward_dead_letters_to=path)
    assert wrong(subscription) == expected
    # A queue may forward to itself.
    assert wrong(QueueDefinition("q", forward_to="q", forward_dead_letters_to="q")) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ""),
        ("orders", "orders"),
        ("a/b", "a/b"),
        ("sb://localhost/orders", "orders"),
        ("sb://localhost:5672/a/b/", "a/b"),
        ("https://ns.example.org/a%2Fb", "a/b"),
        ("sb://localhost", "sb://localhost"),
        ("sb://localhost/", "sb://localhost/"),
    ],
)
def test_a_destination_may_be_an_address_but_must_name_something(text: str, path: str) -> None:
    assert destination_path(text) == path


def test_the_status_is_one_of_the_services_words() -> None:
    assert all(wrong(QueueDefinition("orders", status=status)) == [] for status in STATUSES)
    assert wrong(QueueDefinition("orders", status="active")) == ["Status"]
    assert wrong(TopicDefinition("events", status="active")) == ["Status"]
    assert wrong(SubscriptionDefinition("t", "s", status="active")) == ["Status"]


def test_notes_of_the_owner_have_a_limit() -> None:
    assert wrong(QueueDefinition("orders", user_metadata="n" * 1_024)) == []
    long = "n" * 1_025
    assert wrong(QueueDefinition("orders", user_metadata=long)) == ["UserMetadata"]
    assert wrong(TopicDefinition("events", user_metadata=long)) == ["UserMetadata"]
    assert wrong(SubscriptionDefinition("t", "s", user_metadata=long)) == ["UserMetadata"]


def test_every_problem_is_named_at_once_and_says_what_is_wrong() -> None:
    bad = QueueDefinition("/", lock_duration_ms=0, delivery_count_max=0, status="Asleep")
    assert wrong(bad) == ["Name", "Status", "LockDuration", "MaxDeliveryCount"]
    assert all(text for _, text in bad.problems())
    assert "'Asleep'" in dict(bad.problems())["Status"]


@pytest.mark.parametrize(
    "path", ["q", "Orders", "a/b.c-d_e", "7", "x" * 260, "subscriptions", "subscriptions/of"]
)
def test_a_path_of_letters_digits_and_four_signs_is_taken(path: str) -> None:
    assert is_entity_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x" * 261,
        "/orders",
        "orders/",
        ".a",
        "a-",
        "a b",
        "a$b",
        "a\\b",
        "a\n",
        "é",
        "aéb",
        "q٣q",
        "t/Subscriptions/s",
        "t/subscriptions",
    ],
)
def test_any_other_path_is_refused(path: str) -> None:
    assert not is_entity_path(path)
    assert wrong(QueueDefinition(path)) == ["Name"]
    assert wrong(TopicDefinition(path)) == ["Name"]


@pytest.mark.parametrize("name", ["s", "a.b-c_d", "7", "x" * 50])
def test_a_subscription_or_rule_has_a_short_name(name: str) -> None:
    assert is_entity_name(name)
    assert is_rule_name(name)
    assert wrong(SubscriptionDefinition("t", name)) == []


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "a b", "$a", "-a", "é"])
def test_any_other_short_name_is_refused(name: str) -> None:
    assert not is_entity_name(name)
    assert not is_rule_name(name)
    assert wrong(SubscriptionDefinition("t", name)) == ["Name"]


def test_the_first_rule_alone_has_a_name_of_its_own_kind() -> None:
    assert is_rule_name("$Default")
    assert not is_entity_name("$Default")
