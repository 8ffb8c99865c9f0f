"""Correlation filters, and the index that finds the matching ones of thousands at one look.

Conditions that ask for the same properties form a group. A group is a dictionary from expected
values to what is behind them, so that a message costs one look per group, however many filters are
in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

from peeklock.entity.rules.condition import Condition, is_exact, key_of, read
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.operand import SYSTEM, USER
from peeklock.entity.rules.values import (
    CONTENT_TYPE,
    CORRELATION_ID,
    LABEL,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    SESSION_ID,
    TO,
    Missing,
    PropertyReader,
    Truth,
    Value,
    are_all_identical,
    copied,
    fold,
)

# Of all names and values together. A hundred thousand filters of a topic must fit into the
# catalog, and whoever may listen to a subscription can give it rules.
SIZE_MAX: Final = 8_192

_Item = TypeVar("_Item")

# Up to so many names of properties are asked for one by one.
_FEW_NAMES: Final = 8

# Scope and name of each property that a group asks for, in order.
_Fields: TypeAlias = tuple[tuple[int, str], ...]


@final
class CorrelationFilter:
    """Takes messages that have all the given values; a field that is None is not asked for."""

    __slots__ = (
        "conditions",
        "content_type",
        "correlation_id",
        "label",
        "message_id",
        "properties",
        "reply_to",
        "reply_to_session_id",
        "session_id",
        "to",
    )

    def __init__(
        self,
        *,
        correlation_id: str | None = None,
        message_id: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        label: str | None = None,
        session_id: str | None = None,
        reply_to_session_id: str | None = None,
        content_type: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        self.correlation_id: Final[str | None] = correlation_id
        self.message_id: Final[str | None] = message_id
        self.to: Final[str | None] = to
        self.reply_to: Final[str | None] = reply_to
        self.label: Final[str | None] = label
        self.session_id: Final[str | None] = session_id
        self.reply_to_session_id: Final[str | None] = reply_to_session_id
        self.content_type: Final[str | None] = content_type
        self.properties: Final[dict[str, Value]] = copied(properties, "the property")
        self.conditions: Final[list[Condition]] = self._conditions()
        if not self.conditions:
            raise RuleError("a correlation filter asks for at least one property")
        size = sum(
            len(condition.name) + _size_of(condition.expected) for condition in self.conditions
        )
        if size > SIZE_MAX:
            raise RuleError(
                f"a correlation filter has at most {SIZE_MAX:,} characters, not {size:,}"
            )

    def evaluate(self, reader: PropertyReader) -> Truth:
        """Return whether the message has all the values."""
        return _all_hold(self.conditions, reader)

    def _fields(self) -> dict[str, Value]:
        return {
            CORRELATION_ID: self.correlation_id,
            MESSAGE_ID: self.message_id,
            TO: self.to,
            REPLY_TO: self.reply_to,
            LABEL: self.label,
            SESSION_ID: self.session_id,
            REPLY_TO_SESSION_ID: self.reply_to_session_id,
            CONTENT_TYPE: self.content_type,
        }

    def _conditions(self) -> list[Condition]:
        fields = self._fields().items()
        conditions = [Condition(SYSTEM, name, text) for name, text in fields if text is not None]
        properties = self.properties
        return conditions + [Condition(USER, name, properties[name]) for name in properties]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CorrelationFilter)
            and are_all_identical(self._fields(), other._fields())
            and are_all_identical(self.properties, other.properties)
        )

    def __hash__(self) -> int:
        return hash(_place_of(self.conditions))

    def __repr__(self) -> str:
        words = [f"{c.name}={c.expected!r}" for c in self.conditions]
        return f"CorrelationFilter({', '.join(words)})"


@final
class CorrelationIndex(Generic[_Item]):
    """Items, each under conditions that must all hold."""

    __slots__ = ("_by_fields", "_by_name", "_walked")

    def __init__(self) -> None:
        self._by_fields: dict[_Fields, _Group[_Item]] = {}
        # Groups that every message must look into: they ask for system properties only, or a
        # message without the property finds something there too.
        self._walked: list[_Group[_Item]] = []
        # The others, under one of the user properties that they ask for: a message that does not
        # have it finds nothing there.
        self._by_name: dict[str, list[_Group[_Item]]] = {}

    def add(
        self,
        conditions: list[Condition],
        item: _Item,
        *,
        is_certain: bool = True,
        when_missing: bool = False,
    ) -> None:
        """Put an item under conditions.

        `is_certain`: it is found only where all hold, else now and then where one nearly does.
        `when_missing`: it is also found where the property is missing or null.
        """
        fields, key = _place_of(conditions)
        group = self._by_fields.get(fields)
        if group is None:
            group = _Group(fields)
            self._by_fields[fields] = group
            self._enter(group)
        if when_missing and not group.is_walked:
            self._leave(group)
            group.is_walked = True
            self._enter(group)
        group.add(key, _Entry(item, conditions, is_certain), when_missing)

    def remove(self, conditions: list[Condition], item: _Item) -> None:
        """Take the item away that was put under these conditions."""
        fields, key = _place_of(conditions)
        group = self._by_fields[fields]
        group.remove(key, item)
        if group.is_empty():
            del self._by_fields[fields]
            self._leave(group)

    def find(self, reader: PropertyReader) -> list[_Item]:
        """Return the items whose conditions hold for a message."""
        found: list[_Item] = []
        for group in self._walked:
            group.find(reader, found)
        by_name = self._by_name
        if len(by_name) <= _FEW_NAMES:
            # To ask for these is cheaper than to read all names of the message.
            for groups in by_name.values():
                for group in groups:
                    group.find(reader, found)
        else:
            for name in reader.user_names():
                for group in by_name.get(name, ()):
                    group.find(reader, found)
        return found

    def _enter(self, group: _Group[_Item]) -> None:
        if group.is_walked:
            self._walked.append(group)
        else:
            self._by_name.setdefault(group.name, []).append(group)

    def _leave(self, group: _Group[_Item]) -> None:
        if group.is_walked:
            self._walked.remove(group)
            return
        groups = self._by_name[group.name]
        groups.remove(group)
        if not groups:
            del self._by_name[group.name]


@final
class _Entry(Generic[_Item]):
    """An item, and what to compare where its key alone is no proof."""

    __slots__ = ("compared", "item")

    def __init__(self, item: _Item, conditions: list[Condition], is_certain: bool) -> None:
        self.item: _Item = item
        self.compared: list[Condition] = [
            condition for condition in conditions if is_certain and not is_exact(condition.expected)
        ]


@final
class _Group(Generic[_Item]):
    """All entries that ask for the same properties."""

    __slots__ = ("_entries", "_fields", "_undecided", "is_walked", "name")

    def __init__(self, fields: _Fields) -> None:
        self._fields: _Fields = fields
        # One of the user properties, folded; the empty text where there is none.
        self.name: str = ""
        for scope, name in fields:
            if scope == USER:
                self.name = fold(name)
        self.is_walked: bool = self.name == ""
        self._entries: dict[tuple[Any, ...], list[_Entry[_Item]]] = {}
        # What must also be found where a property is missing or null.
        self._undecided: list[_Item] = []

    def add(self, key: tuple[Any, ...], entry: _Entry[_Item], when_missing: bool) -> None:
        """Put an entry under its key."""
        self._entries.setdefault(key, []).append(entry)
        if when_missing:
            self._undecided.append(entry.item)

    def remove(self, key: tuple[Any, ...], item: _Item) -> None:
        """Take the item's entry away."""
        kept = [entry for entry in self._entries[key] if entry.item is not item]
        if kept:
            self._entries[key] = kept
        else:
            del self._entries[key]
        self._undecided = [other for other in self._undecided if other is not item]

    def is_empty(self) -> bool:
        """Return whether nothing is left to find."""
        return not self._entries

    def find(self, reader: PropertyReader, found: list[_Item]) -> None:
        """Add the items that a message finds here."""
        keys: list[Any] = []
        for scope, name in self._fields:
            value = read(scope, name, reader)
            if self._undecided and (value is None or isinstance(value, Missing)):
                found.extend(self._undecided)
            if isinstance(value, Missing):
                return
            keys.append(key_of(value))
        entries = self._entries.get(tuple(keys))
        if entries is not None:
            for entry in entries:
                if _all_hold(entry.compared, reader):
                    found.append(entry.item)


def _all_hold(conditions: list[Condition], reader: PropertyReader) -> bool:
    # Written out: a generator would cost more than the comparisons.
    for condition in conditions:  # noqa: SIM110
        if not condition.holds(reader):
            return False
    return True


def _size_of(value: Value) -> int:
    """Reckon how long a value is; all but texts and binary data are short."""
    return len(value) if isinstance(value, (str, bytes)) else 16


def _place_of(conditions: list[Condition]) -> tuple[_Fields, tuple[Any, ...]]:
    """Return the group of conditions and their key in it, in whatever order they stand."""
    ordered = sorted(conditions, key=_field_of)
    fields = tuple([_field_of(condition) for condition in ordered])
    return fields, tuple([key_of(condition.expected) for condition in ordered])


def _field_of(condition: Condition) -> tuple[int, str]:
    return condition.scope, condition.name
