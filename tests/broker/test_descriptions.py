"""The catalog's texts: what was written is read again, and older texts are read too."""

from dataclasses import fields
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.broker.descriptions import (
    FIRST_PLACEMENT,
    Placement,
    read_queue,
    read_subscription,
    read_topic,
    write_entity,
    write_subscription,
)
from peeklock.entity.definition import (
    SEND_DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.values import DurationValue, InstantValue, Value

PLACE = Placement(("store", "store-2", "store"), 17, 1_700_000_000_000)


def assert_nothing_is_default(definition: Any, plain: Any) -> None:
    same = [
        field.name
        for field in fields(definition)
        if getattr(definition, field.name) == getattr(plain, field.name)
    ]
    assert same == [], "each property differs from its default, so that none is forgotten"


def test_every_property_of_a_queue_is_kept() -> None:
    definition = QueueDefinition(
        "orders",
        lock_duration_ms=5_000,
        delivery_count_max=3,
        time_to_live_ms=60_000,
        dead_letter_on_expiration=True,
        message_size_max=2_048,
        size_max=1 << 30,
        batched_store_access=False,
        requires_session=True,
        duplicate_window_ms=20_000,
        forward_to="next",
        forward_dead_letters_to="graves",
        auto_delete_ms=300_000,
        partitions=4,
        unlock_on_disconnect=True,
        status=SEND_DISABLED,
        user_metadata="noted",
        remarks=(("EnableExpress", "true"),),
    )
    assert_nothing_is_default(definition, QueueDefinition("other"))
    rule = AuthorizationRule("r", "k", times=("2020-01-01T00:00:00Z", ""))
    text = write_entity(definition, [rule], PLACE, 99)
    assert read_queue(text) == (definition, [rule], PLACE, 99)


def test_every_property_of_a_topic_is_kept() -> None:
    definition = TopicDefinition(
        "news",
        time_to_live_ms=60_000,
        message_size_max=2_048,
        size_max=1 << 30,
        batched_store_access=False,
        duplicate_window_ms=20_000,
        auto_delete_ms=300_000,
        partitions=4,
        filter_before_publishing=True,
        status=SEND_DISABLED,
        user_metadata="noted",
        remarks=(("SupportOrdering", "false"),),
    )
    assert_nothing_is_default(definition, TopicDefinition("other"))
    rule = development_rule()
    text = write_entity(definition, [rule], PLACE, 99)
    assert read_topic(text) == (definition, [rule], PLACE, 99)


VALUES: dict[str, Value] = {
    "text": "é",
    "whole": -(1 << 63),
    "real": 0.1,
    "yes": True,
    "nothing": None,
    "decimal": Decimal("1.10"),
    "bytes": b"\x00\xff",
    "uuid": UUID(int=7),
    "instant": InstantValue(5),
    "local": InstantValue(5, "1970-01-01T00:00:00"),
    "duration": DurationValue(-5),
}


def test_every_property_of_a_subscription_and_its_rules_are_kept() -> None:
    definition = SubscriptionDefinition(
        "news",
        "mine",
        lock_duration_ms=5_000,
        delivery_count_max=3,
        time_to_live_ms=60_000,
        dead_letter_on_expiration=True,
        dead_letter_on_filter_error=False,
        batched_store_access=False,
        requires_session=True,
        forward_to="next",
        forward_dead_letters_to="graves",
        auto_delete_ms=300_000,
        unlock_on_disconnect=True,
        status=SEND_DISABLED,
        user_metadata="noted",
        remarks=(("ForwardTo", "sb://localhost/next"),),
    )
    assert_nothing_is_default(definition, SubscriptionDefinition("other", "other"))
    rules = [
        Rule("all", TrueFilter(), None, 1),
        Rule("none", FalseFilter(), SqlAction("SET a = 1"), 2),
        Rule("sql", SqlFilter("a = @text", VALUES), SqlAction("SET b = @bytes", VALUES), 3),
        Rule(
            "correlation",
            CorrelationFilter(
                correlation_id="1",
                message_id="2",
                to="3",
                reply_to="4",
                label="5",
                session_id="6",
                reply_to_session_id="7",
                content_type="8",
                properties=VALUES,
            ),
            None,
            4,
        ),
    ]
    text = write_subscription(definition, rules, 8, 99, 100)
    assert read_subscription(text) == (definition, rules, 8, 99, 100)


def test_a_text_without_the_newer_properties_gives_their_defaults() -> None:
    assert read_queue('{"path":"orders"}') == (QueueDefinition("orders"), [], FIRST_PLACEMENT, 0)
    assert FIRST_PLACEMENT.storage_path("orders") == "orders"
    assert PLACE.storage_path("orders") == "orders#17"


def test_an_unknown_filter_is_an_error() -> None:
    text = write_subscription(SubscriptionDefinition("t", "s"), [Rule("r", TrueFilter())], 4, 0)
    with pytest.raises(ValueError, match="no filter"):
        read_subscription(text.replace('"true"', '"strange"'))
