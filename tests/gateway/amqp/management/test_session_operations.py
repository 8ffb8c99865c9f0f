"""Sessions at the management node: renewal, state, names, and messages by their session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import encode_modified
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Int, Symbol, Timestamp, Uint
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, annotation, bodies, body_of, serve
from tests.gateway.amqp.nodes.test_sessions import WITH_SESSIONS, filled, on_both

DEFERRED = encode_modified(delivery_failed=True, undeliverable_here=True)
WHENEVER = Timestamp(253_402_300_800_000)
LOST = "com.microsoft:session-lock-lost"


class ManagementLinks:
    """A client at the management node of a queue with sessions."""

    def __init__(self, bus: AmqpHarness, client: Client, links: tuple[Link, Link]) -> None:
        self.bus = bus
        self.client = client
        self.links = links

    @classmethod
    async def open(cls, bus: AmqpHarness, *texts: str) -> ManagementLinks:
        client = await filled(bus, *texts)
        return cls(bus, client, await client.request_links("q/$management"))

    async def ask(
        self, operation: str, on_behalf_of: str | None = None, **arguments: Any
    ) -> tuple[int, Any]:
        body = {name.replace("_", "-"): value for name, value in arguments.items()}
        return await self.client.manage(self.links, operation, body, on_behalf_of=on_behalf_of)

    async def refusal(
        self, operation: str, on_behalf_of: str | None = None, **arguments: Any
    ) -> tuple[int, str, str]:
        body = {name.replace("_", "-"): value for name, value in arguments.items()}
        answer = await self.client.management_answer(
            self.links, operation, body, on_behalf_of=on_behalf_of
        )
        properties = answer.application_properties
        assert properties is not None
        return (
            properties["statusCode"],
            properties["errorCondition"],
            properties["statusDescription"],
        )

    async def names(self, since: Timestamp = WHENEVER, skip: int = 0, top: int = 100) -> list[str]:
        status, body = await self.ask(
            "get-message-sessions", last_updated_time=since, skip=Int(skip), top=Int(top)
        )
        if status == 204:
            # It is no error, but the service names it.
            assert (
                await self.refusal(
                    "get-message-sessions", last_updated_time=since, skip=Int(skip), top=Int(top)
                )
            )[1] == "com.microsoft:session-not-found"
            return []
        assert body["skip"] == skip
        return list(body["sessions-ids"].items)


@on_both
def test_a_session_is_renewed_by_its_holder(queue: QueueDefinition) -> None:
    """R-L2: a whole duration from now, so that the link stays."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1")
        link = await node.client.session_receiver("a")
        await bus.advance(node.client, 50_000)
        status, body = await node.ask("renew-session-lock", link.name, session_id="a")
        assert (status, body) == (200, {"expiration": Timestamp(bus.clock.now() + 60_000)})
        await bus.advance(node.client, 50_000)
        # A client that names no link is believed as well.
        assert (await node.ask("renew-session-lock", session_id="a"))[0] == 200

    serve(talk, queue)


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session_state": b"x"}),
    ],
)
def test_whoever_does_not_hold_the_session_has_lost_it(
    operation: str, more: dict[str, Any]
) -> None:
    """Another session's link, a link that is gone, nobody at all."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1", "b1")
        await node.client.session_receiver("a")
        other = await node.client.session_receiver("b")
        for name, session_id in ((other.name, "a"), ("gone", "a"), (None, "c")):
            status, condition, _ = await node.refusal(
                operation, name, session_id=session_id, **more
            )
            assert (status, condition) == (410, LOST)

    serve(talk, WITH_SESSIONS)


@on_both
def test_a_link_that_is_closed_holds_nothing(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1")
        link = await node.client.session_receiver("a")
        link.detach()
        await node.client.talk()
        status, condition, _ = await node.refusal("renew-session-lock", link.name, session_id="a")
        assert (status, condition) == (410, LOST)

    serve(talk, queue)


@on_both
def test_state_is_null_at_first_kept_and_cleared(queue: QueueDefinition) -> None:
    """It survives the link; null clears it."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        link = await node.client.session_receiver("a")
        nothing = (200, {"session-state": None})
        assert await node.ask("get-session-state", link.name, session_id="a") == nothing
        stored = await node.ask("set-session-state", link.name, session_id="a", session_state=b"x")
        assert stored == (200, {})
        link.detach()
        await node.client.talk()
        link = await node.client.session_receiver("a")
        found = await node.ask("get-session-state", link.name, session_id="a")
        assert found == (200, {"session-state": b"x"})
        await node.ask("set-session-state", link.name, session_id="a", session_state=None)
        assert await node.ask("get-session-state", link.name, session_id="a") == nothing

    serve(talk, queue)


def test_state_has_a_limit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        link = await node.client.session_receiver("a")
        most = b"x" * 262_144
        stored = await node.ask("set-session-state", link.name, session_id="a", session_state=most)
        assert stored == (200, {})
        status, condition, text = await node.refusal(
            "set-session-state", link.name, session_id="a", session_state=most + b"x"
        )
        assert (status, condition) == (403, "amqp:link:message-size-exceeded")
        assert "The state of a session has at most 262144 bytes, not 262145." in text

    serve(talk, WITH_SESSIONS)


@on_both
def test_sessions_with_messages_or_state_are_listed_in_pages(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "b1", "a1", "c1", "a2")
        await node.client.session_receiver("d")
        await node.ask("set-session-state", session_id="d", session_state=b"x")
        assert await node.names() == ["a", "b", "c", "d"]
        assert await node.names(skip=1, top=2) == ["b", "c"]
        assert await node.names(skip=4) == []

    serve(talk, queue)


@on_both
def test_sessions_are_listed_by_when_their_state_was_set(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1", "b1")
        await node.client.session_receiver("a")
        await node.client.session_receiver("b")
        await node.ask("set-session-state", session_id="a", session_state=b"x")
        between = Timestamp(bus.clock.now() + 1)
        await bus.advance(node.client, 10)
        await node.ask("set-session-state", session_id="b", session_state=b"x")
        assert await node.names(since=between) == ["b"]
        assert await node.names(since=Timestamp(0)) == ["a", "b"]
        assert await node.names(since=Timestamp(bus.clock.now())) == []

    serve(talk, queue)


def test_peek_sees_one_session_or_all() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1", "b1", "a2")

        async def peeked(**more: Any) -> list[str]:
            status, body = await node.ask(
                "peek-message", from_sequence_number=1, message_count=Int(9), **more
            )
            return [body_of(m["message"]) for m in body["messages"]] if status == 200 else []

        assert await peeked() == ["a1", "b1", "a2"]
        assert await peeked(session_id="a") == ["a1", "a2"]
        assert await peeked(session_id="c") == []

    serve(talk, WITH_SESSIONS)


def test_deferred_messages_of_a_session_need_its_lock() -> None:
    """R-S6: they carry no end of a lock of their own and are settled by their token."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1")
        client = node.client
        link = await client.session_receiver("a", credit=1)
        (delivery,) = client.arrived(link)
        await client.settle(link, [delivery.id], DEFERRED)
        wish: dict[str, Any] = {
            "sequence_numbers": Array(
                LONG, [annotation(delivery.payload, "x-opt-sequence-number")]
            ),
            "receiver_settle_mode": Uint(1),
        }
        status, condition, text = await node.refusal("receive-by-sequence-number", **wish)
        assert (status, condition) == (400, "com.microsoft:argument-error")
        assert "'session-id'" in text
        other = await client.session_receiver("b")
        status, condition, _ = await node.refusal(
            "receive-by-sequence-number", other.name, session_id="a", **wish
        )
        assert (status, condition) == (410, LOST)
        _, body = await node.ask("receive-by-sequence-number", link.name, session_id="a", **wish)
        (entry,) = body["messages"]
        assert body_of(entry["message"]) == "a1"
        until = bus.clock.now() + 60_000
        assert annotation(entry["message"], "x-opt-locked-until") == until
        token = Array(UUID_CODE, [entry["lock-token"]])
        given_back = await node.ask(
            "update-disposition",
            link.name,
            session_id="a",
            disposition_status="defered",
            lock_tokens=token,
        )
        assert given_back == (200, {})
        # The Go client names its receiver only, and that is in one session.
        status, condition, _ = await node.refusal("receive-by-sequence-number", other.name, **wish)
        assert (status, condition) == (404, "com.microsoft:message-not-found")
        _, body = await node.ask("receive-by-sequence-number", link.name, **wish)
        token = Array(UUID_CODE, [body["messages"][0]["lock-token"]])
        settled = await node.ask(
            "update-disposition", link.name, disposition_status="completed", lock_tokens=token
        )
        assert settled == (200, {})

    serve(talk, WITH_SESSIONS)


@on_both
def test_tokens_of_a_session_that_was_left_are_lost_with_it(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1")
        link = await node.client.session_receiver("a", credit=1)
        (delivery,) = node.client.arrived(link)
        link.detach()
        await node.client.talk()
        status, condition, _ = await node.refusal(
            "update-disposition",
            session_id="a",
            disposition_status="completed",
            lock_tokens=Array(UUID_CODE, [UUID(bytes_le=delivery.tag)]),
        )
        assert (status, condition) == (410, LOST)

    serve(talk, queue)


@on_both
def test_messages_of_one_session_are_deleted(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, "a1", "b1", "a2")
        before = Timestamp(bus.clock.now() + 1)
        status, body = await node.ask(
            "batch-delete-messages", session_id="a", message_count=Int(9), enqueued_time_utc=before
        )
        assert (status, body) == (200, {"message-count": 2})
        link = await node.client.session_receiver(None, credit=9)
        assert bodies(node.client.arrived(link)) == ["b1"]

    serve(talk, queue)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("renew-session-lock", {"session_id": "a"}),
        ("get-session-state", {"session_id": "a"}),
        ("set-session-state", {"session_id": "a", "session_state": b"x"}),
        ("get-message-sessions", {"last_updated_time": WHENEVER, "skip": Int(0), "top": Int(1)}),
    ],
)
def test_an_entity_without_sessions_has_none(operation: str, arguments: dict[str, Any]) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, text = await node.refusal(operation, **arguments)
        assert (status, condition) == (400, "amqp:not-allowed")
        assert "The operation needs an entity that requires sessions." in text

    serve(talk, QueueDefinition("q"))


def test_messages_without_sessions_are_not_asked_for_by_session() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, text = await node.refusal(
            "peek-message", from_sequence_number=1, message_count=Int(1), session_id="a"
        )
        assert (status, condition) == (400, "com.microsoft:argument-error")
        assert "'session-id' needs an entity that requires sessions" in text

    serve(talk, QueueDefinition("q"))


@pytest.mark.parametrize(
    ("operation", "arguments", "named"),
    [
        ("renew-session-lock", {}, "session-id"),
        ("get-session-state", {"session_id": 3}, "session-id"),
        ("set-session-state", {"session_id": "a", "session_state": "text"}, "session-state"),
        (
            "get-message-sessions",
            {"last_updated_time": WHENEVER, "skip": Int(-1), "top": Int(1)},
            "skip",
        ),
        (
            "get-message-sessions",
            {"last_updated_time": WHENEVER, "skip": Int(0), "top": Int(0)},
            "top",
        ),
        ("get-message-sessions", {"skip": Int(0), "top": Int(1)}, "last-updated-time"),
    ],
)
def test_a_wrong_argument_is_named(operation: str, arguments: dict[str, Any], named: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, text = await node.refusal(operation, **arguments)
        assert (status, condition) == (400, "com.microsoft:argument-error")
        assert f"The argument '{named}' " in text

    serve(talk, WITH_SESSIONS)


@on_both
def test_a_scheduled_message_needs_its_session(queue: QueueDefinition) -> None:
    """It arrives there when it is due."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, _ = await node.refusal("schedule-message", messages=[_entry(bus, None)])
        assert (status, condition) == (400, "amqp:not-allowed")
        assert (await node.ask("schedule-message", messages=[_entry(bus, "a")]))[0] == 200
        link = await node.client.session_receiver("a", credit=1)
        await bus.advance(node.client, 5_000)
        assert bodies(node.client.arrived(link)) == ["later"]

    serve(talk, queue)


def _entry(bus: AmqpHarness, session_id: str | None) -> dict[str, Any]:
    due = Timestamp(bus.clock.now() + 5_000)
    message = AmqpMessage(
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): due},
        properties=Properties(group_id=session_id),
        body_kind=DATA_BODY,
        body=[b"later"],
    )
    return {"message-id": "1", "message": encode_message(message)}
