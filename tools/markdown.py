"""Wraps the long lines of our documents: `python -m tools.markdown` does what `make format` does.

Only paragraphs and list items that have a line of more than 120 columns are touched. Tables, code
and what cannot be broken stay as they are.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import TextWrapper

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 120
_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])\s+")
# A heading, a table, a quotation, HTML or a reference: each line is a thing of its own.
_LINE = re.compile(r"\s*(#|\||>|<|\[[^\]]+\]:|---|===)")
# Code is not broken: who copies it wants it whole.
_CODE = re.compile(r"`[^`\n]+`")
# What would begin a list, a heading or a quotation stays behind the word before it.
_BEGINS = re.compile(r" (?=([-+*#>|]|\d+[.)]) )")
_GLUE = "\N{NO-BREAK SPACE}"


def documents() -> list[Path]:
    """List the documents that are written for people."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(found)


def long_lines(text: str) -> list[int]:
    """List the numbers of the lines that are too long and could be broken."""
    found = []
    for number, line in _prose(text):
        if len(line) > COLUMNS and len(_wrapped([line])) > 1:
            found.append(number)
    return found


def reflowed(text: str) -> str:
    """Return a document with every long paragraph wrapped."""
    prose = {number for number, _ in _prose(text)}
    lines = text.split("\n")
    made: list[str] = []
    part: list[str] = []

    def finish() -> None:
        if any(len(line) > COLUMNS for line in part) and not _has_breaks(part):
            made.extend(_wrapped(part))
        else:
            made.extend(part)
        part.clear()

    for number, line in enumerate(lines, 1):
        if number not in prose or not line.strip():
            finish()
            made.append(line)
            continue
        if _ITEM.match(line):
            finish()
        part.append(line)
    finish()
    return "\n".join(made)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Walk the lines of paragraphs and list items, with their numbers."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and not _LINE.match(line):
            yield number, line


def _has_breaks(lines: list[str]) -> bool:
    return any(line.endswith(("  ", "\\")) for line in lines[:-1])


def _wrapped(lines: list[str]) -> list[str]:
    first = lines[0]
    item = _ITEM.match(first)
    begin = item.group(0) if item else first[: len(first) - len(first.lstrip())]
    rest = lines[1][: len(lines[1]) - len(lines[1].lstrip())] if len(lines) > 1 else ""
    indent = (rest or " " * len(begin)) if item else begin
    words = " ".join([first[len(begin) :].strip(), *(line.strip() for line in lines[1:])])
    words = _CODE.sub(lambda code: code.group().replace(" ", _GLUE), words)
    words = _BEGINS.sub(_GLUE, words)
    wrapper = TextWrapper(
        COLUMNS,
        initial_indent=begin,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in wrapper.wrap(words)]


def main() -> None:
    """Wrap all documents."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        made = reflowed(text)
        if made != text:
            path.write_text(made, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
