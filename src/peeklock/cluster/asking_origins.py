"""Who has asked partitions of another node, and what each of them still waits for."""

from __future__ import annotations

from typing import Any, Final, final

from peeklock.broker.worker.refusing import refusal_reply
from peeklock.cluster.values import read_reply, tags_of
from peeklock.entity.commands import (
    AcceptSession,
    CloseReceiver,
    Command,
    OpenReceiver,
    SendMany,
    SettleMany,
)
from peeklock.entity.refusals import UNAVAILABLE, Refusal
from peeklock.entity.replies import Origin, ReceiverClosed, Refused, Reply, SessionAccepted
from peeklock.entity.stages.commands import Stage

# Origins that ask nothing any more are looked for when there are so many, and again when there
# are twice as many as were found in use.
_ORIGINS_MIN: Final = 512

_NO_TAG: Final = -1
_ANY_REFUSAL: Final = Refusal(UNAVAILABLE, "")


@final
class AskingOrigin:
    """An origin that has asked partitions of another node, and what it still waits for."""

    __slots__ = ("accept_tag", "closed_sweep", "is_receiver", "number", "origin", "waiting")

    def __init__(self, origin: Origin, number: int) -> None:
        self.origin: Final[Origin] = origin
        self.number: Final[int] = number
        # By tag: how many wishes have no answer yet.
        self.waiting: dict[int, int] = {}
        self.is_receiver: bool = False
        self.accept_tag: int = _NO_TAG  # of the wish for a session
        # The sweep in which it was a receiver last: what was on its way to it may still come.
        self.closed_sweep: int = -1

    def wait_for(self, tags: list[int]) -> None:
        """One more answer is owed for each of these."""
        for tag in tags:
            self.waiting[tag] = self.waiting.get(tag, 0) + 1

    def answered(self, tags: list[int]) -> None:
        """One answer less is owed for each of these."""
        for tag in tags:
            left = self.waiting.get(tag, 0) - 1
            if left > 0:
                self.waiting[tag] = left
            else:
                self.waiting.pop(tag, None)


@final
class AskingOrigins:
    """Gives each origin the number that stands for it on the other node."""

    __slots__ = ("_by_number", "_last_number", "_origins", "_sweep", "_sweep_at")

    def __init__(self) -> None:
        self._origins: dict[Origin, AskingOrigin] = {}
        self._by_number: dict[int, AskingOrigin] = {}
        self._last_number: int = 0
        self._sweep: int = 0
        self._sweep_at: int = _ORIGINS_MIN

    def __len__(self) -> int:
        return len(self._origins)

    def number_of(self, origin: Any) -> int:
        """Return the number of an origin; one that is new gets the next."""
        return self._asking(origin).number

    def note(self, command: Command) -> list[int]:
        """Write down which answers are owed; returns the numbers that stand for nobody now."""
        forgotten = self._forget_idle() if len(self._origins) >= self._sweep_at else []
        if isinstance(command, (SendMany, SettleMany, Stage)):
            self._asking(command.origin).wait_for(command.tags)
        elif isinstance(command, OpenReceiver):
            self._asking(command.origin).is_receiver = True
        elif isinstance(command, CloseReceiver):
            asking = self._asking(command.origin)
            asking.is_receiver = False
            asking.closed_sweep = self._sweep
            # Whoever waited for a session is not answered any more.
            asking.waiting.pop(asking.accept_tag, None)
            asking.accept_tag = _NO_TAG
        else:
            reply = refusal_reply(command, _ANY_REFUSAL)
            if isinstance(reply, Refused):  # whoever can be refused waits for an answer
                asking = self._asking(reply.origin)
                if isinstance(command, AcceptSession):
                    asking.accept_tag = command.tag
                asking.wait_for(reply.tags)
        return forgotten

    def replied(self, value: list[Any]) -> Reply | None:
        """Read a reply; None where its origin was told already that nobody knows."""
        number: int = value[1]
        asking = self._by_number.get(number)
        if asking is None:
            return None
        reply = read_reply(value, asking.origin)
        asking.answered(tags_of(reply))
        if isinstance(reply, SessionAccepted):
            # One that has gone meanwhile has said so, and the node knows it.
            asking.is_receiver = asking.accept_tag == reply.tag
            asking.accept_tag = _NO_TAG
        elif isinstance(reply, ReceiverClosed):
            asking.is_receiver = False
        return reply

    def let_go(self, refusal: Refusal) -> list[Reply]:
        """What all of them are told when the node is gone; they are forgotten."""
        replies: list[Reply] = []
        for each in self._by_number.values():
            if each.waiting:
                replies.append(Refused(each.origin, list(each.waiting), refusal))
            if each.is_receiver:
                replies.append(ReceiverClosed(each.origin, refusal))
        self._origins = {}
        self._by_number = {}
        return replies

    def _asking(self, origin: Origin) -> AskingOrigin:
        asking = self._origins.get(origin)
        if asking is None:
            self._last_number += 1
            asking = AskingOrigin(origin, self._last_number)
            self._origins[origin] = asking
            self._by_number[asking.number] = asking
        return asking

    def _forget_idle(self) -> list[int]:
        """Let those go who ask nothing: links that are closed among them."""
        idle: list[AskingOrigin] = []
        for each in self._origins.values():
            is_late = each.closed_sweep < self._sweep
            if not each.waiting and not each.is_receiver and is_late:
                idle.append(each)
        self._sweep += 1
        for each in idle:
            del self._origins[each.origin]
            del self._by_number[each.number]
        self._sweep_at = max(_ORIGINS_MIN, 2 * len(self._origins))
        return [each.number for each in idle]
