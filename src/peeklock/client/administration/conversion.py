"""Between the classes that users see and descriptions under the service's names.

The service's name of an attribute is its own in other letters: `lock_duration` is LockDuration.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from peeklock.auth import rights as auth
from peeklock.client.administration import atom
from peeklock.client.administration.atom import Description
from peeklock.client.administration.properties import (
    FOREVER,
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    NamespaceProperties,
)
from peeklock.client.administration.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleFilter,
    RuleProperties,
    RuleValue,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from peeklock.durations import LONGEST_DURATION_MS, format_duration, parse_duration

T = TypeVar("T")

_DURATIONS: Final = frozenset(
    {
        "auto_delete_on_idle",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "lock_duration",
    }
)
_NAMES: Final = {
    "availability_status": "EntityAvailabilityStatus",
    "accessed_at_utc": "AccessedAt",
    "created_at_utc": "CreatedAt",
    "updated_at_utc": "UpdatedAt",
    "total_message_count": "MessageCount",
}
_ENUMERATIONS: Final[dict[str, type[EntityStatus] | type[EntityAvailabilityStatus]]] = {
    "status": EntityStatus,
    "availability_status": EntityAvailabilityStatus,
}
# What is told, and cannot be chosen.
_TOLD: Final = frozenset({"name", "authorization_rules", "availability_status", "size_in_bytes"})


def updated(known: T | Mapping[str, Any], kind: type[T], changes: Mapping[str, Any]) -> T:
    """Return properties with some of them replaced; a mapping is read as keywords.

    Raises TypeError for a keyword that the properties do not have.
    """
    if isinstance(known, kind):
        values = {each.name: getattr(known, each.name) for each in fields(kind)}  # type: ignore[arg-type]  # only dataclasses are given
        return kind(**{**values, **changes})
    if not isinstance(known, Mapping):
        raise TypeError(f"{kind.__name__} or a mapping is needed, not {type(known).__name__}")
    return kind(**{**known, **changes})


# --- entities


def description_of(kind: str, properties: Any) -> Description:
    """Write the properties of a queue, topic or subscription under the service's names."""
    values: dict[str, Any] = {}
    for each in fields(properties):
        value = getattr(properties, each.name)
        if value is None or each.name in _TOLD:
            continue
        if isinstance(value, timedelta):
            value = duration_text(value)
        values[_wire_name(each.name)] = getattr(value, "value", value)
    rules = getattr(properties, "authorization_rules", None)
    keys = tuple(map(_key, rules or ()))
    return Description(
        kind, properties.name, values, {}, keys, values, is_silent_on_keys=rules is None
    )


def properties_of(found: Description, kind: type[T]) -> T:
    """Read a description as properties, or as runtime properties."""
    told = {**found.others, **found.runtime, **found.values}
    read: dict[str, Any] = {"name": found.name}
    for each in fields(kind):  # type: ignore[arg-type]  # only dataclasses are asked for
        name = each.name
        if name == "authorization_rules":
            read[name] = [_rule(key) for key in found.keys]
            continue
        value = told.get(_wire_name(name))
        if value is None or name == "name":
            continue
        if name in _DURATIONS:
            value = duration(value)
        elif name.endswith("_at_utc"):
            value = instant(value)
        elif name in _ENUMERATIONS:
            value = _member(_ENUMERATIONS[name], value)
        read[name] = value
    return kind(**read)


def namespace_of(told: Mapping[str, str]) -> NamespaceProperties:
    """Read what is told of a namespace."""
    units = told.get("MessagingUnits", "")
    return NamespaceProperties(
        told.get("Name", ""),
        instant(told.get("CreatedTime", "")),
        instant(told.get("ModifiedTime", "")),
        told.get("MessagingSKU", ""),
        told.get("NamespaceType", ""),
        int(units) if units.isdigit() else None,
        told.get("Alias"),
    )


def _wire_name(attribute: str) -> str:
    return _NAMES.get(attribute) or "".join(part.capitalize() for part in attribute.split("_"))


def _member(kind: type[EntityStatus] | type[EntityAvailabilityStatus], text: str) -> Any:
    # A status that is new to us is told as it is.
    try:
        return kind(text)
    except ValueError:
        return text


def _key(rule: AuthorizationRule) -> auth.AuthorizationRule:
    names = [str(getattr(right, "value", right)) for right in rule.rights]
    rights = auth.rights_from_names(names)
    times = tuple(
        written if at == instant(written) else instant_text(at)
        for at, written in zip(
            (rule.created_at_utc, rule.modified_at_utc), rule.written_times, strict=True
        )
    )
    return auth.AuthorizationRule(
        rule.key_name, rule.primary_key, rule.secondary_key, rights, times
    )


def _rule(key: auth.AuthorizationRule) -> AuthorizationRule:
    rights: list[AccessRights | str] = [AccessRights(n) for n in auth.rights_names(key.rights)]
    created_at, modified_at = map(instant, key.times)
    return AuthorizationRule(
        key.name, rights, key.primary_key, key.secondary_key, created_at, modified_at, key.times
    )


# --- rules


def description_of_rule(rule: RuleProperties) -> Description:
    """Write a rule under the service's names."""
    values = _filter_values(rule.filter)
    if rule.action is not None:
        values["Action"] = _statement(rule.action.sql_expression, rule.action.parameters)
    return Description(atom.RULE, rule.name, values)


def rule_of(found: Description) -> RuleProperties:
    """Read a rule."""
    action = found.values.get("Action")
    return RuleProperties(
        found.name,
        _filter(found.values),
        None if action is None else SqlRuleAction(*_read_statement(action)),
        instant(found.runtime.get("CreatedAt", "")),
    )


def _filter_values(filter: RuleFilter) -> dict[str, Any]:
    match filter:
        case TrueRuleFilter():
            return {"FilterType": "True"}
        case FalseRuleFilter():
            return {"FilterType": "False"}
        case SqlRuleFilter():
            statement = _statement(filter.sql_expression, filter.parameters)
            return {"FilterType": "Sql", "SqlFilter": statement}
        case CorrelationRuleFilter():
            asked = {
                _wire_name(name): value
                for name, value in asdict(filter).items()
                if value is not None and name != "properties"
            }
            if filter.properties:
                asked["Properties"] = _written(filter.properties)
            return {"FilterType": "Correlation", "CorrelationFilter": asked}
    raise TypeError(f"{type(filter).__name__} is not a filter of a rule")


def _filter(values: Mapping[str, Any]) -> RuleFilter:
    kind = values["FilterType"]
    if kind == "Sql":
        return SqlRuleFilter(*_read_statement(values["SqlFilter"]))
    if kind == "Correlation":
        asked = values["CorrelationFilter"]
        known = {
            each.name: asked[_wire_name(each.name)]
            for each in fields(CorrelationRuleFilter)
            if each.name != "properties" and _wire_name(each.name) in asked
        }
        return CorrelationRuleFilter(**known, properties=_read(asked.get("Properties", {})))
    return TrueRuleFilter() if kind == "True" else FalseRuleFilter()


def _statement(text: str, parameters: Mapping[str, RuleValue]) -> dict[str, Any]:
    return {"SqlExpression": text, **({"Parameters": _written(parameters)} if parameters else {})}


def _read_statement(statement: Mapping[str, Any]) -> tuple[str, dict[str, RuleValue]]:
    return statement["SqlExpression"], _read(statement.get("Parameters", {}))


def _written(values: Mapping[str, RuleValue]) -> dict[str, Any]:
    return {name: _written_value(value) for name, value in values.items()}


def _written_value(value: RuleValue) -> Any:
    if isinstance(value, datetime):
        return {"type": "dateTime", "text": instant_text(value)}
    if isinstance(value, timedelta):
        return {"type": "duration", "text": duration_text(value)}
    return value


def _read(values: Mapping[str, Any]) -> dict[str, RuleValue]:
    return {name: _read_value(value) for name, value in values.items()}


def _read_value(value: Any) -> RuleValue:
    if not isinstance(value, dict):
        told: RuleValue = value
        return told
    kind, text = value["type"], str(value["text"])
    if kind == "dateTime":
        return instant(text) or text
    return duration(text) if kind == "duration" else text


# --- time


def duration(text: str) -> timedelta:
    """Read an ISO-8601 duration; the service's longest one is `FOREVER`."""
    found_ms = parse_duration(text)
    return FOREVER if found_ms >= LONGEST_DURATION_MS else timedelta(milliseconds=found_ms)


def duration_text(value: timedelta) -> str:
    """Write a duration in the service's form."""
    return format_duration(value // timedelta(milliseconds=1))


def instant(text: str) -> datetime | None:
    """Read an instant of UTC; None where nothing is said."""
    if not text:
        return None
    # The service writes ten millionths of a second, which Python 3.11 cuts by itself.
    return _utc(datetime.fromisoformat(text))


def instant_text(value: datetime | None) -> str:
    """Write an instant in UTC; empty where there is none."""
    return "" if value is None else _utc(value).isoformat().replace("+00:00", "Z")


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
