"""Requests to `$management` that are none: a clear error, nothing is changed, and life goes on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int, Symbol, Timestamp
from peeklock.gateway.amqp.management.calls import PREFIX
from peeklock.gateway.amqp.management.operations import OPERATIONS
from tests.gateway.matrix.amqp_client import AmqpClient
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

ARGUMENTS = [
    "from-sequence-number",
    "message-count",
    "omit-message-body",
    "session-id",
    "sequence-numbers",
    "receiver-settle-mode",
    "enqueued-time-utc",
    "lock-tokens",
    "disposition-status",
    "deadletter-reason",
    "properties-to-modify",
    "messages",
    "session-state",
    "last-updated-time",
    "skip",
    "top",
    "rule-name",
    "rule-description",
]
VALUES: list[Any] = [
    None,
    True,
    Int(-1),
    Int(1),
    1 << 62,
    -(1 << 63),
    1.5,
    "",
    "x" * 5000,
    "\0",
    Symbol("completed"),
    b"",
    b"\xff" * 100,
    [],
    [None],
    [UUID(int=1)],
    [UUID(int=(1 << 128) - 1)],
    [{"message": b"\x00Sp\xc0"}],
    [{"message": None}],
    Array(LONG, [-1]),
    Array(LONG, [1 << 62]),
    {},
    {"sql-filter": {"expression": "= ="}},
    {"sql-filter": {"expression": "("}, "sql-rule-action": {"expression": "SET"}},
    {"correlation-filter": {"properties": {"a": [1]}}},
    Timestamp(-(1 << 62)),
    Timestamp(1 << 62),
]
PLACES = ("q", "with-sessions", "t", "t/Subscriptions/s", "q/$DeadLetterQueue")


async def settled(broker: WatchedBroker) -> AmqpClient:
    await broker.queue("q")
    await broker.queue("with-sessions", requires_session=True)
    await broker.topic("t")
    peer = await AmqpClient.of(broker)
    assert await peer.put(broker.root(), "") == 202
    return peer


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_bodies_that_are_none(operation: str) -> None:
    """R-T2: at every kind of entity; what has no arguments is told which are missing."""

    async def visit(broker: WatchedBroker) -> None:
        peer = await settled(broker)
        before = await broker.state()
        nothing: list[Any] = [None, 5, "x", b"x", [], {}, {Int(1): 2}]
        for place in PLACES:
            for body in nothing:
                status = await peer.manage(place, operation.removeprefix(PREFIX), body)
                assert 400 <= status < 500, (place, body)
        assert await broker.state() == before

    inhabit(visit)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.sampled_from(PLACES),
    st.dictionaries(st.sampled_from(ARGUMENTS), st.sampled_from(VALUES), max_size=8),
)
def test_any_arguments_are_answered(operation: str, place: str, body: dict[str, Any]) -> None:
    """Done or refused, and never a failure of the broker."""

    async def visit(broker: WatchedBroker) -> None:
        peer = await settled(broker)
        status = await peer.manage(place, operation.removeprefix(PREFIX), body)
        assert status in (200, 204) or 400 <= status < 500
        assert await peer.manage("q", "peek-message", {"from-sequence-number": 0}) == 400
        assert await peer.sender("q") == ""

    inhabit(visit)
