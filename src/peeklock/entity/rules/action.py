"""Actions: what a rule changes in its copy of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final
from uuid import UUID

from peeklock.entity.rules.conversion import boolean_of, duration_of, instant_of, text_of
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.operand import SYSTEM
from peeklock.entity.rules.statement import Statement
from peeklock.entity.rules.values import (
    CONTENT_TYPE,
    CORRELATION_ID,
    FORCE_PERSISTENCE,
    LABEL,
    MESSAGE_ID,
    MISSING,
    PARTITION_KEY,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    SYSTEM_PROPERTIES,
    TIME_TO_LIVE,
    TO,
    Missing,
    PropertyReader,
    Value,
    are_all_identical,
    copied,
    fold,
    no_system_property,
)

ID_LENGTH_MAX: Final = 128

# The user property that names the rule whose action has made a copy.
RULE_NAME: Final = "RuleName"

_TEXTS: Final = frozenset(
    (
        MESSAGE_ID,
        CORRELATION_ID,
        SESSION_ID,
        TO,
        REPLY_TO,
        REPLY_TO_SESSION_ID,
        LABEL,
        CONTENT_TYPE,
        PARTITION_KEY,
    )
)
_IDS: Final = frozenset((MESSAGE_ID, SESSION_ID, REPLY_TO_SESSION_ID, PARTITION_KEY))
_SETTABLE: Final = _TEXTS | {TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME, FORCE_PERSISTENCE}


@final
class PropertyRemoved:
    """Stands where a user property was taken away."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REMOVED"


@final
class Reset:
    """Stands where a system property was taken back to what it is in a message without it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "RESET"


REMOVED: Final = PropertyRemoved()
RESET: Final = Reset()

UserChange: TypeAlias = Value | PropertyRemoved
SystemChange: TypeAlias = Value | Reset


@final
@dataclass(slots=True, init=False)
class Changes:
    """What an action makes of a message, to be written into the copy.

    User properties have the names that the action wrote; one that differs from a name in the
    message only by case means that property (`applied_to` is the rule). System properties have
    their names in `SYSTEM_PROPERTIES` and values of their own types.
    """

    user: Final[dict[str, UserChange]]
    system: Final[dict[str, SystemChange]]

    def __init__(self, user: dict[str, UserChange], system: dict[str, SystemChange]) -> None:
        self.user = user
        self.system = system

    def applied_to(self, properties: Mapping[str, Value]) -> dict[str, Value]:
        """Return the user properties after the changes; those that stay keep their order."""
        result = dict(properties)
        for name in self.user:
            change = self.user[name]
            present = _spelling_in(result, name)
            if isinstance(change, PropertyRemoved):
                result.pop(present, None)
            else:
                result[present] = change
        return result


@final
class SqlAction:
    """Statements that run in order on a copy of a message; the text stays as it was written."""

    __slots__ = ("_statements", "parameters", "text")

    def __init__(self, text: str, parameters: Mapping[str, Value] | None = None) -> None:
        # Imported late: it brings the parser, which a broker without actions does not need.
        from peeklock.entity.rules.builder import build_statements

        self.text: Final[str] = text
        self.parameters: Final[dict[str, Value]] = copied(parameters, "the parameter")
        self._statements: list[Statement] = build_statements(text, self.parameters)

    def apply(self, reader: PropertyReader, rule: str = "") -> Changes:
        """Run the statements; a FilterError means that there is no such copy. The copy says by
        which rule it was made, unless the action says otherwise."""
        draft = _Draft(reader)
        if rule:
            draft.set_user(RULE_NAME, rule)
        for statement in self._statements:
            operand = statement.operand
            value = None if operand is None else operand.value(draft)
            if statement.scope == SYSTEM:
                draft.set_system(statement.name, value)
            elif operand is None:
                draft.remove_user(statement.name)
            else:
                draft.set_user(statement.name, value)
        return draft.changes()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SqlAction)
            and self.text == other.text
            and are_all_identical(self.parameters, other.parameters)
        )

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SqlAction({self.text!r}, {self.parameters!r})"


@final
class _Draft:
    """The message as it is after the statements so far."""

    __slots__ = ("_names", "_reader", "_system", "_user")

    def __init__(self, reader: PropertyReader) -> None:
        self._reader: PropertyReader = reader
        self._user: dict[str, UserChange] = {}
        # Folded name to the name under which the change is noted: the first one written.
        self._names: dict[str, str] = {}
        self._system: dict[str, SystemChange] = {}

    def user(self, name: str) -> Value | Missing:
        """Return a user property as it is now."""
        noted = self._names.get(fold(name))
        if noted is None:
            return self._reader.user(name)
        change = self._user[noted]
        return MISSING if isinstance(change, PropertyRemoved) else change

    def system(self, name: str) -> Value | Missing:
        """Return a system property as it is now."""
        if name not in self._system:
            return self._reader.system(name)
        change = self._system[name]
        return MISSING if isinstance(change, Reset) else change

    def user_names(self) -> set[str]:
        """Return the names of all user properties as they are now."""
        names = self._reader.user_names()
        for folded, noted in self._names.items():
            if isinstance(self._user[noted], PropertyRemoved):
                names.discard(folded)
            else:
                names.add(folded)
        return names

    def new_id(self) -> UUID:
        """Make an id."""
        return self._reader.new_id()

    def spend(self, steps: int) -> None:
        """Pay for work that grows with the values."""
        self._reader.spend(steps)

    def set_user(self, name: str, value: Value) -> None:
        """Note a new value; unknown is written as null."""
        self._user[self._names.setdefault(fold(name), name)] = value

    def remove_user(self, name: str) -> None:
        """Note that a property goes; it need not be there."""
        self._user[self._names.setdefault(fold(name), name)] = REMOVED

    def set_system(self, name: str, value: Value) -> None:
        """Note a new value in the property's own type; null or unknown resets it."""
        if name not in SYSTEM_PROPERTIES:
            raise no_system_property(name)
        if name not in _SETTABLE:
            raise FilterError(f"the system property {name} cannot be changed")
        self._system[name] = RESET if value is None else _converted(name, value)

    def changes(self) -> Changes:
        """Return all that was noted."""
        return Changes(self._user, self._system)


def _converted(name: str, value: Value) -> Value:
    if name in _TEXTS:
        text = text_of(value)
        if name in _IDS and len(text) > ID_LENGTH_MAX:
            raise FilterError(f"{name} would have more than {ID_LENGTH_MAX} characters")
        return text
    if name == TIME_TO_LIVE:
        return duration_of(value)
    return instant_of(value) if name == SCHEDULED_ENQUEUE_TIME else boolean_of(value)


def _spelling_in(properties: Mapping[str, Value], name: str) -> str:
    """Return the name under which a property is there already; the exact one wins."""
    if name in properties:
        return name
    folded = fold(name)
    return next((present for present in properties if fold(present) == folded), name)
