"""What a partition can be asked. Every command names who asked (`origin`) and, where one origin
has many wishes under way, which one (`tag`); both come back unchanged with the reply."""

from __future__ import annotations

from typing import Final, TypeAlias

from peeklock.entity.claims.commands import (
    CLAIM_COMMANDS,
    ClaimCommand,
    ClaimMessages,
    FetchClaims,
    ListClaims,
    SettleClaims,
)
from peeklock.entity.moves.commands import (
    ANY_SIZE,
    DEAD,
    DEFERRED_BYTES_MAX,
    FORWARD,
    MAIN,
    MESSAGE_COMMANDS,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    TRANSFER,
    TRANSFER_DEAD,
    CancelScheduled,
    CloseReceiver,
    Configure,
    Count,
    DeleteMany,
    Grant,
    MessageCommand,
    OpenReceiver,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Requeue,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    Tick,
)
from peeklock.entity.sessions.commands import (
    SESSION_COMMANDS,
    AcceptSession,
    GetSessionState,
    ListSessions,
    RenewSession,
    SessionCommand,
    SetSessionState,
)
from peeklock.entity.settlement import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, Settlement
from peeklock.entity.stages.commands import (
    STAGE_COMMANDS,
    DropStages,
    FindPublished,
    PublishStages,
    Stage,
    StageCommand,
    TellStages,
)
from peeklock.entity.transfers.commands import (
    TRANSFER_COMMANDS,
    Commit,
    NoteDestination,
    Reserve,
    TakeOver,
    TellTaken,
    TransferCommand,
    TransferMessage,
)

# Whoever asks a partition finds all of its words here.
__all__ = [
    "MAIN",
    "DEAD",
    "TRANSFER",
    "TRANSFER_DEAD",
    "PEEK_LOCK",
    "RECEIVE_AND_DELETE",
    "FORWARD",
    "COMPLETE",
    "ABANDON",
    "DEFER",
    "DEAD_LETTER",
    "RELEASE",
    "Command",
    "TransactionWork",
    "SendMany",
    "SendBatch",
    "Schedule",
    "CancelScheduled",
    "OpenReceiver",
    "Grant",
    "CloseReceiver",
    "Requeue",
    "Settlement",
    "SettleMany",
    "SettleAll",
    "RenewLocks",
    "Peek",
    "ReceiveDeferred",
    "DeleteMany",
    "Configure",
    "Count",
    "Tick",
    "AcceptSession",
    "RenewSession",
    "GetSessionState",
    "SetSessionState",
    "ListSessions",
    "ClaimMessages",
    "ListClaims",
    "FetchClaims",
    "SettleClaims",
    "Reserve",
    "TakeOver",
    "NoteDestination",
    "TellTaken",
    "TransferMessage",
    "Commit",
    "Stage",
    "PublishStages",
    "DropStages",
    "FindPublished",
    "TellStages",
    "ANY_SIZE",
    "DEFERRED_BYTES_MAX",
    "ClaimCommand",
    "MessageCommand",
    "SessionCommand",
    "StageCommand",
    "TransferCommand",
    "COMMAND_ROWS",
]

# What one transaction is made of.
TransactionWork: TypeAlias = (
    SendMany | SendBatch | Schedule | CancelScheduled | SettleMany | SettleAll | TransferMessage
)

Command: TypeAlias = MessageCommand | SessionCommand | ClaimCommand | StageCommand | TransferCommand

COMMAND_ROWS: Final = (
    *MESSAGE_COMMANDS,
    *SESSION_COMMANDS,
    *CLAIM_COMMANDS,
    *STAGE_COMMANDS,
    *TRANSFER_COMMANDS,
)
