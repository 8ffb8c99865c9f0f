"""Claims of an entity with several partitions: nobody notices how many there are."""

from __future__ import annotations

from typing import Any

from peeklock.entity import replies as told
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    MAIN,
    RELEASE,
    ClaimMessages,
    Count,
    FetchClaims,
    ListClaims,
    SendMany,
    SettleClaims,
)
from peeklock.entity.message import Message, Traits
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, key_for, run

EVERYTHING = 1 << 62


class Owner:
    """An owner of claims, and the messages that it claims."""

    def __init__(self, bench: PartitionedHarness, name: str = "owner", epoch: int = 1) -> None:
        self.bench = bench
        self.name = name
        self.epoch = epoch

    async def send(self, *counts: int, is_session: bool = False) -> None:
        """So many messages to each partition."""
        for index, count in enumerate(counts):
            key = key_for(index)
            messages = [
                Message(
                    b"",
                    f"{index}-{number}".encode(),
                    Traits(session_id=key if is_session else None, partition_key=key),
                )
                for number in range(count)
            ]
            if messages:
                tags = list(range(count))
                reply = await self.bench.ask(SendMany(Recorder(), tags, messages))
                assert isinstance(reply, told.SendsAccepted)

    async def claimed(self, count: int, **wishes: Any) -> told.ClaimsMade | told.Refused:
        command = ClaimMessages(Recorder(), 7, MAIN, self.name, self.epoch, count, **wishes)
        reply = await self.bench.ask(command)
        assert isinstance(reply, (told.ClaimsMade, told.Refused))
        return reply

    async def claim(self, count: int = 1_000, **wishes: Any) -> list[int]:
        made = await self.claimed(count, **wishes)
        assert isinstance(made, told.ClaimsMade)
        assert len(made.sizes) == len(made.sequences)
        return made.sequences

    async def shares(self, count: int, **wishes: Any) -> list[int]:
        """How many messages of each partition a claim got."""
        by_partition = [
            partition_of_sequence(number) for number in await self.claim(count, **wishes)
        ]
        return [by_partition.count(index) for index in range(PARTITIONS)]

    async def listing(self, first: int = 0, count: int = EVERYTHING) -> told.Reply:
        command = ListClaims(Recorder(), 7, MAIN, self.name, self.epoch, first, count)
        return await self.bench.ask(command)

    async def listed(self, first: int = 0, count: int = EVERYTHING) -> told.ClaimsListed:
        reply = await self.listing(first, count)
        assert isinstance(reply, told.ClaimsListed)
        return reply

    async def fetching(self, sequences: list[int], size: int = EVERYTHING) -> told.Reply:
        command = FetchClaims(Recorder(), 7, MAIN, self.name, sequences, size)
        return await self.bench.ask(command)

    async def settling(self, outcome: int, sequences: list[int], **more: Any) -> told.Reply:
        command = SettleClaims(
            Recorder(), 7, MAIN, self.name, self.epoch, sequences, Settlement(outcome, **more)
        )
        return await self.bench.ask(command)

    async def settle(self, outcome: int, sequences: list[int], **more: Any) -> int:
        reply = await self.settling(outcome, sequences, **more)
        assert isinstance(reply, told.Numbered)
        return reply.numbers[0]


def refusal_of(reply: told.Reply) -> str:
    assert isinstance(reply, told.Refused)
    assert reply.tags == [7]
    return reply.refusal.kind


def test_a_claim_takes_a_fair_share_of_each_partition() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(10, 10, 10, 10)
        assert await owner.shares(8) == [2, 2, 2, 2]
        assert sorted(await owner.shares(10)) == [2, 2, 3, 3]

    run(talk)


def test_what_one_partition_lacks_the_others_give() -> None:
    """R-D1: also those that gave their share already."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        for _ in range(PARTITIONS):
            await owner.send(0, 2, 30, 0)
            assert await owner.shares(20) == [0, 2, 18, 0]
            await owner.claim()

    run(talk)


def test_bytes_and_bounds_hold_for_all_partitions_together() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(4, 4, 4, 4)
        assert len(await owner.claim(bytes_max=9)) == 3
        assert len(await owner.claim(bytes_max=1)) == 1
        await owner.settle(RELEASE, (await owner.listed()).sequences)
        last = (await owner.listed()).last_sequences
        assert last == [(index << 48) + 4 for index in range(PARTITIONS)]
        await owner.send(1, 1, 1, 1)
        upto = {index: number for index, number in enumerate(last) if index}
        assert await owner.shares(100, upto=upto) == [0, 4, 4, 4]

    run(talk)


def test_a_message_that_failed_makes_the_whole_claim_small() -> None:
    """R-D1: and it is first in a later one, wherever claims begin."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(100, 1, 100, 100)
        bad = 1 + (1 << 48)
        assert bad in await owner.claim(301)
        assert await owner.settle(ABANDON, [bad]) == 1
        await owner.settle(RELEASE, (await owner.listed()).sequences)
        sizes: list[int] = []
        while bad not in (claimed := await owner.claim(16)):
            sizes.append(len(claimed))
        assert len(sizes) < PARTITIONS
        assert set(sizes) <= {16}
        assert len(claimed) <= 2

    run(talk)


def test_the_list_is_one_over_all_partitions() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench, epoch=3)
        await owner.send(3, 3, 3, 3)
        claimed = await owner.claim(8)
        listed = await owner.listed()
        assert listed.sequences == sorted(claimed)
        assert len(listed.sizes) == len(listed.attempts) == 8
        assert (listed.epoch, listed.active) == (3, 4)
        assert listed.oldest_enqueued_at == bench.clock.now()
        page = await owner.listed(listed.sequences[3], 3)
        assert page.sequences == listed.sequences[3:6]
        counted = await bench.ask(Count(Recorder(), 7))
        assert isinstance(counted, told.Counted)
        assert (counted.active, counted.claimed) == (4, 8)

    run(talk)


def test_messages_are_fetched_in_the_order_asked() -> None:
    """R-D1: bodies are there although the partitions forgot them."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(2, 2, 2, 2)
        claimed = await owner.claim()
        asked = [claimed[5], 99 << 48, claimed[0], claimed[1], 5, claimed[7]]
        reply = await owner.fetching(asked)
        assert isinstance(reply, told.ClaimsFetched)
        found = [each.sequence for each in reply.deliveries]
        assert found == [claimed[5], claimed[0], claimed[1], claimed[7]]
        assert all(each.message is not None for each in reply.deliveries)
        assert reply.looked_at == 6
        reply = await owner.fetching(claimed, 12)
        assert isinstance(reply, told.ClaimsFetched)
        assert (len(reply.deliveries), reply.looked_at) == (4, 4)
        reply = await owner.fetching([])
        assert isinstance(reply, told.ClaimsFetched)
        assert reply.looked_at == 0

    run(talk)


def test_claims_are_settled_where_they_are() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(2, 2, 2, 2)
        claimed = await owner.claim()
        assert await owner.settle(COMPLETE, [*claimed[:3], 99 << 48, 5]) == 3
        assert await owner.settle(DEAD_LETTER, claimed[:5], reason="why", description="d") == 2
        assert await owner.settle(RELEASE, claimed) == 3
        assert await owner.settle(RELEASE, []) == 0
        counted = await bench.ask(Count(Recorder(), 7))
        assert isinstance(counted, told.Counted)
        assert (counted.active, counted.dead_letter, counted.claimed) == (3, 2, 0)

    run(talk)


def test_a_later_epoch_fences_in_all_partitions() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(2, 2, 2, 2)
        claimed = await owner.claim()
        assert (await Owner(bench, epoch=2).listed()).epoch == 2
        assert refusal_of(await owner.claimed(1)) == "claim-fenced"
        assert refusal_of(await owner.listing()) == "claim-fenced"
        assert refusal_of(await owner.settling(COMPLETE, claimed)) == "claim-fenced"
        owner.epoch = NO_EPOCH
        assert (await owner.listed()).epoch == 2
        assert await owner.settle(COMPLETE, claimed) == 8

    run(talk)


def test_sessions_are_counted_over_all_partitions() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(2, 2, 2, 2, is_session=True)
        made = await owner.claimed(100, session_count=3)
        assert isinstance(made, told.ClaimsMade)
        assert made.session_ids is not None
        assert len(made.session_ids) == 6
        assert len(set(made.session_ids)) == 3
        assert len((await owner.listed()).session_ids or []) == 6

    run(talk, requires_session=True)


def test_a_missing_partition_is_gone_round_by_claims_and_lists() -> None:
    """R-D1, R-P4: what is claimed there can be neither fetched nor settled until it is back."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(3, 3, 3, 3)
        claimed = await owner.claim(4)
        await bench.take_away(2)
        assert await owner.shares(100) == [2, 2, 0, 2]
        listed = await owner.listed()
        assert len(listed.last_sequences) == PARTITIONS - 1
        assert len(listed.sequences) == 9
        assert listed.missing == [2]
        for reply in (await owner.fetching(claimed), await owner.settling(COMPLETE, claimed)):
            assert refusal_of(reply) == "unavailable"
        elsewhere = [each for each in claimed if partition_of_sequence(each) != 2]
        assert await owner.settle(COMPLETE, elsewhere) == 3
        await bench.give_back(2)
        assert await owner.settle(COMPLETE, claimed) == 1, "a repeat completes it"
        assert (await owner.listed()).missing == []
        assert await owner.shares(100) == [0, 0, 2, 0]

    run(talk)


def test_where_no_partition_can_be_asked_the_owner_is_told() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        for index in range(PARTITIONS):
            await bench.take_away(index)
        assert refusal_of(await owner.claimed(1)) == "unavailable"
        assert refusal_of(await owner.listing()) == "unavailable"

    run(talk)


def test_a_partition_that_fails_meanwhile_is_gone_round() -> None:
    """R-D1."""

    async def talk(bench: PartitionedHarness) -> None:
        owner = Owner(bench)
        await owner.send(2, 2, 2, 2)
        bench.stores[1].is_down = True
        assert (await owner.listed()).missing == [1]
        assert await owner.shares(100) == [2, 0, 2, 2]

    run(talk)
