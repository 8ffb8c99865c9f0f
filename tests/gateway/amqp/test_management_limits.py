"""How much one request to the management node may ask for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.constructors import LONG, UUID_CODE
from peeklock.amqp.types import Array, Uint
from peeklock.entity.commands import DEFERRED_BYTES_MAX
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.bus import Bus, serve
from tests.gateway.amqp.test_management import Desk, tokens

TOKENS = Array(UUID_CODE, [UUID(int=1)] * 10_001)
NUMBERS = Array(LONG, [1] * 10_001)


@pytest.mark.parametrize(
    ("operation", "arguments", "most"),
    [
        ("renew-lock", {"lock-tokens": TOKENS}, 10_000),
        ("update-disposition", {"lock-tokens": TOKENS, "disposition-status": "completed"}, 10_000),
        ("cancel-scheduled-message", {"sequence-numbers": NUMBERS}, 10_000),
        ("schedule-message", {"messages": [{}] * 10_001}, 10_000),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": Array(LONG, [1] * 1_001), "receiver-settle-mode": Uint(0)},
            1_000,
        ),
    ],
)
def test_a_list_that_is_too_long_is_refused(
    operation: str, arguments: dict[str, Any], most: int
) -> None:
    async def talk(bus: Bus) -> None:
        desk = await Desk.open(bus)
        answer = await desk.client.request(
            desk.links, {"operation": f"com.microsoft:{operation}"}, arguments
        )
        told = answer.application_properties
        assert told is not None
        assert told["statusCode"] == 400
        assert f"must hold at most {most} items, not {most + 1}." in told["statusDescription"]

    serve(talk)


def test_deferred_messages_beyond_one_answer_are_not_lost() -> None:
    """In receive-and-delete: the client is told to ask for fewer, and gets them so."""

    async def talk(bus: Bus) -> None:
        text = "x" * (DEFERRED_BYTES_MAX // 2)
        desk = await Desk.open(bus, text, text)
        for _ in range(2):
            held = await desk.received(1)
            status, _ = await desk.ask(
                "update-disposition", disposition_status="defered", lock_tokens=tokens(*held)
            )
            assert status == 200
        answer = await desk.client.request(
            desk.links,
            {"operation": "com.microsoft:receive-by-sequence-number"},
            {"sequence-numbers": Array(LONG, [1, 2]), "receiver-settle-mode": Uint(0)},
        )
        told = answer.application_properties
        assert told is not None
        assert told["statusCode"] == 403
        assert told["errorCondition"] == "amqp:resource-limit-exceeded"
        assert f"may have {DEFERRED_BYTES_MAX} together" in told["statusDescription"]
        for number in (1, 2):
            status, body = await desk.ask(
                "receive-by-sequence-number",
                sequence_numbers=Array(LONG, [number]),
                receiver_settle_mode=Uint(0),
            )
            assert (status, len(body["messages"])) == (200, 1)

    serve(
        talk, QueueDefinition("q", batched_store_access=False, message_size_max=DEFERRED_BYTES_MAX)
    )
