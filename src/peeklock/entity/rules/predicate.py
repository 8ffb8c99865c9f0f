"""The parts of an expression that are true, false or unknown; they evaluate themselves.

Three-valued logic as in SQL: None is unknown, and only what is true in the end matches. A part that
decides the whole ends the evaluation, so that an error behind it does not show.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.like import Pattern
from peeklock.entity.rules.operand import USER, Operand, Property
from peeklock.entity.rules.operators import EQUAL, compare, equal, kind_of
from peeklock.entity.rules.values import UNKNOWN, Missing, PropertyReader, Truth, Value

# As long as a filter can be. A pattern may also come out of a message, and reading it takes time.
PATTERN_LENGTH_MAX: Final = 1_024
STEPS_TO_READ: Final = 1_024


class Predicate:
    """What is true, false or unknown."""

    __slots__ = ()

    def test(self, reader: PropertyReader) -> Truth:
        """Tell the truth about a message."""
        raise NotImplementedError


@final
class Assertion(Predicate):
    """A boolean that stands for itself: a constant, a property, a parameter."""

    __slots__ = ("_operand",)

    def __init__(self, operand: Operand) -> None:
        self._operand: Operand = operand

    def test(self, reader: PropertyReader) -> Truth:
        """Return what the boolean says."""
        value = self._operand.value(reader)
        if value is None or isinstance(value, bool):
            return value
        raise FilterError(f"{kind_of(value)} is neither true nor false")


@final
class Comparison(Predicate):
    """Two operands and how they should relate."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: int, left: Operand, right: Operand) -> None:
        self.operator: Final[int] = operator
        self.left: Final[Operand] = left
        self.right: Final[Operand] = right

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether they do; unknown where one operand is."""
        left = self.left.value(reader)
        if left is None:
            return UNKNOWN
        right = self.right.value(reader)
        return UNKNOWN if right is None else compare(self.operator, left, right)


@final
class PropertyComparison(Predicate):
    """A property and a constant: what most filters consist of, at half the price."""

    __slots__ = ("constant", "name", "operator", "scope")

    def __init__(self, operator: int, scope: int, name: str, constant: Value) -> None:
        self.operator: Final[int] = operator
        self.scope: Final[int] = scope
        self.name: Final[str] = name
        self.constant: Final[Value] = constant

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether the property relates to the constant as it should."""
        value = reader.user(self.name) if self.scope == USER else reader.system(self.name)
        if value is None or isinstance(value, Missing):
            return UNKNOWN
        if self.operator == EQUAL:
            return equal(value, self.constant)
        return compare(self.operator, value, self.constant)


@final
class Membership(Predicate):
    """An operand and the list that should hold it."""

    __slots__ = ("items", "operand")

    def __init__(self, operand: Operand, items: list[Operand]) -> None:
        self.operand: Final[Operand] = operand
        self.items: Final[list[Operand]] = items

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether an item equals it; unknown items may do so."""
        value = self.operand.value(reader)
        if value is None:
            return UNKNOWN
        result: Truth = False
        for item in self.items:
            candidate = item.value(reader)
            if candidate is None:
                result = UNKNOWN
            elif equal(value, candidate):
                return True
        return result


@final
class TextMembership(Predicate):
    """An operand and constant texts: one look instead of many."""

    __slots__ = ("operand", "texts")

    def __init__(self, operand: Operand, texts: frozenset[str]) -> None:
        self.operand: Final[Operand] = operand
        self.texts: Final[frozenset[str]] = texts

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether it is one of the texts."""
        value = self.operand.value(reader)
        if value is None:
            return UNKNOWN
        return isinstance(value, str) and value in self.texts


@final
class Like(Predicate):
    """A text and the pattern that it should have; a constant pattern is read only once."""

    __slots__ = ("_escape", "_operand", "_pattern", "_ready")

    def __init__(
        self,
        operand: Operand,
        pattern: Operand,
        escape: Operand | None,
        ready: Pattern | None,
    ) -> None:
        self._operand: Operand = operand
        self._pattern: Operand = pattern
        self._escape: Operand | None = escape
        self._ready: Pattern | None = ready

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether the text is so; unknown where an operand is."""
        value = self._operand.value(reader)
        if value is None:
            return UNKNOWN
        pattern = self._ready
        if pattern is None:
            pattern = self._read(reader)
            if pattern is None:
                return UNKNOWN
        if not isinstance(value, str):
            raise FilterError(f"LIKE compares texts, not {kind_of(value)}")
        return pattern.matches(value, reader)

    def _read(self, reader: PropertyReader) -> Pattern | None:
        pattern = self._pattern.value(reader)
        if pattern is None:
            return None
        if isinstance(pattern, str):
            # To read a pattern costs about so much more than to try it.
            reader.spend(len(pattern) * STEPS_TO_READ)
        if self._escape is None:
            return pattern_of(pattern)
        escape = self._escape.value(reader)
        return None if escape is None else pattern_of(pattern, escape)


@final
class IsNull(Predicate):
    """Whether a property has no value."""

    __slots__ = ("property",)

    def __init__(self, subject: Property) -> None:
        self.property: Final[Property] = subject

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether it is null or not there at all."""
        return self.property.value(reader) is None


@final
class Exists(Predicate):
    """Whether a property is there, if only as a null."""

    __slots__ = ("property",)

    def __init__(self, subject: Property) -> None:
        self.property: Final[Property] = subject

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether the message has it."""
        return not isinstance(self.property.read(reader), Missing)


@final
class Not(Predicate):
    """The opposite; that of unknown is unknown."""

    __slots__ = ("predicate",)

    def __init__(self, predicate: Predicate) -> None:
        self.predicate: Final[Predicate] = predicate

    def test(self, reader: PropertyReader) -> Truth:
        """Tell the opposite."""
        truth = self.predicate.test(reader)
        return UNKNOWN if truth is None else not truth


@final
class AllOf(Predicate):
    """AND: false if one is false, else unknown if one is unknown, else true."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Predicate]) -> None:
        self.parts: Final[list[Predicate]] = parts

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether all hold, up to the first that does not."""
        result: Truth = True
        for part in self.parts:
            truth = part.test(reader)
            if truth is None:
                result = UNKNOWN
            elif not truth:
                return False
        return result


@final
class AnyOf(Predicate):
    """OR: true if one is true, else unknown if one is unknown, else false."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Predicate]) -> None:
        self.parts: Final[list[Predicate]] = parts

    def test(self, reader: PropertyReader) -> Truth:
        """Return whether one holds, up to the first that does."""
        result: Truth = False
        for part in self.parts:
            truth = part.test(reader)
            if truth is None:
                result = UNKNOWN
            elif truth:
                return True
        return result


def pattern_of(pattern: Value, escape: Value = None) -> Pattern:
    """Read the pattern of LIKE, with its escape character if it has one."""
    if not isinstance(pattern, str):
        raise FilterError(f"the pattern of LIKE must be a text, not {kind_of(pattern)}")
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise FilterError(f"the pattern of LIKE has more than {PATTERN_LENGTH_MAX:,} characters")
    if escape is None:
        return Pattern(pattern)
    if not isinstance(escape, str) or len(escape) != 1:
        raise FilterError("the ESCAPE of LIKE must be a text of one character")
    return Pattern(pattern, escape)
