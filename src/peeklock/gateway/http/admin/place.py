"""What a request of an administration client is about, read from its path (protocol 9.1)."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    is_entity_name,
    is_entity_path,
    is_rule_name,
)
from peeklock.gateway.http.request import HttpRequest

NAMESPACE: Final = "namespace"
QUEUES: Final = "queues"
TOPICS: Final = "topics"
ENTITY: Final = "entity"  # a queue or a topic: they share their names
SUBSCRIPTIONS: Final = "subscriptions"
SUBSCRIPTION: Final = "subscription"
RULES: Final = "rules"
RULE: Final = "rule"

_NAMESPACE_INFO: Final = "$namespaceinfo"
_RESOURCES: Final = "$resources"
_SUBSCRIPTIONS: Final = "subscriptions"
_RULES: Final = "rules"

_NO_SEGMENTS: Final = frozenset({"", ".", ".."})

_BAD_NAME: Final = (
    "'{}' contains character(s) that is not allowed by Service Bus. Entity segments can contain "
    "only letters, numbers, periods(.), hyphens(-), and underscores(_)."
)


@final
@dataclass(frozen=True, slots=True)
class AdminPath:
    """A thing or a list of things; what does not belong to its kind is empty."""

    kind: str
    path: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def entity(self) -> str:
        """The path of the entity that it is or belongs to."""
        if self.subscription:
            return f"{self.path}/Subscriptions/{self.subscription}"
        return self.path

    def problem(self) -> str:
        """What no entity, subscription or rule can be called; empty where all is well."""
        if self.kind in (NAMESPACE, QUEUES, TOPICS):
            return ""
        if not self.path:
            return "The request names no entity."
        # Tokens are compared without empty segments, and clients leave out those that mean "here"
        # and "above" before they ask, so that names must have none of them.
        segments = self.path.split("/")
        if not is_entity_path(self.path) or not _NO_SEGMENTS.isdisjoint(segments):
            return _BAD_NAME.format(self.path)
        if self.kind in (SUBSCRIPTION, RULES, RULE) and not is_entity_name(self.subscription):
            return _BAD_NAME.format(self.subscription)
        if self.kind == RULE and not is_rule_name(self.rule):
            return _BAD_NAME.format(self.rule)
        return ""


def place_of(request: HttpRequest) -> AdminPath | None:
    """Read the path from its right end, because names may contain slashes; None is nothing."""
    # Some clients encode the slashes within a name, others do not.
    parts = "/".join(request.segments()).strip("/").split("/")
    words = [part.lower() for part in parts]
    if words == [_NAMESPACE_INFO]:
        return AdminPath(NAMESPACE)
    if words[0] == _RESOURCES:
        return AdminPath(words[1]) if words[1:] in ([QUEUES], [TOPICS]) else None
    if len(parts) >= 5 and words[-4] == _SUBSCRIPTIONS and words[-2] == _RULES:
        is_default = words[-1] == DEFAULT_RULE_NAME.lower()
        rule = DEFAULT_RULE_NAME if is_default else parts[-1]
        return AdminPath(RULE, "/".join(parts[:-4]), parts[-3], rule)
    if len(parts) >= 4 and words[-3] == _SUBSCRIPTIONS and words[-1] == _RULES:
        return AdminPath(RULES, "/".join(parts[:-3]), parts[-2])
    if len(parts) >= 3 and words[-2] == _SUBSCRIPTIONS:
        return AdminPath(SUBSCRIPTION, "/".join(parts[:-2]), parts[-1])
    if len(parts) >= 2 and words[-1] == _SUBSCRIPTIONS:
        return AdminPath(SUBSCRIPTIONS, "/".join(parts[:-1]))
    return AdminPath(ENTITY, "/".join(parts))
