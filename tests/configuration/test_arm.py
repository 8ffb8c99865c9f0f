"""Deployment templates: the entities of a namespace, however their names are put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peeklock.auth.rights import LISTEN, SEND
from peeklock.configuration.arm import parse_template
from peeklock.configuration.arm_writing import template_of
from peeklock.configuration.content import ConfigurationError, ConfiguredNamespace
from peeklock.configuration.writing import document_of
from peeklock.entity.definition import MEGABYTE, QueueDefinition
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import SqlFilter, TrueFilter
from tests.configuration.test_writing import WHOLE

BUS = "Microsoft.ServiceBus/namespaces"


def resource(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    properties = more.pop("properties", {})
    return {
        "type": f"{BUS}/{kind}".rstrip("/"),
        "apiVersion": "2021-11-01",
        "name": name,
        "properties": properties,
        **more,
    }


def template(*resources: Any, **more: Any) -> str:
    return json.dumps({"contentVersion": "1.0.0.0", "resources": list(resources), **more})


def parsed(text: str, **options: Any) -> ConfiguredNamespace:
    return parse_template(text, "main.json", **options).namespace


def problems(text: str, **options: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text, **options)
    return caught.value.problems


def test_resources_at_the_top_are_named_by_their_namespace() -> None:
    found = parsed(
        template(
            resource("", "ns"),
            resource(
                "queues",
                "ns/orders~eu",
                properties={
                    "lockDuration": "PT30S",
                    "maxSizeInMegabytes": 1024,
                    "requiresSession": True,
                    "enableExpress": False,
                    "status": "Active",
                    "countDetails": {"activeMessageCount": 5},
                },
            ),
            resource(
                "queues/authorizationRules", "ns/orders~eu/shop", properties={"rights": ["Send"]}
            ),
            resource("topics", "ns/events"),
            resource("topics/subscriptions", "ns/events/all"),
            resource("topics/subscriptions", "ns/events/some"),
            resource(
                "topics/subscriptions/rules",
                "ns/events/some/big",
                properties={
                    "filterType": "SqlFilter",
                    "sqlFilter": {"sqlExpression": "amount > 5", "requiresPreprocessing": False},
                    "action": {"sqlExpression": "SET a = 1"},
                },
            ),
            resource(
                "topics/subscriptions/rules",
                "ns/events/some/german",
                properties={
                    "filterType": "CorrelationFilter",
                    "correlationFilter": {"label": "x", "properties": {"country": "de"}},
                },
            ),
            resource(
                "topics/AuthorizationRules",
                "ns/events/r",
                properties={"rights": ["Listen", "Send"]},
            ),
        )
    )
    assert found.name == "ns"
    (queue,) = found.queues
    assert queue.definition == QueueDefinition(
        "orders/eu", lock_duration_ms=30_000, size_max=1024 * MEGABYTE, requires_session=True
    )
    assert [(rule.name, rule.primary_key, rule.rights) for rule in queue.rules] == [
        ("shop", "", SEND)
    ]
    (topic,) = found.topics
    assert topic.rules[0].rights == SEND | LISTEN
    everything, some = topic.subscriptions
    assert (everything.gives_rules, some.gives_rules) == (False, True)
    big, german = some.rules
    assert (big.filter, big.action is not None) == (SqlFilter("amount > 5"), True)
    assert german.filter == CorrelationFilter(label="x", properties={"country": "de"})


def test_resources_inside_others_continue_their_names() -> None:
    rule = {"type": "rules", "name": "$Default", "properties": {"filterType": "SqlFilter"}}
    rule["properties"] = {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "1=1"}}
    subscription = {"type": "subscriptions", "name": "all", "resources": [rule]}
    topic = {"type": "topics", "name": "events", "resources": [subscription]}
    queue = {"type": "queues", "name": "[parameters('queue')]", "properties": {}}
    text = template(
        resource("", "[variables('ns')]", resources=[queue, topic]),
        parameters={"queue": {"type": "string", "defaultValue": "orders"}},
        variables={"ns": "[concat('my', '-', 'ns')]"},
    )
    found = parsed(text)
    assert found.name == "my-ns"
    assert found.queues[0].definition.path == "orders"
    assert found.topics[0].subscriptions[0].rules[0].filter == TrueFilter()
    assert parsed(text, parameters={"QUEUE": "other"}).queues[0].definition.path == "other"


@pytest.mark.parametrize(
    "name",
    [
        "[concat(parameters('ns'), '/', variables('queue'))]",
        "[format('{0}/{1}', parameters('ns'), 'q')]",
        "[ concat( 'n' , 's/' , variables('names')[0].short ) ]",
        "[concat('ns/', variables('lists')[1])]",
        "[CONCAT(Parameters('NS'), '/q')]",
        "ns/q",
    ],
)
def test_names_are_put_together(name: str) -> None:
    found = parsed(
        template(
            resource("queues", name),
            parameters={"ns": {"type": "string", "defaultValue": "ns"}},
            variables={
                "queue": "[format('{0}', variables('plain'))]",
                "plain": "q",
                "names": [{"short": "q"}],
                "lists": "[concat(variables('one'), variables('one'))]",
                "one": ["q"],
            },
        )
    )
    assert (found.name, found.queues[0].definition.path) == ("ns", "q")


def test_parameters_have_types() -> None:
    text = template(
        resource(
            "queues",
            "ns/q",
            properties={
                "maxDeliveryCount": "[parameters('count')]",
                "requiresSession": "[parameters('sessions')]",
                "userMetadata": "[[not an expression]",
            },
        ),
        parameters={"count": {"type": "int"}, "sessions": {"type": "bool", "defaultValue": False}},
    )
    queue = parsed(text, parameters={"count": "7", "sessions": "true"}).queues[0].definition
    assert (queue.delivery_count_max, queue.requires_session) == (7, True)
    assert queue.user_metadata == "[not an expression]"
    (problem,) = problems(text, parameters={"count": "many"})
    assert problem == "resources[0]: the parameter 'count' must be of the type int"
    (problem,) = problems(text)
    assert "the parameter 'count' has no default and was not given" in problem


def test_a_module_is_a_template_inside() -> None:
    inner = {
        "parameters": {"ns": {"type": "string"}},
        "resources": [resource("queues", "[format('{0}/q', parameters('ns'))]")],
    }
    outer = {
        "type": "Microsoft.Resources/deployments",
        "name": "bus",
        "properties": {
            "parameters": {"ns": {"value": "[parameters('name')]"}},
            "template": inner,
        },
    }
    text = template(outer, parameters={"name": {"type": "string", "defaultValue": "ns"}})
    assert parsed(text).queues[0].definition.path == "q"
    inner["resources"] = [resource("queues", "ns")]
    (problem,) = problems(template(outer, parameters={"name": {"defaultValue": "ns"}}))
    assert problem.startswith("resources[0].properties.template.resources[0].name: 'ns' has 1 part")


def test_named_resources_conditions_and_strangers() -> None:
    """What is not a Service Bus entity is left out and named; what is not deployed is not there."""
    found = parse_template(
        json.dumps(
            {
                "languageVersion": "2.0",
                "resources": {
                    "bus": {"existing": True, "type": BUS, "name": "ns"},
                    "yes": resource("queues", "ns/yes", condition=True),
                    "no": resource("queues", "ns/no", condition="[parameters('wanted')]"),
                    "disk": {
                        "type": "Microsoft.Storage/storageAccounts",
                        "name": "[uniqueString()]",
                    },
                    "keys": resource("authorizationRules", "ns/root"),
                },
                "parameters": {"wanted": {"type": "bool", "defaultValue": False}},
            }
        ),
        "main.json",
    )
    assert [queue.definition.path for queue in found.namespace.queues] == ["yes"]
    assert found.left_out == (
        "resources.disk: Microsoft.Storage/storageAccounts",
        "resources.keys: Microsoft.ServiceBus/namespaces/authorizationRules",
    )


def test_one_of_several_namespaces_is_chosen() -> None:
    text = template(resource("queues", "one/a"), resource("queues", "two/b"))
    assert parsed(text, namespace="TWO").queues[0].definition.path == "b"
    assert "'one', 'two'" in problems(text)[0]
    assert "it has: none" in problems(text, namespace="three")[0]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            resource("queues", "[concat(uniqueString(resourceGroup().id), '/q')]"),
            "the function uniqueString() is not known here; concat, format, parameters, variables",
        ),
        (resource("queues", "[resourceGroup().name]"), "the function resourceGroup()"),
        (resource("queues", "[parameters('no')]"), "there is no parameter 'no'"),
        (resource("queues", "[variables('no')]"), "there is no variable 'no'"),
        (resource("queues", "[variables('round')]"), "refers to itself"),
        (resource("queues", "[parameters(5)]"), "parameters() takes a text"),
        (resource("queues", "[variables('map').no]"), "there is nothing at 'no'"),
        (resource("queues", "[concat('a'"), "'[concat('a'' has 1 parts"),
        (resource("queues", "[concat('a']"), "it ends too early"),
        (resource("queues", "[concat('a') 'b']"), "''b'' is unexpected"),
        (resource("queues", "[concat('a' 'b')]"), "')' is missing"),
        (resource("queues", "[a + b]"), "cannot be read"),
        (resource("queues", "[,]"), "',' is unexpected"),
        (resource("queues", "[format('{0:D3}', 5)]"), "more than plain places"),
        (resource("queues", "[format('{1}', 5)]"), "a place {1} without a value"),
        (resource("queues", "[concat(variables('map'), 'x')]"), "can be put together"),
        (resource("queues", "[parameters('computed')]"), "'computed' was not given, and the"),
        (resource("queues", "ns/a/b"), "has 3 parts"),
        (resource("queues", "ns/q", copy={"name": "loop", "count": 3}), "copies in a loop"),
        (resource("queues", "ns/q", properties=[]), ""),
        (resource("queues", "ns/q", properties={"lockduration": 5}), "is not a known key"),
        (
            resource("queues", "ns/q", properties={"lockDuration": "PT1H"}),
            "Properties.LockDuration",
        ),
        (resource("topics/subscriptions", "ns/t/s"), "'ns/t' above it is not in the template"),
        (resource("queues/authorizationRules", "ns/q/r"), "'ns/q' above it"),
        (5, "must be an object"),
        (
            {"type": "Microsoft.Resources/deployments", "name": "x", "properties": {}},
            "no template in it",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(broken: Any, said: str) -> None:
    if said == "":
        assert parsed(template(broken)).queues
        return
    found = problems(
        template(
            broken,
            parameters={"computed": {"type": "string", "defaultValue": "[uniqueString('x')]"}},
            variables={"round": "[variables('round')]", "map": {"a": 1}},
        )
    )
    assert any(problem.startswith("resources[0]") and said in problem for problem in found), found


@pytest.mark.parametrize("rights", [None, [], ["Fly"], "Send"])
def test_rights_are_checked(rights: Any) -> None:
    rule = resource("queues/authorizationRules", "ns/q/r", properties={"rights": rights})
    found = problems(template(resource("queues", "ns/q"), rule))
    assert found[0].startswith("resources[1].properties.rights: ")


def test_other_files_are_told_apart() -> None:
    assert problems("{}") == ["is not a deployment template: it has no resources"]
    assert "is not JSON" in problems("{")[0]
    assert problems('{"resources": 5}')[0] == "resources: must be a list"
    text = template(resource("queues", "ns/q"))
    assert problems(text, parameters={"x": "y"}) == ["there is no parameter 'x'"]
    twice = template(resource("queues", "ns/q"), resource("topics", "ns/Q"))
    assert "is the name of a queue too" in problems(twice)[0]


def test_what_is_written_is_read_again() -> None:
    """All but the keys, which no template has."""
    found = parse_template(json.dumps(template_of(WHOLE)), "main.json")
    assert found.left_out == ()
    assert without_keys(found.namespace) == without_keys(WHOLE)


def without_keys(namespace: ConfiguredNamespace) -> Any:
    document = document_of(namespace)
    (entry,) = document["UserConfig"]["Namespaces"]
    for entity in [*entry["Queues"], *entry["Topics"]]:
        for rule in entity.get("AuthorizationRules", []):
            rule.pop("PrimaryKey")
            rule.pop("SecondaryKey", None)
    return document


def test_forwarding_waits_for_its_destination() -> None:
    first = {"forwardTo": "second"}
    text = template(
        resource("queues", "ns/first", properties=first), resource("topics", "ns/second")
    )
    written = template_of(parsed(text))["resources"][1]
    assert written["dependsOn"] == [
        f"[resourceId('{BUS}', parameters('namespaceName'))]",
        f"[resourceId('{BUS}/topics', parameters('namespaceName'), 'second')]",
    ]
