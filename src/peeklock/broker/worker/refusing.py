"""What a worker says to commands that it cannot carry out."""

from __future__ import annotations

from typing import Final

from peeklock.entity.commands import (
    CloseReceiver,
    Command,
    Commit,
    Configure,
    Grant,
    OpenReceiver,
    PublishStages,
    Requeue,
    Schedule,
    SendBatch,
    SendMany,
    SetSessionState,
    SettleMany,
    Stage,
    TakeOver,
    Tick,
    TransferMessage,
)
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import ReceiverClosed, Refused, Reply
from peeklock.store.store import WentBack

GONE: Final = "The store was taken away."
SHORT_OF_SPACE: Final = "The store is short of space and takes no messages. Try later."
SHORT_OF_MEMORY: Final = (
    "The broker is short of memory and takes no messages until some are received. Try later."
)
STEPPED_DOWN: Final = "The partition has another owner now. Try again."
DOUBT: Final = "The store failed; whether this was stored is in doubt. Try again."


def closed_text(index: int, path: str, problem: Exception) -> str:
    """What clients are told while what the store has keeps a partition closed."""
    name = f"Partition {index} of '{path}'"
    if isinstance(problem, WentBack):
        return f"{name} stays closed: {problem}."
    return (
        f"{name} is damaged on disk and stays closed: {problem}. 'peeklock store check' tells what "
        "is lost, 'peeklock store repair' opens it without that."
    )


def refusal_reply(command: Command, refusal: Refusal) -> Reply | None:
    """The answer to a command that is not carried out; None where nobody waits for one."""
    if isinstance(command, (SendMany, SettleMany, Stage)):
        return Refused(command.origin, command.tags, refusal)
    if isinstance(command, OpenReceiver):
        return ReceiverClosed(command.origin, refusal)
    if isinstance(command, (Grant, CloseReceiver, Requeue, Configure, Tick)):
        return None
    return Refused(command.origin, [command.tag], refusal)


def brings_messages(command: Command) -> bool:
    """Whether a store that is short of space must not take it; settlements always may (R-T2)."""
    if isinstance(command, (SendMany, SendBatch, Schedule, Stage, PublishStages)):
        return True  # a topic writes again what it publishes
    if isinstance(command, TakeOver):
        return len(command.numbers) > 0  # to forget needs next to no room
    if isinstance(command, SetSessionState):
        return command.state is not None  # as large as a message, and clearing one needs no room
    if isinstance(command, Commit):
        for work in command.work:
            if isinstance(work, (SendMany, SendBatch, Schedule, TransferMessage)):
                return True
    return False
