"""Sends without a key that one partition could not store and another is asked for (R-P4).

Only what was refused before anything was stored comes here; what is in doubt is refused, or it
might be stored twice.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.commands import Command, Schedule, SendBatch, SendMany, Stage
from peeklock.entity.replies import Numbered, Origin, Refused, Reply, SendsAccepted


@final
class ReroutedSend:
    """Stands for the sender, and remembers which partitions were tried: each at most once."""

    __slots__ = ("_origin", "tried")

    def __init__(self, origin: Origin) -> None:
        self._origin: Final[Origin] = origin
        self.tried: dict[int, bool] = {}

    def replied(self, reply: Reply) -> None:
        """Pass the answer on as the sender's own."""
        origin = self._origin
        if isinstance(reply, SendsAccepted):
            origin.replied(SendsAccepted(origin, reply.tags))
        elif isinstance(reply, Refused):
            origin.replied(Refused(origin, reply.tags, reply.refusal))
        elif isinstance(reply, Numbered):
            origin.replied(Numbered(origin, reply.tag, reply.numbers))
        else:
            raise AssertionError(f"a sender is not answered with {reply!r}")

    def flush(self) -> None:
        """All replies of this round are there."""
        self._origin.flush()


def rerouted(command: SendMany | SendBatch | Schedule | Stage, way: ReroutedSend) -> Command:
    """The same sends under another origin."""
    if isinstance(command, SendMany):
        return SendMany(way, command.tags, command.messages)
    if isinstance(command, SendBatch):
        return SendBatch(way, command.tag, command.messages)
    if isinstance(command, Stage):
        return Stage(way, command.tags, command.messages, command.stage, command.is_whole)
    return Schedule(way, command.tag, command.messages)
