"""What follows from commands."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.records import Record
from peeklock.entity.replies import Reply

NO_REPLAY: Final = -1


@final
class Decision:
    """What follows from commands: records to store, then replies to let go.

    `replay_from` is the position from which the next opening can start once the records rest, or
    NO_REPLAY where that has not changed.
    """

    __slots__ = ("first_position", "records", "replay_from", "replies")

    def __init__(
        self, first_position: int, records: list[Record], replies: list[Reply], replay_from: int
    ) -> None:
        self.first_position: int = first_position
        self.records: list[Record] = records
        self.replies: list[Reply] = replies
        self.replay_from: int = replay_from
