"""What a subscription can be asked about its rules. They are part of its description, so that the
broker answers and not a partition: durable when the reply comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.replies import Origin
from peeklock.entity.rules.rule import Rule


@final
@dataclass(slots=True, init=False)
class AddRule:
    """One more rule; a name that is taken refuses it. The reply is Numbered, without numbers."""

    origin: Final[Origin]
    tag: Final[int]
    rule: Final[Rule]

    def __init__(self, origin: Origin, tag: int, rule: Rule) -> None:
        self.origin = origin
        self.tag = tag
        self.rule = rule


@final
@dataclass(slots=True, init=False)
class RemoveRule:
    """A rule less; one that is not there refuses it. The reply is Numbered, without numbers."""

    origin: Final[Origin]
    tag: Final[int]
    name: Final[str]

    def __init__(self, origin: Origin, tag: int, name: str) -> None:
        self.origin = origin
        self.tag = tag
        self.name = name


@final
@dataclass(slots=True, init=False)
class ListRules:
    """A page of the rules, in the order of their making. The reply is RulesFound."""

    origin: Final[Origin]
    tag: Final[int]
    skip: Final[int]
    top: Final[int]

    def __init__(self, origin: Origin, tag: int, skip: int, top: int) -> None:
        self.origin = origin
        self.tag = tag
        self.skip = skip
        self.top = top


RuleCommand: TypeAlias = AddRule | RemoveRule | ListRules
