"""The low-water mark for memory, beside the one for disk: a backlog is refused before it kills.

Every message that waits takes memory beside its body, and so does every copy in a subscription and
every remembered id. All partitions count what theirs take; where the sum has reached the mark,
sends are refused as busy, while receiving and settling go on and make room. What a topic publishes
later, because it is scheduled or staged, counts with its copies from the beginning.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, final

from peeklock.budgets import Budget
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import (
    Command,
    Commit,
    PublishStages,
    Schedule,
    SendBatch,
    SendMany,
    Stage,
    TakeOver,
)
from peeklock.entity.memory import COPY_BYTES
from peeklock.entity.message import Message
from peeklock.entity.stint import STINT_STEPS

NAME: Final = "backlog_memory_bytes"

# Whoever measures it leaves room for what opening a backlog takes for a moment, for connections and
# for the pages of the store.
SHARE_OF_MACHINE: Final = 0.4
_LEAST: Final = 64 << 20
_UNKNOWN: Final = 2 << 30

# Messages of a large publish whose copies are counted, to know what all of them will take.
SAMPLES_MAX: Final = 4

_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@final
class Forecast:
    """How many copies commands will have: a stint of asking the rules for each round, and what
    they said is known for as long as a command waits."""

    __slots__ = ("_known", "_steps_left", "expected", "likely", "most")

    def __init__(self) -> None:
        # Of the commands that this round has taken: the copies that there can be, and about those
        # that there will be.
        self.most: int = 0
        self.likely: int = 0
        self.expected: int = 0  # copies of one message
        self._known: dict[int, tuple[Command, int]] = {}
        self._steps_left: int = STINT_STEPS

    def begin(self, commands: list[Command], expected: int) -> None:
        """A round begins with these commands; so many copies a message has had of late."""
        self.most = self.likely = 0
        self.expected = expected
        self._steps_left = STINT_STEPS
        if self._known:
            known = [self._known.get(id(command)) for command in commands]
            self._known = {id(each[0]): each for each in known if each is not None}

    @property
    def is_over(self) -> bool:
        """Whether other commands are for the next round."""
        return self._steps_left <= 0

    def copies(
        self, blueprint: Blueprint, command: Command, messages: list[Message], now: int
    ) -> int:
        """The copies of a command's messages, after a look at a few of them."""
        known = self._known.get(id(command))
        if known is not None and known[0] is command:
            return known[1]
        router, rules = blueprint.router, blueprint.rules
        assert router is not None, "only a topic makes copies"
        cost = 1 if rules is None else max(1, rules.cost)
        samples = max(1, min(SAMPLES_MAX, STINT_STEPS // cost, len(messages)))
        some = messages[:: len(messages) // samples][:samples]
        self._steps_left -= cost * len(some)
        found = 0
        for message in some:
            found += len(router(message, now))
        copies = found * len(messages) // len(some)
        self._known[id(command)] = (command, copies)
        return copies


@final
class MemoryMark:
    """What the backlogs of all partitions take in memory, and how much they may."""

    __slots__ = ("_expected", "_is_short", "budget")

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget: Final[Budget] = budget or Budget(NAME, 1 << 62)
        self._is_short: bool = False
        self._expected: int = 0  # what is taken for copies that are yet to come

    @property
    def is_short(self) -> bool:
        """Whether sends are to be refused; that goes on until a sixteenth of all is free, so that
        senders are not let in and refused in turns."""
        budget = self.budget
        mark = budget.limit - (budget.limit >> 4) if self._is_short else budget.limit
        self._is_short = budget.used >= mark
        return self._is_short

    def weigh(self, before: int, after: int) -> int:
        """A partition takes another amount than before; answers the new one."""
        if after > before:
            self.budget.take_anyway(after - before)
        elif after < before:
            self.budget.give_back(before - after)
        return after

    def expect(self, before: int, after: int) -> int:
        """So much of what a partition takes is for copies that are yet to come; answers that."""
        self._expected += after - before
        return after

    def takes(self, blueprint: Blueprint, command: Command, forecast: Forecast, now: int) -> bool:
        """Whether the copies of what a command publishes would not pass the mark, with those of the
        round so far. The most that they can take is known at once; only beyond that are the rules
        asked, about a few."""
        messages = _published(command)
        if messages is None:
            return True
        left = (self.budget.limit - self.budget.used) // COPY_BYTES
        most = forecast.most + len(messages) * len(blueprint.lanes)
        if most <= left:
            forecast.most = most
            forecast.likely += len(messages) * forecast.expected
            return True
        likely = forecast.likely + forecast.copies(blueprint, command, messages, now)
        if likely > left:
            return False
        forecast.most = most
        forecast.likely = likely
        return True

    def must_wait(self, command: Command) -> bool:
        """Whether a command that brings messages is refused at the mark. What is staged was counted
        when it came: if all that is taken were only expected, nobody could ever make room."""
        if isinstance(command, PublishStages):
            return self.budget.used - self._expected >= self.budget.limit
        return True

    def refused(self) -> None:
        """Somebody was refused, which the operator may want to see."""
        self.budget.refused += 1


def _published(command: Command) -> list[Message] | None:
    """The messages that a command publishes, now or later; None where it publishes nothing."""
    if isinstance(command, (SendMany, SendBatch, Schedule, Stage, TakeOver)):
        return command.messages or None
    if not isinstance(command, Commit):
        return None
    messages: list[Message] = []
    for work in command.work:
        if isinstance(work, (SendMany, SendBatch, Schedule)):
            messages += work.messages
    return messages or None


def memory_of_machine() -> int:
    """The bytes that this process can have: what the machine has, or less where its cgroup has."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory = _UNKNOWN
    for path in _LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def default_mark() -> int:
    """The mark where nobody has chosen one."""
    return max(_LEAST, int(memory_of_machine() * SHARE_OF_MACHINE))
