"""`peeklock rule create`, `list`, `show`, `update` and `delete`: the rules on a running broker."""

import json
from typing import Annotated, Any, Final, TypeAlias

import typer

from peeklock.cli import values
from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.entities.entity import Skip, SubscriptionName, Top, TopicName, delete_entity
from peeklock.cli.entities.rule import app as app
from peeklock.cli.output import TABLE, DryRun, Output, Yes, print_json, print_table
from peeklock.client.administration import atom, places
from peeklock.client.administration.atom import Description

RuleName: TypeAlias = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.")]
Sql: TypeAlias = Annotated[
    str | None, typer.Option("--sql", help="A condition such as \"amount > 100 AND c = 'de'\".")
]
Correlation: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--correlation",
        metavar="KEY=VALUE",
        help="A value that messages must have; may be given several times. sys.Label=x, "
        "sys.CorrelationId=x and so on ask for properties of the system, all others for "
        "application properties.",
    ),
]
Constant: TypeAlias = Annotated[
    bool | None,
    typer.Option("--all/--nothing", show_default=False, help="Take every message, or none."),
]
Action: TypeAlias = Annotated[
    str | None, typer.Option("--action", help='What to change, such as "SET a = 1; REMOVE b".')
]

_SYSTEM: Final = "sys."
_FIELDS: Final = {name.lower(): name for name in atom.CORRELATION_FIELDS} | {"subject": "Label"}


@app.command()
@asks_broker
def create(
    broker: BrokerAccess,
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    *,
    sql: Sql = None,
    correlation: Correlation = None,
    constant: Constant = None,
    action: Action = None,
    output: Output = "table",
) -> None:
    """Add a rule to a subscription; without a filter it takes everything."""
    chosen = _filter(sql, correlation, constant) or {"FilterType": "True"}
    if action:
        chosen["Action"] = {"SqlExpression": action}
    place = places.rule(topic, subscription, name)
    broker.administration().create(place, Description(atom.RULE, name, chosen))
    _show(broker, topic, subscription, name, output)


@app.command("list")
@asks_broker
def list_rules(
    broker: BrokerAccess,
    topic: TopicName,
    subscription: SubscriptionName,
    *,
    skip: Skip = 0,
    top: Top = None,
    output: Output = "table",
) -> None:
    """List the rules of a subscription."""
    found = list(broker.administration().every(places.rules(topic, subscription)))
    _print(topic, subscription, found[skip : None if top is None else skip + top], output)


@app.command()
@asks_broker
def show(
    broker: BrokerAccess,
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    *,
    output: Output = "table",
) -> None:
    """Tell everything about a rule."""
    _show(broker, topic, subscription, name, output)


@app.command()
@asks_broker
def update(
    broker: BrokerAccess,
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    *,
    sql: Sql = None,
    correlation: Correlation = None,
    constant: Constant = None,
    action: Action = None,
    output: Output = "table",
) -> None:
    """Change the filter or the action of a rule; an action that is empty is taken away."""
    admin = broker.administration()
    place = places.rule(topic, subscription, name)
    known = admin.get(place)
    chosen = _filter(sql, correlation, constant)
    kept = {"Action": known.values["Action"]} if "Action" in known.values else {}
    changed = known.values if chosen is None else chosen | kept
    if action is not None:
        changed = changed | {"Action": {"SqlExpression": action} if action else None}
    admin.update(place, Description(atom.RULE, known.name, changed))
    _show(broker, topic, subscription, name, output)


@app.command()
@asks_broker
def delete(
    broker: BrokerAccess,
    topic: TopicName,
    subscription: SubscriptionName,
    name: RuleName,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Take a rule away from a subscription."""
    place = places.rule(topic, subscription, name)
    delete_entity(broker, place, output, yes=yes, dry_run=dry_run)


def _filter(
    sql: str | None, correlation: list[str] | None, constant: bool | None
) -> dict[str, Any] | None:
    given = [option for option in (sql, correlation or None, constant) if option is not None]
    if not given:
        return None
    if len(given) > 1:
        raise values.wrong("--sql", "only one of --sql, --correlation and --all/--nothing goes")
    if sql is not None:
        return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": sql}}
    if constant is not None:
        return {"FilterType": "True" if constant else "False"}
    return {"FilterType": "Correlation", "CorrelationFilter": _correlation(correlation or [])}


def _correlation(texts: list[str]) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for key, value in values.pairs(texts, "--correlation").items():
        if not key.lower().startswith(_SYSTEM):
            properties[key] = value
            continue
        field = _FIELDS.get(key.lower().removeprefix(_SYSTEM))
        if field is None:
            there = ", ".join(sorted(set(_FIELDS.values())))
            raise values.wrong("--correlation", f"there is no {key}; there are {there}")
        asked[field] = str(value)
    return asked | ({"Properties": properties} if properties else {})


def _show(broker: BrokerAccess, topic: str, subscription: str, name: str, output: str) -> None:
    found = broker.administration().get(places.rule(topic, subscription, name))
    if output != TABLE:
        print_json(_told(found), output)
    else:
        _print(topic, subscription, [found], output)


def _print(topic: str, subscription: str, rules: list[Description], output: str) -> None:
    if output != TABLE:
        print_json({"rules": [_told(rule) for rule in rules]}, output)
        return
    rows = [
        [
            rule.name,
            filter_text(rule.values),
            (rule.values.get("Action") or {}).get("SqlExpression", ""),
        ]
        for rule in rules
    ]
    title = f"Rules of the subscription '{subscription}' of the topic '{topic}'"
    print_table(title, ["name", "filter", "action"], rows)


def _told(rule: Description) -> dict[str, Any]:
    return {"Name": rule.name, "Properties": rule.values, "Runtime": rule.runtime}


def filter_text(rule: dict[str, Any]) -> str:
    """Write a filter in a line."""
    kind = rule["FilterType"]
    if kind == "Sql":
        return str(rule["SqlFilter"]["SqlExpression"])
    if kind != "Correlation":
        return "everything" if kind == "True" else "nothing"
    asked = dict(rule["CorrelationFilter"])
    properties = asked.pop("Properties", {})
    texts = [f"{_SYSTEM}{name} = {json.dumps(value)}" for name, value in asked.items()]
    texts += [f"{name} = {json.dumps(value)}" for name, value in properties.items()]
    return ", ".join(texts)
