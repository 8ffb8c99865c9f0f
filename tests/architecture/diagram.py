"""The diagram of places in ARCHITECTURE, made of the table; run as a program it writes it anew."""

import re
from typing import Final

from peeklock.entity.places import diagram
from tests.architecture.tree import ROOT

PAGE: Final = ROOT / "ARCHITECTURE.md"
_BLOCK: Final = re.compile(r"```mermaid\nstateDiagram-v2\n.*?```", re.DOTALL)


def page() -> str:
    """Return the page as it should be."""
    text, count = _BLOCK.subn(f"```mermaid\n{diagram()}```", PAGE.read_text())
    assert count == 1, "the page has one diagram of places"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
