"""A receiver of one message session on an entity of several partitions.

A session lives in one partition. A named one is asked for there; the next one that is free is
asked for in all of them, and the first that is given is taken. From then on the receiver is that
partition's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import AcceptSession, CloseReceiver, Grant
from peeklock.entity.refusals import UNAVAILABLE, Refusal
from peeklock.entity.replies import (
    Delivered,
    Drained,
    Origin,
    Ready,
    ReceiverClosed,
    Refused,
    Reply,
    SessionAccepted,
)


@final
class SessionCandidate:
    """What one partition knows of the receiver; replies of the partition come here."""

    __slots__ = ("_has_news", "_seeker", "index")

    def __init__(self, seeker: SessionSeeker, index: int) -> None:
        self._seeker: Final[SessionSeeker] = seeker
        self.index: Final[int] = index
        self._has_news: bool = False

    def replied(self, reply: Reply) -> None:
        """Take what the partition says, and pass on what concerns the receiver."""
        news = self._seeker.heard(self, reply)
        if news is not None:
            self._has_news = True
            self._seeker.origin.replied(news)

    def flush(self) -> None:
        """All replies of this round are there."""
        if self._has_news:
            self._has_news = False
            self._seeker.origin.flush()


@final
class SessionSeeker:
    """Seeks a session and then holds it, under the name of one origin."""

    __slots__ = (
        "_asked",
        "_command",
        "_forget",
        "_is_closed",
        "_reach",
        "_refusal",
        "holder",
        "origin",
    )

    def __init__(
        self, command: AcceptSession, reach: ReachablePartitions, forget: Callable[[Origin], None]
    ) -> None:
        self.origin: Final[Origin] = command.origin
        self.holder: SessionCandidate | None = None  # who has the session
        self._command: Final[AcceptSession] = command
        self._reach: Final[ReachablePartitions] = reach
        self._forget: Final[Callable[[Origin], None]] = forget  # told when it is over by itself
        self._asked: dict[int, SessionCandidate] = {}
        self._refusal: Refusal | None = None
        self._is_closed: bool = False

    # What the receiver does.

    def seek(self, indexes: list[int]) -> None:
        """Ask these partitions, as far as they can be asked."""
        for index in indexes:
            if self._reach.can_ask(index):
                self._ask(index)
        if not self._asked:
            self._end()
            refusal = self._reach.out_of_reach(indexes)
            self._reach.refuse(self.origin, [self._command.tag], refusal)

    def grant(self, command: Grant) -> None:
        """Credit for the session's messages; before there is a session nobody looks at it."""
        holder = self.holder
        if holder is not None:
            limit, size_limit = command.limit, command.size_limit
            self._reach.ask(
                holder.index,
                Grant(holder, limit, command.drain, command.watch, size_limit, command.budget),
            )

    def close(self, broken: bool) -> None:
        """The receiver is gone: nobody is waited for, and a session is let go."""
        self._is_closed = True
        if self.holder is not None:
            self._reach.ask(self.holder.index, CloseReceiver(self.holder, broken))
        self._call_off()

    # What partitions do.

    def opened(self, index: int) -> None:
        """A partition lives, for the first time or again: it may have a session too."""
        is_seeking = self.holder is None and not self._is_closed
        if is_seeking and self._command.session_id is None and index not in self._asked:
            self._ask(index)

    def heard(self, candidate: SessionCandidate, reply: Reply) -> Reply | None:
        """What the receiver is to be told of a reply; None where it does not concern it."""
        if isinstance(reply, SessionAccepted):
            return self._accepted(candidate, reply)
        if isinstance(reply, Refused):
            return self._refused(candidate, reply.refusal)
        if candidate is not self.holder:
            return None  # a session that was given back, and its partition is gone since
        if isinstance(reply, Delivered):
            return Delivered(self.origin, reply.mode, reply.deliveries, reply.size)
        if isinstance(reply, Drained):
            return Drained(self.origin, reply.has_more)
        if isinstance(reply, Ready):
            return Ready(self.origin)
        if self._is_closed:
            return None  # the receiver is gone and does not wait for anything
        if isinstance(reply, ReceiverClosed):
            self._end()
            return ReceiverClosed(self.origin, reply.refusal)
        raise AssertionError(f"a receiver of a session is not answered with {reply!r}")

    def _accepted(
        self, candidate: SessionCandidate, reply: SessionAccepted
    ) -> SessionAccepted | None:
        if self.holder is not None or self._is_closed:
            return None  # too late: it was told already that it is not wanted
        self.holder = candidate
        del self._asked[candidate.index]
        self._call_off()
        return SessionAccepted(self.origin, reply.tag, reply.session_id, reply.locked_until)

    def _refused(self, candidate: SessionCandidate, refusal: Refusal) -> Refused | None:
        if self._asked.get(candidate.index) is not candidate:
            return None
        del self._asked[candidate.index]
        if self._refusal is None or self._refusal.kind == UNAVAILABLE:
            # That one partition is out of reach matters only if no other says anything else.
            self._refusal = refusal
        if self._asked or self._is_closed:
            return None
        self._end()
        return Refused(self.origin, [self._command.tag], self._refusal)

    def _ask(self, index: int) -> None:
        command = self._command
        candidate = SessionCandidate(self, index)
        self._asked[index] = candidate
        self._reach.ask(
            index,
            AcceptSession(
                candidate,
                command.tag,
                command.lane,
                command.mode,
                command.session_id,
                command.wait_until,
                command.consumer,
            ),
        )

    def _call_off(self) -> None:
        """Nobody else is needed; a session that was given in the same instant goes back."""
        for index, candidate in self._asked.items():
            self._reach.ask(index, CloseReceiver(candidate, False))
        self._asked = {}

    def _end(self) -> None:
        self._is_closed = True
        self._forget(self.origin)
