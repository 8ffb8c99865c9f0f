"""The list of what tests share, tests/README.md; run as a program it writes the page."""

import ast
from pathlib import Path
from typing import Final

from tests.architecture.tree import ROOT, name, parse, python_files

PAGE: Final = ROOT / "tests" / "README.md"
_HEAD: Final = """# What tests share

`tests/` mirrors `src/`; [CONTRIBUTING](../CONTRIBUTING.md) says how tests are written and run.
These modules have no tests of their own: look here before you write another stand-in. The list is
made of their first lines by `make format`.

| module | what it is |
|---|---|
"""


def page() -> str:
    """Return the page as it should be."""
    rows = [f"| `{name(path)}` | {_told(path)} |\n" for path in python_files("tests") if _is(path)]
    return _HEAD + "".join(rows)


def _is(path: Path) -> bool:
    return not path.name.startswith(("test_", "__init__"))


def _told(path: Path) -> str:
    text = ast.get_docstring(parse(path)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.rstrip(".:").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
