"""An entity of several partitions answers what one answers: sends, and wishes by number."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.broker.partitioned.reach import availability
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEFER,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    CancelScheduled,
    Configure,
    Count,
    DeleteMany,
    Grant,
    OpenReceiver,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    TakeOver,
    TellTaken,
    Tick,
)
from peeklock.entity.deliveries import STATE_DEFERRED, Delivery, LockToken
from peeklock.entity.refusals import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    UNAVAILABLE,
)
from peeklock.entity.replies import Counted, Found, Numbered, Refused, Reply, SendsAccepted, Settled
from peeklock.entity.routing import PARTITION_BITS, partition_of_key, partition_of_sequence
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder, contents, message, token
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, calm, key_for, run

DISTANT = 99 << PARTITION_BITS | 1


def refusal_kind(reply: Reply) -> str:
    assert isinstance(reply, Refused)
    return reply.refusal.kind


async def peeked(
    bench: PartitionedHarness, from_sequence: int = 0, count: int = 1000
) -> list[Delivery]:
    reply = await bench.ask(Peek(Recorder(), 1, MAIN, from_sequence, count, 1 << 20))
    assert isinstance(reply, Found)
    return reply.deliveries


async def by_partition(bench: PartitionedHarness) -> dict[str, int]:
    """Which message is in which partition."""
    return {
        contents([each])[0]: partition_of_sequence(each.sequence) for each in await peeked(bench)
    }


async def received(bench: PartitionedHarness, count: int) -> list[Delivery]:
    """Lock some messages, with a receiver that stays."""
    receiver = Recorder()
    await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, count, False))
    assert len(receiver.deliveries()) == count
    return receiver.deliveries()


async def spread_out(bench: PartitionedHarness, each: int = 1) -> None:
    """Some messages in every partition; they are named by partition and number."""
    origin = Recorder()
    for index in range(PARTITIONS):
        key = key_for(index)
        messages = [message(f"{index}.{at}", partition_key=key) for at in range(each)]
        await bench.do(SendMany(origin, list(range(each)), messages))
    assert all(isinstance(reply, SendsAccepted) for reply in origin.take())


def test_a_key_decides_on_the_partition() -> None:
    """R-P3: session id, else partition key, else turns; the answers keep their tags."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        one, two = key_for(1), key_for(2)
        messages = [
            message("a", partition_key=one),
            message("b", session_id=two),
            message("c", partition_key=one, session_id=one),
            message("d", partition_key=two, message_id="x"),
            # Clients set it empty where they mean none, and it conflicts with no key.
            message("e", partition_key=two, session_id=""),
        ]
        await bench.do(SendMany(origin, [10, 11, 12, 13, 14], messages))
        replies = origin.take()
        accepted = [
            tag for reply in replies if isinstance(reply, SendsAccepted) for tag in reply.tags
        ]
        assert sorted(accepted) == [10, 11, 12, 13, 14]
        assert await by_partition(bench) == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 2}

    run(walk)


def test_the_session_without_a_name_is_in_one_partition() -> None:
    """Where sessions are required it decides, whatever keys its messages have."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        partition_index = partition_of_key("", PARTITIONS)
        keys = [key_for(index) for index in range(PARTITIONS)]
        messages = [message(key, partition_key=key, session_id="") for key in keys]
        await bench.do(SendMany(origin, [1, 2, 3, 4], messages))
        await bench.do(SendBatch(origin, 5, [message("x", session_id=""), *messages]))
        assert [reply.tags for reply in origin.take() if isinstance(reply, SendsAccepted)] == [
            [1, 2, 3, 4],
            [5],
        ]
        assert await by_partition(bench) == dict.fromkeys([*keys, "x"], partition_index)
        reply = await bench.ask(Reserve(origin, 6, 1, messages[1]))
        assert isinstance(reply, Numbered)
        assert [partition_of_sequence(number) for number in reply.numbers] == [partition_index]

    run(walk, requires_session=True)


def test_with_duplicate_detection_the_message_id_decides() -> None:
    """R-P3: equal ids meet, and the second is a duplicate."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        ids = [f"id{number}" for number in range(20)]
        for _ in range(2):
            messages = [message(id, message_id=id) for id in ids]
            await bench.do(SendMany(origin, list(range(20)), messages))
        found = await by_partition(bench)
        assert found == {id: partition_of_key(id, PARTITIONS) for id in ids}
        await bench.do(SendBatch(origin, 7, [message("x", message_id=id) for id in ids[:2]]))
        assert origin.take()[-1] == SendsAccepted(origin, [7])

    run(walk, duplicate_window_ms=60_000)


def test_without_a_key_runs_take_turns() -> None:
    """R-P3: a run goes whole to one partition, the next run to the next."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        for number in range(PARTITIONS + 1):
            await bench.do(SendMany(origin, [1, 2], [message(f"{number}"), message(f"{number}'")]))
        found = await by_partition(bench)
        assert found["0"] == found["0'"] == found["4"]
        assert sorted(found[f"{number}"] for number in range(PARTITIONS)) == [0, 1, 2, 3]

    run(walk)


def test_keys_that_differ_are_not_allowed() -> None:
    """R-P3: only the messages concerned are refused."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        bad = message("bad", session_id="a", partition_key="b")
        await bench.do(SendMany(origin, [1, 2], [message("good"), bad]))
        replies = origin.take()
        assert [refusal_kind(reply) for reply in replies if isinstance(reply, Refused)] == [
            NOT_ALLOWED
        ]
        assert SendsAccepted(origin, [1]) in replies
        for wish in (SendBatch(origin, 3, [bad]), Schedule(origin, 3, [bad])):
            assert refusal_kind(await bench.ask(wish)) == NOT_ALLOWED

    run(walk)


def test_a_batch_goes_whole_to_one_partition() -> None:
    """R-P3: by its one key, by turns without; mixed keys are refused."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        key = key_for(3)
        keyed = [message("a", partition_key=key), message("b", session_id=key)]
        assert await bench.ask(SendBatch(origin, 1, keyed)) == SendsAccepted(origin, [1])
        plain = [message("c"), message("d")]
        assert await bench.ask(SendBatch(origin, 2, plain)) == SendsAccepted(origin, [2])
        found = await by_partition(bench)
        assert found["a"] == found["b"] == 3
        assert found["c"] == found["d"]
        for other in (message("e"), message("e", partition_key=key_for(3, number=1))):
            mixed = [message("f", partition_key=key), other]
            assert refusal_kind(await bench.ask(SendBatch(origin, 3, mixed))) == NOT_ALLOWED
        assert await bench.ask(SendBatch(origin, 4, [])) == SendsAccepted(origin, [4])
        await bench.do(SendMany(origin, [], []))
        assert origin.take() == [SendsAccepted(origin, [])]

    run(walk)


def test_settlements_find_their_partitions() -> None:
    """R-S3: a token names its partition; one that names none is lost."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench)
        locked = await received(bench, 4)
        origin = Recorder()
        tokens = [token(each) for each in locked[:3]] + [LockToken(DISTANT, 1)]
        await bench.do(SettleMany(origin, [1, 2, 3, 4], Settlement(COMPLETE), tokens))
        replies = origin.take()
        settled = [tag for reply in replies if isinstance(reply, Settled) for tag in reply.tags]
        assert sorted(settled) == [1, 2, 3]
        [refused] = [reply for reply in replies if isinstance(reply, Refused)]
        assert (refused.tags, refused.refusal.kind) == ([4], LOCK_LOST)
        await bench.do(SettleMany(origin, [5], Settlement(ABANDON), [token(locked[3])]))
        assert origin.take() == [Settled(origin, [5], ABANDON)]

    run(walk)


def test_settlements_and_renewals_of_one_call_are_answered_once() -> None:
    """R-S3: in the order asked; one lost lock refuses the whole."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench)
        tokens = [token(each) for each in await received(bench, 4)]
        origin = Recorder()
        until = bench.clock.now() + 60_000
        renewed = await bench.ask(RenewLocks(origin, 1, tokens))
        assert renewed == Numbered(origin, 1, [until] * 4)
        for bad in (LockToken(DISTANT, 1), LockToken(tokens[0].sequence, 5)):
            for wish in (
                RenewLocks(origin, 2, [*tokens[1:], bad]),
                SettleAll(origin, 2, Settlement(COMPLETE), [tokens[1], bad]),
            ):
                if bad.sequence == DISTANT or isinstance(wish, RenewLocks):
                    assert refusal_kind(await bench.ask(wish)) == LOCK_LOST
        done = await bench.ask(SettleAll(origin, 3, Settlement(COMPLETE), tokens))
        assert done == Numbered(origin, 3, [])
        one = await bench.ask(SettleAll(origin, 4, Settlement(COMPLETE), []))
        assert one == Numbered(origin, 4, [])
        assert await peeked(bench) == []

    run(walk)


def test_schedules_are_kept_and_cancelled_over_partitions() -> None:
    """R-S7: the numbers name the partition, so that any list of them can be cancelled."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        later = bench.clock.now() + 1_000
        numbers: list[int] = []
        for index in range(PARTITIONS):
            key = key_for(index)
            messages = [message("x", partition_key=key, scheduled_at=later) for _ in range(2)]
            reply = await bench.ask(Schedule(origin, 1, messages))
            assert isinstance(reply, Numbered)
            assert {partition_of_sequence(number) for number in reply.numbers} == {index}
            numbers += reply.numbers
        asked = [numbers[0], numbers[6], numbers[3]]
        assert await bench.ask(CancelScheduled(origin, 2, asked)) == Numbered(origin, 2, [])
        for bad in (DISTANT, numbers[0]):
            wish = CancelScheduled(origin, 3, [numbers[5], bad])
            assert refusal_kind(await bench.ask(wish)) == MESSAGE_NOT_FOUND
        await bench.advance(1_000)
        assert len(await received(bench, 4)) == 4

    run(walk)


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_deferred_messages_come_from_all_partitions_or_not_at_all(mode: int) -> None:
    """R-S6: in the order asked; where one is missing the others stay deferred."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench)
        locked = await received(bench, 4)
        origin = Recorder()
        await bench.do(
            SettleMany(origin, [1, 2, 3, 4], Settlement(DEFER), [token(each) for each in locked])
        )
        numbers = [each.sequence for each in locked]
        for bad in (DISTANT, (2 << PARTITION_BITS) | 77):
            wish = ReceiveDeferred(origin, 2, MAIN, [*numbers[:3], bad], mode)
            assert refusal_kind(await bench.ask(wish)) == MESSAGE_NOT_FOUND
        asked = [numbers[2], numbers[0], numbers[3], numbers[1]]
        reply = await bench.ask(ReceiveDeferred(origin, 3, MAIN, asked, mode))
        assert isinstance(reply, Found)
        assert [each.sequence for each in reply.deliveries] == asked
        assert contents(reply.deliveries) == [f"{each >> PARTITION_BITS}.0" for each in asked]
        # The deferral counts, what was given back does not.
        assert {each.delivery_count for each in reply.deliveries} == {1}
        if mode == PEEK_LOCK:
            tokens = [token(each) for each in reply.deliveries]
            await bench.ask(SettleAll(origin, 4, Settlement(COMPLETE), tokens))
        else:
            assert {each.number for each in reply.deliveries} == {0}
        assert await peeked(bench) == []

    run(walk)


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_deferred_messages_of_all_partitions_have_one_limit_of_bytes(mode: int) -> None:
    """Each partition has little; together it is too much for one answer, and all go back."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench)
        locked = await received(bench, 4)
        origin = Recorder()
        await bench.do(
            SettleMany(origin, [1, 2, 3, 4], Settlement(DEFER), [token(each) for each in locked])
        )
        numbers = [each.sequence for each in locked]
        size = sum(each.message.size for each in locked if each.message is not None)
        wish = ReceiveDeferred(origin, 2, MAIN, numbers, mode, bytes_max=size - 1)
        assert refusal_kind(await bench.ask(wish)) == QUOTA_EXCEEDED
        assert [each.state for each in await peeked(bench)] == [STATE_DEFERRED] * 4
        wish = ReceiveDeferred(origin, 3, MAIN, numbers, mode, bytes_max=size)
        reply = await bench.ask(wish)
        assert isinstance(reply, Found)
        assert [each.sequence for each in reply.deliveries] == numbers
        # What was given back is not counted.
        assert {each.delivery_count for each in reply.deliveries} == {1}

    run(walk)


def test_peek_walks_all_partitions_in_ascending_order() -> None:
    """R-P6: from any number on, within the limits, skipping what is out of reach."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench, 3)
        everything = await peeked(bench)
        numbers = [each.sequence for each in everything]
        assert numbers == sorted(numbers)
        assert len(numbers) == 12
        found: list[int] = []
        start = 0
        while page := await peeked(bench, start, 2):
            assert len(page) <= 2
            found += [each.sequence for each in page]
            start = found[-1] + 1
        assert found == numbers
        assert [each.sequence for each in await peeked(bench, numbers[4])] == numbers[4:]
        assert await peeked(bench, DISTANT) == []
        await bench.take_away(1)
        reachable = [each for each in numbers if partition_of_sequence(each) != 1]
        assert [each.sequence for each in await peeked(bench)] == reachable
        for index in (0, 2, 3):
            await bench.take_away(index)
        wish = Peek(Recorder(), 1, MAIN, 0, 10, 1 << 20)
        assert refusal_kind(await bench.ask(wish)) == UNAVAILABLE

    run(walk)


def test_peek_stops_for_size_and_misses_nothing() -> None:
    """R-P6: an answer has room for some bytes, and at least for one message."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        for index in range(PARTITIONS):
            texts = [f"{index}{at}" * 50 for at in range(3)]
            key = key_for(index)
            messages = [message(text, partition_key=key) for text in texts]
            await bench.do(SendMany(origin, [1, 2, 3], messages))
        everything = [each.sequence for each in await peeked(bench)]
        assert len(everything) == 12
        for bytes_max, most in ((50, 1), (100, 1), (250, 2), (450, 4), (5_000, 12)):
            found: list[int] = []
            start = 0
            while True:
                reply = await bench.ask(Peek(origin, 1, MAIN, start, 100, bytes_max))
                assert isinstance(reply, Found)
                if not reply.deliveries:
                    break
                assert len(reply.deliveries) <= most
                found += [each.sequence for each in reply.deliveries]
                start = found[-1] + 1
            assert found == everything

    run(walk)


def test_peek_of_a_session_asks_its_partition_alone() -> None:
    """R-P6: a session lives in one partition."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        for index in range(PARTITIONS):
            await bench.do(SendMany(origin, [1], [message(f"{index}", session_id=key_for(index))]))
        for other in (0, 1, 3):
            await bench.take_away(other)
        wish = Peek(origin, 1, MAIN, 0, 10, 1 << 20, key_for(2))
        reply = await bench.ask(wish)
        assert isinstance(reply, Found)
        assert contents(reply.deliveries) == ["2"]
        wish = Peek(origin, 1, MAIN, 0, 10, 1 << 20, key_for(1))
        assert refusal_kind(await bench.ask(wish)) == UNAVAILABLE

    run(walk, requires_session=True)


def test_counts_and_deletions_concern_all_partitions() -> None:
    """R-P9: sums over all of them; where one is missing it is named."""

    async def walk(bench: PartitionedHarness) -> None:
        await spread_out(bench, 3)
        origin = Recorder()
        await received(bench, 2)
        counted = await bench.ask(Count(origin, 1))
        assert isinstance(counted, Counted)
        assert (counted.active, counted.locked, counted.bytes) == (12, 2, 36)
        later = bench.clock.now() + 1
        assert await bench.ask(DeleteMany(origin, 2, MAIN, 7, later)) == Numbered(origin, 2, [7])
        assert await bench.ask(DeleteMany(origin, 3, MAIN, 9, later)) == Numbered(origin, 3, [3])
        await bench.take_away(2)
        wishes: list[Any] = [Count(origin, 4), DeleteMany(origin, 4, MAIN, 9, later)]
        for wish in wishes:
            reply = await bench.ask(wish)
            assert isinstance(reply, Refused)
            assert reply.refusal.kind == UNAVAILABLE
            assert "Partition 2 of 4 is out of reach" in reply.refusal.text
        await bench.give_back(2)
        assert isinstance(await bench.ask(Count(origin, 5)), Counted)

    run(walk)


def test_a_description_and_time_concern_all_partitions() -> None:
    """R-P9: commands that nobody answers reach every partition."""

    async def walk(bench: PartitionedHarness) -> None:
        await bench.do(Tick())
        assert all(worker.is_open for worker in bench.workers)
        await bench.do(Configure(bench.workers[0]._blueprint))
        await calm()
        assert availability(bench.workers) == "Available"

    run(walk)


def test_all_partitions_tell_what_they_have_taken_over() -> None:
    async def test(bench: PartitionedHarness) -> None:
        messages = [message(f"m{number}") for number in range(8)]
        taking = TakeOver(Recorder(), 1, "source", list(range(1, 9)), messages, [])
        assert isinstance(await bench.ask(taking), SendsAccepted)
        told = await bench.ask(TellTaken(Recorder(), 2, "source"))
        assert isinstance(told, Numbered)
        assert sorted(told.numbers) == list(range(1, 9))
        await bench.take_away(0)
        assert isinstance(await bench.ask(TellTaken(Recorder(), 3, "source")), Refused)

    run(test)
