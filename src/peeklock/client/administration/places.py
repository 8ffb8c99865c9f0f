"""Where entities, rules and lists of them are in the administration API."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.client.administration import atom


@final
@dataclass(slots=True, init=False)
class Place:
    """Where an entity or a rule is, or a list of them."""

    kind: Final[str]
    path: Final[str]

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.path = path

    @property
    def told(self) -> str:
        """How people speak of it."""
        return f"the {self.kind} '{self.path}'"


def queue(name: str) -> Place:
    """Say where a queue is."""
    return Place(atom.QUEUE, name)


def topic(name: str) -> Place:
    """Say where a topic is."""
    return Place(atom.TOPIC, name)


def subscription(topic_name: str, name: str) -> Place:
    """Say where a subscription is."""
    return Place(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions/{name}")


def rule(topic_name: str, subscription_name: str, name: str) -> Place:
    """Say where a rule is."""
    return Place(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules/{name}")


QUEUES: Final = Place(atom.QUEUE, "$Resources/queues")
TOPICS: Final = Place(atom.TOPIC, "$Resources/topics")


def subscriptions(topic_name: str) -> Place:
    """Say where the subscriptions of a topic are."""
    return Place(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions")


def rules(topic_name: str, subscription_name: str) -> Place:
    """Say where the rules of a subscription are."""
    return Place(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules")
