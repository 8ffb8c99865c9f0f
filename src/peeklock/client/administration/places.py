"""Where entities, rules and lists of them are in the administration API."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.client.administration import atom


@final
@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Where an entity or a rule is, or a list of them."""

    kind: str
    path: str

    @property
    def told(self) -> str:
        """How people speak of it."""
        return f"the {self.kind} '{self.path}'"


def queue(name: str) -> ResourcePath:
    """Return where a queue is."""
    return ResourcePath(atom.QUEUE, name)


def topic(name: str) -> ResourcePath:
    """Return where a topic is."""
    return ResourcePath(atom.TOPIC, name)


def subscription(topic_name: str, name: str) -> ResourcePath:
    """Return where a subscription is."""
    return ResourcePath(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions/{name}")


def rule(topic_name: str, subscription_name: str, name: str) -> ResourcePath:
    """Return where a rule is."""
    return ResourcePath(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules/{name}")


QUEUES: Final = ResourcePath(atom.QUEUE, "$Resources/queues")
TOPICS: Final = ResourcePath(atom.TOPIC, "$Resources/topics")


def subscriptions(topic_name: str) -> ResourcePath:
    """Return where the subscriptions of a topic are."""
    return ResourcePath(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions")


def rules(topic_name: str, subscription_name: str) -> ResourcePath:
    """Return where the rules of a subscription are."""
    return ResourcePath(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules")
