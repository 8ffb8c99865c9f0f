"""What a partition can be asked about message sessions.

The words are part of those in `commands`, from where the others import them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.replies import Origin
from peeklock.entity.tables.command_rows import KEY, RECEIVER, WALK, CommandRow


@final
@dataclass(slots=True, init=False)
class AcceptSession:
    """A receiver for one message session: a named one, or the next that has something to give.

    The reply is SessionAccepted; with `session_id` None it may come any time until `wait_until`.
    The origin is then a receiver like any other: it grants, settles and closes.
    """

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    mode: Final[int]
    session_id: Final[str | None]
    wait_until: Final[int]
    consumer: Final[str]  # how the journal calls the receiver

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        mode: int,
        session_id: str | None,
        wait_until: int,
        consumer: str = "",
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.mode = mode
        self.session_id = session_id
        self.wait_until = wait_until
        self.consumer = consumer


@final
@dataclass(slots=True, init=False)
class RenewSession:
    """A whole lock duration from now for a session; only its holder can ask.

    `holder` is the origin that accepted it; None where the gateway cannot tell, then any holder
    will do.
    """

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    session_id: Final[str]
    holder: Final[Origin | None]

    def __init__(
        self, origin: Origin, tag: int, lane: int, session_id: str, holder: Origin | None
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.session_id = session_id
        self.holder = holder


@final
@dataclass(slots=True, init=False)
class GetSessionState:
    """What was last stored with a session; the reply is StateFound."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    session_id: Final[str]
    holder: Final[Origin | None]

    def __init__(
        self, origin: Origin, tag: int, lane: int, session_id: str, holder: Origin | None
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.session_id = session_id
        self.holder = holder


@final
@dataclass(slots=True, init=False)
class SetSessionState:
    """Store some bytes with a session; None clears them."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    session_id: Final[str]
    holder: Final[Origin | None]
    state: Final[bytes | None]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        session_id: str,
        holder: Origin | None,
        state: bytes | None,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.session_id = session_id
        self.holder = holder
        self.state = state


@final
@dataclass(slots=True, init=False)
class ListSessions:
    """Names of sessions, in their order: those with messages or state, or (with `updated_after`)
    those whose state was set after an instant. The reply is Named."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    updated_after: Final[int | None]
    skip: Final[int]
    top: Final[int]

    def __init__(
        self, origin: Origin, tag: int, lane: int, updated_after: int | None, skip: int, top: int
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.updated_after = updated_after
        self.skip = skip
        self.top = top


SessionCommand: TypeAlias = (
    AcceptSession | RenewSession | GetSessionState | SetSessionState | ListSessions
)

SESSION_COMMANDS: Final = (
    CommandRow(AcceptSession, RECEIVER),
    CommandRow(RenewSession, KEY),
    CommandRow(GetSessionState, KEY),
    CommandRow(SetSessionState, KEY),
    CommandRow(ListSessions, WALK),
)
