"""What a configuration file says, as values."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.entity.definition import QueueDefinition

DEFAULT_NAMESPACE: Final = "sbemulatorns"


@final
@dataclass(slots=True, init=False)
class ConfiguredQueue:
    """A queue that the file asks for, and the rules that hold on it alone."""

    definition: Final[QueueDefinition]
    rules: Final[tuple[AuthorizationRule, ...]]

    def __init__(
        self, definition: QueueDefinition, rules: tuple[AuthorizationRule, ...] = ()
    ) -> None:
        self.definition = definition
        self.rules = rules


@final
@dataclass(slots=True, init=False)
class Configuration:
    """The namespace that is served; without a file it has no queues and the development rule."""

    namespace: Final[str]
    rules: Final[tuple[AuthorizationRule, ...]]
    queues: Final[tuple[ConfiguredQueue, ...]]

    def __init__(
        self,
        namespace: str = DEFAULT_NAMESPACE,
        rules: tuple[AuthorizationRule, ...] | None = None,
        queues: tuple[ConfiguredQueue, ...] = (),
    ) -> None:
        self.namespace = namespace
        self.rules = (development_rule(),) if rules is None else rules
        self.queues = queues

    def all_rules(self) -> list[AuthorizationRule]:
        """List the rules of the namespace and of its queues."""
        return [*self.rules, *(rule for queue in self.queues for rule in queue.rules)]


class ConfigurationError(Exception):
    """A configuration that cannot be served; each problem names its path in the file."""

    def __init__(self, origin: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{origin}: {problem}" for problem in problems))
        self.origin = origin
        self.problems = problems
