"""`peeklock rule test`: which rules of a topic would take a message, and what becomes of it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from peeklock.cli.help import CommandGroup
from peeklock.cli.output import TABLE, Output, fail, print_json, print_table

if TYPE_CHECKING:
    from peeklock.configuration.content import ConfiguredSubscription, ConfiguredTopic
    from peeklock.entity.rules.action import Changes
    from peeklock.entity.rules.rule import Explanation, Filter
    from peeklock.entity.rules.values import PropertyBag, Value

app = CommandGroup("The rules of subscriptions.")

_STDIN: Final = Path("-")
_TICKS_PER_MS: Final = 10_000


class MessageProblem(Exception):
    """The message cannot be read; the text is for the user."""


@app.callback()
def rules() -> None:
    """Make `test` a command with a name although it is the only one."""


@app.command("test")
def try_message(
    *,
    config: Annotated[
        Path,
        typer.Option(
            envvar="PEEKLOCK_CONFIG",
            exists=True,
            dir_okay=False,
            help="The configuration file with the topic and its rules.",
        ),
    ],
    namespace: Annotated[
        str | None, typer.Option(help="Which one, where the file has several.")
    ] = None,
    topic: Annotated[str, typer.Option(help="The name of the topic.")],
    subscription: Annotated[
        str | None, typer.Option(help="Only this subscription; all of them otherwise.")
    ] = None,
    message: Annotated[
        Path,
        typer.Option(
            allow_dash=True,
            dir_okay=False,
            help="The message as JSON: {'properties': {'MessageId': ..., 'Subject': ...}, "
            "'application_properties': {...}}; - reads it from standard input.",
        ),
    ] = _STDIN,
    output: Output = "table",
) -> None:
    """Tell for a message which rules of a topic take it and what their actions make of it."""
    from peeklock.configuration.content import ConfigurationError
    from peeklock.configuration.file import load_configuration

    try:
        configured = _find_topic(load_configuration(config).chosen(namespace).topics, topic)
        subscriptions = _find_subscriptions(configured, subscription)
        bag = _read_message(message)
    except ConfigurationError as error:
        fail(str(error))
    except (LookupError, MessageProblem) as problem:
        fail(str(problem.args[0]))
    told = [_told(found, bag) for found in subscriptions]
    name = configured.definition.path
    if output != TABLE:
        print_json({"topic": name, "subscriptions": told}, output)
    else:
        _print(name, told)


def _find_topic(topics: "tuple[ConfiguredTopic, ...]", name: str) -> "ConfiguredTopic":
    for topic in topics:
        if topic.definition.path.lower() == name.lower():
            return topic
    there = ", ".join(f"'{topic.definition.path}'" for topic in topics) or "none"
    raise LookupError(f"there is no topic '{name}' in the configuration; there are: {there}")


def _find_subscriptions(
    topic: "ConfiguredTopic", name: str | None
) -> "list[ConfiguredSubscription]":
    found = [
        subscription
        for subscription in topic.subscriptions
        if name is None or subscription.definition.name.lower() == name.lower()
    ]
    if name is not None and not found:
        path = topic.definition.path
        there = ", ".join(f"'{known.definition.name}'" for known in topic.subscriptions) or "none"
        raise LookupError(f"the topic '{path}' has no subscription '{name}'; it has: {there}")
    return found


# Reading the message.


def _read_message(path: Path) -> "PropertyBag":
    from peeklock.broker.random_source import SystemRandom
    from peeklock.entity.rules.values import PropertyBag

    try:
        text = sys.stdin.read() if path == _STDIN else path.read_text(encoding="utf-8-sig")
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise MessageProblem(f"the message cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise MessageProblem("the message must be a JSON object")
    unknown = content.keys() - {"properties", "application_properties"}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise MessageProblem(
            f"the message has 'properties' and 'application_properties', and no {names}"
        )
    user = {
        name: _scalar(name, value)
        for name, value in _object(content, "application_properties").items()
    }
    system = _arriving()
    for name, value in _object(content, "properties").items():
        known, converted = _system_property(name, value)
        system[known] = converted
    return PropertyBag(user, system, SystemRandom().number)


def _arriving() -> "dict[str, Value]":
    """Return the properties that every message has when the rules are asked."""
    from peeklock.clock import SystemClock
    from peeklock.entity.deliveries import STATE_ACTIVE
    from peeklock.entity.rules import values

    return {
        values.ENQUEUED_TIME: values.InstantValue(SystemClock().now() * _TICKS_PER_MS),
        values.FORCE_PERSISTENCE: True,
        values.DELIVERY_COUNT: 0,
        values.STATE: STATE_ACTIVE,
    }


def _object(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise MessageProblem(f"'{name}' must be a JSON object")
    return value


def _scalar(name: str, value: Any) -> "Value":
    from peeklock.entity.rules.errors import RuleError
    from peeklock.entity.rules.values import check_value

    try:
        check_value(value, name)
    except RuleError as error:
        raise MessageProblem(str(error)) from error
    scalar: Value = value
    return scalar


def _system_property(name: str, value: Any) -> "tuple[str, Value]":
    from peeklock.entity.rules import values
    from peeklock.entity.rules.conversion import boolean_of, duration_of, instant_of
    from peeklock.entity.rules.errors import FilterError

    known = values.system_name(name)
    if known is None:
        there = ", ".join(values.SYSTEM_PROPERTIES)
        raise MessageProblem(f"messages have no property '{name}'; they have {there} and Subject")
    try:
        if known == values.TIME_TO_LIVE:
            return known, duration_of(value)
        if known in (values.SCHEDULED_ENQUEUE_TIME, values.ENQUEUED_TIME):
            return known, instant_of(value)
        if known == values.FORCE_PERSISTENCE:
            return known, boolean_of(value)
    except FilterError as error:
        raise MessageProblem(f"{name}: {error.text}") from error
    expected = int if known in _NUMBERS else str
    if not isinstance(value, expected) or isinstance(value, bool):
        word = "a whole number" if expected is int else "a text"
        raise MessageProblem(f"{name} must be {word}")
    return known, value


_NUMBERS: Final = frozenset(
    ("SequenceNumber", "EnqueuedSequenceNumber", "DeliveryCount", "Size", "State")
)


# Telling what was found.


def _told(subscription: "ConfiguredSubscription", bag: "PropertyBag") -> dict[str, Any]:
    from peeklock.entity.rules.rule import PlainCopy, RuleFailure, RuleSet, explain

    outcomes = RuleSet(subscription.rules).match(bag)
    copies = [outcome for outcome in outcomes if not isinstance(outcome, RuleFailure)]
    return {
        "subscription": subscription.definition.name,
        "copies": len(copies),
        "plain_copy": any(isinstance(outcome, PlainCopy) for outcome in copies),
        "rules": [_told_rule(explanation) for explanation in explain(subscription.rules, bag)],
    }


def _told_rule(explanation: "Explanation") -> dict[str, Any]:
    rule = explanation.rule
    return {
        "rule": rule.name,
        "takes": explanation.takes(),
        # Null where the filter can say neither yes nor no.
        "truth": explanation.truth,
        "filter": _filter_text(rule.filter),
        "action": None if rule.action is None else rule.action.text,
        "changes": None if explanation.changes is None else _told_changes(explanation.changes),
        "error": explanation.error,
    }


def _filter_text(filter: "Filter") -> str:
    from peeklock.configuration.writing import correlation_fields
    from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter

    if isinstance(filter, SqlFilter):
        return filter.text
    if isinstance(filter, (TrueFilter, FalseFilter)):
        return "true" if isinstance(filter, TrueFilter) else "false"
    asked = correlation_fields(filter)
    texts = [f"{name} = {_text(value)}" for name, value in asked.items()]
    texts += [f"user.{name} = {_text(value)}" for name, value in filter.properties.items()]
    return "correlation: " + ", ".join(texts)


def _told_changes(changes: "Changes") -> dict[str, Any]:
    from peeklock.entity.rules.action import PropertyRemoved, Reset

    user, system = changes.user, changes.system
    return {
        "properties": {n: _plain(v) for n, v in system.items() if not isinstance(v, Reset)},
        "application_properties": {
            n: _plain(v) for n, v in user.items() if not isinstance(v, PropertyRemoved)
        },
        "removed": [n for n, v in system.items() if isinstance(v, Reset)]
        + [n for n, v in user.items() if isinstance(v, PropertyRemoved)],
    }


def _plain(value: "Value") -> Any:
    """Return a value as JSON has it; the types that it does not have are written as text."""
    from peeklock.entity.rules.conversion import text_of

    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    return value.hex() if isinstance(value, bytes) else text_of(value)


def _text(value: "Value") -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _print(topic: str, told: list[dict[str, Any]]) -> None:
    rows = [
        [
            found["subscription"],
            rule["rule"],
            _verdict(rule),
            rule["filter"],
            _changes_text(rule),
        ]
        for found in told
        for rule in found["rules"]
    ]
    columns = ["subscription", "rule", "takes it", "filter", "what its action makes of it"]
    print_table(f"Rules of the topic '{topic}'", columns, rows)
    for found in told:
        noun = "copy" if found["copies"] == 1 else "copies"
        typer.echo(f"{found['subscription']}: {found['copies']} {noun}")


def _verdict(rule: dict[str, Any]) -> str:
    if rule["error"] is not None:
        return f"error: {rule['error']}"
    if rule["truth"] is None:
        return "no (unknown)"
    return "yes" if rule["takes"] else "no"


def _changes_text(rule: dict[str, Any]) -> str:
    changes = rule["changes"]
    if changes is None:
        return "" if rule["action"] is None else f"not run: {rule['action']}"
    lines = [f"{name} = {_text(value)}" for name, value in changes["properties"].items()]
    lines += [
        f"user.{name} = {_text(value)}" for name, value in changes["application_properties"].items()
    ]
    return "\n".join([*lines, *(f"without {name}" for name in changes["removed"])])
