"""Receivers of an entity of several partitions: credit, drains, sessions."""

from __future__ import annotations

import pytest

from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    AcceptSession,
    CloseReceiver,
    Count,
    GetSessionState,
    Grant,
    ListSessions,
    OpenReceiver,
    RenewSession,
    Requeue,
    SendMany,
    SetSessionState,
    SettleMany,
)
from peeklock.entity.refusals import (
    NOT_ALLOWED,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    TIMED_OUT,
    UNAVAILABLE,
)
from peeklock.entity.replies import (
    Counted,
    Delivered,
    Drained,
    Named,
    Numbered,
    ReceiverClosed,
    Refused,
    SessionAccepted,
    StateFound,
)
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder, contents, message, token
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, key_for, run


async def send(bench: PartitionedHarness, index: int, *texts: str) -> None:
    origin = Recorder()
    messages = [message(text, partition_key=key_for(index)) for text in texts]
    await bench.do(SendMany(origin, list(range(len(texts))), messages))


async def send_session(bench: PartitionedHarness, session: str, *texts: str) -> None:
    origin = Recorder()
    messages = [message(text, session_id=session) for text in texts]
    await bench.do(SendMany(origin, list(range(len(texts))), messages))


async def locked(bench: PartitionedHarness) -> int:
    counted = await bench.ask(Count(Recorder(), 1))
    assert isinstance(counted, Counted)
    return counted.locked


def test_messages_of_all_partitions_come_to_one_receiver() -> None:
    """R-P5: those that are there and those that come, under the receiver's own name."""

    async def walk(bench: PartitionedHarness) -> None:
        receiver = Recorder()
        await send(bench, 0, "a", "b")
        await send(bench, 3, "c")
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 100, False))
        assert sorted(contents(receiver.deliveries())) == ["a", "b", "c"]
        assert all(reply.origin is receiver for reply in receiver.take())
        for index in range(PARTITIONS):
            await send(bench, index, f"{index}")
            assert contents(receiver.deliveries()) == [f"{index}"]
            assert [type(reply) for reply in receiver.take()] == [Delivered]
        assert receiver.flushes > 0

    run(walk)


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
@pytest.mark.parametrize("credit", [1, 3, 10, 50])
def test_never_more_is_taken_than_was_asked_for(mode: int, credit: int) -> None:
    """R-S1, R-P5: whatever the partitions have, the credit is used up exactly."""

    async def walk(bench: PartitionedHarness) -> None:
        total = 30 * PARTITIONS
        for index in range(PARTITIONS):
            await send(bench, index, *[f"{index}.{at}" for at in range(30)])
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, mode))
        granted = 0
        while granted < total:
            granted += credit
            await bench.do(Grant(receiver, granted, False))
            assert len(receiver.deliveries()) == min(granted, total)
            left = await bench.ask(Count(Recorder(), 1))
            assert isinstance(left, Counted)
            if mode == PEEK_LOCK:
                assert left.locked == min(granted, total)
            else:
                assert left.active == total - min(granted, total)
        texts = contents(receiver.deliveries())
        for index in range(PARTITIONS):
            mine = [text for text in texts if text.startswith(f"{index}.")]
            assert mine == [f"{index}.{at}" for at in range(30)]

    run(walk)


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_all_partitions_share_the_bytes_of_one_grant(mode: int) -> None:
    """R-P5: no more comes than was granted, one message for each slice apart."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, *["x" * 150_000] * 12)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, mode))
        await bench.do(Grant(receiver, 100, False, False, 1 << 20))
        assert len(receiver.deliveries()) == 7
        size_limit = (1 << 20) + 150_000
        while len(receiver.deliveries()) < 12 * PARTITIONS:
            before = len(receiver.deliveries())
            await bench.do(Grant(receiver, 100, False, False, size_limit))
            came = len(receiver.deliveries()) - before
            assert came == 1, "what exceeded the last grant counts"
            size_limit += 150_000
        sizes = [reply.size for reply in receiver.replies if isinstance(reply, Delivered)]
        assert sum(sizes) == 12 * PARTITIONS * 150_000

    run(walk)


def test_a_drain_by_bytes_says_whether_there_is_more() -> None:
    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, *["x" * 1_000] * 3)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        total, limit, size_limit = 0, 0, 0
        while True:
            limit, size_limit = limit + 50, size_limit + 4_500
            await bench.do(Grant(receiver, limit, True, False, size_limit))
            replies = receiver.take()
            counts = [len(reply.deliveries) for reply in replies if isinstance(reply, Delivered)]
            total += sum(counts)
            drained = replies[-1]
            assert isinstance(drained, Drained)
            if not drained.has_more:
                break
        assert total == 3 * PARTITIONS

    run(walk)


@pytest.mark.parametrize("is_down", [False, True])
def test_what_was_never_sent_goes_back_to_its_partition(is_down: bool) -> None:
    """R-S1, R-P4: also where the partition is out of reach just then."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, f"{index}.0", f"{index}.1")
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE))
        await bench.do(Grant(receiver, 100, False))
        unsent = receiver.deliveries()
        assert len(unsent) == 2 * PARTITIONS
        if is_down:
            await bench.take_away(2)
        await bench.do(CloseReceiver(receiver, True), Requeue(MAIN, list(unsent)))
        if is_down:
            await bench.give_back(2)
        other = Recorder()
        await bench.do(OpenReceiver(other, MAIN, PEEK_LOCK), Grant(other, 100, False))
        texts = sorted(contents(other.deliveries()))
        assert texts == [f"{index}.{at}" for index in range(PARTITIONS) for at in range(2)]

    run(walk)


def test_partitions_take_turns_by_runs() -> None:
    """R-P5: a receiver with little credit meets all partitions before it meets one again."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, *["x"] * 20)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK))
        for turn in range(PARTITIONS):
            await bench.do(Grant(receiver, 4 * (turn + 1), False))
        met = [partition_of_sequence(each.sequence) for each in receiver.deliveries()]
        assert len(met) == 4 * PARTITIONS
        assert [met.count(index) for index in range(PARTITIONS)] == [4] * PARTITIONS

    run(walk)


def test_a_drain_is_answered_when_all_has_come_back() -> None:
    """R-P5: after all that was there was delivered; what was not used is gone."""

    async def walk(bench: PartitionedHarness) -> None:
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 5, True))
        assert receiver.take() == [Drained(receiver)]
        for index in range(PARTITIONS):
            await send(bench, index, "a", "b")
        assert receiver.take() == []
        await bench.do(Grant(receiver, 5 + 6, True))
        assert len(receiver.deliveries()) == 6
        assert isinstance(receiver.take()[-1], Drained)
        await bench.do(Grant(receiver, 11 + 6, True))
        assert len(receiver.deliveries()) == 2
        assert receiver.take()[-1] == Drained(receiver)
        await send(bench, 1, "late")
        assert receiver.take() == []
        await bench.do(Grant(receiver, 18, False))
        assert contents(receiver.deliveries()) == ["late"]

    run(walk)


def test_a_drain_asked_for_while_credit_is_open_ends_at_once() -> None:
    """R-P5: a receiver that waits on empty partitions costs nobody a question."""

    async def walk(bench: PartitionedHarness) -> None:
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 5, False))
        assert receiver.take() == []
        assert all(not worker._mailbox.commands for worker in bench.workers)
        bench.spread.submit(Grant(receiver, 5, True))
        assert receiver.take() == [], "no answer comes while the question is asked"
        assert all(not worker._mailbox.commands for worker in bench.workers)
        await bench.do()
        assert receiver.take() == [Drained(receiver)]

    run(walk)


def test_a_drain_waits_for_partitions_that_are_still_opening() -> None:
    """R-P5: what was acknowledged before a restart is delivered by a drain after it."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, f"{index}")
        later = PartitionedHarness()
        for store, before in zip(later.stores, bench.stores, strict=True):
            store._store = before._store
        receiver = Recorder()
        await later.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 9, True))
        assert sorted(contents(receiver.deliveries())) == ["0", "1", "2", "3"]
        assert receiver.take()[-1] == Drained(receiver)
        for worker in later.workers:
            await worker.close()

    run(walk)


@pytest.mark.parametrize("mode", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_a_receiver_may_want_less_than_before(mode: int) -> None:
    """R-P5: a lower limit is honoured as a single partition does, also for what was lent."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, *["x"] * 40)
        receiver = Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, mode))
        # The partitions have not looked at the first grant when the second comes.
        await bench.do(Grant(receiver, 100, False), Grant(receiver, 3, False))
        assert len(receiver.deliveries()) == 3
        await bench.do(Grant(receiver, 2, False))
        await bench.do(Grant(receiver, 100, False), Grant(receiver, 0, True))
        assert len(receiver.deliveries()) == 3
        assert receiver.replies[-1] == Drained(receiver)
        await bench.do(Grant(receiver, 50, True))
        assert len(receiver.deliveries()) == 50
        assert receiver.replies[-1] == Drained(receiver)

    run(walk)


def test_a_receiver_that_is_gone_leaves_all_partitions() -> None:
    """R-S3: nothing comes any more, and a broken connection gives back what it held."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await send(bench, index, "x")
        receiver, other = Recorder(), Recorder()
        await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 100, False))
        assert len(receiver.deliveries()) == 4
        await bench.do(CloseReceiver(receiver, True))
        receiver.take()
        assert await locked(bench) == 0
        await bench.do(Grant(receiver, 200, True), CloseReceiver(receiver, True))
        await send(bench, 2, "y")
        assert receiver.take() == []
        await bench.do(OpenReceiver(other, MAIN, PEEK_LOCK), Grant(other, 100, False))
        assert len(other.deliveries()) == 5

    run(walk, unlock_on_disconnect=True)


def test_receivers_share_what_there_is() -> None:
    """R-P5: several receivers on the same partitions; each message comes to one of them."""

    async def walk(bench: PartitionedHarness) -> None:
        receivers = [Recorder() for _ in range(3)]
        for receiver in receivers:
            await bench.do(OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 1000, False))
        for number in range(40):
            await send(bench, number % PARTITIONS, f"{number}")
        texts = [text for each in receivers for text in contents(each.deliveries())]
        assert sorted(texts, key=int) == [f"{number}" for number in range(40)]

    run(walk)


def accept(receiver: Recorder, session: str | None, until: int = 1 << 60) -> AcceptSession:
    return AcceptSession(receiver, 7, MAIN, PEEK_LOCK, session, until)


def test_a_named_session_is_accepted_where_it_lives() -> None:
    """R-S9: by one receiver at a time, who receives, renews and keeps state with it."""

    async def walk(bench: PartitionedHarness) -> None:
        await send_session(bench, "one", "a", "b", "c")
        receiver, origin = Recorder(), Recorder()
        accepted = await bench.ask(accept(receiver, "one"))
        assert isinstance(accepted, SessionAccepted)
        assert (accepted.tag, accepted.session_id) == (7, "one")
        refused = await bench.ask(accept(Recorder(), "one"))
        assert isinstance(refused, Refused)
        assert refused.refusal.kind == SESSION_CANNOT_BE_LOCKED
        await bench.do(Grant(receiver, 10, True))
        assert contents(receiver.deliveries()) == ["a", "b", "c"]
        deliveries = receiver.deliveries()
        assert receiver.take()[-1] == Drained(receiver)
        await bench.do(SettleMany(receiver, [1], Settlement(COMPLETE), [token(deliveries[0])]))
        await bench.advance(1_000)
        until = bench.clock.now() + 60_000
        renewed = await bench.ask(RenewSession(origin, 1, MAIN, "one", receiver))
        assert renewed == Numbered(origin, 1, [until])
        done = await bench.ask(SetSessionState(origin, 2, MAIN, "one", receiver, b"state"))
        assert done == Numbered(origin, 2, [])
        for holder in (receiver, None):
            found = await bench.ask(GetSessionState(origin, 3, MAIN, "one", holder))
            assert found == StateFound(origin, 3, b"state")
        lost = await bench.ask(GetSessionState(origin, 4, MAIN, "one", Recorder()))
        assert isinstance(lost, Refused)
        assert lost.refusal.kind == SESSION_LOCK_LOST
        receiver.take()
        await bench.do(CloseReceiver(receiver, False))
        other = Recorder()
        again = await bench.ask(accept(other, "one"))
        assert isinstance(again, SessionAccepted)
        await bench.do(Grant(other, 10, False))
        assert contents(other.deliveries()) == ["b", "c"]

    run(walk, requires_session=True)


def test_the_next_session_is_sought_everywhere() -> None:
    """R-S9: each session goes to one receiver; what was offered twice is given back uncounted."""

    async def walk(bench: PartitionedHarness) -> None:
        sessions = [key_for(index, number=number) for index in range(4) for number in range(2)]
        for session in sessions:
            await send_session(bench, session, session)
        receivers = [Recorder() for _ in range(len(sessions))]
        taken: list[str] = []
        for receiver in receivers:
            reply = await bench.ask(accept(receiver, None))
            assert isinstance(reply, SessionAccepted)
            taken.append(reply.session_id)
            await bench.do(Grant(receiver, 5, False))
            assert contents(receiver.deliveries()) == [reply.session_id]
            assert receiver.deliveries()[0].delivery_count == 0
        assert sorted(taken) == sorted(sessions)
        # They take turns: the first four come from four partitions.
        assert len({sessions.index(each) // 2 for each in taken[:4]}) == 4
        waiting = Recorder()
        await bench.do(accept(waiting, None, bench.clock.now() + 5_000))
        assert waiting.take() == []
        await bench.advance(5_000)
        [refused] = waiting.take()
        assert isinstance(refused, Refused)
        assert (refused.tags, refused.refusal.kind) == ([7], TIMED_OUT)

    run(walk, requires_session=True)


def test_all_who_ask_at_once_get_a_session_each() -> None:
    """R-S9: receivers that ask in the same instant do not get in each other's way."""

    async def walk(bench: PartitionedHarness) -> None:
        for number in range(12):
            await send_session(bench, f"s{number}", "x")
        receivers = [Recorder() for _ in range(12)]
        await bench.do(*[accept(receiver, None) for receiver in receivers])
        replies = [reply for receiver in receivers for reply in receiver.take()]
        names = [reply.session_id for reply in replies if isinstance(reply, SessionAccepted)]
        assert len(replies) == 12
        assert sorted(names) == sorted(f"s{number}" for number in range(12))

    run(walk, requires_session=True)


def test_whoever_waits_for_a_session_gets_the_first_that_comes() -> None:
    """R-S9: and whoever stops waiting gets none."""

    async def walk(bench: PartitionedHarness) -> None:
        gone, waiting = Recorder(), Recorder()
        await bench.do(accept(gone, None), accept(waiting, None), Grant(waiting, 5, False))
        await bench.do(CloseReceiver(gone, False))
        await send_session(bench, "late", "x")
        [accepted] = waiting.take()
        assert isinstance(accepted, SessionAccepted)
        assert accepted.origin is waiting
        assert gone.take() == []
        await bench.advance(60_000)
        [closed] = waiting.take()
        assert isinstance(closed, ReceiverClosed)
        assert closed.refusal.kind == SESSION_LOCK_LOST
        again = await bench.ask(accept(waiting, "late"))
        assert isinstance(again, SessionAccepted)

    run(walk, requires_session=True)


def test_sessions_are_listed_over_all_partitions() -> None:
    """R-P9: in the order of their names, by pages."""

    async def walk(bench: PartitionedHarness) -> None:
        names = [f"s{number:02}" for number in range(20)]
        for name in names:
            await send_session(bench, name, "x")
        origin = Recorder()
        for skip, top in ((0, 100), (0, 5), (5, 7), (19, 5), (25, 5)):
            reply = await bench.ask(ListSessions(origin, 1, MAIN, None, skip, top))
            assert reply == Named(origin, 1, names[skip : skip + top])
        await bench.take_away(1)
        reply = await bench.ask(ListSessions(origin, 2, MAIN, None, 0, 100))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == UNAVAILABLE

    run(walk, requires_session=True)


def test_an_entity_without_sessions_gives_none() -> None:
    """R-S9: all partitions say the same, and it is said once."""

    async def walk(bench: PartitionedHarness) -> None:
        for session in (None, "one"):
            reply = await bench.ask(accept(Recorder(), session))
            assert isinstance(reply, Refused)
            assert reply.refusal.kind == NOT_ALLOWED
        reply = await bench.ask(ListSessions(Recorder(), 1, MAIN, None, 0, 10))
        assert isinstance(reply, Refused)
        assert reply.refusal.kind == NOT_ALLOWED

    run(walk)
