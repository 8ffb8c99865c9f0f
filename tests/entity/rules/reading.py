"""Short words for the tests: a message's properties, and what a rule says to them."""

from collections.abc import Mapping
from typing import Any

from peeklock.entity.rules.action import Changes, SqlAction
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.values import PropertyBag, Truth


def message(user: Any = None, **system: Any) -> PropertyBag:
    """A message with these user properties; system properties by their names."""
    return PropertyBag(user or {}, system, random_source=lambda: 0)


def says(
    text: str,
    user: dict[str, Any] | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    **system: Any,
) -> Truth:
    """What a filter says to a message; `at` are its parameters."""
    return SqlFilter(text, at).evaluate(message(user, **system))


def makes(text: str, user: dict[str, Any] | None = None, **system: Any) -> Changes:
    """What an action makes of a message."""
    return SqlAction(text).apply(message(user, **system))
