"""The management node: what owners can ask about claims, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.messages.message import NO_BODY, decode_message
from peeklock.amqp.values.constructors import INT, LONG
from peeklock.amqp.values.types import Array, Int, Timestamp, Uint
from peeklock.auth.rights import SEND, AuthorizationRule
from peeklock.entity.definition import QueueDefinition, TopicDefinition
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, annotation, body_of, plain, serve


class ClaimingOwner:
    """An owner at the management node of a queue that has some messages."""

    def __init__(self, client: Client, links: Any, owner: str) -> None:
        self.client = client
        self.links = links
        self.owner = owner

    @classmethod
    async def open(
        cls, bus: AmqpHarness, *texts: str, address: str = "q/$management", owner: str = "me"
    ) -> ClaimingOwner:
        client = await bus.authorized()
        if texts:
            await client.send(await client.sender(), *(plain(text) for text in texts))
        return cls(client, await client.request_links(address), owner)

    async def ask(self, operation: str, **arguments: Any) -> tuple[int, Any]:
        given = {"owner": self.owner} | arguments
        body = {name.replace("_", "-"): value for name, value in given.items()}
        return await self.client.manage(self.links, f"com.peeklock:{operation}", body)

    async def claim(self, count: int = 100, **more: Any) -> tuple[int, Any]:
        wishes = {"epoch": 1, "message_count": Int(count)} | more
        return await self.ask("claim-messages", **wishes)

    async def listed(self, **more: Any) -> dict[str, Any]:
        wishes = {"from_sequence_number": 0, "message_count": Int(100)} | more
        status, body = await self.ask("list-claims", **wishes)
        assert status == 200
        assert isinstance(body, dict)
        return body

    async def settle(self, status: str, *sequences: int, **more: Any) -> tuple[int, Any]:
        wishes = {"sequence_numbers": Array(LONG, list(sequences)), "disposition_status": status}
        return await self.ask("settle-claims", **(wishes | more))


def test_claims_are_told_as_numbers_and_sizes() -> None:
    """R-D1: nothing to claim is 204."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a", "bb")
        status, body = await node.claim()
        assert status == 200
        assert body.keys() == {"sequence-numbers", "sizes"}
        assert body["sequence-numbers"] == Array(LONG, [1, 2])
        assert body["sizes"].code == INT
        assert body["sizes"].items[1] == body["sizes"].items[0] + 1
        assert await node.claim() == (204, None)

    serve(talk)


def test_a_claim_can_be_limited() -> None:
    """R-D1: by bytes, by the highest number, and in time."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a", "b", "c")
        _, body = await node.claim(max_bytes=1)
        assert body["sequence-numbers"].items == [1]
        _, body = await node.claim(upto=Array(LONG, [2]))
        assert body["sequence-numbers"].items == [2]
        assert await node.claim(upto=[2]) == (204, None)
        assert await node.claim(upto=[]) == (204, None)
        _, body = await node.claim(claim_timeout=Uint(5_000))
        assert body["sequence-numbers"].items == [3]
        await bus.advance(node.client, 5_000)
        assert (await node.listed())["sequence-numbers"].items == []

    serve(talk)


def test_the_list_tells_all_that_a_reader_needs() -> None:
    """R-D1."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a", "b", "c")
        listed = await node.listed()
        assert (listed["epoch"], listed["active-count"]) == (0, 3)
        await node.claim(2)
        await node.ask("fetch-claims", sequence_numbers=[2])
        listed = await node.listed(epoch=7, from_sequence_number=2)
        assert listed == {
            "epoch": 7,
            "sequence-numbers": Array(LONG, [2]),
            "sizes": listed["sizes"],
            "attempts": Array(INT, [Int(1)]),
            "last-sequence-numbers": Array(LONG, [3]),
            "active-count": 1,
            "oldest-enqueued": Timestamp(bus.clock.now()),
        }
        await node.claim(epoch=7)
        assert (await node.listed())["oldest-enqueued"] is None

    serve(talk)


def test_claimed_messages_are_fetched_as_a_peek_shows_them() -> None:
    """R-D1."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a", "b", "c")
        await node.claim(2)
        status, body = await node.ask("fetch-claims", sequence_numbers=Array(LONG, [2, 3, 1]))
        assert (status, body["looked-at"]) == (200, 3)
        messages = [entry["message"] for entry in body["messages"]]
        assert [body_of(each) for each in messages] == ["b", "a"]
        assert annotation(messages[0], "x-opt-sequence-number") == 2
        assert annotation(messages[0], "x-opt-message-state") == 0
        assert annotation(messages[0], "com.peeklock:claimed") is True
        _, body = await node.ask(
            "fetch-claims", sequence_numbers=[1], omit_message_body=True, max_bytes=1
        )
        assert decode_message(body["messages"][0]["message"]).body_kind == NO_BODY
        _, body = await node.ask("fetch-claims", sequence_numbers=[2, 1], max_bytes=1)
        assert (len(body["messages"]), body["looked-at"]) == (1, 1)
        assert await node.ask("fetch-claims", sequence_numbers=[]) == (
            200,
            {"messages": [], "looked-at": 0},
        )
        _, shown = await node.client.manage(
            node.links, "peek-message", {"from-sequence-number": 1, "message-count": Int(9)}
        )
        # No state of its own: clients of other languages fail at one that they do not know.
        states = [annotation(each["message"], "x-opt-message-state") for each in shown["messages"]]
        assert states == [0, 0, 0]
        claimed = [
            annotation(each["message"], "com.peeklock:claimed") for each in shown["messages"]
        ]
        assert claimed == [True, True, None]

    serve(talk)


@pytest.mark.parametrize(
    ("status", "state", "count"),
    [
        ("completed", None, 0),
        ("Abandoned", 0, 1),
        ("released", 0, 0),
        ("defered", 1, 1),
        ("deferred", 1, 1),
    ],
)
def test_claims_are_settled(status: str, state: int | None, count: int) -> None:
    """R-D1: a repeat settles nothing."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a")
        await node.claim()
        assert await node.settle(status, 1, 99, epoch=1) == (200, {"message-count": 1})
        assert await node.settle(status, 1) == (200, {"message-count": 0})
        _, shown = await node.client.manage(
            node.links, "peek-message", {"from-sequence-number": 0, "message-count": Int(9)}
        )
        if state is None:
            assert shown is None
        else:
            (entry,) = shown["messages"]
            assert annotation(entry["message"], "x-opt-message-state") == state
            header = decode_message(entry["message"]).header
            assert header is not None
            assert (header.delivery_count or 0) == count

    serve(talk)


def test_a_claim_is_dead_lettered_with_its_reason() -> None:
    """R-D1: and its dead letter can be claimed in turn."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a")
        await node.claim()
        await node.settle(
            "suspended",
            1,
            deadletter_reason="SparkTaskFailed",
            deadletter_description="five times",
            properties_to_modify={"tried": 5},
        )
        links = await node.client.request_links("q/$DeadLetterQueue/$management")
        dead = ClaimingOwner(node.client, links, "me")
        _, body = await dead.claim()
        assert body["sequence-numbers"].items == [1]
        _, body = await dead.ask("fetch-claims", sequence_numbers=[1])
        properties = decode_message(body["messages"][0]["message"]).application_properties
        assert properties == {
            "DeadLetterReason": "SparkTaskFailed",
            "DeadLetterErrorDescription": "five times",
            "tried": 5,
        }
        status, _ = await dead.settle("suspended", 1)
        assert status == 400
        assert await dead.settle("completed", 1) == (200, {"message-count": 1})

    serve(talk)


def test_an_earlier_epoch_is_409() -> None:
    """R-D1: the text names the owner and both epochs."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus, "a")
        await node.listed(epoch=5)
        answer = await node.client.management_answer(
            node.links,
            "com.peeklock:claim-messages",
            {"owner": "me", "epoch": 4, "message-count": Int(1)},
        )
        properties = answer.application_properties or {}
        assert properties["statusCode"] == 409
        assert properties["errorCondition"] == "com.peeklock:claim-fenced"
        text = properties["statusDescription"]
        assert "'me'" in text
        assert "epoch 5" in text
        assert "epoch 4" in text
        assert (await node.settle("completed", 1))[0] == 200

    serve(talk)


def test_sessions_are_named_with_their_claims() -> None:
    """R-D1."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        sender = await client.sender()
        for name in ("one", "one", "two"):
            await client.send(sender, plain("x", group_id=name))
        node = ClaimingOwner(client, await client.request_links("q/$management"), "me")
        _, body = await node.claim(session_count=Int(1))
        assert body["session-ids"] == ["one", "one"]
        _, body = await node.claim()
        assert body["session-ids"] == ["two"]
        assert (await node.listed())["session-ids"] == ["one", "one", "two"]

    serve(talk, QueueDefinition("q", requires_session=True, batched_store_access=False))


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("claim-messages", {"owner": ""}),
        ("claim-messages", {"owner": "x" * 129}),
        ("claim-messages", {"owner": 5}),
        ("claim-messages", {"epoch": None}),
        ("claim-messages", {"epoch": 0}),
        ("claim-messages", {"message-count": Int(0)}),
        ("claim-messages", {"message-count": Int(100_001)}),
        ("claim-messages", {"max-bytes": -1}),
        ("claim-messages", {"claim-timeout": Uint(0)}),
        ("claim-messages", {"session-count": Int(0)}),
        ("claim-messages", {"upto": 5}),
        ("claim-messages", {"upto": [-1]}),
        ("list-claims", {"epoch": -1}),
        ("list-claims", {"from-sequence-number": "first"}),
        ("list-claims", {"message-count": Int(100_001)}),
        ("fetch-claims", {"sequence-numbers": None}),
        ("fetch-claims", {"sequence-numbers": ["1"]}),
        ("fetch-claims", {"sequence-numbers": [-1]}),
        ("fetch-claims", {"omit-message-body": "no"}),
        ("fetch-claims", {"max-bytes": 0}),
        ("settle-claims", {"disposition-status": "eaten"}),
        ("settle-claims", {"sequence-numbers": Array(LONG, [1] * 100_001)}),
    ],
)
def test_what_makes_no_sense_is_400(operation: str, arguments: dict[str, Any]) -> None:
    """R-D1, R-T2."""
    fine: dict[str, Any] = {
        "owner": "me",
        "epoch": 1,
        "message-count": Int(1),
        "from-sequence-number": 0,
        "sequence-numbers": [1],
        "disposition-status": "completed",
    }

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus)
        name = f"com.peeklock:{operation}"
        status, _ = await node.client.manage(node.links, name, fine)
        assert status in (200, 204)
        status, _ = await node.client.manage(node.links, name, fine | arguments)
        assert status == 400

    serve(talk)


def test_claims_need_the_right_to_listen() -> None:
    """R-D1, R-A3."""
    rule = AuthorizationRule("sender", "s", rights=SEND)

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", rule="sender", key="s")
        node = ClaimingOwner(client, await client.request_links("q/$management"), "me")
        assert (await node.claim())[0] == 401

    serve(talk, rules=[rule])


def test_the_largest_claims_fit_into_one_answer() -> None:
    """R-D1: 10,000 numbers go both ways, in as many frames as they need."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ClaimingOwner.open(bus)
        sender = await node.client.sender()
        await node.client.send(sender, *(plain(str(count)) for count in range(1_000)))
        strange = list(range(1 << 40, (1 << 40) + 9_000))
        _, body = await node.claim(10_000)
        numbers = body["sequence-numbers"].items
        assert len(numbers) == 1_000
        status, body = await node.settle("completed", *strange, *numbers)
        assert (status, body) == (200, {"message-count": 1_000})

    serve(talk)


def test_what_cannot_be_received_cannot_be_claimed() -> None:
    """R-D1: a topic has nothing to take, and what forwards gives to nobody else; dead letters
    of it are there for all, and what was claimed before can be settled."""

    async def talk(bus: AmqpHarness) -> None:
        broker = bus.bench.broker
        await broker.put_topic(TopicDefinition("t"))
        node = await ClaimingOwner.open(bus, "a")
        _, body = await node.claim()
        await broker.put_queue(QueueDefinition("next"))
        await broker.put_queue(QueueDefinition("q", forward_to="next"))
        node = await ClaimingOwner.open(bus)
        assert (await node.claim())[0] == 400
        status, body = await node.settle("completed", *body["sequence-numbers"].items)
        assert (status, body) == (200, {"message-count": 1})
        dead = await ClaimingOwner.open(bus, address="q/$DeadLetterQueue/$management")
        assert (await dead.claim())[0] == 204
        client = await bus.connect()
        await client.put_token("t")
        topic = ClaimingOwner(client, await client.request_links("t/$management"), "me")
        assert (await topic.claim())[0] == 400

    serve(talk)


def test_a_list_that_is_not_whole_says_so() -> None:
    """R-D1, R-P4: what a list does not show is not gone where a partition is missing."""

    async def talk(bus: AmqpHarness) -> None:
        queue = await bus.bench.broker.put_queue(QueueDefinition("p", partitions=4))
        client = await bus.connect()
        await client.put_token("p")
        node = ClaimingOwner(client, await client.request_links("p/$management"), "me")
        assert "missing-partitions" not in await node.listed()
        worker = queue.partitions.workers[2]
        await bus.bench.store.drop(worker.id)  # so that it does not own what it writes to
        listed = await node.listed(epoch=1)
        assert listed["missing-partitions"] == Array(INT, [Int(2)])
        assert len(listed["last-sequence-numbers"].items) == 3

    serve(talk)
