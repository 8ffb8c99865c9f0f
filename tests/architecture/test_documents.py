"""Documents: names in ARCHITECTURE exist, links lead somewhere, options are listed."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, name, parse, python_files
from tools.markdown import long_lines

PACKAGE = ROOT / "src" / "peeklock"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"`([^`\n]+)`")
HOP = re.compile(r"\[`(\w+)\.(\w+)`\]\(([^)]+)\)")
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def test_every_name_in_the_architecture_exists() -> None:
    members = classes()
    spoken = CODE.findall((ROOT / "ARCHITECTURE.md").read_text())
    unknown = [
        word
        for word in spoken
        if (re.fullmatch(r"[a-z_/]+(/|\.py)", word) and not is_path(word))
        or (re.fullmatch(r"[A-Z]\w+(\.\w+)?", word) and not is_member(word, members))
    ]
    assert unknown == []
    assert len(spoken) > 40, "the walk names its steps; were they found?"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    links = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_lines_of_documents_fit(document: Path) -> None:
    # Tables and code may be longer; `make format` wraps the rest.
    assert long_lines(document.read_text()) == []


def test_every_hop_of_the_walks_exists() -> None:
    """A new reader follows one message, one settlement, one publish and one batch of Spark."""
    page = ROOT / "docs" / "explanation" / "walks.md"
    walks = page.read_text().split("\n## ")[1:]
    lost = []
    for walk in walks:
        hops = HOP.findall(walk)
        assert 0 < len(hops) <= 12, walk.splitlines()[0]
        for owner, member, place in hops:
            body = [n for n in parse((page.parent / place).resolve()).body if is_class(n, owner)]
            if not any(is_function(n, member) for each in body for n in ast.walk(each)):
                lost.append(f"{owner}.{member}")
    assert lost == []
    assert len(walks) == 4


def test_every_option_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    options = re.findall(r'envvar="(\w+)"', (PACKAGE / "cli" / "options.py").read_text())
    assert len(options) >= 23
    assert [option for option in options if f"`{option}`" not in reference] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "explanation" / "decisions"
    index = (folder / "README.md").read_text()
    records = sorted(path.name for path in folder.glob("0*.md"))
    assert [record for record in records if f"({record})" not in index] == []
    numbers = [int(record[:4]) for record in records]
    # Numbers are handed out before the pages are written, so that some may be missing.
    assert len(set(numbers)) == len(numbers)


def classes() -> dict[str, set[str]]:
    """Every class of the source with the names that its body defines."""
    found: dict[str, set[str]] = {}
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                methods |= {n.name for n in node.body if isinstance(n, ast.AsyncFunctionDef)}
                found.setdefault(node.name, set()).update(methods)
    return found


def is_class(node: ast.AST, word: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == word


def is_function(node: ast.AST, word: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == word


def is_path(word: str) -> bool:
    return (PACKAGE / word).exists() or (ROOT / word).exists()


def is_member(word: str, members: dict[str, set[str]]) -> bool:
    owner, _, member = word.partition(".")
    return owner in members and (not member or member in members[owner])
