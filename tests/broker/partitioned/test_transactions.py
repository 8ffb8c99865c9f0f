"""Transactions on, and forwarding to, an entity of several partitions."""

from __future__ import annotations

from typing import Any

from peeklock.entity.commands import (
    COMPLETE,
    CancelScheduled,
    Commit,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    SettleMany,
    TakeOver,
    TransferMessage,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.refusals import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    UNAVAILABLE,
)
from peeklock.entity.replies import (
    Numbered,
    Refused,
    SendsAccepted,
)
from peeklock.entity.routing import partition_of_key, partition_of_sequence
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder, contents, message, token
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, key_for, run
from tests.broker.partitioned.test_partitioned_entity import (
    DISTANT,
    by_partition,
    peeked,
    received,
    refusal_kind,
    spread_out,
)


def test_a_transaction_stays_in_one_partition() -> None:
    """R-P7: one key on all its messages; none, or two, are not allowed."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench)
        locked = {partition_of_sequence(each.sequence): each for each in await received(bench, 4)}
        origin = Recorder()
        key, same_partition, other = key_for(1), key_for(1, number=1), key_for(2)

        def sending(*keys: str | None) -> SendMany:
            messages = [message("new", partition_key=each) for each in keys]
            return SendMany(origin, [0] * len(keys), messages)

        def settling(*indexes: int) -> SettleMany:
            tokens = [token(locked[index]) for index in indexes]
            return SettleMany(origin, [0] * len(tokens), Settlement(COMPLETE), tokens)

        def transfer(key: str | None) -> TransferMessage:
            return TransferMessage("elsewhere", message("t", partition_key=key))

        refused: list[list[Any]] = [
            [sending(None)],
            [sending(key, None)],
            [sending(key, same_partition)],
            [sending(key, other)],
            [sending(other), settling(1)],
            [settling(1, 2)],
            [transfer(None)],
            [transfer(key), transfer(other)],
            [SendBatch(origin, 0, [message("x", session_id="a", partition_key="b")])],
        ]
        for work in refused:
            reply = await bench.ask(Commit(origin, 1, work))
            assert refusal_kind(reply) == NOT_ALLOWED, work
            assert isinstance(reply, Refused)
            assert "partition key" in reply.refusal.text
        distant = SettleMany(origin, [1], Settlement(COMPLETE), [LockToken(DISTANT, 1)])
        assert refusal_kind(await bench.ask(Commit(origin, 1, [distant]))) == LOCK_LOST
        cancel = CancelScheduled(origin, 1, [DISTANT])
        assert refusal_kind(await bench.ask(Commit(origin, 1, [cancel]))) == MESSAGE_NOT_FOUND
        done: list[list[Any]] = [
            [],
            [transfer(key)],
            [sending(key, key), settling(1), transfer(None)],
        ]
        for work in done:
            assert await bench.ask(Commit(origin, 2, work)) == Numbered(origin, 2, [])
        assert sorted((await by_partition(bench)).items()) == [
            ("0.0", 0),
            ("2.0", 2),
            ("3.0", 3),
            ("new", 1),
        ]

    run(walk)


def test_numbers_are_reserved_where_their_messages_will_be() -> None:
    """R-P7: the key says where; without one nobody knows."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        key = key_for(2)
        later = bench.clock.now() + 1_000
        messages = [message("x", partition_key=key, scheduled_at=later) for _ in range(2)]
        reply = await bench.ask(Reserve(origin, 1, 2, messages[0]))
        assert isinstance(reply, Numbered)
        assert [partition_of_sequence(number) for number in reply.numbers] == [2, 2]
        schedule = Schedule(origin, 0, messages, reply.numbers)
        assert await bench.ask(Commit(origin, 2, [schedule])) == Numbered(origin, 2, [])
        assert [each.sequence for each in await peeked(bench)] == reply.numbers
        assert refusal_kind(await bench.ask(Reserve(origin, 3, 1, message("x")))) == NOT_ALLOWED
        kept = await bench.ask(Reserve(origin, 4, 1, messages[0]))
        assert isinstance(kept, Numbered)
        alone = Schedule(origin, 5, messages[:1], kept.numbers)
        assert await bench.ask(alone) == Numbered(origin, 5, kept.numbers)

    run(walk)


def test_forwarded_messages_are_taken_once() -> None:
    """R-P8: a repeat finds the partition that has the message already, with a key or without."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        numbers = list(range(1, 13))

        def taking(forget: list[int], numbers: list[int] = numbers) -> TakeOver:
            messages = [
                message(f"{number}", partition_key=f"k{number}" if number % 2 else None)
                for number in numbers
            ]
            return TakeOver(origin, 1, "source", numbers, messages, forget)

        for _ in range(2):
            assert await bench.ask(taking([])) == SendsAccepted(origin, [1])
        found = await by_partition(bench)
        assert sorted(found, key=int) == [f"{number}" for number in numbers]
        assert len(set(found.values())) == PARTITIONS
        assert found["3"] == partition_of_key("k3", PARTITIONS)
        # A partition that is out of reach refuses the whole; the others have theirs already.
        await bench.take_away(found["1"])
        more = [*numbers, 13, 14, 15, 16]
        assert refusal_kind(await bench.ask(taking([], more))) == UNAVAILABLE
        # What is to be forgotten there is forgotten later, and nobody waits for it.
        assert await bench.ask(taking([1, 2, 3], [])) == SendsAccepted(origin, [1])
        await bench.give_back(found["1"])
        assert await bench.ask(taking([], more)) == SendsAccepted(origin, [1])
        names = [contents([each])[0] for each in await peeked(bench)]
        assert sorted(names, key=int) == [
            "1",
            "1",
            "2",
            "2",
            "3",
            "3",
            *[f"{number}" for number in more[3:]],
        ]
        conflict = message("x", session_id="a", partition_key="b")
        bad = TakeOver(origin, 2, "source", [50], [conflict], [])
        assert refusal_kind(await bench.ask(bad)) == NOT_ALLOWED

    run(walk)
