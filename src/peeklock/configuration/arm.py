"""Reads the entities of a namespace out of a deployment template (ARM, or what Bicep compiles to).

A template is a list of resources of any kind. Those of one Service Bus namespace are brought into
the form of the configuration file and read by its readers, so that the same checks hold; the rest
is left alone and named.
"""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.auth.rights import AuthorizationRule, rights_from_names
from peeklock.configuration import lenient_json
from peeklock.configuration.arm_expressions import ExpressionProblem, Scope
from peeklock.configuration.content import (
    ConfigurationError,
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredTopic,
)
from peeklock.configuration.file import Names
from peeklock.configuration.queue import read_queue
from peeklock.configuration.section import Section
from peeklock.configuration.topic import read_topic
from peeklock.entity.definition import QUEUE, TOPIC

NAMESPACE: Final = "microsoft.servicebus/namespaces"
_QUEUES: Final = f"{NAMESPACE}/queues"
_TOPICS: Final = f"{NAMESPACE}/topics"
_SUBSCRIPTIONS: Final = f"{_TOPICS}/subscriptions"
_RULES: Final = f"{_SUBSCRIPTIONS}/rules"
_QUEUE_KEYS: Final = f"{_QUEUES}/authorizationrules"
_TOPIC_KEYS: Final = f"{_TOPICS}/authorizationrules"
_DEPLOYMENT: Final = "microsoft.resources/deployments"
# How many names each kind has behind that of its namespace.
_DEPTHS: Final = {
    NAMESPACE: 0,
    _QUEUES: 1,
    _TOPICS: 1,
    _SUBSCRIPTIONS: 2,
    _RULES: 3,
    _QUEUE_KEYS: 2,
    _TOPIC_KEYS: 2,
}
# What templates may say and Peeklock has no use for; what the service adds when it shows one.
_IGNORED: Final = frozenset(
    (
        "AccessedAt",
        "ClientAffineProperties",
        "CountDetails",
        "CreatedAt",
        "EnableExpress",
        "EnableSubscriptionPartitioning",
        "IsAnonymousAccessible",
        "IsClientAffine",
        "MessageCount",
        "SizeInBytes",
        "SubscriptionCount",
        "SupportOrdering",
        "UpdatedAt",
    )
)
_CONSTANTS: Final = {"1=1": "True", "1=0": "False"}
_DEPLOYMENTS_MAX: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Template:
    """What a template says: a namespace, and the resources that have no part in it."""

    namespace: ConfiguredNamespace
    left_out: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Resource:
    """One resource with its whole kind and its whole name, evaluated."""

    where: str
    kind: str
    names: tuple[str, ...]
    properties: dict[str, Any]

    def key(self) -> tuple[str, ...]:
        """Return what tells it from others of its kind."""
        return tuple(name.lower() for name in self.names)


def is_template(content: Any) -> bool:
    """Tell a template from a configuration file."""
    return isinstance(content, dict) and "resources" in content


def parse_template(
    text: str, origin: str, parameters: dict[str, str] | None = None, namespace: str | None = None
) -> Template:
    """Read a template; all that is wrong with it comes in one ConfigurationError.

    `parameters` choose values instead of the defaults; `namespace` chooses among several.
    """
    try:
        content = lenient_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(origin, [f"is not JSON: {error}"]) from error
    problems: list[str] = []
    collector = _Collector(problems)
    given = dict(parameters or {})
    if not is_template(content):
        problems.append("is not a deployment template: it has no resources")
    else:
        declared = content.get("parameters") or {}
        known = {str(name).lower() for name in declared}
        unknown = [name for name in given if name.lower() not in known]
        problems += [f"there is no parameter '{name}'" for name in unknown]
        collector.template(content, "", given)
    template = _assemble(collector, namespace, problems)
    if problems:
        raise ConfigurationError(origin, problems)
    return template


@final
class _Collector:
    """Walks through a template and keeps the resources that describe entities."""

    def __init__(self, problems: list[str]) -> None:
        self.found: list[_Resource] = []
        self.left_out: list[str] = []
        self._problems = problems
        self._depth = 0

    def template(self, content: dict[str, Any], where: str, given: dict[str, Any]) -> None:
        """Take the resources of a template, or of one that is deployed by it."""
        scope = Scope(_object(content, "parameters"), _object(content, "variables"), given)
        self._resources(content.get("resources"), f"{where}resources", scope, "", ())

    def _resources(
        self, resources: Any, where: str, scope: Scope, kind: str, names: tuple[str, ...]
    ) -> None:
        # A list, or since version 2 of the language an object that gives each a name.
        if isinstance(resources, dict):
            places = [(f"{where}.{key}", value) for key, value in resources.items()]
        elif isinstance(resources, list):
            places = [(f"{where}[{index}]", value) for index, value in enumerate(resources)]
        else:
            self._problems.append(f"{where}: must be a list")
            return
        for place, value in places:
            if isinstance(value, dict):
                self._resource(value, place, scope, kind, names)
            else:
                self._problems.append(f"{place}: must be an object")

    def _resource(
        self, value: dict[str, Any], where: str, scope: Scope, above: str, names: tuple[str, ...]
    ) -> None:
        own = str(value.get("type", ""))
        # One that stands inside another continues its kind, and its name.
        kind = f"{above}/{own}".lower() if above and "." not in own else own.lower()
        inside = bool(above) and kind.startswith(f"{above}/")
        if value.get("existing") is True:
            return
        if kind not in _DEPTHS and kind != _DEPLOYMENT:
            self.left_out.append(f"{where}: {own or 'a resource without a type'}")
            return
        try:
            if scope.evaluate(value.get("condition", True)) is not True:
                return
            if "copy" in value:
                raise ExpressionProblem("copies in a loop are not known here")
            if kind == _DEPLOYMENT:
                self._deployment(value, where, scope)
                return
            name = scope.evaluate(value.get("name"))
            properties = scope.evaluate(value.get("properties") or {})
        except ExpressionProblem as problem:
            self._problems.append(f"{where}: {problem}")
            return
        if not isinstance(name, str) or not isinstance(properties, dict):
            self._problems.append(f"{where}: needs a name, and properties that are an object")
            return
        whole = (*names, name) if inside and "/" not in name else tuple(name.split("/"))
        if len(whole) != _DEPTHS[kind] + 1:
            self._problems.append(
                f"{where}.name: '{name}' has {len(whole)} parts, and {own} has {_DEPTHS[kind] + 1}"
            )
            return
        self.found.append(_Resource(where, kind, whole, properties))
        self._resources(value.get("resources") or [], f"{where}.resources", scope, kind, whole)

    def _deployment(self, value: dict[str, Any], where: str, scope: Scope) -> None:
        """Take the template inside a deployment, which is how a Bicep module arrives."""
        properties = _object(value, "properties")
        inner = properties.get("template")
        if not isinstance(inner, dict):
            raise ExpressionProblem("the deployment has no template in it")
        if self._depth == _DEPLOYMENTS_MAX:
            raise ExpressionProblem(f"more than {_DEPLOYMENTS_MAX} deployments in each other")
        given = {
            name: scope.evaluate(parameter.get("value"))
            for name, parameter in _object(properties, "parameters").items()
            if isinstance(parameter, dict)
        }
        self._depth += 1
        self.template(inner, f"{where}.properties.template.", given)
        self._depth -= 1


def _assemble(collector: _Collector, namespace: str | None, problems: list[str]) -> Template:
    """Put the resources together to a namespace."""
    names = {resource.names[0].lower(): resource.names[0] for resource in collector.found}
    if namespace is not None:
        names = {key: name for key, name in names.items() if key == namespace.lower()}
    if len(names) != 1:
        if not problems:
            told = ", ".join(f"'{name}'" for name in names.values()) or "none"
            problems.append(f"must describe one namespace, or one must be chosen; it has: {told}")
        return Template(ConfiguredNamespace())
    key, name = next(iter(names.items()))
    found = [resource for resource in collector.found if resource.key()[0] == key]
    _note_orphans(found, problems)
    taken = Names()
    queues = [_queue(queue, found, taken, problems) for queue in _of(found, _QUEUES)]
    topics = [_topic(topic, found, taken, problems) for topic in _of(found, _TOPICS)]
    content = ConfiguredNamespace(name, (), tuple(queues), tuple(topics))
    return Template(content, tuple(collector.left_out))


def _queue(
    queue: _Resource, found: list[_Resource], taken: Names, problems: list[str]
) -> ConfiguredQueue:
    section = Section(queue.where, _entry(queue), problems)
    read = read_queue(section)
    taken.take(read.definition.path, QUEUE, section)
    rules = [_authorization(rule, problems) for rule in _below(found, _QUEUE_KEYS, queue)]
    return ConfiguredQueue(read.definition, tuple(rules))


def _topic(
    topic: _Resource, found: list[_Resource], taken: Names, problems: list[str]
) -> ConfiguredTopic:
    subscriptions = []
    for subscription in _below(found, _SUBSCRIPTIONS, topic):
        entry = _entry(subscription)
        rules = [_rule_entry(rule) for rule in _below(found, _RULES, subscription)]
        subscriptions.append(entry | ({"Rules": rules} if rules else {}))
    section = Section(topic.where, _entry(topic) | {"Subscriptions": subscriptions}, problems)
    read = read_topic(section)
    taken.take(read.definition.path, TOPIC, section)
    rules_of_topic = [_authorization(rule, problems) for rule in _below(found, _TOPIC_KEYS, topic)]
    return ConfiguredTopic(read.definition, tuple(rules_of_topic), read.subscriptions)


def _authorization(resource: _Resource, problems: list[str]) -> AuthorizationRule:
    """Read a rule, which has no keys here: the service makes them, and so does who imports."""
    rights = resource.properties.get("rights")
    try:
        flags = rights_from_names(rights if isinstance(rights, list) else [])
    except (ValueError, AttributeError) as error:
        problems.append(f"{resource.where}.properties.rights: {error}")
        flags = 0
    if not isinstance(rights, list) or not rights:
        problems.append(f"{resource.where}.properties.rights: must be a list of rights")
    return AuthorizationRule(resource.names[-1], "", "", flags)


def _entry(resource: _Resource) -> dict[str, Any]:
    """Bring a resource into the form of the configuration file."""
    # A name has no slash here, because slashes divide names.
    name = resource.names[-1].replace("~", "/")
    properties = {
        key: value
        for key, value in _capitalised(resource.properties).items()
        if key not in _IGNORED
    }
    return {"Name": name, "Properties": properties}


def _rule_entry(resource: _Resource) -> dict[str, Any]:
    """Bring a rule into that form; the two filters that are always the same arrive as SQL."""
    entry = _entry(resource)
    properties = entry["Properties"]
    sql = properties.get("SqlFilter")
    is_sql = str(properties.get("FilterType", "")).lower() in ("sql", "sqlfilter")
    constant = _CONSTANTS.get(str(sql.get("SqlExpression"))) if isinstance(sql, dict) else None
    if is_sql and constant is not None:
        properties = {**properties, "FilterType": constant}
    return {**entry, "Properties": properties}


def _capitalised(properties: dict[str, Any]) -> dict[str, Any]:
    """Write names as the file does; those of application properties stay as they are."""
    return {
        key[:1].upper() + key[1:]: _capitalised(value)
        if isinstance(value, dict) and key != "properties"
        else value
        for key, value in properties.items()
    }


def _note_orphans(found: list[_Resource], problems: list[str]) -> None:
    """Note what belongs to something that the template does not describe: it would be reset."""
    known = {(resource.kind, resource.key()) for resource in found}
    for resource in found:
        above = resource.kind.rpartition("/")[0]
        if (
            above in (_QUEUES, _TOPICS, _SUBSCRIPTIONS)
            and (above, resource.key()[:-1]) not in known
        ):
            owner = "/".join(resource.names[:-1])
            problems.append(f"{resource.where}: '{owner}' above it is not in the template")


def _of(found: list[_Resource], kind: str) -> list[_Resource]:
    return [resource for resource in found if resource.kind == kind]


def _below(found: list[_Resource], kind: str, owner: _Resource) -> list[_Resource]:
    return [resource for resource in _of(found, kind) if resource.key()[:-1] == owner.key()]


def _object(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}
