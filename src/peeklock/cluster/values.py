"""Commands and replies as values that go from one node to another.

A value is a list that starts with the number of its kind. Those that every message needs are
written out by hand; all others are told by the fields of their classes. What stands for an origin
is a number: the node that asks gives one to each, and the node that answers knows no more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, TypeAlias

from peeklock.entity.claims.commands import ClaimMessages, FetchClaims, ListClaims, SettleClaims
from peeklock.entity.commands import (
    CancelScheduled,
    CloseReceiver,
    Command,
    Count,
    DeleteMany,
    Grant,
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
from peeklock.entity.deliveries import Delivery, Details, LockToken
from peeklock.entity.message import Message, Traits
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import (
    BatchPublished,
    ClaimsFetched,
    ClaimsListed,
    ClaimsMade,
    Counted,
    Delivered,
    Drained,
    Found,
    Named,
    Numbered,
    Ready,
    ReceiverClosed,
    Refused,
    Reply,
    SendsAccepted,
    SessionAccepted,
    Settled,
    StagesTold,
    StateFound,
)
from peeklock.entity.sessions.commands import (
    AcceptSession,
    GetSessionState,
    ListSessions,
    RenewSession,
    SetSessionState,
)
from peeklock.entity.settlement import COMPLETE, PLAIN_COMPLETE, Settlement
from peeklock.entity.stages.commands import (
    DropStages,
    FindPublished,
    PublishStages,
    Stage,
    TellStages,
)
from peeklock.entity.transfers.commands import (
    Commit,
    NoteDestination,
    Reserve,
    TakeOver,
    TellTaken,
    TransferMessage,
)

NumberOf: TypeAlias = Callable[[Any], int]
"""The number that stands for an origin."""
OriginOf: TypeAlias = Callable[[int], Any]
"""The origin that a number stands for, on the other side."""

NO_ORIGIN: Final = 0
"""Stands for None: a holder that the gateway cannot tell."""

# The place in a tuple is the number on the wire. All nodes of a machine run the same source.
_COMMANDS: Final[tuple[type, ...]] = (
    SendMany,
    SettleMany,
    Grant,
    SendBatch,
    Schedule,
    Reserve,
    CancelScheduled,
    OpenReceiver,
    AcceptSession,
    CloseReceiver,
    Requeue,
    SettleAll,
    RenewLocks,
    RenewSession,
    GetSessionState,
    SetSessionState,
    ListSessions,
    Peek,
    ReceiveDeferred,
    DeleteMany,
    ClaimMessages,
    ListClaims,
    FetchClaims,
    SettleClaims,
    TakeOver,
    NoteDestination,
    TellTaken,
    Commit,
    Stage,
    PublishStages,
    DropStages,
    FindPublished,
    TellStages,
    Count,
    Tick,
    TransferMessage,
)
_REPLIES: Final[tuple[type, ...]] = (
    SendsAccepted,
    Delivered,
    Settled,
    Refused,
    Drained,
    Ready,
    Numbered,
    Found,
    ClaimsMade,
    ClaimsListed,
    ClaimsFetched,
    Counted,
    ReceiverClosed,
    SessionAccepted,
    StateFound,
    Named,
    BatchPublished,
    StagesTold,
)
_SEND_MANY: Final = 0
_SETTLE_MANY: Final = 1
_TRANSFER_MESSAGE: Final = 35
_SENDS_ACCEPTED: Final = 0
_DELIVERED: Final = 1
_SETTLED: Final = 2


def _layouts(classes: tuple[type, ...]) -> dict[type, tuple[int, list[str]]]:
    return {
        each: (number, [field.name for field in fields(each)])
        for number, each in enumerate(classes)
    }


_COMMAND_LAYOUTS: Final = _layouts(_COMMANDS)
_REPLY_LAYOUTS: Final = _layouts(_REPLIES)


# ---- commands


def write_command(command: Command, number_of: NumberOf) -> list[Any]:
    """Return a command as a value; a budget stays behind, because it is counted here."""
    if isinstance(command, SendMany):
        return [
            _SEND_MANY,
            number_of(command.origin),
            command.tags,
            write_messages(command.messages),
        ]
    if isinstance(command, SettleMany):
        return [
            _SETTLE_MANY,
            number_of(command.origin),
            command.tags,
            _write_settlement(command.settlement),
            _write_tokens(command.tokens),
            command.consumer,
        ]
    return _write(command, _COMMAND_LAYOUTS, number_of)


def read_command(value: list[Any], origin_of: OriginOf) -> Command:
    """Return the command of a value."""
    kind: int = value[0]
    if kind == _SEND_MANY:
        return SendMany(origin_of(value[1]), value[2], read_messages(value[3]))
    if kind == _SETTLE_MANY:
        return SettleMany(
            origin_of(value[1]),
            value[2],
            _read_settlement(value[3]),
            _read_tokens(value[4]),
            value[5],
        )
    command: Command = _read(value, _COMMANDS, _COMMAND_LAYOUTS, origin_of)
    return command


# ---- replies


def write_reply(reply: Reply, number: int) -> list[Any]:
    """Return a reply as a value; `number` stands for its origin."""
    if isinstance(reply, Delivered):
        return [_DELIVERED, number, reply.mode, reply.size, _write_deliveries(reply.deliveries)]
    if isinstance(reply, SendsAccepted):
        return [_SENDS_ACCEPTED, number, reply.tags]
    if isinstance(reply, Settled):
        return [_SETTLED, number, reply.tags, reply.outcome]
    return _write(reply, _REPLY_LAYOUTS, lambda _: number)


def read_reply(value: list[Any], origin: Any) -> Reply:
    """Return the reply of a value; its second item stood for the origin."""
    kind: int = value[0]
    if kind == _DELIVERED:
        return Delivered(origin, value[2], _read_deliveries(value[4]), value[3])
    if kind == _SENDS_ACCEPTED:
        return SendsAccepted(origin, value[2])
    if kind == _SETTLED:
        return Settled(origin, value[2], value[3])
    reply: Reply = _read(value, _REPLIES, _REPLY_LAYOUTS, lambda _: origin)
    return reply


def tags_of(reply: Reply) -> list[int]:
    """Return the tags of the wishes that a reply answers."""
    if isinstance(reply, (SendsAccepted, Settled, Refused)):
        return reply.tags
    if isinstance(reply, (Delivered, Drained, Ready, ReceiverClosed)):
        return []
    return [reply.tag]


# ---- messages


def write_messages(messages: list[Message]) -> list[Any]:
    """Return three items for each message: envelope, content, traits."""
    flat: list[Any] = []
    for message in messages:
        flat.append(message.envelope)
        flat.append(message.content)
        flat.append(_write_traits(message.traits))
    return flat


def read_messages(flat: list[Any]) -> list[Message]:
    """Return the messages of such a list."""
    return [
        Message(flat[at], flat[at + 1], _read_traits(flat[at + 2])) for at in range(0, len(flat), 3)
    ]


def _write_traits(traits: Traits | None) -> list[Any] | None:
    if traits is None:
        return None
    return [
        traits.message_id,
        traits.time_to_live_ms,
        traits.scheduled_at,
        traits.session_id,
        traits.partition_key,
        traits.hops,
        traits.enqueue_sequence,
        traits.dead_letter_source,
        traits.expires_at,
    ]


def _read_traits(value: list[Any] | None) -> Traits | None:
    if value is None:
        return None
    traits = Traits(
        message_id=value[0],
        time_to_live_ms=value[1],
        scheduled_at=value[2],
        session_id=value[3],
        partition_key=value[4],
        hops=value[5],
        enqueue_sequence=value[6],
        dead_letter_source=value[7],
    )
    traits.expires_at = value[8]
    return traits


# How many items a delivery takes.
_WIDTH: Final = 12


def _write_deliveries(deliveries: list[Delivery]) -> list[Any]:
    flat: list[Any] = []
    for each in deliveries:
        message = each.message
        flat.append(each.sequence)
        flat.append(each.number)
        flat.append(each.locked_until)
        flat.append(each.delivery_count)
        flat.append(each.enqueued_at)
        flat.append(each.expires_at)
        flat.append(each.position)
        flat.append(each.state)
        flat.append(None if each.details is None else _write_details(each.details))
        flat.append(None if message is None else message.envelope)
        flat.append(None if message is None else message.content)
        flat.append(None if message is None else _write_traits(message.traits))
    return flat


def _read_deliveries(flat: list[Any]) -> list[Delivery]:
    deliveries: list[Delivery] = []
    for at in range(0, len(flat), _WIDTH):
        message: Message | None = None
        if flat[at + 9] is not None:
            message = Message(flat[at + 9], flat[at + 10], _read_traits(flat[at + 11]))
        details: Details | None = None
        if flat[at + 8] is not None:
            details = _read_details(flat[at + 8])
        deliveries.append(
            Delivery(
                flat[at],
                flat[at + 1],
                flat[at + 2],
                flat[at + 3],
                flat[at + 4],
                flat[at + 5],
                flat[at + 6],
                message,
                details,
                flat[at + 7],
            )
        )
    return deliveries


def _write_details(details: Details) -> list[Any]:
    return [
        details.size,
        details.enqueue_sequence,
        details.scheduled_at,
        details.time_to_live_ms,
        details.reason,
        details.description,
        details.hops,
        details.destination,
        details.source,
        details.seen,
        details.changes,
    ]


def _read_details(value: list[Any]) -> Details:
    details = Details()
    details.size = value[0]
    details.enqueue_sequence = value[1]
    details.scheduled_at = value[2]
    details.time_to_live_ms = value[3]
    details.reason = value[4]
    details.description = value[5]
    details.hops = value[6]
    details.destination = value[7]
    details.source = value[8]
    details.seen = value[9]
    details.changes = value[10]
    return details


def _write_tokens(tokens: list[LockToken]) -> list[int]:
    flat: list[int] = []
    for token in tokens:
        flat.append(token.sequence)
        flat.append(token.number)
    return flat


def _read_tokens(flat: list[int]) -> list[LockToken]:
    return [LockToken(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]


def _write_settlement(settlement: Settlement) -> Any:
    """Return the outcome alone, where there is no more to say."""
    if settlement.changes is None and settlement.reason is None and settlement.description is None:
        return settlement.outcome
    return [
        settlement.outcome,
        settlement.changes,
        settlement.reason,
        settlement.description,
    ]


def _read_settlement(value: Any) -> Settlement:
    if isinstance(value, int):
        return PLAIN_COMPLETE if value == COMPLETE else Settlement(value)
    return Settlement(value[0], value[1], value[2], value[3])


# ---- all others, by their fields


def _write(
    thing: Any, layouts: dict[type, tuple[int, list[str]]], number_of: NumberOf
) -> list[Any]:
    kind, names = layouts[type(thing)]
    value: list[Any] = [kind]
    for name in names:
        value.append(_write_field(name, getattr(thing, name), number_of))
    return value


def _write_field(name: str, field: Any, number_of: NumberOf) -> Any:
    if name in ("origin", "holder"):
        return NO_ORIGIN if field is None else number_of(field)
    if name == "budget" or field is None:
        return None
    if name == "messages":
        return write_messages(field)
    if name == "message":
        return write_messages([field])
    if name == "deliveries":
        return _write_deliveries(field)
    if name == "tokens":
        return _write_tokens(field)
    if name == "settlement":
        return _write_settlement(field)
    if name == "refusal":
        return [field.kind, field.text]
    if name == "work":
        return [_write_work(each) for each in field]
    return field


def _write_work(work: Any) -> list[Any]:
    """Return a part of a transaction: a command, or what is none outside of one."""
    if isinstance(work, TransferMessage):
        return _write(work, _COMMAND_LAYOUTS, _nobody)
    return write_command(work, _nobody)


def _read_work(value: list[Any], origin_of: OriginOf) -> Any:
    if value[0] == _TRANSFER_MESSAGE:
        return _read(value, _COMMANDS, _COMMAND_LAYOUTS, origin_of)
    return read_command(value, origin_of)


def _nobody(_origin: Any) -> int:
    return NO_ORIGIN


def _read(
    value: list[Any],
    classes: tuple[type, ...],
    layouts: dict[type, tuple[int, list[str]]],
    origin_of: OriginOf,
) -> Any:
    made = classes[value[0]]
    _, names = layouts[made]
    return made(*[_read_field(name, value[at + 1], origin_of) for at, name in enumerate(names)])


def _read_field(name: str, field: Any, origin_of: OriginOf) -> Any:
    if name in ("origin", "holder"):
        return None if field == NO_ORIGIN else origin_of(field)
    if field is None:
        return None
    if name == "messages":
        return read_messages(field)
    if name == "message":
        return read_messages(field)[0]
    if name == "deliveries":
        return _read_deliveries(field)
    if name == "tokens":
        return _read_tokens(field)
    if name == "settlement":
        return _read_settlement(field)
    if name == "refusal":
        return Refusal(field[0], field[1])
    if name == "work":
        return [_read_work(each, origin_of) for each in field]
    if name == "batches":
        return [(writer, batch, stages) for writer, batch, stages in field]
    return field
