"""Addresses: what clients write, and which node they mean."""

import pytest

from peeklock.entity.commands import DEAD, MAIN
from peeklock.gateway.amqp.address import ENTITY, MANAGEMENT, NOWHERE, TOKENS, parse_address


@pytest.mark.parametrize(
    ("text", "kind", "path", "lane"),
    [
        ("q", ENTITY, "q", MAIN),
        ("/q", ENTITY, "q", MAIN),
        ("amqps://host:5671/q", ENTITY, "q", MAIN),
        ("amqps://host/a/b.c/", ENTITY, "a/b.c", MAIN),
        ("sb://host", ENTITY, "", MAIN),
        ("a%2Fb", ENTITY, "a/b", MAIN),
        ("Q/$DeadLetterQueue", ENTITY, "Q", DEAD),
        ("q/$deadletterqueue", ENTITY, "q", DEAD),
        ("q/$management", MANAGEMENT, "q", MAIN),
        ("q/$DeadLetterQueue/$Management", MANAGEMENT, "q", DEAD),
        ("q/$Transfer/$DeadLetterQueue", NOWHERE, "q/$Transfer/$DeadLetterQueue", MAIN),
        ("$cbs", TOKENS, "$cbs", MAIN),
        ("amqps://host/$CBS", TOKENS, "$CBS", MAIN),
        ("we ird://x", ENTITY, "we ird://x", MAIN),
    ],
)
def test_an_address_is_taken_apart(text: str, kind: int, path: str, lane: int) -> None:
    address = parse_address(text)
    assert (address.kind, address.path, address.lane) == (kind, path, lane)
    assert address.key == address.key.lower()
