"""A dictionary of which no part is large.

One that holds half a million grows in a step of 13 ms: it is copied as a whole. Here what is full
is left as it is, and another one goes on. Most of the time there is one alone, and what is done
most often costs a look at that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, final

K = TypeVar("K")
V = TypeVar("V")

# So many are in one part, at most; to grow up to that takes a millisecond.
PART_MAX: Final = 65_536


@final
class LargeDict(Generic[K, V]):
    """Values by key, in the order in which they came."""

    __slots__ = ("_full", "_latest")

    def __init__(self) -> None:
        self._latest: dict[K, V] = {}
        # Those that were full, the oldest first, none of them empty; None where there is none.
        self._full: list[dict[K, V]] | None = None

    def get(self, key: K) -> V | None:
        """Return the value of a key, if there is one."""
        found = self._latest.get(key)
        if found is None and self._full is not None:
            part = self._part_of(key)
            return None if part is None else part[key]
        return found

    def __getitem__(self, key: K) -> V:
        if self._full is None:
            return self._latest[key]
        return self._holder(key)[key]

    def __setitem__(self, key: K, value: V) -> None:
        if self._full is not None:
            part = self._part_of(key)
            if part is not None:
                part[key] = value
                return
        latest = self._latest
        latest[key] = value
        if len(latest) >= PART_MAX:
            self._begin_another()

    def __delitem__(self, key: K) -> None:
        if self._full is None:
            del self._latest[key]
        else:
            part = self._holder(key)
            del part[key]
            self._tidy(part)

    def pop(self, key: K) -> V | None:
        """Take a value out, if there is one."""
        if self._full is None:
            return self._latest.pop(key, None)
        part = self._part_of(key)
        if part is None:
            return None
        value = part.pop(key)
        self._tidy(part)
        return value

    def popitem(self) -> tuple[K, V]:
        """Take out the one that came last."""
        if not self._latest and self._full is not None:
            self._latest = self._full.pop()
            self._full = self._full or None
        return self._latest.popitem()

    def __contains__(self, key: Any) -> bool:
        return key in self._latest or (self._full is not None and self._part_of(key) is not None)

    def __bool__(self) -> bool:
        return len(self._latest) > 0 or self._full is not None

    def __len__(self) -> int:
        count = len(self._latest)
        if self._full is not None:
            for part in self._full:
                count += len(part)
        return count

    def __iter__(self) -> Iterator[K]:
        for part in self.parts():
            yield from part

    def parts(self) -> list[dict[K, V]]:
        """Return all parts in their order, to walk through one after the other."""
        return [self._latest] if self._full is None else [*self._full, self._latest]

    def values(self) -> Iterator[V]:
        """Return all values, for who will not look at many."""
        for part in self.parts():
            yield from part.values()

    def listed(self) -> list[V]:
        """Return all values at once."""
        found: list[V] = []
        for part in self.parts():
            found += part.values()
        return found

    def _part_of(self, key: K) -> dict[K, V] | None:
        """Return the part that has a key; what came last is asked for most."""
        if key in self._latest:
            return self._latest
        if self._full is not None:
            for part in reversed(self._full):
                if key in part:
                    return part
        return None

    def _holder(self, key: K) -> dict[K, V]:
        part = self._part_of(key)
        if part is None:
            raise KeyError(key)
        return part

    def _begin_another(self) -> None:
        full = self._full if self._full is not None else []
        if len(full) > 1 and len(full[-1]) + len(full[-2]) <= PART_MAX // 2:
            # Little is left of both: so there are never many parts for few keys.
            last = full.pop()
            full[-1].update(last)
        full.append(self._latest)
        self._full = full
        self._latest = {}

    def _tidy(self, part: dict[K, V]) -> None:
        if not part and part is not self._latest and self._full is not None:
            self._full = [each for each in self._full if each is not part] or None
