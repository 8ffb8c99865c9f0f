"""One word, one thing: a public class is defined once, and folders stay small enough to read."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

from tests.architecture.tree import ROOT, name, parse, python_files

PACKAGE = ROOT / "src" / "peeklock"
FOLDER_FILES_MAX = 18
# The blocking client has the names of the one that awaits, because the SDK has it so.
MIRRORS = ("src/peeklock/client/blocking/", "src/peeklock/client/administration/blocking")
# Words of two specifications that we do not choose: AMQP's and the SDK's beside our own.
BOTH_SPELL_IT = {"AuthorizationRule"}
# The same file in several folders: what a family can be asked, writes down and replays; what an
# engine is made of.
FAMILY_FILES = {"commands", "records", "replay", "node", "store", "walk"}


def public_classes() -> dict[str, list[str]]:
    """Where each public class of the source is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in python_files("src"):
        if name(path).startswith(MIRRORS):
            continue
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name(path))
    return found


def test_a_public_class_is_defined_once() -> None:
    twice = {
        word: places
        for word, places in public_classes().items()
        if len(places) > 1 and word not in BOTH_SPELL_IT
    }
    assert twice == {}


def test_a_module_name_is_used_once_in_its_room() -> None:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path in python_files("src/peeklock"):
        if path.stem.startswith("__") or name(path).startswith(MIRRORS):
            continue
        rooms[_room(path)][path.stem] += 1
    twice = {
        room: sorted(
            stem for stem, count in stems.items() if count > 1 and stem not in FAMILY_FILES
        )
        for room, stems in rooms.items()
    }
    assert {room: stems for room, stems in twice.items() if stems} == {}


def test_no_folder_has_too_many_files_to_look_through() -> None:
    sizes = Counter(path.parent for path in python_files("src"))
    assert {name(folder): n for folder, n in sizes.items() if n > FOLDER_FILES_MAX} == {}


def _room(path: Path) -> str:
    """The folder below the package, or one of the gateway's: `gateway/amqp` and `gateway/http`."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[: 2 if parts[0] == "gateway" and len(parts) > 2 else 1])
