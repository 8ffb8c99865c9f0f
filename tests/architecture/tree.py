"""The source as the rules see it: its files, and what stands in them."""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
_PLACES = ("src", "tests", "tools", "bench")
_NOT_OURS = {"node_modules", "__pycache__"}


def python_files(*places: str) -> list[Path]:
    """All Python files below the places, or below everything that is ours."""
    found = [path for place in places or _PLACES for path in (ROOT / place).rglob("*.py")]
    return sorted(path for path in found if _NOT_OURS.isdisjoint(path.parts))


def compiled_files() -> list[Path]:
    """The files that mypyc compiles."""
    found: list[Path] = runpy.run_path(str(ROOT / "setup.py"))["hot_modules"]()
    return found


def text_files() -> list[Path]:
    """All files in which a person leaves notes."""
    documents = [path for path in ROOT.glob("*") if path.suffix in (".md", ".toml", ".py")]
    documents += [ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    return sorted([*python_files(), *documents])


def name(path: Path) -> str:
    """A file's name from the root of the repository on."""
    return str(path.relative_to(ROOT))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def imports(tree: ast.Module) -> Iterator[str]:
    """The full names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
