"""An owner at hand: short words for what can be asked about claims."""

from typing import Any

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.commands import COMPLETE, MAIN
from peeklock.entity.deliveries import Delivery
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness


class ClaimHarness:
    """One owner of claims on one lane of a queue at hand."""

    def __init__(
        self, queue: QueueHarness, name: str = "owner", *, epoch: int = 1, lane: int = MAIN
    ) -> None:
        self.queue = queue
        self.name = name
        self.epoch = epoch
        self.lane = lane

    def claim(self, count: int = 100, **wishes: Any) -> list[int]:
        """Claim messages; answers their numbers."""
        return self.claimed(count, **wishes).sequences

    def claimed(self, count: int = 100, **wishes: Any) -> told.ClaimsMade:
        command = ask.ClaimMessages(by("o"), 7, self.lane, self.name, self.epoch, count, **wishes)
        (reply,) = [each for each in self.queue.ask(command) if isinstance(each, told.ClaimsMade)]
        assert len(reply.sizes) == len(reply.sequences)
        return reply

    def has(self) -> list[int]:
        """The numbers of what it has."""
        return self.listed(epoch=NO_EPOCH).sequences

    def listed(
        self, *, epoch: int | None = None, start: int = 0, count: int = EVERYTHING
    ) -> told.ClaimsListed:
        asked = self.epoch if epoch is None else epoch
        command = ask.ListClaims(by("o"), 7, self.lane, self.name, asked, start, count)
        (reply,) = [each for each in self.queue.ask(command) if isinstance(each, told.ClaimsListed)]
        return reply

    def fetch(self, *sequences: int, size: int = EVERYTHING) -> list[Delivery]:
        return self.fetched(*sequences, size=size).deliveries

    def fetched(self, *sequences: int, size: int = EVERYTHING) -> told.ClaimsFetched:
        command = ask.FetchClaims(by("o"), 7, self.lane, self.name, list(sequences), size)
        (reply,) = self.queue.ask(command)
        assert isinstance(reply, told.ClaimsFetched)
        return reply

    def settle(self, outcome: int, *sequences: int, **more: Any) -> int:
        """Settle claims; answers how many were."""
        replies = self.queue.ask(self.settling(outcome, *sequences, **more))
        (reply,) = [each for each in replies if isinstance(each, told.Numbered)]
        return reply.numbers[0]

    def settling(
        self, outcome: int = COMPLETE, *sequences: int, epoch: int | None = None, **more: Any
    ) -> ask.SettleClaims:
        asked = self.epoch if epoch is None else epoch
        return ask.SettleClaims(
            by("o"),
            7,
            self.lane,
            self.name,
            asked,
            list(sequences),
            ask.Settlement(outcome, **more),
        )

    def why_not(self, command: ask.Command) -> str:
        return self.queue.fate(command)
