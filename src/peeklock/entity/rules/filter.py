"""Filters that are written as text, and the two that need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.guard import Guard, cannot_fail, guard_of
from peeklock.entity.rules.predicate import Predicate
from peeklock.entity.rules.values import (
    PropertyBag,
    PropertyReader,
    Truth,
    Value,
    are_all_identical,
    copied,
)


@final
class TrueFilter:
    """Takes every message; clients that know only texts write it as 1=1."""

    __slots__ = ()

    def evaluate(self, reader: PropertyReader) -> Truth:  # noqa: ARG002 - all filters take it
        """Tell that the message is taken."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrueFilter)

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "TrueFilter()"


@final
class FalseFilter:
    """Takes no message; clients that know only texts write it as 1=0."""

    __slots__ = ()

    def evaluate(self, reader: PropertyReader) -> Truth:  # noqa: ARG002 - all filters take it
        """Tell that the message is not taken."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FalseFilter)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "FalseFilter()"


@final
class SqlFilter:
    """Takes what makes its condition true. The text stays as it was written, to the character.

    `constant` is the result for all messages, where the condition asks none of them; None where it
    does. `guard` is what must hold before an evaluation is worth its time.
    """

    __slots__ = ("_predicate", "can_fail", "constant", "guard", "parameters", "text")

    def __init__(self, text: str, parameters: Mapping[str, Value] | None = None) -> None:
        # Imported late: it brings the parser, which a broker without such filters does not need.
        from peeklock.entity.rules.builder import build_predicate

        self.text: Final[str] = text
        self.parameters: Final[dict[str, Value]] = copied(parameters, "the parameter")
        predicate, is_constant = build_predicate(text, self.parameters)
        self._predicate: Predicate = predicate
        self.can_fail: bool = not cannot_fail(predicate)
        self.constant: bool | None = None
        if is_constant:
            self._fix()
        self.guard: Final[Guard | None] = guard_of(predicate)

    def evaluate(self, reader: PropertyReader) -> Truth:
        """Return whether the message is taken: only True means that it is."""
        return self._predicate.test(reader)

    def _fix(self) -> None:
        """Evaluate a condition that asks no message, once and for all."""
        try:
            self.constant = self._predicate.test(PropertyBag({}, {}, random_source=int)) is True
            self.can_fail = False
        except FilterError:
            # It fails for each message, and does so when there is one (12.2).
            self.constant = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SqlFilter)
            and self.text == other.text
            and are_all_identical(self.parameters, other.parameters)
        )

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SqlFilter({self.text!r}, {self.parameters!r})"
