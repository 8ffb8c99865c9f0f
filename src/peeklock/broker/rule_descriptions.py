"""How the catalog writes a subscription's rules down: as JSON, every value with its type."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Filter, Rule
from peeklock.entity.rules.values import DurationValue, InstantValue, Value

_CORRELATION_FIELDS: Final = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)


def write_rules(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """What the catalog keeps of rules, in their order."""
    return [
        {
            "name": rule.name,
            "filter": _write_filter(rule.filter),
            "action": None
            if rule.action is None
            else {"text": rule.action.text, "parameters": _write_values(rule.action.parameters)},
            "created_at": rule.created_at,
        }
        for rule in rules
    ]


def read_rules(written: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """The rules that were written."""
    return [
        Rule(
            entry["name"],
            _read_filter(entry["filter"]),
            None
            if entry["action"] is None
            else SqlAction(entry["action"]["text"], _read_values(entry["action"]["parameters"])),
            entry["created_at"],
        )
        for entry in written
    ]


def _write_filter(filter: Filter) -> dict[str, Any]:
    if isinstance(filter, TrueFilter):
        return {"type": "true"}
    if isinstance(filter, FalseFilter):
        return {"type": "false"}
    if isinstance(filter, SqlFilter):
        parameters = _write_values(filter.parameters)
        return {"type": "sql", "text": filter.text, "parameters": parameters}
    fields = {name: getattr(filter, name) for name in _CORRELATION_FIELDS}
    return {"type": "correlation", **fields, "properties": _write_values(filter.properties)}


def _read_filter(written: Mapping[str, Any]) -> Filter:
    kind = written["type"]
    if kind == "true":
        return TrueFilter()
    if kind == "false":
        return FalseFilter()
    if kind == "sql":
        return SqlFilter(written["text"], _read_values(written["parameters"]))
    if kind == "correlation":
        fields = {name: written[name] for name in _CORRELATION_FIELDS}
        return CorrelationFilter(**fields, properties=_read_values(written["properties"]))
    raise ValueError(f"no filter is of the type {kind!r}")


def _write_values(values: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _write_value(value) for name, value in values.items()}


def _read_values(written: Mapping[str, Any]) -> dict[str, Value]:
    return {name: _read_value(value) for name, value in written.items()}


def _write_value(value: Value) -> Any:
    """A value as JSON has it, or under the name of its type; whole numbers are whole in JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode("ascii")}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if isinstance(value, InstantValue):
        return {"instant": [value.ticks, value.text] if value.text else value.ticks}
    assert isinstance(value, DurationValue), f"no rule has the value {value!r}"
    return {"duration": value.ticks}


def _read_value(written: Any) -> Value:
    if not isinstance(written, dict):
        return written  # type: ignore[no-any-return]  # JSON's own types are values
    ((kind, value),) = written.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "decimal":
        return Decimal(value)
    if kind == "bytes":
        return b64decode(value)
    if kind == "uuid":
        return UUID(value)
    if kind == "instant":
        return InstantValue(*value) if isinstance(value, list) else InstantValue(value)
    if kind == "duration":
        return DurationValue(value)
    raise ValueError(f"no value is of the type {kind!r}")
