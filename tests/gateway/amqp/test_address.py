"""Addresses: what clients write, and which node they mean."""

import pytest

from peeklock.entity.commands import DEAD, MAIN, TRANSFER_DEAD
from peeklock.gateway.amqp.address import (
    DEAD_LETTERS,
    ENTITY,
    MANAGEMENT,
    OWN,
    TOKENS,
    TRANSFER_DEAD_LETTERS,
    parse_address,
)


@pytest.mark.parametrize(
    ("text", "kind", "path", "sub_queue"),
    [
        ("q", ENTITY, "q", OWN),
        ("/q", ENTITY, "q", OWN),
        ("amqps://host:5671/q", ENTITY, "q", OWN),
        ("amqps://host/a/b.c/", ENTITY, "a/b.c", OWN),
        ("sb://host", ENTITY, "", OWN),
        ("a%2Fb", ENTITY, "a/b", OWN),
        ("Q/$DeadLetterQueue", ENTITY, "Q", DEAD_LETTERS),
        ("q/$deadletterqueue", ENTITY, "q", DEAD_LETTERS),
        ("q/$management", MANAGEMENT, "q", OWN),
        ("q/$DeadLetterQueue/$Management", MANAGEMENT, "q", DEAD_LETTERS),
        ("q/$Transfer/$DeadLetterQueue", ENTITY, "q", TRANSFER_DEAD_LETTERS),
        ("t/Subscriptions/s", ENTITY, "t/Subscriptions/s", OWN),
        ("amqps://host/T/subscriptions/S", ENTITY, "T/subscriptions/S", OWN),
        ("t/Subscriptions/s/$DeadLetterQueue", ENTITY, "t/Subscriptions/s", DEAD_LETTERS),
        ("t/Subscriptions/s/$management", MANAGEMENT, "t/Subscriptions/s", OWN),
        (
            "t/subscriptions/s/$transfer/$deadletterqueue/$management",
            MANAGEMENT,
            "t/subscriptions/s",
            TRANSFER_DEAD_LETTERS,
        ),
        ("$cbs", TOKENS, "$cbs", OWN),
        ("amqps://host/$CBS", TOKENS, "$CBS", OWN),
        ("we ird://x", ENTITY, "we ird://x", OWN),
    ],
)
def test_an_address_is_taken_apart(text: str, kind: int, path: str, sub_queue: int) -> None:
    address = parse_address(text)
    assert (address.kind, address.path, address.sub_queue) == (kind, path, sub_queue)
    assert address.key == address.key.lower()


@pytest.mark.parametrize(
    ("text", "own", "lane"),
    [
        ("q", MAIN, MAIN),
        ("q/$DeadLetterQueue", MAIN, DEAD),
        ("q/$Transfer/$DeadLetterQueue", MAIN, TRANSFER_DEAD),
        ("t/Subscriptions/s", 6, 6),
        ("t/Subscriptions/s/$DeadLetterQueue", 6, 7),
        ("t/Subscriptions/s/$Transfer/$DeadLetterQueue", 6, TRANSFER_DEAD),
    ],
)
def test_the_lane_follows_from_the_entity(text: str, own: int, lane: int) -> None:
    assert parse_address(text).lane(own) == lane
