"""The facts about message sessions: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.tables.record_rows import SEEN, RecordRow


@final
@dataclass(slots=True, init=False)
class SessionStateSet:
    """Some bytes were stored with a session, or cleared (None)."""

    at: Final[int]
    lane: Final[int]
    session_id: Final[str]
    state: Final[bytes | None]

    def __init__(self, at: int, lane: int, session_id: str, state: bytes | None) -> None:
        self.at = at
        self.lane = lane
        self.session_id = session_id
        self.state = state


SessionRecord: TypeAlias = SessionStateSet

SESSION_RECORDS: Final = (
    RecordRow(SessionStateSet, 16, "at=q lane=I 0=B session_id=name state=bytes", SEEN),
)
