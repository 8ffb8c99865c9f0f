"""One word, one thing: a public class is defined once, and folders stay small enough to read."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
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

# People and houses that once stood for things of the field, and the line that keeps one: a name in
# the journal.
OTHER_WORLDS = re.compile(
    r"(?<![a-z])(alarm|carrier|desk|guest|haul|house|housing|knock|lobby|roster|stranger|street)"
    r"(s|ed|ing)?(?![a-z])",
    re.IGNORECASE,
)
KEPT = ('CONSUMER: Final = "$carrier"',)
# Classes of others that our texts name and our source does not import.
OTHERS_CLASSES = {"AzureNamedKeyCredential", "AzureSasCredential", "IllegalStateException"}
CLASS_NAME = re.compile(r"`(?:\w+\.)*([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)(?:\.\w+)*`")


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


def test_a_module_name_is_used_once_in_its_package() -> None:
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for path in python_files("src/peeklock"):
        if path.stem.startswith("__") or name(path).startswith(MIRRORS):
            continue
        packages[_package(path)][path.stem] += 1
    twice = {
        package: sorted(
            stem for stem, count in stems.items() if count > 1 and stem not in FAMILY_FILES
        )
        for package, stems in packages.items()
    }
    assert {package: stems for package, stems in twice.items() if stems} == {}


def test_no_folder_has_too_many_files_to_look_through() -> None:
    sizes = Counter(path.parent for path in python_files("src"))
    assert {name(folder): n for folder, n in sizes.items() if n > FOLDER_FILES_MAX} == {}


def test_the_source_says_the_words_of_the_field() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in python_files("src")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OTHER_WORLDS.search(line) and not any(kept in line for kept in KEPT)
    ]
    assert found == []


def test_classes_that_comments_and_docstrings_name_exist() -> None:
    known = set(OTHERS_CLASSES)
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            known |= _names_of(node)
    missing = [
        f"{name(path)}: {word}"
        for path in python_files("src")
        for text in _prose(path)
        for word in CLASS_NAME.findall(text)
        if word not in known
    ]
    assert missing == []


def _names_of(node: ast.AST) -> set[str]:
    """What a statement gives a name to, by defining or by importing it."""
    match node:
        case ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
        case ast.Name(ctx=ast.Store()):
            return {node.id}
    return set()


def _prose(path: Path) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or token.string.startswith('"""'):
            yield token.string


def _package(path: Path) -> str:
    """The folder below the package, or one of the gateway's: `gateway/amqp` and `gateway/http`."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[: 2 if parts[0] == "gateway" and len(parts) > 2 else 1])
