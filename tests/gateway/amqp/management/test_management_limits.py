"""How much one request to the management node may ask for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.frames.states import Rejected
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Uint
from peeklock.entity.commands import DEFERRED_BYTES_MAX
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.management.requests import REQUEST_ELEMENTS_MAX
from tests.gateway.amqp.amqp_harness import AmqpHarness, request, serve
from tests.gateway.amqp.management.test_node import ManagementLinks, tokens

TOKENS = Array(UUID_CODE, [UUID(int=1)] * 4_001)
NUMBERS = Array(LONG, [1] * 10_001)


@pytest.mark.parametrize(
    ("operation", "arguments", "most"),
    [
        ("renew-lock", {"lock-tokens": TOKENS}, 4_000),
        ("update-disposition", {"lock-tokens": TOKENS, "disposition-status": "completed"}, 4_000),
        ("cancel-scheduled-message", {"sequence-numbers": NUMBERS}, 10_000),
        ("schedule-message", {"messages": [{}] * 4_001}, 4_000),
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
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        answer = await node.client.request(
            node.links, {"operation": f"com.microsoft:{operation}"}, arguments
        )
        told = answer.application_properties
        assert told is not None
        assert told["statusCode"] == 400
        assert f"must hold at most {most} items, not {most + 1}." in told["statusDescription"]

    serve(talk)


def test_arguments_of_very_many_elements_are_rejected_and_the_link_stays() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        lists: list[Any] = [[]] * REQUEST_ELEMENTS_MAX
        for many in (lists, [UUID(int=1)] * (REQUEST_ELEMENTS_MAX // 4)):
            asked = request({"operation": "com.microsoft:renew-lock"}, {"lock-tokens": many}, "id")
            outcome = await node.client.send(node.links[0], asked)
            assert isinstance(outcome, Rejected)
            assert outcome.error is not None
            assert "elements" in (outcome.error.description or "")
        assert (await node.ask("peek-message", from_sequence_number=0, message_count=1))[0] == 204

    serve(talk)


def test_a_long_request_is_read_in_one_pass_and_asked_in_another() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        node.client.passes = 0
        locks = Array(UUID_CODE, [UUID(int=1)] * 4_000)
        status, _ = await node.ask("renew-lock", lock_tokens=locks)
        assert status == 410
        assert node.client.passes >= 1

    serve(talk)


def test_deferred_messages_beyond_one_answer_are_not_lost() -> None:
    """In receive-and-delete: the client is told to ask for fewer, and gets them so."""

    async def talk(bus: AmqpHarness) -> None:
        text = "x" * (DEFERRED_BYTES_MAX // 2)
        node = await ManagementLinks.open(bus, text, text)
        for _ in range(2):
            held = await node.received(1)
            status, _ = await node.ask(
                "update-disposition", disposition_status="defered", lock_tokens=tokens(*held)
            )
            assert status == 200
        answer = await node.client.request(
            node.links,
            {"operation": "com.microsoft:receive-by-sequence-number"},
            {"sequence-numbers": Array(LONG, [1, 2]), "receiver-settle-mode": Uint(0)},
        )
        told = answer.application_properties
        assert told is not None
        assert told["statusCode"] == 403
        assert told["errorCondition"] == "amqp:resource-limit-exceeded"
        assert f"may have {DEFERRED_BYTES_MAX} together" in told["statusDescription"]
        for number in (1, 2):
            status, body = await node.ask(
                "receive-by-sequence-number",
                sequence_numbers=Array(LONG, [number]),
                receiver_settle_mode=Uint(0),
            )
            assert (status, len(body["messages"])) == (200, 1)

    serve(
        talk, QueueDefinition("q", batched_store_access=False, message_size_max=DEFERRED_BYTES_MAX)
    )
