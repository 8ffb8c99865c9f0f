"""What a configuration file says, as values."""

from dataclasses import dataclass, field
from typing import Final, final

from peeklock.auth.issuer import TokenIssuer
from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.rules.rule import Rule

DEFAULT_NAMESPACE: Final = "sbemulatorns"


@final
@dataclass(frozen=True, slots=True)
class ConfiguredQueue:
    """A queue that the file asks for, and the rules that hold on it alone."""

    definition: QueueDefinition
    rules: tuple[AuthorizationRule, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ConfiguredSubscription:
    """A subscription that the file asks for, with its rules in the order of the file.

    Where the file gives none, there is the one that takes everything, and `gives_rules` is False:
    rules that an existing subscription got from its clients need not go.
    """

    definition: SubscriptionDefinition
    rules: tuple[Rule, ...]
    gives_rules: bool = True


@final
@dataclass(frozen=True, slots=True)
class ConfiguredTopic:
    """A topic that the file asks for, the rules that hold on it, and its subscriptions."""

    definition: TopicDefinition
    rules: tuple[AuthorizationRule, ...] = ()
    subscriptions: tuple[ConfiguredSubscription, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ConfiguredNamespace:
    """A namespace and all that it holds; where nobody gives rules it has the development rule."""

    name: str = DEFAULT_NAMESPACE
    rules: tuple[AuthorizationRule, ...] = field(default_factory=lambda: (development_rule(),))
    queues: tuple[ConfiguredQueue, ...] = ()
    topics: tuple[ConfiguredTopic, ...] = ()
    issuers: tuple[TokenIssuer, ...] = ()

    def all_rules(self) -> list[AuthorizationRule]:
        """List the authorization rules of the namespace, of its queues and of its topics."""
        rules = list(self.rules)
        for queue in self.queues:
            rules += queue.rules
        for topic in self.topics:
            rules += topic.rules
        return rules


@final
@dataclass(slots=True, init=False)
class Configuration:
    """The namespaces that are served, at least one; without a file it is an empty one."""

    namespaces: Final[tuple[ConfiguredNamespace, ...]]

    def __init__(self, namespaces: tuple[ConfiguredNamespace, ...] = ()) -> None:
        self.namespaces = namespaces or (ConfiguredNamespace(),)

    def all_rules(self) -> list[AuthorizationRule]:
        """List the authorization rules of all namespaces."""
        return [rule for namespace in self.namespaces for rule in namespace.all_rules()]

    def chosen(self, name: str | None) -> ConfiguredNamespace:
        """Return the namespace with this name, or the only one; otherwise it is a LookupError."""
        if name is None and len(self.namespaces) == 1:
            return self.namespaces[0]
        names = [namespace.name for namespace in self.namespaces]
        there = ", ".join(f"'{each}'" for each in names)
        if name is None:
            raise LookupError(f"one of several namespaces must be chosen; there are: {there}")
        for namespace in self.namespaces:
            if namespace.name.lower() == name.lower():
                return namespace
        raise LookupError(
            f"there is no namespace '{name}' in the configuration; there are: {there}"
        )


class ConfigurationError(Exception):
    """A configuration that cannot be served; each problem names its path in the file."""

    def __init__(self, origin: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{origin}: {problem}" for problem in problems))
        self.origin = origin
        self.problems = problems
