"""Addresses of AMQP links that are none: refused, nothing is changed, and life goes on."""

from __future__ import annotations

import pytest

from tests.gateway.matrix.amqp_client import UNAUTHORIZED, AmqpClient
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

LINKS = (AmqpClient.sender, AmqpClient.receiver, AmqpClient.session_receiver)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "..",
        "q/..",
        "../q",
        "q/../other",
        "q\0",
        "q/$nothing",
        "q/$management/$management",
        "q/$DeadLetterQueue/$DeadLetterQueue",
        "$management",
        "$cbs/x",
        "sb://",
        "sb://localhost",
        "%",
        "%00",
        "q%00",
        "%" + "25" * 20_000,
        "x" * 60_000,
        "q/" * 20_000,
        "\U0001f40d",
        "t/Subscriptions",
        "t/Subscriptions/",
        "t/Subscriptions/s/Rules",
    ],
    ids=lambda value: repr(value)[:20],
)
def test_addresses_that_are_none(address: str) -> None:
    """R-T2: refused with or without rights, nothing is changed, and the connection goes on."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.topic("t")
        before = await broker.state()
        peer = await AmqpClient.of(broker)
        for attach in LINKS:
            assert await attach(peer, address) == UNAUTHORIZED
        assert await peer.put(broker.root(), "") == 202
        for attach in LINKS:
            assert await attach(peer, address)
        assert await peer.sender("q", address)
        assert await peer.sender("q") == ""
        assert await broker.state() == before

    inhabit(visit)
