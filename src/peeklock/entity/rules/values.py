"""The values that rules compute with, and where they get them from.

Null and unknown are one thing to every operator: both are None here, and what meets one is unknown
itself. Only EXISTS tells a null property from one that is not there, which is why a reader answers
`MISSING` and not None for the latter.

Wire types that are subclasses of Python's (a uint is an int) pass through untouched, so that
`SET a = b` keeps the type of b. A value of any other type may be handed over as it is: it exists,
it is not null, it equals nothing and has no order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias, final
from uuid import UUID

from peeklock.entity.rules.errors import FilterError, RuleError

# A tick is 100 ns: the wire's time spans and the admin API's instants are as fine as that.

# What an integer on the wire can be: the least long and the greatest ulong.
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 64) - 1


@final
@dataclass(slots=True, init=False)
class InstantValue:
    """A point in time, in ticks since 1970, UTC, and as it was written, if it was."""

    ticks: Final[int]
    text: Final[str]

    def __init__(self, ticks: int, text: str = "") -> None:
        self.ticks = ticks
        self.text = text


@final
@dataclass(slots=True, init=False)
class DurationValue:
    """A length of time, in ticks."""

    ticks: Final[int]

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks


@final
class Missing:
    """The answer of a reader for a property that the message does not have."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()

Value: TypeAlias = (
    str | int | float | bool | Decimal | bytes | UUID | InstantValue | DurationValue | None
)

_TYPES: Final = (str, int, float, Decimal, bytes, UUID, InstantValue, DurationValue)

Truth: TypeAlias = bool | None
UNKNOWN: Final = None
"""The third truth, beside True and False."""

# The system properties by their names; Subject is what newer clients call the label.
MESSAGE_ID: Final = "MessageId"
CORRELATION_ID: Final = "CorrelationId"
SESSION_ID: Final = "SessionId"
TO: Final = "To"
REPLY_TO: Final = "ReplyTo"
REPLY_TO_SESSION_ID: Final = "ReplyToSessionId"
LABEL: Final = "Label"
CONTENT_TYPE: Final = "ContentType"
TIME_TO_LIVE: Final = "TimeToLive"
SCHEDULED_ENQUEUE_TIME: Final = "ScheduledEnqueueTimeUtc"
PARTITION_KEY: Final = "PartitionKey"
FORCE_PERSISTENCE: Final = "ForcePersistence"
ENQUEUED_TIME: Final = "EnqueuedTimeUtc"
SEQUENCE_NUMBER: Final = "SequenceNumber"
ENQUEUED_SEQUENCE_NUMBER: Final = "EnqueuedSequenceNumber"
DELIVERY_COUNT: Final = "DeliveryCount"
SIZE: Final = "Size"
STATE: Final = "State"

SYSTEM_PROPERTIES: Final = (
    MESSAGE_ID,
    CORRELATION_ID,
    SESSION_ID,
    TO,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    LABEL,
    CONTENT_TYPE,
    TIME_TO_LIVE,
    SCHEDULED_ENQUEUE_TIME,
    PARTITION_KEY,
    FORCE_PERSISTENCE,
    ENQUEUED_TIME,
    SEQUENCE_NUMBER,
    ENQUEUED_SEQUENCE_NUMBER,
    DELIVERY_COUNT,
    SIZE,
    STATE,
)
_SYSTEM_NAMES: Final = frozenset(SYSTEM_PROPERTIES)
_BY_FOLDED_NAME: Final[dict[str, str]] = {
    "subject": LABEL,
    **{name.lower(): name for name in SYSTEM_PROPERTIES},
}


class PropertyReader(Protocol):
    """What an evaluation asks of the world: the properties of one message, and randomness."""

    def user(self, name: str) -> Value | Missing:
        """Return an application property by its name as it stands in the rule; case is no
        matter."""
        ...

    def system(self, name: str) -> Value | Missing:
        """Return a property of `SYSTEM_PROPERTIES`; any other name is a FilterError."""
        ...

    def user_names(self) -> set[str]:
        """Return the names of all application properties, folded."""
        ...

    def new_id(self) -> UUID:
        """Make an id that was never there before."""
        ...

    def spend(self, steps: int) -> None:
        """Pay for work that grows with the values; a FilterError where too much was done."""
        ...


# What the rules of a topic may do with the values of one message, all together: some milliseconds.
# Short work has a budget of its own, so that one rule on a long text does not make others fail.
STEPS_MAX: Final = 1 << 22
SHORT_STEPS_MAX: Final = 4_096
# Plain text is copied and searched so much faster than a character is looked at by itself.
PLAIN_PER_STEP: Final = 16


@final
class StepBudget:
    """The steps that are left for one message."""

    __slots__ = ("_long", "_short")

    def __init__(self) -> None:
        self._long: int = STEPS_MAX
        self._short: int = STEPS_MAX

    def spend(self, steps: int) -> None:
        """Take steps, or say that there are none left."""
        if steps <= SHORT_STEPS_MAX:
            self._short -= steps
            is_left = self._short >= 0
        else:
            self._long -= steps
            is_left = self._long >= 0
        if not is_left:
            raise FilterError("the rules of the topic take too many steps for this message")


@final
class PropertyBag:
    """Reads properties out of dictionaries: system ones by the names of `SYSTEM_PROPERTIES`.

    The exact name wins; another spelling is found when no exact one is there.
    """

    __slots__ = ("_folded", "_random_source", "_steps", "_system", "_user")

    def __init__(
        self,
        user: dict[str, Value],
        system: dict[str, Value],
        random_source: Callable[[], int],
    ) -> None:
        self._user = user
        self._system = system
        self._random_source = random_source
        self._folded: dict[str, Value] | None = None
        self._steps: StepBudget = StepBudget()

    def user(self, name: str) -> Value | Missing:
        """Return an application property, or MISSING."""
        value = self._user.get(name, MISSING)
        if value is not MISSING:
            return value
        return self._by_folded_name().get(fold(name), MISSING)

    def user_names(self) -> set[str]:
        """Return the names of all application properties, folded."""
        return set(self._by_folded_name())

    def _by_folded_name(self) -> dict[str, Value]:
        folded = self._folded
        if folded is None:
            folded = {}
            for key in self._user:
                folded.setdefault(fold(key), self._user[key])
            self._folded = folded
        return folded

    def system(self, name: str) -> Value | Missing:
        """Return a system property, or MISSING."""
        value = self._system.get(name, MISSING)
        if value is MISSING and name not in _SYSTEM_NAMES:
            raise no_system_property(name)
        return value

    def new_id(self) -> UUID:
        """Make a random id."""
        return id_by(self._random_source)

    def spend(self, steps: int) -> None:
        """Pay for work that grows with the values."""
        self._steps.spend(steps)


def id_by(random_source: Callable[[], int]) -> UUID:
    """Make a random UUID out of two draws of 64 bits."""
    bits = (random_source() & _INTEGER_MAX) << 64 | (random_source() & _INTEGER_MAX)
    return UUID(int=bits, version=4)


def fold(name: str) -> str:
    """Bring a name into the form in which names of any case are equal."""
    return name.lower()


def system_name(name: str) -> str | None:
    """Return the name in `SYSTEM_PROPERTIES` that is meant, or None when there is none."""
    return _BY_FOLDED_NAME.get(fold(name))


def no_system_property(name: str) -> FilterError:
    """Say that the name stands for nothing that messages have."""
    return FilterError(f"there is no system property {name}")


def check_value(value: Any, name: str) -> None:
    """Refuse what no message can carry, so that no comparison ever stumbles over it."""
    if value is not None and not isinstance(value, _TYPES):
        raise RuleError(f"the value of {name} has a type that rules do not know")
    if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
        raise RuleError(f"the value of {name} is beyond 64 bits")


def copied(values: Mapping[str, Value] | None, word: str) -> dict[str, Value]:
    """Copy the named values of a rule after checking each; `word` says what they are."""
    if values is None:
        return {}
    for name in values:
        check_value(values[name], f"{word} {name}")
    return dict(values)


def are_identical(left: Value, right: Value) -> bool:
    """Return whether two values are equal in type too: Python holds True and 1.0 for 1."""
    return type(left) is type(right) and left == right


def are_all_identical(left: dict[str, Value], right: dict[str, Value]) -> bool:
    """Return whether the same names have identical values."""
    return left.keys() == right.keys() and all(
        are_identical(left[name], right[name]) for name in left
    )
