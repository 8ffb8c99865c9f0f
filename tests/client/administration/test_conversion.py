"""Properties under the service's names, and back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peeklock.auth import rights as auth
from peeklock.client.administration import (
    FOREVER,
    AccessRights,
    AuthorizationRule,
    EntityStatus,
    QueueProperties,
    QueueRuntimeProperties,
    SubscriptionProperties,
    TopicProperties,
    atom,
)
from peeklock.client.administration.atom import Description, read_answer, write_entry
from peeklock.client.administration.conversion import (
    description_of,
    duration,
    duration_text,
    instant,
    properties_of,
    updated,
)
from peeklock.client.administration.properties import (
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
)


def test_what_is_written_is_read() -> None:
    rule = AuthorizationRule("k", [AccessRights.SEND], "one", "two")
    queue = QueueProperties(
        "q",
        [rule],
        lock_duration=timedelta(seconds=30),
        enable_express=True,
        partition_count=4,
        status=EntityStatus.SEND_DISABLED,
        default_message_time_to_live=FOREVER,
    )
    written = write_entry(description_of(atom.QUEUE, queue)).replace(
        b"<content", b"<title>q</title><content"
    )
    found = read_answer(written)
    assert isinstance(found, Description)
    assert properties_of(found, QueueProperties) == queue


def test_rules_keep_the_times_that_they_came_with() -> None:
    times = ("2024-05-01T10:00:00.1234567Z", "2024-05-02T10:00:00+02:00")
    found = Description(
        atom.QUEUE, "q", {}, keys=(auth.AuthorizationRule("k", "one", times=times),)
    )
    queue = properties_of(found, QueueProperties)
    assert queue.authorization_rules is not None
    [rule] = queue.authorization_rules
    assert rule.created_at_utc == datetime(2024, 5, 1, 10, 0, 0, 123456, UTC)
    assert rule.modified_at_utc == datetime(2024, 5, 2, 8, tzinfo=UTC)
    [kept] = description_of(atom.QUEUE, queue).keys
    assert kept.times == times
    rule.modified_at_utc = datetime(2025, 1, 1, tzinfo=UTC)
    [changed] = description_of(atom.QUEUE, queue).keys
    assert changed.times == (times[0], "2025-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("kind", "made"), [(atom.QUEUE, QueueProperties), (atom.TOPIC, TopicProperties)]
)
def test_rules_that_nobody_speaks_of_stay(kind: str, made: Any) -> None:
    assert b"AuthorizationRules" not in write_entry(description_of(kind, made("e")))
    # None of them is wanted any more.
    assert b"AuthorizationRules" in write_entry(description_of(kind, made("e", [])))


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(AuthorizationRule("k", ["Send"], "secret", "secret"))


def test_a_status_that_is_new_is_told_as_it_is() -> None:
    found = Description(atom.QUEUE, "q", {"Status": "Dreaming"})
    assert properties_of(found, QueueProperties).status == "Dreaming"


def test_what_is_not_told_is_none_or_nothing() -> None:
    found = Description(atom.QUEUE, "q", {}, {"MessageCount": 3})
    assert properties_of(found, QueueProperties).lock_duration is None
    read = properties_of(found, QueueRuntimeProperties)
    assert (read.total_message_count, read.active_message_count, read.created_at_utc) == (
        3,
        0,
        None,
    )


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (QueueOptions, QueueProperties),
        (TopicOptions, TopicProperties),
        (SubscriptionOptions, SubscriptionProperties),
    ],
)
def test_every_option_is_a_property(options: Any, kind: Any) -> None:
    told = {"name", "availability_status", "size_in_bytes"}
    assert set(options.__annotations__) == set(kind.__annotations__) - told


def test_updates() -> None:
    queue = QueueProperties("q", max_delivery_count=3)
    assert updated(queue, QueueProperties, {"max_delivery_count": 4}).max_delivery_count == 4
    assert queue.max_delivery_count == 3
    assert updated({"name": "q"}, QueueProperties, {}) == QueueProperties("q")
    with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
        updated(queue, QueueProperties, {"color": "red"})


def test_time() -> None:
    assert duration("P10675199DT2H48M5.4775807S") == FOREVER
    assert duration_text(FOREVER) == "P10675199DT2H48M5.4775807S"
    assert duration("PT1M0.5S") == timedelta(seconds=60.5)
    assert duration_text(timedelta(seconds=90)) == "PT1M30S"
    assert instant("") is None
    assert instant("2024-05-06T07:08:09.1234567Z") == datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    assert instant("0001-01-01T00:00:00") == datetime(1, 1, 1, tzinfo=UTC)
