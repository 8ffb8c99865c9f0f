"""The patterns of LIKE: `%` is any run of characters, `_` is any one.

A pattern is cut at its `%` into pieces that must follow each other. Taking each piece at the first
place where it fits is always right, so that there is nothing to go back to: the work grows with
the text times the longest piece, whatever somebody writes, and has a limit.
"""

from __future__ import annotations

import re
from typing import Final, final

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import PLAIN_PER_STEP, PropertyReader

# A millisecond's work. A topic may have two thousand filters, and all wait for one message.
STEPS_MAX: Final = 1 << 20


@final
class Piece:
    """A part of a pattern between two `%`; without `_` it is searched for as plain text."""

    __slots__ = ("_expression", "length", "text")

    def __init__(self, characters: list[str | None]) -> None:
        self.length: int = len(characters)
        self.text: str = "".join(c for c in characters if c is not None)
        self._expression: re.Pattern[str] | None = None
        if len(self.text) != self.length:
            source = "".join("." if c is None else re.escape(c) for c in characters)
            self._expression = re.compile(source, re.DOTALL)

    def is_at(self, text: str, start: int) -> bool:
        """Return whether the piece fits exactly there."""
        if self._expression is None:
            return text.startswith(self.text, start)
        return self._expression.match(text, start) is not None

    def end_after(self, text: str, start: int, end: int) -> int:
        """Return where the first fitting place between the two ends, or -1."""
        if self._expression is None:
            found = text.find(self.text, start, end)
            return -1 if found < 0 else found + self.length
        match = self._expression.search(text, start, end)
        return -1 if match is None else match.end()

    @property
    def steps(self) -> int:
        """How often a character of the text may be looked at while the piece is searched for."""
        return 1 if self._expression is None else self.length


@final
class Pattern:
    """A LIKE pattern, ready to be tried on texts."""

    __slots__ = ("_first", "_last", "_length_min", "_middle", "_steps")

    def __init__(self, pattern: str, escape: str = "") -> None:
        pieces = _pieces(pattern, escape)
        self._length_min: int = sum(piece.length for piece in pieces)
        self._first: Piece = pieces[0]
        # None: there is no `%`, and the first piece must be all of the text.
        self._last: Piece | None = pieces[-1] if len(pieces) > 1 else None
        self._middle: list[Piece] = [piece for piece in pieces[1:-1] if piece.length]
        self._steps: int = max((piece.steps for piece in self._middle), default=0)

    def matches(self, text: str, reader: PropertyReader) -> bool:
        """Return whether the whole text is as the pattern says; the reader counts the steps."""
        length = len(text)
        if length < self._length_min or not self._first.is_at(text, 0):
            return False
        last = self._last
        if last is None:
            return length == self._length_min
        end = length - last.length
        if not last.is_at(text, end):
            return False
        if length * self._steps > STEPS_MAX:
            raise FilterError(f"{length:,} characters are too many for this pattern of LIKE")
        reader.spend(length * self._steps if self._steps > 1 else length // PLAIN_PER_STEP)
        position = self._first.length
        for piece in self._middle:
            position = piece.end_after(text, position, end)
            if position < 0:
                return False
        return True


_ANY_RUN: Final = "%"
_ANY_ONE: Final = "_"


def _pieces(pattern: str, escape: str) -> list[Piece]:
    """Cut a pattern at its `%`; a character after the escape stands for itself."""
    pieces: list[list[str | None]] = [[]]
    escaped = False
    for character in pattern:
        if escaped:
            pieces[-1].append(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character == _ANY_RUN:
            pieces.append([])
        else:
            pieces[-1].append(None if character == _ANY_ONE else character)
    if escaped:
        raise FilterError("the pattern of LIKE ends with its escape character")
    return [Piece(characters) for characters in pieces]
