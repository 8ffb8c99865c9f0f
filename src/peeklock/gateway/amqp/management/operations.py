"""The operations of `$management` on messages, and the table of all operations (protocol 6.2)."""

from typing import Any, Final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.values.constructors import LONG, TIMESTAMP
from peeklock.amqp.values.pieces import Pieces
from peeklock.amqp.values.types import Array, Int, Timestamp
from peeklock.auth.rights import LISTEN, SEND
from peeklock.entity.commands import (
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    CancelScheduled,
    Command,
    DeleteMany,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Schedule,
    SettleAll,
)
from peeklock.entity.definition import SUBSCRIPTION
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import Message
from peeklock.entity.refusals import NOT_ALLOWED, Refusal
from peeklock.entity.replies import Found, Reply
from peeklock.gateway.amqp.address import OWN
from peeklock.gateway.amqp.management.arguments import DEAR_LIST_MAX
from peeklock.gateway.amqp.management.calls import PREFIX, Call, Operation, numbers, write_done
from peeklock.gateway.amqp.management.claim_operations import CLAIM_OPERATIONS
from peeklock.gateway.amqp.management.lock_tokens import uuid_of
from peeklock.gateway.amqp.management.rule_operations import RULE_OPERATIONS
from peeklock.gateway.amqp.management.session_operations import SESSION_OPERATIONS
from peeklock.gateway.amqp.management.stage_operations import STAGE_OPERATIONS
from peeklock.gateway.amqp.messages.translate import incoming, outgoing, peeked
from peeklock.gateway.amqp.nodes.outcomes import STATUSES, disposition

# The service's limits of one peek.
PEEK_COUNT_MAX: Final = 250
PEEK_BYTES_MAX: Final = 262_144
# How many deferred messages one request may fetch; all are one answer.
RECEIVE_COUNT_MAX: Final = 1_000
# The service's premium limit of one batch delete.
DELETE_COUNT_MAX: Final = 4_000

_SCHEDULES_ARE_THE_TOPICS: Final = (
    "Messages cannot be scheduled in a subscription; schedule them in its topic."
)


# --- browsing


def _read_peek(call: Call) -> Command | Refusal:
    arguments = call.arguments
    first = arguments.number("from-sequence-number", low=-(1 << 63))
    count = arguments.number("message-count", low=1)
    # Read here, where a wrong type can still be refused.
    arguments.flag("omit-message-body")
    session_id = _session_id(call)
    return Peek(
        call.origin,
        call.tag,
        call.lane,
        first,
        min(count, PEEK_COUNT_MAX),
        PEEK_BYTES_MAX,
        session_id,
    )


def _write_peek(call: Call, reply: Reply) -> dict[Any, Any] | None:
    deliveries = _found(reply)
    omit = call.arguments.flag("omit-message-body")
    return {"messages": [{"message": peeked(d, omit)} for d in deliveries]} if deliveries else None


def _read_receive(call: Call) -> Command | Refusal:
    arguments = call.arguments
    sequences = arguments.numbers("sequence-numbers", most=RECEIVE_COUNT_MAX)
    locks = arguments.number("receiver-settle-mode", high=1)
    mode = PEEK_LOCK if locks else RECEIVE_AND_DELETE
    session_id = _session_id(call)
    if call.has_sessions and session_id is None:
        # The Go client names its receiver only.
        session_id = call.held
        if session_id is None:
            arguments.wrong("session-id", "must name the session that the messages are in")
    return ReceiveDeferred(
        call.origin, call.tag, call.lane, sequences, mode, session_id, call.holder, call.consumer
    )


def _write_receive(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    deliveries = _found(reply)
    if not deliveries:
        return None
    return {"messages": [_write_deferred(delivery) for delivery in deliveries]}


def _write_deferred(delivery: Delivery) -> dict[Any, Any]:
    """Write a message with its lock, beside it and within: the Go client looks there."""
    head, body = outgoing(delivery)
    return {"lock-token": uuid_of(delivery), "message": Pieces([head, body])}


def _read_delete(call: Call) -> Command | Refusal:
    arguments = call.arguments
    count = arguments.number("message-count", low=1, high=DELETE_COUNT_MAX)
    before = arguments.number("enqueued-time-utc")
    return DeleteMany(call.origin, call.tag, call.lane, count, before, _session_id(call))


def _write_delete(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    count = numbers(reply)[0]
    return {"message-count": Int(count)} if count else None


def _session_id(call: Call) -> str | None:
    """The session that a call is limited to; None for all messages, in sessions or not."""
    session_id = call.arguments.optional_text("session-id")
    if session_id is not None and not call.has_sessions:
        call.arguments.wrong("session-id", "needs an entity that requires sessions")
    return session_id


def _found(reply: Reply) -> list[Delivery]:
    assert isinstance(reply, Found), f"messages were expected, not {reply!r}"
    return reply.deliveries


# --- locks


def _read_renew(call: Call) -> Command | Refusal:
    tokens = call.arguments.tokens("lock-tokens")
    return RenewLocks(call.origin, call.tag, tokens, call.consumer)


def _write_renew(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    expirations = [Timestamp(instant) for instant in numbers(reply)]
    return {"expirations": Array(TIMESTAMP, expirations)}


def _read_settle(call: Call) -> Command | Refusal:
    tokens = call.arguments.tokens("lock-tokens")
    settlement = disposition(call.arguments, STATUSES)
    return SettleAll(call.origin, call.tag, settlement, tokens, call.consumer)


# --- scheduling


def _read_schedule(call: Call) -> Command | Refusal:
    if call.sub_queue != OWN:
        return Refusal(NOT_ALLOWED, "Messages cannot be scheduled in a dead-letter queue.")
    if call.entity.kind == SUBSCRIPTION:
        return Refusal(NOT_ALLOWED, _SCHEDULES_ARE_THE_TOPICS)
    messages: list[Message] = []
    for entry in call.arguments.items("messages", most=DEAR_LIST_MAX):
        encoded = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(encoded, bytes):
            call.arguments.wrong("messages", "must hold maps with a binary 'message'")
            break
        try:
            messages.append(incoming(encoded, call.now, call.ids, True))
        except DecodeError as error:
            call.arguments.wrong("messages", f"holds a message that cannot be read: {error.text}")
            break
    return Schedule(call.origin, call.tag, messages)


def _write_schedule(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    return {"sequence-numbers": Array(LONG, numbers(reply))}


def _read_cancel(call: Call) -> Command | Refusal:
    if call.entity.kind == SUBSCRIPTION:
        return Refusal(NOT_ALLOWED, _SCHEDULES_ARE_THE_TOPICS)
    return CancelScheduled(call.origin, call.tag, call.arguments.numbers("sequence-numbers"))


OPERATIONS: Final[dict[str, Operation]] = {
    PREFIX + "peek-message": Operation(LISTEN, _read_peek, _write_peek),
    PREFIX + "renew-lock": Operation(LISTEN, _read_renew, _write_renew),
    PREFIX + "update-disposition": Operation(LISTEN, _read_settle, write_done),
    PREFIX + "receive-by-sequence-number": Operation(LISTEN, _read_receive, _write_receive),
    PREFIX + "schedule-message": Operation(SEND, _read_schedule, _write_schedule),
    PREFIX + "cancel-scheduled-message": Operation(SEND, _read_cancel, write_done),
    PREFIX + "batch-delete-messages": Operation(LISTEN, _read_delete, _write_delete),
    **SESSION_OPERATIONS,
    **RULE_OPERATIONS,
    **STAGE_OPERATIONS,
    **CLAIM_OPERATIONS,
}
