"""A description of a queue: its defaults, and what in it cannot be."""

import pytest

from peeklock.entity.definition import (
    ACTIVE,
    FOREVER_MS,
    STATUSES,
    QueueDefinition,
    is_entity_path,
)


def wrong(definition: QueueDefinition) -> list[str]:
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
    assert plain.problems() == []


@pytest.mark.parametrize(
    ("lock_ms", "is_fine"), [(4_999, 0), (5_000, 1), (300_000, 1), (300_001, 0)]
)
def test_a_lock_lasts_between_five_seconds_and_five_minutes(lock_ms: int, is_fine: int) -> None:
    """R-L1: at most five minutes."""
    found = wrong(QueueDefinition("orders", lock_duration_ms=lock_ms))
    assert found == ([] if is_fine else ["LockDuration"])


@pytest.mark.parametrize(("count", "is_fine"), [(0, 0), (1, 1), (2_000, 1), (2_001, 0), (-1, 0)])
def test_at_least_one_delivery_and_at_most_two_thousand(count: int, is_fine: int) -> None:
    found = wrong(QueueDefinition("orders", delivery_count_max=count))
    assert found == ([] if is_fine else ["MaxDeliveryCount"])


@pytest.mark.parametrize(("life_ms", "is_fine"), [(FOREVER_MS, 1), (1_000, 1), (999, 0), (0, 0)])
def test_a_life_is_a_second_or_longer_or_has_no_end(life_ms: int, is_fine: int) -> None:
    found = wrong(QueueDefinition("orders", time_to_live_ms=life_ms))
    assert found == ([] if is_fine else ["DefaultMessageTimeToLive"])


@pytest.mark.parametrize(
    ("size", "is_fine"), [(1_023, 0), (1_024, 1), (104_857_600, 1), (104_857_601, 0)]
)
def test_the_largest_message_is_between_one_kilobyte_and_a_hundred_megabytes(
    size: int, is_fine: int
) -> None:
    found = wrong(QueueDefinition("orders", message_size_max=size))
    assert found == ([] if is_fine else ["MaxMessageSizeInKilobytes"])


def test_the_status_is_one_of_the_services_words() -> None:
    assert all(wrong(QueueDefinition("orders", status=status)) == [] for status in STATUSES)
    assert wrong(QueueDefinition("orders", status="active")) == ["Status"]


def test_notes_of_the_owner_have_a_limit() -> None:
    assert wrong(QueueDefinition("orders", user_metadata="n" * 1_024)) == []
    assert wrong(QueueDefinition("orders", user_metadata="n" * 1_025)) == ["UserMetadata"]


def test_every_problem_is_named_at_once_and_says_what_is_wrong() -> None:
    bad = QueueDefinition("/", lock_duration_ms=0, delivery_count_max=0, status="Asleep")
    assert wrong(bad) == ["Name", "Status", "LockDuration", "MaxDeliveryCount"]
    assert all(text for _, text in bad.problems())
    assert "'Asleep'" in dict(bad.problems())["Status"]


@pytest.mark.parametrize("path", ["q", "Orders", "a/b.c-d_e", "7", "x" * 260])
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
    ],
)
def test_any_other_path_is_refused(path: str) -> None:
    assert not is_entity_path(path)
    assert wrong(QueueDefinition(path)) == ["Name"]
