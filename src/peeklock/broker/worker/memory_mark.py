"""The low-water mark for memory, beside the one for disk: a backlog is refused before it kills.

Every message that waits takes memory beside its body, and so does every copy in a subscription and
every remembered id. All partitions count what theirs take; where the sum has reached the mark,
sends are refused as busy, while receiving and settling go on and make room. What a topic publishes
later, because it is scheduled or staged, counts with its copies from the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from peeklock.budgets import Budget
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import (
    MAIN,
    Command,
    Commit,
    Grant,
    PublishStages,
    Schedule,
    SendBatch,
    SendMany,
    SettleMany,
    Stage,
    TakeOver,
)
from peeklock.entity.message import Message
from peeklock.entity.stint import STINT_STEPS
from peeklock.entity.upkeep.memory import COPY_BYTES, ENTRY_BYTES, SEEN_BYTES, SESSION_BYTES

NAME: Final = "backlog_memory_bytes"

# Whoever measures it leaves room for what opening a backlog takes for a moment, for connections and
# for the pages of the store.
SHARE_OF_MACHINE: Final = 0.4
_LEAST: Final = 64 << 20
_UNKNOWN: Final = 2 << 30

# What a message of a queue takes at most: its id is remembered, and it is alone in its session.
_MESSAGE_BYTES_MAX: Final = ENTRY_BYTES + SEEN_BYTES + SESSION_BYTES

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

    __slots__ = (
        "_blueprint",
        "_has_session",
        "_known",
        "_session_lanes",
        "_steps_left",
        "expected",
        "likely",
        "most",
    )

    def __init__(self) -> None:
        # Of the commands that this round has taken, in bytes: what they can add, and about what
        # they will add.
        self.most: int = 0
        self.likely: int = 0
        self.expected: int = 0  # copies of one message
        self._known: dict[int, tuple[Command, int]] = {}
        self._steps_left: int = STINT_STEPS
        # Which sessions there are, by lane and name.
        self._has_session: Callable[[int, str], bool] | None = None
        self._blueprint: Blueprint | None = None
        self._session_lanes: int = 0  # of that blueprint

    def begin(
        self,
        commands: list[Command],
        expected: int,
        has_session: Callable[[int, str], bool] | None = None,
    ) -> None:
        """A round begins with these commands; so many copies a message has had of late."""
        self.most = self.likely = 0
        self.expected = expected
        self._has_session = has_session
        self._steps_left = STINT_STEPS
        if self._known:
            known = [self._known.get(id(command)) for command in commands]
            self._known = {id(each[0]): each for each in known if each is not None}

    @property
    def is_over(self) -> bool:
        """Whether other commands are for the next round."""
        return self._steps_left <= 0

    def most_of(self, blueprint: Blueprint, messages: list[Message]) -> int:
        """The most bytes that messages can add: one copy in each lane, and a session for it."""
        each = SEEN_BYTES if blueprint.duplicate_window_ms else 0
        if blueprint.router is None:
            each += ENTRY_BYTES + (SESSION_BYTES if blueprint.requires_session else 0)
            return len(messages) * each
        if self._blueprint is not blueprint:
            self._blueprint = blueprint
            self._session_lanes = sum([lane.requires_session for lane in blueprint.lanes.values()])
        each += len(blueprint.lanes) * COPY_BYTES + self._session_lanes * SESSION_BYTES
        return len(messages) * each

    def likely_of(
        self, blueprint: Blueprint, command: Command, messages: list[Message], now: int
    ) -> int:
        """About the bytes that a command's messages will add."""
        if blueprint.router is None:
            names = {message.session_id for message in messages}
            new = [name for name in names if self._is_new(MAIN, name)]
            seen = SEEN_BYTES if blueprint.duplicate_window_ms else 0
            sessions = len(new) * SESSION_BYTES if blueprint.requires_session else 0
            return len(messages) * (ENTRY_BYTES + seen) + sessions
        return self._sampled(blueprint, command, messages, now)

    def _is_new(self, lane: int, name: str | None) -> bool:
        return name is not None and (self._has_session is None or not self._has_session(lane, name))

    def _sampled(
        self, blueprint: Blueprint, command: Command, messages: list[Message], now: int
    ) -> int:
        """The same for a topic, after a look at the copies of a few of them."""
        known = self._known.get(id(command))
        if known is not None and known[0] is command:
            return known[1]
        router, rules = blueprint.router, blueprint.rules
        assert router is not None, "only a topic makes copies"
        cost = 1 if rules is None else max(1, rules.cost)
        samples = max(1, min(SAMPLES_MAX, STINT_STEPS // cost, len(messages)))
        some = messages[:: len(messages) // samples][:samples]
        self._steps_left -= cost * len(some)
        copies = sessions = 0
        for message in some:
            found = router(message, now)
            copies += len(found)
            if self._session_lanes:
                for copy in found:
                    policy = blueprint.lanes.get(copy.lane)
                    if policy is not None and policy.requires_session:
                        sessions += self._is_new(copy.lane, message.session_id)
        size = copies * COPY_BYTES * len(messages) // len(some)
        if sessions:
            names = {message.session_id for message in messages}
            size += sessions * SESSION_BYTES * len(names) // len(some)
        if blueprint.duplicate_window_ms:
            size += len(messages) * SEEN_BYTES
        self._known[id(command)] = (command, size)
        return size


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

    def may_be_passed(self, commands: list[Command]) -> bool:
        """Whether messages of a queue, whatever they are, could pass the mark together."""
        count = 0
        for command in commands:
            if isinstance(command, SendMany):
                count += len(command.messages)
            elif not isinstance(command, (SettleMany, Grant)):
                count += len(_published(command) or ())
        return count * _MESSAGE_BYTES_MAX > self.budget.limit - self.budget.used

    def takes(self, blueprint: Blueprint, command: Command, forecast: Forecast, now: int) -> bool:
        """Whether what a command adds would not pass the mark, with what the round has so far. The
        most that it can add is known at once; only beyond that are sessions looked for, and a
        topic's rules asked, about a few.

        What would not fit if there were nothing else is taken by a queue while half of all is free:
        nobody is refused for ever. A topic refuses it: a smaller batch fits."""
        messages = _published(command)
        if messages is None:
            return True
        left = self.budget.limit - self.budget.used
        most = forecast.most_of(blueprint, messages)
        if forecast.most + most <= left:
            forecast.most += most
            each = ENTRY_BYTES if blueprint.router is None else forecast.expected * COPY_BYTES
            forecast.likely += len(messages) * each
            return True
        likely = forecast.likely_of(blueprint, command, messages, now)
        if forecast.likely + likely > left:
            is_hopeless = blueprint.router is None and likely > self.budget.limit
            if not is_hopeless or 2 * (left - forecast.likely) < self.budget.limit:
                return False
        forecast.most += most
        forecast.likely += likely
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
