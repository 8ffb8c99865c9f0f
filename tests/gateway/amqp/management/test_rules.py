"""Rules of a subscription over AMQP: added, removed and listed in the clients' own forms."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.types import Described, Int, Symbol, Timestamp, Uint, Ulong
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.entity.definition import SubscriptionDefinition, TopicDefinition
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, bodies, plain, serve

SUBSCRIPTION = "t/Subscriptions/s"
LISTENER = AuthorizationRule("listener", "listening", rights=LISTEN)
SENDER = AuthorizationRule("sender", "sending", rights=SEND)


class ManagementLinks:
    """A client at the management node of the subscription `s` of the topic `t`."""

    def __init__(self, client: Client, links: tuple[Link, Link]) -> None:
        self.client = client
        self.links = links

    @classmethod
    async def open(cls, bus: AmqpHarness, rules: list[Rule] | None = None) -> ManagementLinks:
        broker = bus.bench.broker
        await broker.put_topic(TopicDefinition("t", batched_store_access=False), [LISTENER, SENDER])
        await broker.put_subscription(SubscriptionDefinition("t", "s"), rules)
        client = await bus.authorized("")
        return cls(client, await client.request_links(f"{SUBSCRIPTION}/$management"))

    async def ask(self, operation: str, **arguments: Any) -> tuple[int, Any]:
        body = {name.replace("_", "-"): value for name, value in arguments.items()}
        return await self.client.manage(self.links, operation, body)

    async def refusal(self, operation: str, **arguments: Any) -> tuple[int, str, str]:
        body = {name.replace("_", "-"): value for name, value in arguments.items()}
        answer = await self.client.management_answer(self.links, operation, body)
        properties = answer.application_properties
        assert properties is not None
        return (
            properties["statusCode"],
            properties["errorCondition"],
            properties["statusDescription"],
        )

    async def add(self, name: str, **description: Any) -> tuple[int, Any]:
        described = {key.replace("_", "-"): value for key, value in description.items()}
        return await self.ask("add-rule", rule_name=name, rule_description=described)

    async def rules(self, skip: int = 0, top: int = 100) -> list[list[Any]]:
        status, body = await self.ask("enumerate-rules", skip=Int(skip), top=Int(top))
        if status == 204:
            assert body is None
            return []
        described = [entry["rule-description"] for entry in body["rules"]]
        assert {rule.descriptor for rule in described} == {Ulong(1335734829060)}
        return [rule.value for rule in described]


def sql(expression: str) -> dict[str, str]:
    return {"expression": expression}


def test_a_subscription_begins_with_its_default_rule() -> None:
    """True filters have a form of their own, and no action is still an action."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        (rule,) = await node.rules()
        assert rule == [
            Described(Ulong(83483426823), []),
            Described(Ulong(1335734829061), []),
            "$Default",
            Timestamp(bus.clock.now()),
        ]
        assert isinstance(rule[3], Timestamp)

    serve(talk)


def test_rules_are_added_and_come_back_as_they_were_given() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus, [Rule("none", FalseFilter())])
        added = await node.add("sql", sql_filter=sql("a = 1"), sql_rule_action=sql("SET b = 'x'"))
        assert added == (200, {})
        await node.add("true", sql_filter=sql("1=1"), sql_rule_action=None)
        await node.add(
            "correlation",
            correlation_filter={
                "correlation-id": "c",
                "label": "l",
                "to": None,
                "properties": {
                    "number": Uint(3),
                    "instant": Timestamp(5),
                    "span": Described(Symbol("com.microsoft:timespan"), 7),
                },
            },
        )
        # By their names, and not as they came.
        correlation, none, written, true = await node.rules()
        assert none[0] == Described(Ulong(83483426824), [])
        assert written[:3] == [
            Described(Ulong(83483426822), ["a = 1", 20]),
            Described(Ulong(1335734829062), ["SET b = 'x'", 20]),
            "sql",
        ]
        assert true[0] == Described(Ulong(83483426822), ["1=1", 20])
        assert true[1] == Described(Ulong(1335734829061), [])
        assert correlation[0].descriptor == Ulong(83483426825)
        *fields, properties = correlation[0].value
        assert fields == ["c", None, None, None, "l", None, None, None]
        assert properties["number"] == 3
        assert properties["instant"] == 5
        assert isinstance(properties["instant"], Timestamp)
        assert properties["span"] == Described(Symbol("com.microsoft:timespan"), 7)

    serve(talk)


def test_rules_decide_from_their_adding_on() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        client = node.client
        assert await node.ask("remove-rule", rule_name="$default") == (200, {})
        sender = await client.sender("t")
        await client.send(sender, plain("lost", subject="x"))
        await node.add("x", sql_filter=sql("sys.Label = 'x'"))
        await client.send(sender, plain("taken", subject="x"), plain("other", subject="y"))
        await node.ask("remove-rule", rule_name="x")
        await client.send(sender, plain("late", subject="x"))
        link = await client.receiver(SUBSCRIPTION, credit=9)
        assert bodies(client.arrived(link)) == ["taken"]
        # The default rule can be had again.
        assert (await node.add("$Default", sql_filter=sql("1=1")))[0] == 200

    serve(talk)


def test_rules_are_listed_in_pages_that_end() -> None:
    """JavaScript's client asks until there is nothing more."""

    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        for number in range(4):
            await node.add(f"r{number}", sql_filter=sql("1=1"))
        assert [rule[2] for rule in await node.rules(skip=1, top=2)] == ["r0", "r1"]
        assert [rule[2] for rule in await node.rules(skip=3)] == ["r2", "r3"]
        assert await node.rules(skip=5) == []

    serve(talk)


def test_names_are_there_once() -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        description = {"sql-filter": sql("1=1")}
        status, condition, text = await node.refusal(
            "add-rule", rule_name="$DEFAULT", rule_description=description
        )
        assert (status, condition) == (409, "com.microsoft:entity-already-exists")
        assert text.startswith("The messaging entity 'ns:Topic:t|s|$DEFAULT' already exists.")
        status, condition, _ = await node.refusal("remove-rule", rule_name="none")
        assert (status, condition) == (404, "amqp:not-found")

    serve(talk)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'rule-name'"),
        ({"rule_name": "a/b", "rule_description": {"sql-filter": sql("1=1")}}, "'rule-name'"),
        ({"rule_name": "r"}, "'rule-description' must be a map"),
        ({"rule_name": "r", "rule_description": {}}, "'rule-description' must hold either"),
        (
            {
                "rule_name": "r",
                "rule_description": {
                    "sql-filter": sql("1=1"),
                    "correlation-filter": {"label": "a"},
                },
            },
            "'rule-description' must hold either",
        ),
        ({"rule_name": "r", "rule_description": {"sql-filter": {}}}, "'expression'"),
        ({"rule_name": "r", "rule_description": {"sql-filter": "1=1"}}, "'sql-filter'"),
        (
            {"rule_name": "r", "rule_description": {"sql-filter": sql("a = = 1")}},
            "(line 1, column 5)",
        ),
        (
            {
                "rule_name": "r",
                "rule_description": {
                    "sql-filter": sql("1=1"),
                    "sql-rule-action": sql("DROP TABLE"),
                },
            },
            "Failed to parse the rule 'r'",
        ),
        (
            {
                "rule_name": "r",
                "rule_description": {
                    "sql-filter": sql("1=1"),
                    "sql-rule-action": {"expression": 3},
                },
            },
            "'expression'",
        ),
        ({"rule_name": "r", "rule_description": {"correlation-filter": {}}}, "at least one"),
        (
            {"rule_name": "r", "rule_description": {"correlation-filter": {"label": 3}}},
            "'label'",
        ),
        (
            {
                "rule_name": "r",
                "rule_description": {"correlation-filter": {"properties": {"p": []}}},
            },
            "the property p has a type",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused(arguments: dict[str, Any], words: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, text = await node.refusal("add-rule", **arguments)
        assert (status, condition) == (400, "com.microsoft:argument-error")
        assert words in text

    serve(talk)


@pytest.mark.parametrize("operation", ["add-rule", "remove-rule", "enumerate-rules"])
@pytest.mark.parametrize("address", ["q", "t", f"{SUBSCRIPTION}/$DeadLetterQueue"])
def test_only_subscriptions_have_rules(operation: str, address: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        node.links = await node.client.request_links(f"{address}/$management")
        status, condition, text = await node.refusal(operation, rule_name="r")
        assert (status, condition) == (400, "amqp:not-allowed")
        assert "The operation needs a subscription" in text

    serve(talk)


def test_the_right_to_listen_is_enough() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await ManagementLinks.open(bus)
        for rule, expected in ((LISTENER, 200), (SENDER, 401)):
            client = await bus.connect()
            await client.put_token(SUBSCRIPTION, rule=rule.name, key=rule.primary_key)
            node = ManagementLinks(
                client, await client.request_links(f"{SUBSCRIPTION}/$management")
            )
            assert (await node.add(rule.name, sql_filter=sql("1=1")))[0] == expected
            assert (await node.ask("enumerate-rules", skip=Int(0), top=Int(9)))[0] == expected
            assert (await node.ask("remove-rule", rule_name=rule.name))[0] == expected

    serve(talk)


@pytest.mark.parametrize("operation", ["schedule-message", "cancel-scheduled-message"])
def test_nothing_is_scheduled_in_a_subscription(operation: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        node = await ManagementLinks.open(bus)
        status, condition, text = await node.refusal(operation, messages=[], sequence_numbers=[])
        assert (status, condition) == (400, "amqp:not-allowed")
        assert "schedule them in its topic" in text

    serve(talk)
