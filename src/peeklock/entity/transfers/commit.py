"""Transactions: all operations of one are carried out together, or none is (R-P7).

Everything is checked before anything is changed, so that there is nothing to undo. What the
operations would have answered by themselves is not said; the commit is answered once.
"""

from __future__ import annotations

from typing import assert_never, final

from peeklock.entity.commands import (
    CancelScheduled,
    Commit,
    NoteDestination,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    TakeOver,
    TellTaken,
    TransactionWork,
    TransferCommand,
    TransferMessage,
)
from peeklock.entity.moves.entering import Entering
from peeklock.entity.moves.settling import Settling
from peeklock.entity.refusals import MESSAGE_NOT_FOUND, Refusal
from peeklock.entity.replies import Numbered, Refused
from peeklock.entity.state import State
from peeklock.entity.transfers.destinations import ForwardDestinations


@final
class Committing:
    """Carries out transactions on the state of a partition."""

    __slots__ = ("_destinations", "_entering", "_settling", "_state")

    def __init__(self, state: State, entering: Entering, settling: Settling) -> None:
        self._state: State = state
        self._destinations: ForwardDestinations = ForwardDestinations(state)
        self._entering: Entering = entering
        self._settling: Settling = settling

    def decide(self, command: TransferCommand, now: int) -> None:
        """Carry out what is asked in the course of transactions and forwarding."""
        if isinstance(command, TakeOver):
            self._entering.take_over(command, now)
        elif isinstance(command, Commit):
            self.commit(command, now)
        elif isinstance(command, Reserve):
            self._entering.reserve(command, now)
        elif isinstance(command, NoteDestination):
            self._destinations.note(command, now)
        elif isinstance(command, TellTaken):
            self._destinations.tell_taken(command)
        else:
            assert_never(command)

    def commit(self, command: Commit, now: int) -> None:
        """All of it, or a refusal that says what could not be done."""
        refusal = self._why_not(command.work, now)
        if refusal is not None:
            self._state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        for work in command.work:
            self._carry_out(work, now)
        self._state.replies.append(Numbered(command.origin, command.tag, []))

    def _why_not(self, works: list[TransactionWork], now: int) -> Refusal | None:
        settled: set[int] = set()
        cancelled: set[int] = set()
        size = 0  # of what is sent before, in the same transaction
        for work in works:
            refusal: Refusal | None = None
            if isinstance(work, (SendMany, SendBatch, Schedule)):
                for message in work.messages:
                    refusal = refusal or self._entering.why_not(message, now, size)
                    size += message.size
            elif isinstance(work, TransferMessage):
                size += work.message.size
                refusal = self._entering.why_no_room(size)
            elif isinstance(work, (SettleMany, SettleAll)):
                refusal = self._settling.why_not(work, now)
                # Only numbers of living locks are hashed: a client's own could be made to collide.
                for token in work.tokens if refusal is None else ():
                    if token.sequence in settled:
                        refusal = refusal or self._settling.why_lost(work.tokens)
                    settled.add(token.sequence)
            elif isinstance(work, CancelScheduled):
                refusal = self._entering.why_not_cancel(work.sequences)
                if refusal is None and not cancelled.isdisjoint(work.sequences):
                    text = "A message cannot be cancelled twice."
                    refusal = Refusal(MESSAGE_NOT_FOUND, text)
                cancelled.update(work.sequences)
            if refusal is not None:
                return refusal
        return None

    def _carry_out(self, work: TransactionWork, now: int) -> None:
        if isinstance(work, (SendMany, SendBatch)):
            for message in work.messages:
                self._entering.enter(message, now)
        elif isinstance(work, Schedule):
            for at, message in enumerate(work.messages):
                reserved = 0 if work.reserved is None else work.reserved[at]
                self._entering.enter(message, now, reserved)
        elif isinstance(work, (SettleMany, SettleAll)):
            self._settling.carry_out(work.settlement, work.tokens, now)
        elif isinstance(work, CancelScheduled):
            self._entering.carry_out_cancel(work.sequences, now)
        elif isinstance(work, TransferMessage):
            self._entering.transfer(work.message, work.destination, now)
        else:
            assert_never(work)
