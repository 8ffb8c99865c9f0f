"""The diagram of places in ARCHITECTURE, made of the table; run as a program it writes it anew."""

import re
from typing import Final

from peeklock.entity.entries import GONE
from peeklock.entity.tables.places import MOVES, NEW, PLACE_NAMES, RENUMBERED
from tests.architecture.tree import ROOT

PAGE: Final = ROOT / "ARCHITECTURE.md"
_BLOCK: Final = re.compile(r"```mermaid\nstateDiagram-v2\n.*?```", re.DOTALL)


def diagram() -> str:
    """Return the moves as a state diagram in Mermaid's words."""
    lines = ["stateDiagram-v2"]
    for begin, end, what, _ in (*MOVES, *RENUMBERED):
        first = "[*]" if begin == NEW else PLACE_NAMES[begin]
        last = "[*]" if end == GONE else PLACE_NAMES[end]
        lines.append(f"    {first} --> {last}: {what}")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page as it should be."""
    text, count = _BLOCK.subn(f"```mermaid\n{diagram()}```", PAGE.read_text())
    assert count == 1, "the page has one diagram of places"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
