"""Claims in the model of entities with sessions and subscriptions."""

from typing import TYPE_CHECKING, Any

from peeklock.entity import commands as ask
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_CLAIMED
from peeklock.entity.refusals import NOT_ALLOWED

if TYPE_CHECKING:
    from tests.entity.wide_model import Row, WideModel


class WideClaims:
    """Who has claimed which rows. Owners are never silent for too long here, and never fenced:
    that is the matter of `claim_model`."""

    def __init__(self, model: "WideModel") -> None:
        self.model = model

    def has(self, lane: int, session: str | None, but: str = "") -> bool:
        """Whether somebody, or somebody else, has claimed messages of a session."""
        return any(
            (row.lane, row.session) == (lane, session) and row.owner not in ("", but)
            for row in self.model.rows
        )

    def claim(self, command: ask.ClaimMessages) -> tuple[Any, ...]:
        model = self.model
        lane = command.lane
        lines = [model.ready(lane, None)]
        if model.is_sessions(lane):
            # Those that the owner may have, the one with the oldest message first.
            names = dict.fromkeys(row.session for row in model.ready(lane, None))
            lines = [
                model.ready(lane, name)
                for name in names
                if model.holder(lane, name) is None and not self.has(lane, name, command.owner)
            ]
        taken = self.drawn(command, lines)
        for row in taken:
            row.state, row.owner = STATE_CLAIMED, command.owner
        sessions = [row.session for row in taken] if model.is_sessions(lane) else None
        return ("claimed", command.origin, [row.sequence for row in taken], sessions)

    def drawn(self, command: ask.ClaimMessages, lines: list[list["Row"]]) -> list["Row"]:
        taken: list[Row] = []
        limit = command.count_max
        for line in lines[: command.session_count]:
            for row in line:
                if row.count and row.lane & 1 == 0:
                    company_max = max(1, command.count_max // 8**row.count)
                    if len(taken) >= company_max:
                        return taken
                    limit = min(limit, company_max)
                taken.append(row)
                if len(taken) >= limit:
                    return taken
        return taken

    def settle(self, command: ask.SettleClaims, now: int) -> None:
        model = self.model
        if command.settlement.outcome == ask.DEAD_LETTER and command.lane & 1:
            model.say(command, NOT_ALLOWED)
            return
        rows = [
            row
            for row in model.rows
            if (row.lane, row.owner) == (command.lane, command.owner)
            if row.sequence in command.sequences
        ]
        for row in rows:
            row.state, row.owner = STATE_ACTIVE, ""
            model.end_lock(row, command.settlement.outcome, now)
        model.numbered(command, [len(rows)])
