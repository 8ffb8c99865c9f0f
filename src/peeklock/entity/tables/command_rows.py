"""The row that each command has: which way it goes over the partitions of an entity.

A family declares its commands in `commands` with such rows, beside their classes. What goes to all
partitions needs nothing but its row; the other ways are written in `broker/partitioned`, because
each divides its command in its own manner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

if TYPE_CHECKING:
    from peeklock.entity.replies import Reply

KEY: Final = "key"  # to the partition of its key (a session, a partition key), or one in turn
TOKEN: Final = "token"  # to the partitions that its numbers name
ALL: Final = "all"  # to all of them; with `join` their answers become one, else nobody waits
WALK: Final = "walk"  # from one to the next, until there is enough
RECEIVER: Final = "receiver"  # to those that its receiver has credit or a session at
INSIDE: Final = "inside"  # one partition is asked by its owner: nobody asks an entity

WAYS: Final = (KEY, TOKEN, ALL, WALK, RECEIVER, INSIDE)

# Makes one answer of those of all partitions, for a command; a refusal of one refuses the whole.
Join: TypeAlias = Callable[[Any, list[Any]], "Reply"]


@final
class CommandRow:
    """One command, and its way."""

    __slots__ = ("command", "join", "way")

    def __init__(self, command: type[Any], way: str, join: Join | None = None) -> None:
        assert way in WAYS, f"there is no way {way}"
        assert join is None or way == ALL, "only the answers of all are joined"
        self.command: Final[type[Any]] = command
        self.way: Final[str] = way
        self.join: Final[Join | None] = join
