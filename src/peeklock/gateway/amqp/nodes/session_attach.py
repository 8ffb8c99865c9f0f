"""Session receivers: what an attach asks for, and what the answer says of the session it got.

The session that is wanted stands in the filter of the link's source, the time that it may take in a
property of the link (protocol 3.5).
"""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.dialect import (
    SESSION_FILTER,
    SESSION_LOCKED_UNTIL,
    TICKS_AT_1970,
    TICKS_PER_MS,
    TIMEOUT,
)
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import encode_composite
from peeklock.amqp.values.types import Char, Described, Symbol, Ulong
from peeklock.entity.refusals import INVALID_ARGUMENT, Refusal

SESSION_ID_LENGTH_MAX: Final = 128
# How long the next session is waited for when the client does not say.
WAIT_MS_DEFAULT: Final = 65_000

_FILTER_CODE: Final = 0x137000000C
_LOCKED_UNTIL: Final = Symbol(SESSION_LOCKED_UNTIL)


@final
@dataclass(slots=True, init=False)
class SessionRequest:
    """Which session a receiver wants, None for the next available one, and how long it waits."""

    session_id: Final[str | None]
    wait_ms: Final[int]

    def __init__(self, session_id: str | None, wait_ms: int) -> None:
        self.session_id = session_id
        self.wait_ms = wait_ms


def read_session_request(link: Link) -> SessionRequest | Refusal | None:
    """Read what a link asks for; None when it has no session filter."""
    key = _filter_key(link)
    if key is None:
        return None
    value = link.source.filter[key]
    if isinstance(value, Described):
        descriptor = value.descriptor
        if not (isinstance(descriptor, Symbol) or _is_code(descriptor)):
            return Refusal(INVALID_ARGUMENT, "The session filter has an unknown descriptor.")
        value = value.value
    if value is not None and (not isinstance(value, str) or isinstance(value, Char)):
        return Refusal(INVALID_ARGUMENT, "The session filter must be a string or null.")
    if value is not None and len(value) > SESSION_ID_LENGTH_MAX:
        text = f"A session id has at most {SESSION_ID_LENGTH_MAX} characters."
        return Refusal(INVALID_ARGUMENT, text)
    wait_ms = _wait_ms(link)
    if wait_ms < 0:
        text = f"The link property '{TIMEOUT}' must be a number of milliseconds."
        return Refusal(INVALID_ARGUMENT, text)
    return SessionRequest(None if value is None else str(value), wait_ms)


def granted_source(link: Link, session_id: str) -> bytes:
    """Write the link's source with the session that it got in the place of the wish."""
    source = link.source
    filters = dict(source.filter)
    key = _filter_key(link)
    asked = filters[key]
    # In the form of the request: most clients read a plain string, Go's a described one only.
    if isinstance(asked, Described):
        filters[key] = Described(asked.descriptor, session_id)
    else:
        filters[key] = session_id
    return encode_composite(
        Source(
            address=source.address,
            durable=source.durable,
            expiry_policy=source.expiry_policy,
            timeout=source.timeout,
            dynamic=source.dynamic,
            dynamic_node_properties=source.dynamic_node_properties,
            distribution_mode=source.distribution_mode,
            filter=filters,
            default_outcome=source.default_outcome,
            outcomes=source.outcomes,
            capabilities=source.capabilities,
        )
    )


def granted_properties(locked_until: int) -> dict[Any, Any]:
    """Say until when the session is locked: a long in .NET's ticks, not a timestamp."""
    return {_LOCKED_UNTIL: TICKS_AT_1970 + locked_until * TICKS_PER_MS}


def _filter_key(link: Link) -> Any:
    """Give the key of the session filter as the client wrote it, None where there is none."""
    for key in link.source.filter or {}:
        if str(key) == SESSION_FILTER:
            return key
    return None


def _is_code(descriptor: Any) -> bool:
    return isinstance(descriptor, Ulong) and int(descriptor) == _FILTER_CODE


def _wait_ms(link: Link) -> int:
    """Give the time that the client allows, -1 when it cannot be read."""
    for key, value in (link.properties or {}).items():
        if str(key) == TIMEOUT and value is not None:
            return int(value) if isinstance(value, int) and not isinstance(value, bool) else -1
    return WAIT_MS_DEFAULT
