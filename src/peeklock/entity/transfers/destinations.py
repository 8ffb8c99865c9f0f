"""What two entities must know of each other so that a message forwarded from one to the other comes
once, though its destination changes and everybody crashes in between."""

from __future__ import annotations

from typing import final

from peeklock.entity.commands import NoteDestination, TellTaken
from peeklock.entity.replies import Named, Numbered
from peeklock.entity.state import State
from peeklock.entity.transfers.records import DestinationsNoted


@final
class ForwardDestinations:
    """Where messages of this partition may be, and which of others' are here."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state: State = state

    def note(self, command: NoteDestination, now: int) -> None:
        """Messages of a lane will go to an entity; answers which others may have some."""
        ways = self._state.ways
        known = ways.get(command.lane, [])
        paths = [command.path]
        if not command.is_only:
            paths += [path for path in known if path != command.path]
        if paths != known:
            ways[command.lane] = paths
            self._state.records.append(DestinationsNoted(now, command.lane, paths))
        self._state.replies.append(Named(command.origin, command.tag, paths))

    def tell_taken(self, command: TellTaken) -> None:
        """Which numbers of a source are here."""
        taken = self._state.taken.get(command.source, {})
        self._state.replies.append(Numbered(command.origin, command.tag, list(taken)))
