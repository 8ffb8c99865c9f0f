"""Writes a namespace as a deployment template, from which the service itself can be set up."""

from collections.abc import Sequence
from typing import Any, Final

from peeklock.auth.rights import AuthorizationRule, rights_names
from peeklock.configuration.content import (
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredSubscription,
    ConfiguredTopic,
)
from peeklock.configuration.writing import (
    chosen,
    queue_properties,
    rule_properties,
    subscription_properties,
    topic_properties,
)
from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.filter import TrueFilter
from peeklock.entity.rules.rule import Rule

_SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_API_VERSION: Final = "2022-10-01-preview"
_KIND: Final = "Microsoft.ServiceBus/namespaces"
_PARAMETER: Final = "namespaceName"
# What a subscription has when nothing is said.
_TAKES_EVERYTHING: Final = (Rule(DEFAULT_RULE_NAME, TrueFilter()),)
# Said with an empty text in the file; the service takes it for a name that is missing.
_ONLY_WITH_VALUE: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


def template_of(namespace: ConfiguredNamespace) -> dict[str, Any]:
    """Return the whole template; keys are not in it, because the service makes its own."""
    kinds = {queue.definition.path.lower(): "queues" for queue in namespace.queues}
    kinds |= {topic.definition.path.lower(): "topics" for topic in namespace.topics}
    resources = [_namespace()]
    for queue in namespace.queues:
        resources += _queue(queue, kinds)
    for topic in namespace.topics:
        resources += _topic(topic, kinds)
    name = {"type": "string", "defaultValue": namespace.name}
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {_PARAMETER: name},
        "resources": resources,
    }


def _namespace() -> dict[str, Any]:
    return {
        "type": _KIND,
        "apiVersion": _API_VERSION,
        "name": f"[parameters('{_PARAMETER}')]",
        "location": "[resourceGroup().location]",
        "sku": {"name": "Standard", "tier": "Standard"},
    }


def _queue(queue: ConfiguredQueue, kinds: dict[str, str]) -> list[dict[str, Any]]:
    definition = queue.definition
    default = queue_properties(QueueDefinition(definition.path))
    properties = chosen(queue_properties(definition), default)
    path = [definition.path]
    resource = _resource("queues", path, properties, _targets(properties, kinds, path[0]))
    return [resource, *_keys("queues", path, queue.rules)]


def _topic(topic: ConfiguredTopic, kinds: dict[str, str]) -> list[dict[str, Any]]:
    definition = topic.definition
    default = topic_properties(TopicDefinition(definition.path))
    path = [definition.path]
    resources = [_resource("topics", path, chosen(topic_properties(definition), default))]
    resources += _keys("topics", path, topic.rules)
    for subscription in topic.subscriptions:
        resources += _subscription(subscription, kinds)
    return resources


def _subscription(
    subscription: ConfiguredSubscription, kinds: dict[str, str]
) -> list[dict[str, Any]]:
    definition = subscription.definition
    default = subscription_properties(SubscriptionDefinition(definition.topic, definition.name))
    properties = chosen(subscription_properties(definition), default)
    path = [definition.topic, definition.name]
    resources = [
        _resource("topics/subscriptions", path, properties, _targets(properties, kinds, path[0]))
    ]
    if subscription.rules == _TAKES_EVERYTHING:
        return resources
    for rule in subscription.rules:
        resources.append(_resource("topics/subscriptions/rules", [*path, rule.name], _rule(rule)))
    return resources


def _rule(rule: Rule) -> dict[str, Any]:
    properties = rule_properties(rule)
    kind = properties["FilterType"]
    # The service has no kinds for the two that are always the same; it writes them as SQL.
    if kind in ("True", "False"):
        expression = "1=1" if kind == "True" else "1=0"
        properties["SqlFilter"] = {"SqlExpression": expression}
        kind = "Sql"
    return properties | {"FilterType": f"{kind}Filter"}


def _keys(kind: str, path: list[str], rules: tuple[AuthorizationRule, ...]) -> list[dict[str, Any]]:
    return [
        _resource(
            f"{kind}/authorizationRules", [*path, rule.name], {"Rights": rights_names(rule.rights)}
        )
        for rule in rules
    ]


def _resource(
    kind: str, path: list[str], properties: dict[str, Any], targets: Sequence[str] = ()
) -> dict[str, Any]:
    above = kind.rpartition("/")[0]
    return {
        "type": f"{_KIND}/{kind}",
        "apiVersion": _API_VERSION,
        "name": f"[concat(parameters('{_PARAMETER}'), {_quoted('/' + '/'.join(_names(path)))})]",
        "properties": {
            _small(key): _small_keys(value)
            for key, value in properties.items()
            if value or key not in _ONLY_WITH_VALUE
        },
        "dependsOn": [_identity(above, path[:-1]), *targets],
    }


def _identity(kind: str, path: list[str]) -> str:
    names = "".join(f", {_quoted(name)}" for name in _names(path))
    whole = f"{_KIND}/{kind}" if kind else _KIND
    return f"[resourceId('{whole}', parameters('{_PARAMETER}'){names})]"


def _targets(properties: dict[str, Any], kinds: dict[str, str], own: str) -> list[str]:
    """Return what must be there before: where messages are forwarded to."""
    paths = [str(properties[key]) for key in _ONLY_WITH_VALUE if properties.get(key)]
    return [
        _identity(kinds[path.lower()], [path])
        for path in dict.fromkeys(paths)
        if path.lower() in kinds and path.lower() != own.lower()
    ]


def _names(path: list[str]) -> list[str]:
    # A slash would begin the next name.
    return [name.replace("/", "~") for name in path]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _small_keys(value: Any) -> Any:
    if not isinstance(value, dict):
        return _escaped(value)
    return {
        _small(key): {name: _escaped(item) for name, item in inner.items()}
        if key == "Properties"
        else _small_keys(inner)
        for key, inner in value.items()
    }


def _escaped(value: Any) -> Any:
    """Keep a text that looks like an expression a text."""
    is_like_one = isinstance(value, str) and value.startswith("[") and value.endswith("]")
    return f"[{value}" if is_like_one else value


def _small(key: str) -> str:
    return key[:1].lower() + key[1:]
