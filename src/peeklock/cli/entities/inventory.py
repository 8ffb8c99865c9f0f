"""What a running broker has, as a configuration: what export writes and import compares with."""

from typing import Any, Final, final

from peeklock.cli.connection import ConnectionProblem
from peeklock.client.administration import places
from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.atom import Description
from peeklock.configuration.content import (
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredSubscription,
    ConfiguredTopic,
)
from peeklock.configuration.queue import read_queue
from peeklock.configuration.section import Section
from peeklock.configuration.topic import read_topic
from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    NO_SIZE_LIMIT,
    PARTITIONS_DEFAULT,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule

SIZE: Final = "MaxSizeInMegabytes"
_MEGABYTES: Final = 1024


@final
class Inventory:
    """Reads descriptions as the configuration file's readers do, so that both can be compared."""

    def __init__(self, admin: AdministrationApi) -> None:
        self._admin = admin

    def whole(self) -> ConfiguredNamespace:
        """Return the whole namespace."""
        queues = [
            ConfiguredQueue(queue_of(found), found.keys)
            for found in self._admin.every(places.QUEUES)
        ]
        topics = [
            ConfiguredTopic(topic_of(found), found.keys, self._subscriptions(found.name))
            for found in self._admin.every(places.TOPICS)
        ]
        return ConfiguredNamespace(
            self._admin.namespace()["Name"], (), tuple(queues), tuple(topics)
        )

    def _subscriptions(self, topic: str) -> tuple[ConfiguredSubscription, ...]:
        found = list(self._admin.every(places.subscriptions(topic)))
        return tuple(
            ConfiguredSubscription(
                subscription_of(topic, one),
                _rules(topic, one, list(self._admin.every(places.rules(topic, one.name)))),
            )
            for one in found
        )


def queue_of(found: Description) -> QueueDefinition:
    """Read the description of a queue."""
    problems: list[str] = []
    section = Section(f"the queue '{found.name}'", _entry(found), problems)
    definition = read_queue(section).definition
    _refuse(problems)
    return definition


def topic_of(found: Description) -> TopicDefinition:
    """Read the description of a topic."""
    return _topic(found.name, found, [])[0]


def subscription_of(topic: str, found: Description) -> SubscriptionDefinition:
    """Read the description of a subscription."""
    return _topic(topic, None, [_entry(found)])[1][0].definition


def _rules(topic: str, found: Description, rules: list[Description]) -> tuple[Rule, ...]:
    for rule in rules:
        if _has_no_words(rule.values):
            raise ConnectionProblem(
                f"the rule '{rule.name}' of '{topic}/Subscriptions/{found.name}' has parameters, "
                "or asks for a value that is no text, number or boolean, which no file can say"
            )
    entry = _entry(found) | {
        "Rules": [{"Name": rule.name, "Properties": rule.values} for rule in rules]
    }
    # A file without rules would be given the one that takes everything; this one takes nothing, as
    # a subscription does whose rules were all taken away.
    if not rules:
        return (Rule(DEFAULT_RULE_NAME, FalseFilter()),)
    return _topic(topic, None, [entry])[1][0].rules


def _has_no_words(rule: dict[str, Any]) -> bool:
    statements = [rule.get("SqlFilter") or {}, rule.get("Action") or {}]
    asked = (rule.get("CorrelationFilter") or {}).get("Properties", {})
    return any("Parameters" in statement for statement in statements) or any(
        isinstance(value, dict) for value in asked.values()
    )


def _topic(
    name: str, found: Description | None, subscriptions: list[dict[str, Any]]
) -> tuple[TopicDefinition, tuple[ConfiguredSubscription, ...]]:
    problems: list[str] = []
    entry = {"Name": name} if found is None else _entry(found)
    section = Section(f"the topic '{name}'", entry | {"Subscriptions": subscriptions}, problems)
    read = read_topic(section)
    _refuse(problems)
    return read.definition, read.subscriptions


def _entry(found: Description) -> dict[str, Any]:
    properties = dict(found.values)
    if SIZE in properties:
        properties[SIZE] = _quota(properties)
    return {"Name": found.name, "Properties": properties}


def _quota(properties: dict[str, Any]) -> int:
    """Read a quota out of what the broker shows: the size of all partitions together, and the
    service's least one for an entity that has none."""
    partitions = PARTITIONS_DEFAULT if properties.get("EnablePartitioning") else 1
    megabytes = int(properties[SIZE]) // int(properties.get("PartitionCount") or partitions)
    return NO_SIZE_LIMIT if megabytes == _MEGABYTES else megabytes


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConnectionProblem("\n".join(problems))
