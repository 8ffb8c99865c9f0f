"""One statement of an action: SET a property to a value, or REMOVE it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from peeklock.entity.rules.operand import Operand


@final
@dataclass(slots=True, init=False)
class Statement:
    """What happens to one property; without an operand it is removed."""

    scope: Final[int]
    name: Final[str]
    operand: Final[Operand | None]

    def __init__(self, scope: int, name: str, operand: Operand | None) -> None:
        self.scope = scope
        self.name = name
        self.operand = operand
