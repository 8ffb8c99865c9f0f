"""What can go wrong with a rule, and when it shows.

    Exception
      RuleError      the text cannot become a rule; shows when the rule is made
      FilterError    the rule is well written but cannot be evaluated for this message

A `FilterError` concerns one rule and one message: the subscription chooses whether the message is
dead-lettered or dropped there (protocol 11.7).
"""

from __future__ import annotations

from typing import final


@final
class RuleError(Exception):
    """Why a text is no rule, and the place where that shows; line and column count from 1."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"{text} (line {line}, column {column})" if line else text)
        self.text = text
        self.line = line
        self.column = column


@final
class FilterError(Exception):
    """Why a filter or an action could not be evaluated for a message."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
