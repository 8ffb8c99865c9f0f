"""The arguments of a `$management` request: a map with string keys, read by name and type.

Reading never raises. The first argument that is missing or of the wrong type is remembered as the
refusal, so that an operation reads all it needs and then asks once whether all was well.
"""

from typing import Any, Final, final
from uuid import UUID

from peeklock.amqp.values.types import Array
from peeklock.entity.deliveries import LockToken
from peeklock.entity.refusals import INVALID_ARGUMENT, Refusal
from peeklock.gateway.amqp.management.lock_tokens import token_of

INT64_MAX: Final = (1 << 63) - 1
# No answer lists more than this; whoever wants more goes on from there.
PAGE_MAX: Final = 1_000
# No list in a request is longer, unless its reader says another limit.
LIST_MAX: Final = 10_000
# The same of locks and messages, which cost more than numbers.
DEAR_LIST_MAX: Final = 4_000
INT32_MAX: Final = (1 << 31) - 1


@final
class Arguments:
    """A request's map and the first thing that is wrong with it."""

    __slots__ = ("_values", "refusal")

    def __init__(self, body: Any) -> None:
        self.refusal: Refusal | None = None
        self._values: dict[Any, Any] = {}
        if isinstance(body, dict):
            self._values = body
        elif body is not None:
            self.refusal = Refusal(INVALID_ARGUMENT, "The request's body must be a map.")

    def has(self, name: str) -> bool:
        """Whether there is something under a name; null is nothing."""
        return self._values.get(name) is not None

    def within(self, name: str) -> "Arguments":
        """A required map, to be read like these arguments and then adopted."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            self.wrong(name, "must be a map")
            return Arguments(None)
        return Arguments(value)

    def number(self, name: str, *, low: int = 0, high: int = INT64_MAX) -> int:
        """A required whole number within bounds."""
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            return self._wrong_number(name, "must be a whole number", low)
        if not low <= value <= high:
            return self._wrong_number(name, f"must be between {low} and {high}", low)
        return int(value)

    def optional_number(
        self, name: str, otherwise: int, *, low: int = 0, high: int = INT64_MAX
    ) -> int:
        """A whole number within bounds, or another when it is absent."""
        return self.number(name, low=low, high=high) if self.has(name) else otherwise

    def flag(self, name: str) -> bool:
        """An optional boolean, false when absent."""
        value = self._values.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.wrong(name, "must be a boolean")
        return False

    def text(self, name: str) -> str:
        """A required string."""
        value = self._values.get(name)
        if isinstance(value, str):
            return str(value)
        self.wrong(name, "must be a string")
        return ""

    def optional_text(self, name: str) -> str | None:
        """A string, or None when it is absent."""
        return None if self._values.get(name) is None else self.text(name)

    def optional_binary(self, name: str) -> bytes | None:
        """Some bytes, or None when they are absent or null."""
        value = self._values.get(name)
        if value is None or isinstance(value, bytes):
            return value
        self.wrong(name, "must be a binary or null")
        return None

    def optional_map(self, name: str) -> dict[Any, Any]:
        """A map, empty when it is absent."""
        value = self._values.get(name)
        if value is None or isinstance(value, dict):
            return value or {}
        self.wrong(name, "must be a map")
        return {}

    def items(self, name: str, *, most: int = LIST_MAX) -> list[Any]:
        """A required list of so many items at most; an array is as good."""
        value = self._values.get(name)
        items = value.items if isinstance(value, Array) else value
        if not isinstance(items, list):
            self.wrong(name, "must be an array or a list")
            return []
        if len(items) > most:
            self.wrong(name, f"must hold at most {most} items, not {len(items)}")
            return []
        return items

    def numbers(self, name: str, *, most: int = LIST_MAX) -> list[int]:
        """A required list of whole numbers, so many at most."""
        numbers: list[int] = []
        for item in self.items(name, most=most):
            if not isinstance(item, int) or isinstance(item, bool):
                self.wrong(name, "must hold whole numbers only")
                break
            numbers.append(int(item))
        return numbers

    def tokens(self, name: str) -> list[LockToken]:
        """A required list of lock tokens, at least one."""
        tokens: list[LockToken] = []
        for item in self.items(name, most=DEAR_LIST_MAX):
            if not isinstance(item, UUID):
                self.wrong(name, "must hold UUIDs only")
                break
            tokens.append(token_of(item))
        if not tokens:
            self.wrong(name, "must not be empty")
        return tokens

    def wrong(self, name: str, problem: str) -> None:
        """Remember what is wrong, if it is the first thing."""
        if self.refusal is None:
            self.refusal = Refusal(INVALID_ARGUMENT, f"The argument '{name}' {problem}.")

    def adopt(self, inner: "Arguments") -> None:
        """Take over what is wrong with a map inside this one."""
        if self.refusal is None:
            self.refusal = inner.refusal

    def _wrong_number(self, name: str, problem: str, instead: int) -> int:
        self.wrong(name, problem)
        return instead
