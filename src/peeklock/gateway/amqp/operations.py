"""The operations of `$management` on a queue without sessions (protocol 6.2).

Each has two halves: the request's arguments become a command, and the reply becomes the answer's
body. Whatever a client got wrong is a refusal that names the argument.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from peeklock.amqp.constructors import LONG, TIMESTAMP
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.types import Array, Int, Timestamp
from peeklock.auth.rights import LISTEN, SEND, Rights
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    MAIN,
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
from peeklock.entity.message import Message
from peeklock.entity.refusals import NOT_ALLOWED, Refusal
from peeklock.entity.replies import Delivery, Found, Numbered
from peeklock.gateway.amqp.arguments import Arguments, uuid_of
from peeklock.gateway.amqp.outcomes import (
    DESCRIPTION,
    REASON,
    changes_of,
    dead_letter_note,
)
from peeklock.gateway.amqp.translate import incoming, outgoing, without_body
from peeklock.gateway.identifiers import MessageIds

# The service's limits of one peek.
PEEK_COUNT_MAX: Final = 250
PEEK_BYTES_MAX: Final = 262_144
# The service's premium limit of one batch delete.
DELETE_COUNT_MAX: Final = 4_000

# The service's own spelling of "deferred" is kept; the right one is understood too.
_STATUSES: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "suspended": DEAD_LETTER,
    "defered": DEFER,
    "deferred": DEFER,
}


@final
class Call:
    """One request under way: what it asks, where, when, and by whose node and tag it comes back."""

    __slots__ = ("arguments", "ids", "lane", "now", "origin", "tag")

    def __init__(
        self, arguments: Arguments, *, origin: Any, tag: int, lane: int, now: int, ids: MessageIds
    ) -> None:
        self.arguments: Final = arguments
        self.origin: Final = origin
        self.tag: Final = tag
        self.lane: Final = lane
        self.now: Final = now
        self.ids: Final = ids


# Reads a request; the arguments hold the refusal where something is wrong with them.
Reader: TypeAlias = Callable[[Call], Command | Refusal]
# Words a reply: the body of the answer, or None where there is nothing to tell (204).
Writer: TypeAlias = Callable[[Call, Any], dict[Any, Any] | None]


@final
class Operation:
    """One row of the table: the right that it takes and its two halves."""

    __slots__ = ("read", "right", "write")

    def __init__(self, right: Rights, read: Reader, write: Writer) -> None:
        self.right: Final = right
        self.read: Final[Reader] = read
        self.write: Final[Writer] = write


# --- browsing


def _read_peek(call: Call) -> Command | Refusal:
    arguments = call.arguments
    first = arguments.number("from-sequence-number", low=-(1 << 63))
    count = arguments.number("message-count", low=1)
    # Read here, where a wrong type can still be refused.
    arguments.flag("omit-message-body")
    return Peek(call.origin, call.tag, call.lane, first, min(count, PEEK_COUNT_MAX), PEEK_BYTES_MAX)


def _write_peek(call: Call, reply: Any) -> dict[Any, Any] | None:
    deliveries = _found(reply)
    omit = call.arguments.flag("omit-message-body")
    return (
        {"messages": [{"message": _encoded(d, omit)} for d in deliveries]} if deliveries else None
    )


def _read_receive(call: Call) -> Command | Refusal:
    arguments = call.arguments
    sequences = arguments.numbers("sequence-numbers")
    locks = arguments.number("receiver-settle-mode", high=1)
    mode = PEEK_LOCK if locks else RECEIVE_AND_DELETE
    return ReceiveDeferred(call.origin, call.tag, call.lane, sequences, mode)


def _write_receive(_call: Call, reply: Any) -> dict[Any, Any] | None:
    deliveries = _found(reply)
    if not deliveries:
        return None
    return {
        "messages": [
            {
                "lock-token": uuid_of(delivery.sequence, delivery.lock_number),
                "message": _encoded(delivery, False),
            }
            for delivery in deliveries
        ]
    }


def _read_delete(call: Call) -> Command | Refusal:
    arguments = call.arguments
    count = arguments.number("message-count", low=1, high=DELETE_COUNT_MAX)
    before = arguments.number("enqueued-time-utc")
    return DeleteMany(call.origin, call.tag, call.lane, count, before)


def _write_delete(_call: Call, reply: Any) -> dict[Any, Any] | None:
    count = _numbers(reply)[0]
    return {"message-count": Int(count)} if count else None


def _found(reply: Any) -> list[Delivery]:
    assert isinstance(reply, Found), f"messages were expected, not {reply!r}"
    return reply.deliveries


def _encoded(delivery: Delivery, omit_body: bool) -> bytes:
    head, body = outgoing(delivery)
    return head + (without_body(body) if omit_body else body)


# --- locks


def _read_renew(call: Call) -> Command | Refusal:
    return RenewLocks(call.origin, call.tag, call.arguments.tokens("lock-tokens"))


def _write_renew(_call: Call, reply: Any) -> dict[Any, Any] | None:
    expirations = [Timestamp(instant) for instant in _numbers(reply)]
    return {"expirations": Array(TIMESTAMP, expirations)}


def _read_settle(call: Call) -> Command | Refusal:
    arguments = call.arguments
    status = arguments.text("disposition-status")
    tokens = arguments.tokens("lock-tokens")
    reason = arguments.optional_text("deadletter-reason")
    description = arguments.optional_text("deadletter-description")
    properties = {
        str(key): value for key, value in arguments.optional_map("properties-to-modify").items()
    }
    outcome = _STATUSES.get(status.lower(), -1)
    if outcome < 0:
        arguments.wrong("disposition-status", f"must be one of {', '.join(_STATUSES)}")
    note = None
    if outcome == DEAD_LETTER:
        # The explicit reason beats the one among the properties.
        among_reason = properties.pop(REASON, None)
        among_description = properties.pop(DESCRIPTION, None)
        note = dead_letter_note(
            among_reason if reason is None else reason,
            among_description if description is None else description,
        )
    return SettleAll(call.origin, call.tag, outcome, tokens, changes_of(properties), note)


def _write_done(_call: Call, reply: Any) -> dict[Any, Any] | None:
    _numbers(reply)
    return {}


def _numbers(reply: Any) -> list[int]:
    assert isinstance(reply, Numbered), f"numbers were expected, not {reply!r}"
    return reply.numbers


# --- scheduling


def _read_schedule(call: Call) -> Command | Refusal:
    if call.lane != MAIN:
        return Refusal(NOT_ALLOWED, "Messages cannot be scheduled in a dead-letter queue.")
    messages: list[Message] = []
    for entry in call.arguments.items("messages"):
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


def _write_schedule(_call: Call, reply: Any) -> dict[Any, Any] | None:
    return {"sequence-numbers": Array(LONG, _numbers(reply))}


def _read_cancel(call: Call) -> Command | Refusal:
    return CancelScheduled(call.origin, call.tag, call.arguments.numbers("sequence-numbers"))


# --- what a queue without sessions does not have


def _no_sessions(_call: Call) -> Command | Refusal:
    return Refusal(NOT_ALLOWED, "The operation needs an entity that requires sessions.")


def _no_rules(_call: Call) -> Command | Refusal:
    return Refusal(NOT_ALLOWED, "The operation needs a subscription; a queue has no rules.")


_PREFIX: Final = "com.microsoft:"

OPERATIONS: Final[dict[str, Operation]] = {
    _PREFIX + "peek-message": Operation(LISTEN, _read_peek, _write_peek),
    _PREFIX + "renew-lock": Operation(LISTEN, _read_renew, _write_renew),
    _PREFIX + "update-disposition": Operation(LISTEN, _read_settle, _write_done),
    _PREFIX + "receive-by-sequence-number": Operation(LISTEN, _read_receive, _write_receive),
    _PREFIX + "schedule-message": Operation(SEND, _read_schedule, _write_schedule),
    _PREFIX + "cancel-scheduled-message": Operation(SEND, _read_cancel, _write_done),
    _PREFIX + "batch-delete-messages": Operation(LISTEN, _read_delete, _write_delete),
    _PREFIX + "renew-session-lock": Operation(LISTEN, _no_sessions, _write_done),
    _PREFIX + "set-session-state": Operation(LISTEN, _no_sessions, _write_done),
    _PREFIX + "get-session-state": Operation(LISTEN, _no_sessions, _write_done),
    _PREFIX + "get-message-sessions": Operation(LISTEN, _no_sessions, _write_done),
    _PREFIX + "add-rule": Operation(LISTEN, _no_rules, _write_done),
    _PREFIX + "remove-rule": Operation(LISTEN, _no_rules, _write_done),
    _PREFIX + "enumerate-rules": Operation(LISTEN, _no_rules, _write_done),
}
