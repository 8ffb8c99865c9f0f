"""One object of the file, read key by key; what is wrong is noted with its full path."""

import difflib
import math
from typing import Any, final

from peeklock.durations import parse_duration


@final
class Section:
    """Hands out the values of an object, checked for their type; knows what nobody asked for."""

    def __init__(self, where: str, value: Any, problems: list[str]) -> None:
        self.where = where
        self._problems = problems
        self._known: list[str] = []
        self._values: dict[str, Any] = {}
        if isinstance(value, dict):
            self._values = value
        else:
            self.note("", f"must be an object, not {_kind(value)}")

    def note(self, key: str, problem: str) -> None:
        """Note a problem with a key of this section, or with the section itself."""
        path = f"{self.where}.{key}" if key and self.where else key or self.where
        self._problems.append(f"{path}: {problem}" if path else problem)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; without a default it must be there."""
        value = self._take(key, default)
        if isinstance(value, str):
            return value
        self.note(key, "is missing" if value is None else f"must be text, not {_kind(value)}")
        return default or ""

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._take(key, default)
        if isinstance(value, bool):
            return value
        self.note(key, f"must be true or false, not {_kind(value)}")
        return default

    def whole(self, key: str, default: int) -> int:
        """Return a whole number."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.note(key, f"must be a whole number, not {_kind(value)}")
        return default

    def duration_ms(self, key: str, default: int) -> int:
        """Return an ISO-8601 duration in milliseconds."""
        value = self._take(key, None)
        if value is None:
            return default
        try:
            return parse_duration(value) if isinstance(value, str) else _not_a_duration(value)
        except ValueError as error:
            self.note(key, str(error))
            return default

    def texts(self, key: str) -> list[str]:
        """Return a list of strings, which must be there."""
        value = self._take(key, None)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        self.note(key, "is missing" if value is None else "must be a list of texts")
        return []

    def scalars(self, key: str) -> dict[str, str | int | float | bool]:
        """Return an object whose keys are free and whose values are texts, numbers and booleans."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            self.note(key, f"must be an object, not {_kind(value)}")
            return {}
        scalars: dict[str, str | int | float | bool] = {}
        for name, item in value.items():
            # A number beyond all doubles is read as infinity, which nobody has meant.
            if isinstance(item, (str, int, float)) and item not in (math.inf, -math.inf):
                scalars[name] = item
            else:
                self.note(
                    f"{key}.{name}", f"must be text, a number or a boolean, not {_kind(item)}"
                )
        return scalars

    def section(self, key: str) -> "Section":
        """Return an object below this one; an absent one is empty."""
        return Section(self._path(key), self._take(key, {}), self._problems)

    def sections(self, key: str) -> list["Section"] | None:
        """Return a list of objects, or None where there is no list."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, list):
            self.note(key, f"must be a list, not {_kind(value)}")
            return []
        places = (f"{self._path(key)}[{index}]" for index in range(len(value)))
        return [
            Section(place, item, self._problems) for place, item in zip(places, value, strict=True)
        ]

    def has(self, key: str) -> bool:
        """Return whether the key is there."""
        return self._values.get(key) is not None

    def finish(self) -> None:
        """Note the keys that nobody asked for: a misspelt one must not be ignored."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                hint = f"; is {near[0]} meant?" if near else ""
                self.note(key, f"is not a known key{hint}")

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        value = self._values.get(key)
        return default if value is None else value

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def _not_a_duration(value: Any) -> int:
    raise ValueError(f"must be an ISO-8601 duration such as PT1M, not {_kind(value)}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value in (math.inf, -math.inf):
        return "a number without end"
    names = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), "null")
