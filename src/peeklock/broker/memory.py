"""The low-water mark for memory, beside the one for disk: a backlog is refused before it kills.

Every message that waits takes memory beside its body, and so does every copy in a subscription and
every remembered id. All partitions count what theirs take; where the sum has reached the mark,
sends are refused as busy, while receiving and settling go on and make room.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, final

from peeklock.budgets import Budget
from peeklock.entity.commands import Command, Commit, SendBatch, SendMany, TakeOver
from peeklock.entity.memory import COPY_BYTES
from peeklock.entity.message import Message
from peeklock.entity.partition import Partition

NAME: Final = "backlog_memory_bytes"

# Whoever measures it leaves room for what opening a backlog takes for a moment, for connections and
# for the pages of the store.
SHARE_OF_MACHINE: Final = 0.4
_LEAST: Final = 64 << 20
_UNKNOWN: Final = 2 << 30

# Messages of a large publish whose copies are counted, to know what all of them will take.
_SAMPLES: Final = 4

_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@final
class MemoryMark:
    """What the backlogs of all partitions take in memory, and how much they may."""

    __slots__ = ("_is_short", "budget")

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget: Final[Budget] = budget or Budget(NAME, 1 << 62)
        self._is_short: bool = False

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

    def takes(self, partition: Partition, command: Command, now: int) -> bool:
        """Whether the copies of what a command publishes would not pass the mark. The most that
        they can take is known at once; only beyond that are the rules asked, about a few."""
        messages = _published(command)
        if messages is None:
            return True
        left = self.budget.limit - self.budget.used
        if len(messages) * partition.lane_count * COPY_BYTES <= left:
            return True
        step = max(1, len(messages) // _SAMPLES)
        some = messages[::step]
        copies = partition.copies_of(some, now)
        return copies * len(messages) // len(some) * COPY_BYTES <= left

    def refused(self) -> None:
        """Somebody was refused, which the operator may want to see."""
        self.budget.refused += 1


def _published(command: Command) -> list[Message] | None:
    """The messages that a command publishes now; None where it publishes nothing."""
    if isinstance(command, (SendMany, SendBatch, TakeOver)):
        return command.messages or None
    if not isinstance(command, Commit):
        return None
    messages: list[Message] = []
    for work in command.work:
        if isinstance(work, (SendMany, SendBatch)):
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
