"""Partitions whose store is out of reach: what goes on without them, and how they come back."""

from __future__ import annotations

import pytest

from peeklock.broker.forwarding.lane_forwarder import BEYOND
from peeklock.broker.partitioned.reach import availability
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    AcceptSession,
    CloseReceiver,
    Command,
    Commit,
    Count,
    DeleteMany,
    GetSessionState,
    Grant,
    OpenReceiver,
    Peek,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    TakeOver,
)
from peeklock.entity.message import Message
from peeklock.entity.refusals import BUSY, ENTITY_DISABLED, UNAVAILABLE
from peeklock.entity.replies import (
    Delivered,
    Drained,
    Found,
    Numbered,
    ReceiverClosed,
    Refused,
    Reply,
    SendsAccepted,
    SessionAccepted,
)
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder, contents, message, token, until
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, calm, key_for, run


async def send(bench: PartitionedHarness, index: int, *texts: str) -> None:
    origin = Recorder()
    messages = [message(text, partition_key=key_for(index)) for text in texts]
    await bench.do(SendMany(origin, list(range(len(texts))), messages))
    assert isinstance(origin.replies[0], SendsAccepted)


async def used(bench: PartitionedHarness) -> None:
    """Every partition lives."""
    for index in range(PARTITIONS):
        await send(bench, index, f"old {index}")


async def peeked(bench: PartitionedHarness) -> list[str]:
    reply = await bench.ask(Peek(Recorder(), 1, MAIN, 0, 1000, 1 << 20))
    assert isinstance(reply, Found)
    return contents(reply.deliveries)


def test_without_a_key_a_missing_partition_is_gone_round() -> None:
    """R-P4, R-P9: the sends succeed elsewhere; the entity's availability reads Limited."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        await bench.take_away(1)
        assert availability(bench.workers) == "Limited"
        assert any(worker.is_available for worker in bench.workers)
        origin = Recorder()
        for number in range(8):
            await bench.do(SendMany(origin, [number], [message("new")]))
        assert origin.take() == [SendsAccepted(origin, [number]) for number in range(8)]
        await bench.give_back(1)
        assert availability(bench.workers) == "Available"
        assert (await peeked(bench)).count("new") == 8
        assert "old 1" in await peeked(bench)

    run(walk)


def test_with_a_key_a_missing_partition_is_named() -> None:
    """R-P4: at once, and the client may try again."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        await bench.take_away(1)
        origin = Recorder()
        keyed = [message("new", partition_key=key_for(1))]
        wishes: list[Command] = [
            SendMany(origin, [1], keyed),
            SendBatch(origin, 1, keyed),
            Schedule(origin, 1, keyed),
            Reserve(origin, 1, 1, keyed[0]),
            Commit(origin, 1, [SendMany(origin, [1], keyed)]),
        ]
        for wish in wishes:
            reply = await bench.ask(wish)
            assert isinstance(reply, Refused)
            assert (reply.tags, reply.refusal.kind) == ([1], UNAVAILABLE)
            assert "Partition 1 of 4 is out of reach" in reply.refusal.text
        mixed = [message("a", partition_key=key_for(1)), message("b", partition_key=key_for(2))]
        await bench.do(SendMany(origin, [1, 2], mixed))
        assert SendsAccepted(origin, [2]) in origin.replies
        [refused] = [reply for reply in origin.take() if isinstance(reply, Refused)]
        assert refused.tags == [1]
        await bench.give_back(1)
        assert await bench.ask(SendMany(origin, [1], keyed)) == SendsAccepted(origin, [1])

    run(walk)


@pytest.mark.parametrize("kind", ["many", "batch", "schedule"])
def test_a_send_that_found_its_store_gone_goes_elsewhere_once(kind: str) -> None:
    """R-P4: nothing of it was stored; each partition is tried at most once."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        text = [message("new")]

        def wish() -> Command:
            if kind == "many":
                return SendMany(origin, [5], text)
            return SendBatch(origin, 5, text) if kind == "batch" else Schedule(origin, 5, text)

        # Nobody has noticed yet: the partitions are not open, and their stores do not open.
        for index in range(PARTITIONS - 1):
            bench.stores[index].is_down = True
        for _ in range(PARTITIONS):
            reply = await bench.ask(wish())
            if kind == "schedule":
                assert isinstance(reply, Numbered)
                assert partition_of_sequence(reply.numbers[0]) == PARTITIONS - 1
            else:
                assert reply == SendsAccepted(origin, [5])
        assert await peeked(bench) == ["new"] * PARTITIONS
        await bench.take_away(PARTITIONS - 1)
        assert availability(bench.workers) == "Limited"
        assert not any(worker.is_available for worker in bench.workers)
        reply = await bench.ask(wish())
        assert isinstance(reply, Refused)
        assert (reply.tags, reply.refusal.kind) == ([5], UNAVAILABLE)

    run(walk)


@pytest.mark.parametrize("is_bound_first", [True, False])
def test_sends_with_and_without_a_key_part_where_they_met(is_bound_first: bool) -> None:
    """R-P3, R-P4: in one run to one partition that is gone, only those without a key go on."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        bound, free = message("bound", partition_key=key_for(0)), message("free")
        # The first turn is the first partition's, which nobody has found gone yet.
        bench.stores[0].is_down = True
        messages = [bound, free] if is_bound_first else [free, bound]
        await bench.do(SendMany(origin, [1, 2], messages))
        replies = origin.take()
        [refused] = [reply for reply in replies if isinstance(reply, Refused)]
        assert refused.tags == ([1] if is_bound_first else [2])
        assert SendsAccepted(origin, [2] if is_bound_first else [1]) in replies
        await bench.give_back(0)
        assert await peeked(bench) == ["free"]

    run(walk)


def test_when_no_store_opens_the_sender_is_told() -> None:
    """R-P4: after each partition was tried once, under the sender's own name."""

    async def walk(bench: PartitionedHarness) -> None:
        for store in bench.stores:
            store.is_down = True
        origin = Recorder()
        reply = await bench.ask(SendMany(origin, [5], [message("new")]))
        assert isinstance(reply, Refused)
        assert (reply.tags, reply.refusal.kind) == ([5], UNAVAILABLE)

    run(walk)


def test_a_store_short_of_space_is_gone_round_too() -> None:
    """R-T2: while another has space a send without a key finds it."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        for index in range(PARTITIONS - 1):
            bench.stores[index].full = True
        for number in range(PARTITIONS):
            reply = await bench.ask(SendMany(origin, [number], [message("new")]))
            assert reply == SendsAccepted(origin, [number])
        bench.stores[PARTITIONS - 1].full = True
        reply = await bench.ask(SendMany(origin, [9], [message("new")]))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == BUSY
        assert await peeked(bench) == ["new"] * PARTITIONS

    run(walk)


def test_a_send_in_doubt_is_refused_and_not_repeated() -> None:
    """R-P4: it may be stored already; elsewhere it would be stored twice."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        origin = Recorder()
        for store in bench.stores:
            store.is_down = True
        await bench.do(SendMany(origin, [5], [message("new")]))
        [refused] = origin.take()
        assert isinstance(refused, Refused)
        assert "in doubt" in refused.refusal.text
        for index, store in enumerate(bench.stores):
            store.is_down = False
            bench.workers[index].store_back()
        await calm()
        assert "new" not in await peeked(bench)

    run(walk)


def test_receivers_go_on_and_meet_the_partition_again() -> None:
    """R-P5: the receiver is not closed, its credit is not lost, and nothing is delivered twice
    that was completed."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 6, False))
        first = receiver.deliveries()
        assert len(first) == 4
        done = [each for each in first if partition_of_sequence(each.sequence) != 2]
        tokens = [token(each) for each in done]
        await bench.do(SettleMany(Recorder(), [1, 2, 3], Settlement(COMPLETE), tokens))
        receiver.take()
        await bench.take_away(2)
        assert receiver.take() == []
        lost = [token(each) for each in first if partition_of_sequence(each.sequence) == 2]
        reply = await bench.ask(SettleAll(Recorder(), 1, Settlement(COMPLETE), lost))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == UNAVAILABLE
        await send(bench, 0, "new")
        assert contents(receiver.deliveries()) == ["new"]
        receiver.take()
        await bench.give_back(2)
        assert contents(receiver.deliveries()) == ["old 2"]
        receiver.take()
        await send(bench, 3, "beyond")
        assert receiver.take() == []
        await bench.do(Grant(receiver, 7, True))
        assert [type(reply) for reply in receiver.replies] == [Delivered, Drained]

    run(walk)


def test_a_drain_does_not_wait_for_a_partition_that_is_gone() -> None:
    """R-P5: it cannot deliver anything."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        await bench.take_away(3)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 10, True))
        assert len(receiver.deliveries()) == 3
        assert receiver.take()[-1] == Drained(receiver)
        await bench.do(CloseReceiver(receiver, False))
        await bench.give_back(3)
        assert receiver.take() == []

    run(walk)


def test_when_all_partitions_are_gone_the_receiver_is_closed() -> None:
    """R-T2: as a single partition closes it; the client attaches again."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 1, False))
        receiver.take()
        for index in range(PARTITIONS):
            await bench.take_away(index)
        [closed] = receiver.take()
        assert isinstance(closed, ReceiverClosed)
        assert closed.refusal.kind == UNAVAILABLE
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        [closed] = receiver.take()
        assert isinstance(closed, ReceiverClosed)
        for index in range(PARTITIONS):
            await bench.give_back(index)
        assert receiver.take() == []
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 9, False))
        assert len(receiver.deliveries()) == 4

    run(walk)


def test_sessions_of_a_lost_partition_are_lost_and_others_are_not() -> None:
    """R-S9: the holder is told; whoever waits goes on waiting for the other partitions."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        names = [key_for(index) for index in range(PARTITIONS)]
        for name in names:
            await bench.do(SendMany(origin, [1], [message(name, session_id=name)]))
        holders = [Recorder() for _ in names]
        for holder, name in zip(holders, names, strict=True):
            wish = AcceptSession(holder, 1, MAIN, PEEK_LOCK, name, 1 << 60)
            assert isinstance(await bench.ask(wish), SessionAccepted)
        waiting = Recorder()
        await bench.do(AcceptSession(waiting, 9, MAIN, PEEK_LOCK, None, 1 << 60))
        await bench.take_away(1)
        assert [len(holder.replies) for holder in holders] == [0, 1, 0, 0]
        [closed] = holders[1].take()
        assert isinstance(closed, ReceiverClosed)
        named = await bench.ask(AcceptSession(Recorder(), 1, MAIN, PEEK_LOCK, names[1], 1))
        assert isinstance(named, Refused)
        assert named.refusal.kind == UNAVAILABLE
        assert waiting.take() == []
        await bench.give_back(1)
        [accepted] = waiting.take()
        assert isinstance(accepted, SessionAccepted)
        assert (accepted.tag, accepted.session_id) == (9, names[1])
        await bench.do(Grant(waiting, 5, False))
        assert contents(waiting.deliveries()) == [names[1]]
        state = await bench.ask(GetSessionState(origin, 1, MAIN, names[1], waiting))
        assert not isinstance(state, Refused)

    run(walk, requires_session=True)


def test_whoever_waits_for_a_session_is_told_when_all_partitions_are_gone() -> None:
    """R-S9: once, and with a condition to try again."""

    async def walk(bench: PartitionedHarness) -> None:
        waiting = Recorder()
        await bench.do(AcceptSession(waiting, 9, MAIN, PEEK_LOCK, None, 1 << 60))
        for index in range(PARTITIONS):
            await bench.take_away(index)
        [refused] = waiting.take()
        assert isinstance(refused, Refused)
        assert (refused.tags, refused.refusal.kind) == ([9], UNAVAILABLE)
        again = await bench.ask(AcceptSession(waiting, 9, MAIN, PEEK_LOCK, None, 1 << 60))
        assert isinstance(again, Refused)

    run(walk, requires_session=True)


def test_wishes_that_find_a_store_gone_on_their_way() -> None:
    """R-P6, R-P9: a look goes on with the next partition; what deletes or counts says what is
    missing, and how much is done already."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        later = bench.clock.now() + 1
        before = PartitionedHarness()
        for store, kept in zip(before.stores, bench.stores, strict=True):
            store._store = kept._store
        # Nobody has noticed yet that these stores do not open.
        before.stores[0].is_down = before.stores[2].is_down = True
        assert await peeked(before) == ["old 1", "old 3"]
        before.stores[0].is_down = False
        before.workers[0].store_back()
        await calm()
        # One that nobody uses may be told of too: it is tried when it is asked.
        after = PartitionedHarness()
        for store, kept in zip(after.stores, bench.stores, strict=True):
            store._store = kept._store
        after.stores[3].is_down = True
        origin = Recorder()
        reply = await after.ask(DeleteMany(origin, 1, MAIN, 10, later))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == UNAVAILABLE
        assert "3 messages of other partitions were deleted" in reply.refusal.text
        await after.give_back(3)
        assert await peeked(after) == ["old 3"]
        for each in (before, after):
            for worker in each.workers:
                await worker.close()

    run(walk)


def test_a_count_that_finds_a_store_gone_is_refused() -> None:
    """R-P9: as a whole, and so is a deletion that has done nothing yet."""

    async def walk(bench: PartitionedHarness) -> None:
        for store in bench.stores:
            store.is_down = True
        origin = Recorder()
        wishes: list[Command] = [
            Count(origin, 1),
            Peek(origin, 1, MAIN, 0, 9, 1 << 20),
            DeleteMany(origin, 1, MAIN, 9, 1),
        ]
        for wish in wishes:
            for worker in bench.workers:
                worker.store_back()
            reply = await bench.ask(wish)
            assert isinstance(reply, Refused)
            assert (reply.tags, reply.refusal.kind) == ([1], UNAVAILABLE)

    run(walk)


def test_stores_that_are_known_to_be_gone_are_tried_when_nobody_else_is_there() -> None:
    """R-P4: a partition that was never used has not been tried yet."""

    async def walk(bench: PartitionedHarness) -> None:
        for worker in bench.workers:
            worker.store_lost()
        assert availability(bench.workers) == "Limited"
        origin = Recorder()
        assert await bench.ask(SendMany(origin, [1], [message("x")])) == SendsAccepted(origin, [1])
        assert any(worker.is_available for worker in bench.workers)

    run(walk)


def test_what_could_not_be_forgotten_is_forgotten_later() -> None:
    """R-P8: a forwarded message that is remembered for ever would cost memory for ever."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()

        def taking(forget: list[int]) -> TakeOver:
            key = key_for(1)
            return TakeOver(origin, 1, "s", [1], [message("x", partition_key=key)], forget)

        assert await bench.ask(taking([])) == SendsAccepted(origin, [1])
        bench.stores[1].full = True
        alone = TakeOver(origin, 1, "s", [], [], [1])
        assert await bench.ask(alone) == SendsAccepted(origin, [1])
        bench.stores[1].full = False
        # A store that is short of space forgets all the same: the number is free again.
        assert await bench.ask(taking([])) == SendsAccepted(origin, [1])
        assert await peeked(bench) == ["x", "x"]
        await bench.take_away(1)
        reply = await bench.ask(taking([]))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == UNAVAILABLE
        assert await bench.ask(alone) == SendsAccepted(origin, [1])
        await bench.give_back(1)
        assert await bench.ask(taking([])) == SendsAccepted(origin, [1])
        assert await peeked(bench) == ["x", "x", "x"]

    run(walk)


def test_who_was_away_when_all_below_a_number_is_forgotten_is_told_when_it_is_back() -> None:
    """And keeps what was sent to it in the meantime: a repeat of that must find it."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()

        def taking(number: int) -> TakeOver:
            texts = [message(f"m{number}", partition_key=key_for(1))]
            return TakeOver(origin, 1, "s", [number], texts, [])

        def taken() -> list[int]:
            partition = bench.workers[1]._partition
            assert partition is not None
            return sorted(partition._state.taken.get("s", {}))

        for number in (1, 2):
            assert await bench.ask(taking(number)) == SendsAccepted(origin, [1])
        await bench.take_away(1)
        assert await bench.ask(TakeOver(origin, 1, "s", [], [], [], BEYOND)) == SendsAccepted(
            origin, [1]
        )
        assert isinstance(await bench.ask(taking(7)), Refused)
        await bench.give_back(1)
        assert taken() == []
        assert await bench.ask(taking(7)) == SendsAccepted(origin, [1])
        await bench.take_away(1)
        await bench.give_back(1)
        assert taken() == [7]

    run(walk)


def test_a_disabled_entity_says_so_once() -> None:
    """R-S1: all partitions would say the same."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        wishes: list[Command] = [
            Peek(origin, 1, MAIN, 0, 9, 1 << 20),
            DeleteMany(origin, 1, MAIN, 9, 1),
            DeleteMany(origin, 1, MAIN, 9, 1, "session"),
        ]
        for wish in wishes:
            reply = await bench.ask(wish)
            assert isinstance(reply, Refused)
            assert reply.refusal.kind == ENTITY_DISABLED

    run(walk, status="ReceiveDisabled")


def test_a_partition_comes_back_by_itself() -> None:
    """R-P4: nobody has to say that the store is there again."""

    async def walk(bench: PartitionedHarness) -> None:
        await used(bench)
        bench.stores[0].is_down = True
        origin = Recorder()
        await bench.do(SendMany(origin, [1], [message("x", partition_key=key_for(0))]))
        assert availability(bench.workers) == "Limited"
        bench.stores[0].is_down = False
        await until(lambda: availability(bench.workers) == "Available")
        keyed: list[Message] = [message("y", partition_key=key_for(0))]
        assert await bench.ask(SendMany(origin, [2], keyed)) == SendsAccepted(origin, [2])

    run(walk)


def test_one_who_cannot_take_its_answer_does_not_stop_the_others() -> None:
    class Faulty:
        def replied(self, reply: Reply) -> None:
            raise RuntimeError("no")

        def flush(self) -> None:
            raise RuntimeError("no")

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        mixed = [message("a", partition_key="1"), message("b", partition_key="2")]
        await bench.do(SendBatch(Faulty(), 1, mixed), SendBatch(origin, 2, mixed))
        assert [type(reply) for reply in origin.replies] == [Refused]

    run(walk)
