"""The management node: every operation of a queue without sessions, and its refusals."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID, uuid4

import pytest

from peeklock.amqp.messages.message import NO_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.constructors import LONG, TIMESTAMP, UUID_CODE
from peeklock.amqp.values.types import Array, Int, Symbol, Timestamp, Uint
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    Client,
    annotation,
    bodies,
    body_of,
    plain,
    request,
    serve,
)

Links = tuple[Link, Link]


class ManagementLinks:
    """A client at the management node of a queue that has some messages."""

    def __init__(self, bus: AmqpHarness, client: Client, links: Links) -> None:
        self.bus = bus
        self.client = client
        self.links = links

    @classmethod
    async def open(cls, bus: AmqpHarness, *texts: str, address: str = "q/$management") -> Self:
        client = await bus.authorized()
        if texts:
            await client.send(await client.sender(), *(plain(text) for text in texts))
        return cls(bus, client, await client.request_links(address))

    async def ask(self, operation: str, **arguments: Any) -> tuple[int, Any]:
        body = {name.replace("_", "-"): value for name, value in arguments.items()}
        return await self.client.manage(self.links, operation, body)

    async def received(self, count: int) -> list[IncomingDelivery]:
        """Messages that are locked by a receiver that is gone again."""
        link = await self.client.receiver(credit=count)
        deliveries = self.client.arrived(link)
        link.detach()
        await self.client.talk()
        return deliveries

    async def peeked(self, first: int = 0) -> list[bytes]:
        _, body = await self.ask("peek-message", from_sequence_number=first, message_count=Int(99))
        return [] if body is None else [entry["message"] for entry in body["messages"]]


def tokens(*deliveries: IncomingDelivery) -> Array:
    return Array(UUID_CODE, [UUID(bytes_le=delivery.tag) for delivery in deliveries])


def test_peek_shows_messages_and_locks_none() -> None:
    """From a number on, inclusive, as many as asked for; none is 204."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a", "b", "c")
        status, body = await node.ask("peek-message", from_sequence_number=2, message_count=Int(1))
        assert status == 200
        (entry,) = body["messages"]
        assert body_of(entry["message"]) == "b"
        assert annotation(entry["message"], "x-opt-sequence-number") == 2
        assert annotation(entry["message"], "x-opt-locked-until") is None
        assert [body_of(m) for m in await node.peeked()] == ["a", "b", "c"]
        status, body = await node.ask("peek-message", from_sequence_number=4, message_count=Int(1))
        assert (status, body) == (204, None)

    serve(talk)


def test_peek_may_leave_the_body_out() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a")
        _, body = await node.ask(
            "peek-message",
            from_sequence_number=1,
            message_count=Int(1),
            omit_message_body=True,
        )
        message = decode_message(body["messages"][0]["message"])
        assert message.body_kind == NO_BODY
        assert message.properties is not None

    serve(talk)


def test_peek_is_limited_by_bytes_and_by_number() -> None:
    """256 KB and 250 messages, but always one."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, *("x" * 100_000 for _ in range(4)))
        assert len(await node.peeked()) == 2
        sender = await node.client.sender()
        await node.client.send(sender, *(plain(str(i)) for i in range(260)))
        _, body = await node.ask("peek-message", from_sequence_number=5, message_count=Int(999))
        assert len(body["messages"]) == 250

    serve(talk)


def test_renewal_tells_the_new_ends() -> None:
    """R-L2: an array of timestamps, in order."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a", "b")
        first, second = await node.received(2)
        await bus.advance(node.client, 10_000)
        status, body = await node.ask("renew-lock", lock_tokens=tokens(first, second))
        until = Timestamp(bus.clock.now() + 60_000)
        assert (status, body) == (200, {"expirations": Array(TIMESTAMP, [until, until])})

    serve(talk)


def test_a_lost_lock_is_410() -> None:
    """R-S8: for renewal and settlement alike."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        strange = Array(UUID_CODE, [uuid4()])
        for operation, extra in (
            ("renew-lock", {}),
            ("update-disposition", {"disposition_status": "completed"}),
        ):
            body = {"lock-tokens": strange} | {k.replace("_", "-"): v for k, v in extra.items()}
            answer = await node.client.request(
                node.links, {"operation": f"com.microsoft:{operation}"}, body
            )
            told = answer.application_properties
            assert told is not None
            assert told["statusCode"] == 410
            assert type(told["statusCode"]) is Int
            assert told["errorCondition"] == "com.microsoft:message-lock-lost"
            assert type(told["errorCondition"]) is Symbol
            assert "The lock supplied is invalid." in told["statusDescription"]
            assert told["com.microsoft:tracking-id"] in told["statusDescription"]

    serve(talk)


@pytest.mark.parametrize(
    ("status", "states"),
    [
        ("completed", []),
        ("abandoned", [(1, 0)]),
        ("defered", [(1, 1)]),
        ("suspended", []),
    ],
)
def test_settling_by_token_works_when_the_link_is_gone(
    status: str, states: list[tuple[int, int]]
) -> None:
    """R-S3 to R-S6: with nothing but the lock token."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a")
        locked = await node.received(1)
        answer, body = await node.ask(
            "update-disposition",
            disposition_status=status,
            lock_tokens=tokens(*locked),
            properties_to_modify={"n": 1},
        )
        assert (answer, body) == (200, {})
        left = [decode_message(message) for message in await node.peeked()]
        assert [m.application_properties for m in left] == [{"n": 1}] * len(states)
        for message, (count, state) in zip(left, states, strict=True):
            assert message.header is not None
            assert message.message_annotations is not None
            assert message.header.delivery_count == count
            assert message.message_annotations["x-opt-message-state"] == state

    serve(talk)


def test_a_reason_beats_the_one_among_the_properties() -> None:
    """R-S5."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a")
        await node.ask(
            "update-disposition",
            disposition_status="suspended",
            lock_tokens=tokens(*await node.received(1)),
            deadletter_reason="said",
            properties_to_modify={
                Symbol("DeadLetterReason"): "not this",
                Symbol("DeadLetterErrorDescription"): "this",
            },
        )
        dead = ManagementLinks(
            bus, node.client, await node.client.request_links("q/$DeadLetterQueue/$management")
        )
        (message,) = await dead.peeked()
        assert decode_message(message).application_properties == {
            "DeadLetterReason": "said",
            "DeadLetterErrorDescription": "this",
        }

    serve(talk)


@pytest.mark.parametrize("locks", [0, 1])
def test_deferred_messages_come_by_number(locks: int) -> None:
    """R-S6: with a new token, or gone for good; asking again finds nothing."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a", "b")
        await node.ask(
            "update-disposition",
            disposition_status="defered",
            lock_tokens=tokens(*await node.received(2)),
        )
        numbers = Array(LONG, [2, 1])
        status, body = await node.ask(
            "receive-by-sequence-number",
            sequence_numbers=numbers,
            receiver_settle_mode=Uint(locks),
        )
        assert status == 200
        assert [body_of(entry["message"]) for entry in body["messages"]] == ["b", "a"]
        for entry in body["messages"]:
            # Some clients look for the lock here.
            within = {"x-opt-lock-token": entry["lock-token"]} if locks else {}
            assert decode_message(entry["message"]).delivery_annotations == within
        status, _ = await node.ask(
            "receive-by-sequence-number",
            sequence_numbers=numbers,
            receiver_settle_mode=Uint(locks),
        )
        assert status == 404
        assert len(await node.peeked()) == 2 * locks
        if locks:
            found = Array(UUID_CODE, [entry["lock-token"] for entry in body["messages"]])
            status, _ = await node.ask(
                "update-disposition", disposition_status="completed", lock_tokens=found
            )
            assert status == 200
            assert await node.peeked() == []

    serve(talk)


def test_an_empty_list_of_numbers_is_no_error() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, _ = await node.ask(
            "receive-by-sequence-number", sequence_numbers=[], receiver_settle_mode=Uint(1)
        )
        assert status == 204
        assert (await node.ask("cancel-scheduled-message", sequence_numbers=[]))[0] == 200

    serve(talk)


def scheduled(text: str, at: int) -> dict[str, Any]:
    message = AmqpMessage(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at)},
        properties=Properties(message_id=text),
        body=text,
    )
    return {"message-id": text, "message": encode_message(message)}


def test_scheduling_answers_the_numbers_and_cancelling_takes_them() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        due = bus.clock.now() + 60_000
        status, body = await node.ask(
            "schedule-message", messages=[scheduled("a", due), scheduled("b", due)]
        )
        assert (status, body) == (200, {"sequence-numbers": Array(LONG, [1, 2])})
        assert [annotation(m, "x-opt-message-state") for m in await node.peeked()] == [2, 2]
        status, _ = await node.ask("cancel-scheduled-message", sequence_numbers=Array(LONG, [1]))
        assert status == 200
        status, _ = await node.ask("cancel-scheduled-message", sequence_numbers=Array(LONG, [1]))
        assert status == 404
        link = await node.client.receiver(credit=5)
        await bus.advance(node.client, 60_000)
        (delivery,) = node.client.arrived(link)
        assert decode_message(delivery.payload).body == "b"
        assert annotation(delivery.payload, "x-opt-sequence-number") == 3

    serve(talk)


def test_batch_delete_takes_the_oldest_that_are_free() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a", "b", "c")
        await node.received(1)
        before = Timestamp(bus.clock.now() + 1)
        status, body = await node.ask(
            "batch-delete-messages", message_count=Int(1), enqueued_time_utc=before
        )
        assert (status, body) == (200, {"message-count": 1})
        assert [body_of(m) for m in await node.peeked()] == ["a", "c"]
        status, body = await node.ask(
            "batch-delete-messages", message_count=Int(9), enqueued_time_utc=Timestamp(1)
        )
        assert (status, body) == (204, None)

    serve(talk)


@pytest.mark.parametrize(
    ("operation", "arguments", "named"),
    [
        ("peek-message", {"message-count": 1}, "from-sequence-number"),
        ("peek-message", {"from-sequence-number": 1, "message-count": "x"}, "message-count"),
        ("peek-message", {"from-sequence-number": 1, "message-count": 0}, "message-count"),
        ("peek-message", {"from-sequence-number": True, "message-count": 1}, "from-sequence"),
        (
            "peek-message",
            {"from-sequence-number": 1, "message-count": 1, "omit-message-body": 1},
            "omit-message-body",
        ),
        ("renew-lock", {}, "lock-tokens"),
        ("renew-lock", {"lock-tokens": []}, "lock-tokens"),
        ("renew-lock", {"lock-tokens": ["x"]}, "lock-tokens"),
        ("update-disposition", {"lock-tokens": [UUID(int=1)]}, "disposition-status"),
        (
            "update-disposition",
            {"lock-tokens": [UUID(int=1)], "disposition-status": "eaten"},
            "disposition-status",
        ),
        (
            "update-disposition",
            {
                "lock-tokens": [UUID(int=1)],
                "disposition-status": "abandoned",
                "properties-to-modify": 3,
            },
            "properties-to-modify",
        ),
        ("receive-by-sequence-number", {"sequence-numbers": [1]}, "receiver-settle-mode"),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": ["1"], "receiver-settle-mode": 1},
            "sequence-numbers",
        ),
        ("schedule-message", {"messages": "x"}, "messages"),
        ("schedule-message", {"messages": [{"message": "x"}]}, "messages"),
        ("schedule-message", {"messages": [{"message": b"\x01"}]}, "messages"),
        ("cancel-scheduled-message", {}, "sequence-numbers"),
        ("batch-delete-messages", {"message-count": 4_001, "enqueued-time-utc": 1}, "4000"),
        ("batch-delete-messages", {"message-count": 1}, "enqueued-time-utc"),
        ("peek-message", "no map", "map"),
    ],
)
def test_a_wrong_argument_is_named(operation: str, arguments: Any, named: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        answer = await node.client.request(
            node.links, {"operation": f"com.microsoft:{operation}"}, arguments
        )
        told = answer.application_properties
        assert told is not None
        assert told["statusCode"] == 400
        assert told["errorCondition"] == "com.microsoft:argument-error"
        assert named in told["statusDescription"]

    serve(talk)


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ("get-message-sessions", 400),
        ("renew-session-lock", 400),
        ("enumerate-rules", 400),
        ("make-coffee", 501),
    ],
)
def test_what_a_queue_without_sessions_cannot_do(operation: str, status: int) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        assert (await node.ask(operation))[0] == status

    serve(talk)


def test_a_request_without_an_operation_is_not_understood() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        answer = await node.client.request(node.links, {"operation": 7}, {})
        assert answer.application_properties is not None
        assert answer.application_properties["statusCode"] == 501

    serve(talk)


def test_nothing_is_scheduled_in_a_dead_letter_queue() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, address="q/$DeadLetterQueue/$management")
        status, _ = await node.ask("schedule-message", messages=[scheduled("a", 1)])
        assert status == 400

    serve(talk)


def test_rights_are_checked_for_each_operation() -> None:
    """R-T2: scheduling takes Send, all else takes Listen."""

    async def talk(bus: AmqpHarness) -> None:
        for rule, key, allowed in (("listener", "l", 200), ("sender", "s", 401)):
            client = await bus.connect()
            await client.put_token("q", rule=rule, key=key)
            node = ManagementLinks(bus, client, await client.request_links("q/$management"))
            due = bus.clock.now() + 60_000
            status, _ = await node.ask("schedule-message", messages=[scheduled("a", due)])
            assert {200, 401} == {status, allowed}
            numbers: dict[str, Any] = {"from_sequence_number": 1, "message_count": Int(1)}
            status, _ = await node.ask("peek-message", **numbers)
            assert status == (204 if allowed == 200 else 401)

    rules = [
        AuthorizationRule("listener", "l", rights=LISTEN),
        AuthorizationRule("sender", "s", rights=SEND),
    ]
    serve(talk, rules=rules)


def test_many_requests_are_answered_each_by_its_id() -> None:
    """R-L2: 300 renewals at once over one pair of links."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a")
        locked = tokens(*await node.received(1))
        requests, responses = node.links
        responses.grant(1_000)
        await node.client.talk()
        asked = [str(number) for number in range(300)]
        for number in asked:
            while requests.credit <= 0:
                await node.client.talk()
            node.client.post(
                requests,
                request({"operation": "com.microsoft:renew-lock"}, {"lock-tokens": locked}, number),
            )
        await node.client.talk()
        answers = [decode_message(d.payload) for d in node.client.arrived(responses)]
        assert all(a.application_properties is not None for a in answers)
        assert {a.application_properties["statusCode"] for a in answers} == {200}  # type: ignore[index]  # checked above
        found = [a.properties.correlation_id for a in answers if a.properties is not None]
        assert sorted(found, key=int) == asked

    serve(talk)


def test_a_large_answer_takes_several_frames() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "x" * 200_000)
        (message,) = await node.peeked()
        assert len(body_of(message)) == 200_000

    serve(talk)


def test_the_node_of_a_missing_queue_cannot_be_attached() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("")
        error = await client.refused(client.ask_sender("nothing/$management"))
        assert error.condition == "amqp:not-found"

    serve(talk)


def test_messages_received_by_number_are_like_all_others() -> None:
    """Also in the dead-letter queue, whose node is its own."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a")
        await node.ask(
            "update-disposition",
            disposition_status="suspended",
            lock_tokens=tokens(*await node.received(1)),
        )
        address = "q/$DeadLetterQueue"
        dead = ManagementLinks(
            bus, node.client, await node.client.request_links(f"{address}/$management")
        )
        link = await node.client.receiver(address, credit=1)
        deliveries = node.client.arrived(link)
        assert bodies(deliveries) == ["a"]
        await dead.ask(
            "update-disposition", disposition_status="defered", lock_tokens=tokens(*deliveries)
        )
        status, body = await dead.ask(
            "receive-by-sequence-number", sequence_numbers=[1], receiver_settle_mode=Uint(1)
        )
        assert status == 200
        assert body_of(body["messages"][0]["message"]) == "a"

    serve(talk, QueueDefinition("q"))
