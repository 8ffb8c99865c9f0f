"""Who is attached to a partition, as its worker knows it: to be told when the partition is gone."""

from __future__ import annotations

from typing import final

from peeklock.entity.commands import AcceptSession, CloseReceiver, Command, OpenReceiver
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import Origin, ReceiverClosed, Refused, Reply, SessionAccepted


@final
class AttachedReceivers:
    """The receivers of a partition, and those who wait for a session."""

    __slots__ = ("_receivers", "_waiting")

    def __init__(self) -> None:
        self._receivers: dict[Origin, bool] = {}
        self._waiting: dict[Origin, int] = {}  # with the tag of the wish

    def asked(self, command: Command) -> None:
        """A command is about to be decided on."""
        if isinstance(command, OpenReceiver):
            self._receivers[command.origin] = True
        elif isinstance(command, AcceptSession):
            self._waiting[command.origin] = command.tag
        elif isinstance(command, CloseReceiver):
            self._receivers.pop(command.origin, None)
            self._waiting.pop(command.origin, None)

    def refused(self, command: Command) -> None:
        """A command is not carried out, which its origin is told by itself."""
        if isinstance(command, OpenReceiver):
            self._receivers.pop(command.origin, None)
        elif isinstance(command, AcceptSession):
            self._waiting.pop(command.origin, None)

    def heard(self, reply: Reply) -> None:
        """A reply leaves: only now does its origin have a session, or wait no longer."""
        origin = reply.origin
        if isinstance(reply, ReceiverClosed):
            self._receivers.pop(origin, None)
        elif not self._waiting:
            return
        elif isinstance(reply, SessionAccepted):
            if self._waiting.pop(origin, None) is not None:
                self._receivers[origin] = True
        elif isinstance(reply, Refused) and self._waiting.get(origin, -1) in reply.tags:
            del self._waiting[origin]

    def let_go(self, refusal: Refusal) -> list[Reply]:
        """What all of them are told when the partition is gone; they are forgotten."""
        replies: list[Reply] = [ReceiverClosed(origin, refusal) for origin in self._receivers]
        for origin, tag in self._waiting.items():
            replies.append(Refused(origin, [tag], refusal))
        self._receivers = {}
        self._waiting = {}
        return replies
