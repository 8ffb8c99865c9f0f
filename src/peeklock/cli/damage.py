"""`peeklock store check` and `repair`: what is damaged on disk, told and given up."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

from peeklock.cli.output import TABLE, fail, print_json, print_table
from peeklock.store.damage import repair as store_repair
from peeklock.store.damage.inspection import PartitionFindings, StoreFindings, inspect_store
from peeklock.store.damage.pages import DATA
from peeklock.store.environment import owned
from peeklock.store.segments.moving import has_segments
from peeklock.store.store import Corrupt, PartitionId, StoreError

DAMAGED: Final = 3

# As the catalog calls what has partitions, and what is left of it; and where those rest that were
# made when there was one store.
_HOMES: Final = ("queue", "topic")
_DROPPED: Final = "dropped"
_FIRST_STORES: Final = ("store",)

_CLOSED: Final = "stays closed until it is repaired"
_SET_APART: Final = "goes to the dead letters when it is delivered"
_ALL_LOST: Final = "concerns all of it, and cannot be repaired: restore a copy"
_ORPHANED: Final = "nobody reaches it: restore a copy of the catalog"
_NO_START: Final = "the broker does not start until it is repaired"


@final
class _Data:
    """All that was found in a data directory."""

    def __init__(self, descriptions: dict[bytes, bytes], problems: list[str]) -> None:
        # The catalog: what of it is whole, and what is not.
        self.descriptions = descriptions
        self.problems = problems
        self.stores: list[StoreFindings] = []
        self.lost: list[tuple[str, str]] = []  # what is lost as a whole, and why
        # By store: what the catalog calls the partitions that rest there.
        self.names: dict[str, list[str]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each damage."""
        rows = [_row(store_repair.CATALOG, "", problem, _NO_START) for problem in self.problems]
        rows += [_row(name, "", problem, _ALL_LOST) for name, problem in self.lost]
        for store in self.stores:
            name = store.directory.name
            rows += [_row(name, "", each, "may end the broker") for each in store.problems]
            known = set(self.names.get(name, []))
            for found in store.partitions:
                rows += _partition_rows(name, found)
                if found.entry.name and found.entry.name not in known:
                    text = f"no description names it, and its {len(found.live)} messages"
                    rows.append(_row(name, found.name, text, _ORPHANED))
        return rows


def check(data: Path, output: str) -> None:
    """Tell what is damaged."""
    with _examined(data) as examined:
        rows = examined.rows()
    if output != TABLE:
        print_json({"damage": rows}, output)
    elif rows:
        columns = ["store", "partition", "damage", "consequence"]
        print_table("Damage", columns, [[row[name] for name in columns] for row in rows])
    else:
        sys.stdout.write("Nothing is damaged.\n")
    if rows:
        sys.exit(DAMAGED)


def repair(data: Path, output: str) -> None:
    """Give up what is lost, and tell what that leaves open."""
    done: list[dict[str, Any]] = []
    with _examined(data) as examined:
        problems = examined.problems
        if problems:
            directory = data / store_repair.CATALOG
            copy = store_repair.copy_aside(directory)
            lines = [{"given_up": "a description", "text": text} for text in problems]
            listed = store_repair.write_list(directory, lines)
            store_repair.rewrite_catalog(directory, examined.descriptions)
            done.append(_done(store_repair.CATALOG, copy, listed, len(lines)))
        for store in examined.stores:
            if store.problems or any(found.is_closed for found in store.partitions):
                copy = store_repair.copy_aside(store.directory)
                lines = list(store_repair.list_of(store))
                listed = store_repair.write_list(store.directory, lines)
                store_repair.rewrite_store(store)
                done.append(_done(store.directory.name, copy, listed, len(lines)))
        left = [f"{name}: {problem}" for name, problem in examined.lost]
        left += [
            f"{found.name}: {problem}"
            for store in examined.stores
            for found in store.partitions
            if found.is_hopeless
            for problem in found.problems
        ]
    if output != TABLE:
        print_json({"repaired": done, "not_repaired": left}, output)
    elif done:
        columns = ["store", "copy", "list", "lines"]
        print_table("Repaired", columns, [[str(row[name]) for name in columns] for row in done])
    elif not left:
        sys.stdout.write("Nothing has to be repaired.\n")
    if left:
        fail("cannot be repaired, restore a copy: " + "; ".join(left))


@contextlib.contextmanager
def _examined(data: Path) -> Iterator[_Data]:
    """Look at everything in a data directory, which nobody may use meanwhile."""
    catalog = data / store_repair.CATALOG
    if not (catalog / DATA).exists():
        fail(f"{data} is no data directory of a broker: there is no catalog in it")
    directories = [
        path
        for path in sorted(data.glob("store*"))
        if "." not in path.name and ((path / DATA).exists() or has_segments(path))
    ]
    with contextlib.ExitStack() as stack:
        try:
            for directory in (catalog, *directories):
                stack.enter_context(owned(directory))
        except StoreError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{data} cannot be read: {error}")
        try:
            whole, texts, problems = store_repair.inspect_catalog(catalog / DATA)
        except (Corrupt, OSError) as error:
            # Without it no store can be repaired either: the names are in there.
            examined = _Data({}, [])
            examined.lost.append((store_repair.CATALOG, str(error)))
            yield examined
            return
        examined = _Data(whole, problems)
        for directory in directories:
            names = examined.names[directory.name] = _names(texts, directory.name)
            try:
                found = inspect_store(directory, directory / DATA, names)
            except (Corrupt, OSError) as error:
                examined.lost.append((directory.name, str(error)))
            else:
                examined.stores.append(found)
        yield examined


def _names(texts: list[str], store: str) -> list[str]:
    """What the catalog calls the partitions that rest in a store."""
    names: list[str] = []
    for text in texts:
        namespace, kind, path, described = json.loads(text)
        for index, (name, place) in enumerate(_places(kind, path, described)):
            if place == store:
                names.append(PartitionId(namespace, name, index).key)
    return names


def _places(kind: str, path: str, described: str) -> list[tuple[str, str]]:
    """The name that stores know an entity by, and the store of each partition."""
    if kind == _DROPPED:  # it is deleted, and what it left is still to be removed
        return [(path, place) for place in described.split()]
    document = json.loads(described)
    if not isinstance(document, dict) or kind not in _HOMES:
        return []
    incarnation = document.get("incarnation", 0)
    name = f"{path}#{incarnation}" if incarnation else path
    return [(name, place) for place in document.get("stores", _FIRST_STORES)]


def _partition_rows(store: str, found: PartitionFindings) -> list[dict[str, Any]]:
    rows = [_row(store, found.name, problem, _CLOSED) for problem in found.problems]
    for first, end in found.holes:
        where = f"position {first}" if end == first + 1 else f"positions {first} to {end - 1}"
        rows.append(_row(store, found.name, f"{where} cannot be read", _CLOSED))
    if found.holes:
        missing = ", ".join(_span(low, high) for low, high in found.may_be_missing) or "none"
        again = len(found.may_come_again)
        text = f"without it {again} messages may come again; numbers that may be missing: {missing}"
        rows[-1]["consequence"] += f"; {text}"
        rows[-1]["may_come_again"] = found.may_come_again
        rows[-1]["may_be_missing"] = [list(each) for each in found.may_be_missing]
    for number in found.damaged_bodies:
        rows.append(_row(store, found.name, f"the body of message {number}", _SET_APART))
    return rows


def _span(low: int, high: int | None) -> str:
    if high == low:
        return str(low)
    return f"{low} and later" if high is None else f"{low} to {high}"


def _row(store: str, partition: str, damage: str, consequence: str) -> dict[str, Any]:
    return {
        "store": store,
        "partition": partition,
        "damage": damage,
        "consequence": consequence,
    }


def _done(store: str, copy: Path, listed: Path, lines: int) -> dict[str, Any]:
    return {"store": store, "copy": str(copy), "list": str(listed), "lines": lines}
