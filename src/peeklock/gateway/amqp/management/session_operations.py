"""The operations of `$management` on message sessions (protocol 6.2)."""

from typing import Any, Final

from peeklock.amqp.values.constructors import STRING32
from peeklock.amqp.values.types import Array, Int, Timestamp
from peeklock.auth.rights import LISTEN
from peeklock.entity.commands import (
    Command,
    GetSessionState,
    ListSessions,
    RenewSession,
    SetSessionState,
)
from peeklock.entity.refusals import MESSAGE_TOO_BIG, NOT_ALLOWED, Refusal
from peeklock.entity.replies import Named, Reply, StateFound
from peeklock.gateway.amqp.management.arguments import PAGE_MAX
from peeklock.gateway.amqp.management.calls import PREFIX, Call, Operation, numbers, write_done

# What the service keeps with a session in its standard tier; entities that take larger messages
# keep as much as those.
STATE_SIZE_MAX: Final = 262_144

# The year 10000, which no clock here reaches: clients that do not care when a session's state was
# set send it or later, and mean all sessions that have messages or a state.
_WHENEVER: Final = 253_402_300_800_000

_NO_SESSIONS: Final = "The operation needs an entity that requires sessions."


def _read_renew(call: Call) -> Command | Refusal:
    if not call.has_sessions:
        return Refusal(NOT_ALLOWED, _NO_SESSIONS)
    session_id = call.arguments.text("session-id")
    return RenewSession(call.origin, call.tag, call.lane, session_id, call.holder)


def _write_renew(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    return {"expiration": Timestamp(numbers(reply)[0])}


def _read_get_state(call: Call) -> Command | Refusal:
    if not call.has_sessions:
        return Refusal(NOT_ALLOWED, _NO_SESSIONS)
    session_id = call.arguments.text("session-id")
    return GetSessionState(call.origin, call.tag, call.lane, session_id, call.holder)


def _write_get_state(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, StateFound), f"a state was expected, not {reply!r}"
    return {"session-state": reply.state}


def _read_set_state(call: Call) -> Command | Refusal:
    if not call.has_sessions:
        return Refusal(NOT_ALLOWED, _NO_SESSIONS)
    session_id = call.arguments.text("session-id")
    # Nothing is no state: who sets it to no bytes reads null from then on.
    state = call.arguments.optional_binary("session-state") or None
    size_max = max(STATE_SIZE_MAX, call.entity.message_size_max)
    if state is not None and len(state) > size_max:
        text = f"The state of a session has at most {size_max} bytes, not {len(state)}."
        return Refusal(MESSAGE_TOO_BIG, text)
    return SetSessionState(call.origin, call.tag, call.lane, session_id, call.holder, state)


def _read_list(call: Call) -> Command | Refusal:
    if not call.has_sessions:
        return Refusal(NOT_ALLOWED, _NO_SESSIONS)
    arguments = call.arguments
    updated_after = arguments.number("last-updated-time", low=-(1 << 63))
    skip = arguments.number("skip")
    top = arguments.number("top", low=1)
    since = None if updated_after >= _WHENEVER else updated_after
    return ListSessions(call.origin, call.tag, call.lane, since, skip, min(top, PAGE_MAX))


def _write_list(call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, Named), f"names were expected, not {reply!r}"
    if not reply.names:
        return None
    skipped = call.arguments.number("skip")
    # The misspelt plural is the service's.
    return {"skip": Int(skipped), "sessions-ids": Array(STRING32, reply.names)}


SESSION_OPERATIONS: Final[dict[str, Operation]] = {
    PREFIX + "renew-session-lock": Operation(LISTEN, _read_renew, _write_renew),
    PREFIX + "set-session-state": Operation(LISTEN, _read_set_state, write_done),
    PREFIX + "get-session-state": Operation(LISTEN, _read_get_state, _write_get_state),
    PREFIX + "get-message-sessions": Operation(
        LISTEN, _read_list, _write_list, "com.microsoft:session-not-found"
    ),
}
