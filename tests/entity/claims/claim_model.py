"""Claims in the naive model: who claims with which epoch, and what follows for the rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from peeklock.entity import commands as ask
from peeklock.entity.claims.claiming import HEARD_EVERY_MS
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.claims.lane_claims import CLAIM_GRACE_MS, CLAIM_TIMEOUT_MS, OWNER_KEPT_MS
from peeklock.entity.commands import DEAD, MAIN
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_CLAIMED
from peeklock.entity.message import NO_DURATION
from peeklock.entity.partition import Partition
from peeklock.entity.refusals import CLAIM_FENCED, ENTITY_DISABLED, NOT_ALLOWED

if TYPE_CHECKING:
    from tests.entity.model import Model, Row

Asked = ask.ClaimMessages | ask.ListClaims | ask.FetchClaims | ask.SettleClaims
CHANGING: Final = (ask.ABANDON, ask.DEFER, ask.DEAD_LETTER)


@dataclass
class Claimant:
    """One owner of claims on one lane."""

    epoch: int
    heard_at: int
    said_at: int  # the same, without the grace that each opening gives
    timeout_ms: int = CLAIM_TIMEOUT_MS


class Claims:
    """The owners of a model, and what they can ask."""

    def __init__(self, model: "Model") -> None:
        self.model = model
        self.owners: dict[tuple[int, str], Claimant] = {}

    def answer(self, command: Asked, now: int) -> tuple[Any, int, str, Any]:
        word, what = self.decide(command, now)
        return (command.origin, command.tag, word, what)

    def decide(self, command: Asked, now: int) -> tuple[str, Any]:
        if self.model.is_closed_for_receiving():
            return ENTITY_DISABLED, None
        if not isinstance(command, ask.FetchClaims) and not self.is_heard(command, now):
            return CLAIM_FENCED, None
        match command:
            case ask.ClaimMessages():
                return "claimed", self.claim(command, now)
            case ask.ListClaims():
                return "listed", self.listed(command)
            case ask.FetchClaims():
                return "fetched", self.fetch(command)
            case _:
                if command.settlement.outcome == ask.DEAD_LETTER and command.lane == DEAD:
                    return NOT_ALLOWED, None
                return "numbered", [self.settle(command, now)]

    def is_heard(
        self, command: ask.ClaimMessages | ask.ListClaims | ask.SettleClaims, now: int
    ) -> bool:
        """Whether the owner may ask; with an epoch it is heard of."""
        key = (command.lane, command.owner)
        if command.epoch == NO_EPOCH:
            return True
        owner = self.owners.setdefault(key, Claimant(command.epoch, now, now))
        if command.epoch < owner.epoch:
            return False
        owner.epoch, owner.heard_at, owner.said_at = command.epoch, now, now
        if isinstance(command, ask.ClaimMessages) and command.timeout_ms != NO_DURATION:
            owner.timeout_ms = command.timeout_ms
        return True

    def of(self, lane: int, owner: str) -> dict[int, "Row"]:
        """What an owner has, by number."""
        rows = [row for row in self.model.rows if (row.lane, row.owner) == (lane, owner)]
        return {row.sequence: row for row in rows}

    def claim(self, command: ask.ClaimMessages, now: int) -> tuple[Any, ...]:
        upto = None if command.upto is None else max(command.upto.values(), default=-1)
        taken: list[Row] = []
        limit = command.count_max
        for row in self.model.ready(command.lane):
            if len(taken) >= limit:
                break
            if row.lane == MAIN and 0 < row.expires_at <= now:
                self.model.expire(row, now)
                continue
            if upto is not None and row.sequence > upto:
                break
            size = sum(each.message.size for each in [*taken, row])
            if taken and command.bytes_max and size > command.bytes_max:
                break
            if row.count and row.lane == MAIN:
                company_max = max(1, command.count_max // 8**row.count)
                if len(taken) >= company_max:
                    break
                limit = min(limit, company_max)
            taken.append(row)
        for row in taken:
            row.state, row.owner, row.attempts = STATE_CLAIMED, command.owner, 0
        sizes = [row.message.size for row in taken]
        return [row.sequence for row in taken], sizes, limit

    def listed(self, command: ask.ListClaims) -> tuple[Any, ...]:
        model = self.model
        owner = self.owners.get((command.lane, command.owner))
        rows = [
            row
            for number, row in sorted(self.of(command.lane, command.owner).items())
            if number >= command.from_sequence
        ][: command.count_max]
        ready = model.ready(command.lane)
        locked = [row for row in model.rows if row.lane == command.lane and row.number]
        return (
            NO_EPOCH if owner is None else owner.epoch,
            [(row.sequence, row.message.size, row.attempts) for row in rows],
            [model.next_sequence - 1],
            len(ready) + len(locked),
            ready[0].enqueued_at if ready else 0,
        )

    def fetch(self, command: ask.FetchClaims) -> tuple[Any, ...]:
        held = self.of(command.lane, command.owner)
        views: list[Any] = []
        size = 0
        for looked_at, number in enumerate(command.sequences):
            row = held.get(number)
            if row is None:
                continue
            size += row.message.size
            if views and size > command.bytes_max:
                return views, looked_at
            row.attempts += 1
            views.append(row.view())
        return views, len(command.sequences)

    def settle(self, command: ask.SettleClaims, now: int) -> int:
        held = self.of(command.lane, command.owner)
        rows = [held[number] for number in dict.fromkeys(command.sequences) if number in held]
        settlement = command.settlement
        for row in rows:
            if settlement.changes and settlement.outcome in CHANGING:
                row.changes = {**row.changes, **settlement.changes}
            self.end(row, settlement.outcome, now, settlement)
        return len(rows)

    def end(self, row: "Row", outcome: int, now: int, said: ask.Settlement | None = None) -> None:
        row.state, row.owner, row.attempts = STATE_ACTIVE, "", 0
        self.model.end_lock(row, outcome, now, said)

    # Time.

    def tick(self, now: int) -> None:
        """Owners that were silent for too long lose what they have, and are forgotten later."""
        for (lane, name), deadline in self.deadlines().items():
            if deadline <= now:
                for row in self.of(lane, name).values():
                    self.end(row, ask.RELEASE, now)
                if self.deadlines()[(lane, name)] <= now:
                    del self.owners[(lane, name)]

    def deadlines(self) -> dict[tuple[int, str], int]:
        return {
            key: owner.heard_at + owner.timeout_ms + (0 if self.of(*key) else OWNER_KEPT_MS)
            for key, owner in self.owners.items()
        }

    def crash(self, partition: Partition, now: int) -> None:
        """What the journal knows of being heard of is a minute old at most, if nobody wrote it
        down since; owners that it still knows must be about to be forgotten."""
        for row in self.model.rows:
            row.attempts = 0
        found: set[tuple[int, str]] = set()
        for lane in partition._state.lanes.values():
            for real in [] if lane.claims is None else lane.claims.owners.values():
                key = (lane.number, real.name)
                known = self.owners.get(key)
                if known is None:
                    assert real.deadline <= now, f"nobody knows {key}"
                    continue
                found.add(key)
                assert (real.epoch, real.timeout_ms) == (known.epoch, known.timeout_ms)
                assert known.said_at - HEARD_EVERY_MS < real.heard_at <= known.heard_at
                known.heard_at = known.said_at = real.heard_at
                if self.of(*key):
                    grace_ms = min(CLAIM_GRACE_MS, known.timeout_ms)
                    known.heard_at = max(known.heard_at, now + grace_ms - known.timeout_ms)
        assert found == self.owners.keys()
