"""The mailbox of a partition: what has come in, and the one who sleeps until something does.

The worker may also wait a moment although something is there: for company, where a shared write is
worth it, or with completions for a send to ride with.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, final

from peeklock.broker.worker.pending_replies import PendingReplies
from peeklock.broker.worker.write_batching import STORE_S_MIN, WriteBatching
from peeklock.entity.commands import (
    COMPLETE,
    Command,
    Commit,
    FetchClaims,
    Peek,
    ReceiveDeferred,
    Requeue,
    Schedule,
    SendBatch,
    SendMany,
    SetSessionState,
    SettleMany,
    Stage,
    TakeOver,
    TransferMessage,
)

# A completion may wait this long for a send to share its write (R-F3 would allow 20 ms), and only
# while the last send is not older than that. Measured by `python -m bench latency`.
RIDE_S_MAX: Final = 0.001
# More completions than this are worth a write of their own.
RIDERS_MAX: Final = 32
SENDS_FLOW_S: Final = 0.002
# A message in an answer takes as long as so many that are sent.
LOOK_WEIGHT: Final = 5


@final
class Mailbox:
    """Commands in the order of their arrival, and the worker's sleep."""

    __slots__ = ("_complete_at", "_is_riding", "_wake", "commands", "is_cut", "sent_at")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.is_cut: bool = False  # the last round left some: it was full
        self.sent_at: float = -1.0  # when a round last stored sends
        self._wake: asyncio.Future[None] | None = None
        self._is_riding: bool = False  # completions wait for a send
        self._complete_at: int = 0  # a wait for company ends when there are so many

    def put(self, command: Command) -> None:
        """Take a command in; the worker wakes up if that is what it waits for."""
        self.commands.append(command)
        if self._wake is not None:
            if self._is_riding:
                if not _is_completion(command):
                    self.awake()
            elif len(self.commands) >= self._complete_at:
                self.awake()

    def put_first(self, commands: list[Command]) -> None:
        """Take commands in that go before all else."""
        self.commands = commands + self.commands

    def take(self, count_max: int, bytes_max: int, messages_max: int) -> list[Command]:
        """The first commands, so many at most, and no more once they bring so many messages, or
        these have so many bytes; messages that are asked for, and answered in one piece, count as
        several."""
        commands = self.commands
        left = bytes_max
        messages_left = messages_max
        for count, command in enumerate(commands):
            if count == count_max or left <= 0 or messages_left <= 0:
                self.commands = commands[count:]
                self.is_cut = True
                return commands[:count]
            if isinstance(command, (SendMany, SendBatch, Schedule, Stage, TakeOver)):
                messages_left -= len(command.messages)
                for message in command.messages:
                    left -= message.size
            elif isinstance(command, Requeue):
                left -= command.size
            elif isinstance(command, SetSessionState) and command.state is not None:
                left -= len(command.state)
            elif isinstance(command, Commit):
                left -= _size_of(command)
            elif isinstance(command, Peek):
                messages_left -= LOOK_WEIGHT * command.count_max
            elif isinstance(command, (ReceiveDeferred, FetchClaims)):
                messages_left -= LOOK_WEIGHT * len(command.sequences)
        self.commands = []
        self.is_cut = False
        return commands

    def take_all(self) -> list[Command]:
        """Everything that is here."""
        commands = self.commands
        self.commands = []
        return commands

    def awake(self) -> None:
        """End the sleep, whatever it waits for."""
        wake = self._wake
        if wake is not None:
            self._wake = None
            if not wake.done():
                wake.set_result(None)

    async def sleep(self) -> None:
        """Wait until something comes in or somebody calls."""
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wake = wake
        await wake

    async def sleep_at_most(self, duration_s: float) -> None:
        """Wait as `sleep` does, but not for longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.sleep(), duration_s)
        self._wake = None

    async def wait_for_company(
        self, write_batching: WriteBatching, pending_replies: PendingReplies
    ) -> None:
        """Let those who were just answered send again, where a shared write is worth a wait."""
        if write_batching.store_s < STORE_S_MIN:
            return
        write_batching.answered(pending_replies.lone_answers())
        hold_s = write_batching.hold_s(len(self.commands))
        if hold_s == 0.0:
            return
        pending_replies.release()
        self._complete_at = len(self.commands) + write_batching.expected()
        await self.sleep_at_most(hold_s)
        self._complete_at = 0

    def may_ride(self, now_s: float) -> bool:
        """Whether all that is here is completions, while sends are flowing: they can share the
        write of the next send, which halves the writes of a busy, shallow queue."""
        if not self.commands or now_s - self.sent_at > SENDS_FLOW_S:
            return False
        size = 0
        for command in self.commands:
            if not isinstance(command, SettleMany) or command.settlement.outcome != COMPLETE:
                return False
            size += len(command.tokens)
        return size <= RIDERS_MAX

    async def wait_for_send(self, pending_replies: PendingReplies) -> None:
        """Let the completions wait for a send to share its write, but not for long."""
        loop = asyncio.get_running_loop()
        pending_replies.release()
        if not self.may_ride(loop.time()):
            return  # what was let go has brought a send already
        self._is_riding = True
        timer = loop.call_later(RIDE_S_MAX, self.awake)
        await self.sleep()
        timer.cancel()
        self._is_riding = False


def _size_of(transaction: Commit) -> int:
    """How many bytes the messages of a transaction have."""
    size = 0
    for work in transaction.work:
        if isinstance(work, (SendMany, SendBatch, Schedule)):
            for message in work.messages:
                size += message.size
        elif isinstance(work, TransferMessage):
            size += work.message.size
    return size


def _is_completion(command: Command) -> bool:
    """Whether nobody waits for what this settlement does; other outcomes give messages back."""
    return isinstance(command, SettleMany) and command.settlement.outcome == COMPLETE
