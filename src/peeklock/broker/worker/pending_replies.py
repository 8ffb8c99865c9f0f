"""What a worker says to those who ask: replies whose records rest, and refusals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, final

from peeklock.broker.worker.attached_receivers import AttachedReceivers
from peeklock.broker.worker.refusing import refusal_reply
from peeklock.entity.commands import Command, Requeue
from peeklock.entity.refusals import INTERNAL, Refusal
from peeklock.entity.replies import Delivered, Origin, Reply, SendsAccepted, Settled

_log: Final = logging.getLogger("peeklock.broker")


@final
class PendingReplies:
    """Replies that wait for their records, and who is attached to hear them."""

    __slots__ = (
        "_is_failing_again",
        "_key",
        "_requeues",
        "attached",
        "on_handed_out",
        "on_unsent",
        "pending",
    )

    def __init__(self, key: str) -> None:
        self._key: Final[str] = key  # of the partition, for the log
        self.pending: list[Reply] = []
        # Messages that nobody else has any more: they wait until the partition is open again.
        self._requeues: list[Command] = []
        self._is_failing_again: bool = False
        # Told when those who asked have their replies.
        self.on_handed_out: Callable[[], None] | None = None
        self.attached: AttachedReceivers = AttachedReceivers()
        # Asked before a send is refused of which nothing was stored: whether it goes elsewhere.
        self.on_unsent: Callable[[Command], bool] | None = None

    def release(self) -> None:
        """Hand out the replies whose records rest."""
        replies = self.pending
        if not replies:
            return
        self.pending = []
        origins: dict[Origin, bool] = {}
        for reply in replies:
            origin = reply.origin
            origins[origin] = True
            if not isinstance(reply, (SendsAccepted, Delivered, Settled)):
                self.attached.heard(reply)
            try:
                origin.replied(reply)
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed partition=%s", self._key)
        if self.on_handed_out is not None:
            self.on_handed_out()
        for origin in origins:
            try:
                origin.flush()
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed partition=%s", self._key)

    def lone_answers(self) -> int:
        """How many senders wait for the answer to a single message."""
        count = 0
        for reply in self.pending:
            if isinstance(reply, SendsAccepted) and len(reply.tags) == 1:
                count += 1
        return count

    def refuse(self, command: Command, refusal: Refusal) -> None:
        """Say that a command is not carried out."""
        if isinstance(command, Requeue):
            if not command.is_repeat:
                self._requeues.append(Requeue(command.lane, command.deliveries, True))
            elif refusal.kind == INTERNAL:
                self._lose(command)  # it would keep the partition from ever being open again
            else:
                # It looks for what is back already: another repeat is as safe as this one.
                self._requeues.append(command)
                self._is_failing_again = True
            return
        self.attached.refused(command)
        reply = refusal_reply(command, refusal)
        if reply is not None:
            self.pending.append(reply)

    def refuse_unsent(self, command: Command, refusal: Refusal) -> None:
        """Say so of one of which nothing was stored, so that it may still go elsewhere."""
        if isinstance(command, Requeue):
            self._requeues.append(command)
        elif self.on_unsent is None or not self.on_unsent(command):
            self.refuse(command, refusal)

    def take_requeues(self) -> list[Command]:
        """Messages that are to be put back as soon as the partition is open."""
        requeues = self._requeues
        self._requeues = []
        return requeues

    def has_failed_again(self) -> bool:
        """Tell, once, whether the store did not take messages that were put back again."""
        is_failing_again = self._is_failing_again
        self._is_failing_again = False
        return is_failing_again

    def close(self) -> None:
        """The partition will not be opened here again."""
        for command in self.take_requeues():
            self._lose(command)

    def _lose(self, command: Command) -> None:
        assert isinstance(command, Requeue)
        count = len(command.deliveries)
        _log.error("requeue-lost partition=%s messages=%d", self._key, count)

    def let_everybody_go(self, refusal: Refusal) -> None:
        """The partition is gone: all who are attached are told, and forgotten."""
        self.pending += self.attached.let_go(refusal)
        self.release()
