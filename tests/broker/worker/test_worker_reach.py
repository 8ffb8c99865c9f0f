"""What a worker says of its store: whether it is in reach, lost, back, and what was not sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.budgets import Budget
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    AcceptSession,
    CloseReceiver,
    Command,
    Commit,
    Grant,
    ListSessions,
    OpenReceiver,
    Requeue,
    Schedule,
    SendBatch,
    SendMany,
    SetSessionState,
    SettleMany,
    TakeOver,
    TransferMessage,
)
from peeklock.entity.refusals import BUSY, UNAVAILABLE
from peeklock.entity.replies import (
    Numbered,
    ReceiverClosed,
    Refused,
    SendsAccepted,
    SessionAccepted,
)
from peeklock.entity.settlement import Settlement
from tests.broker.broker_harness import Recorder, message, token
from tests.broker.partitioned.harness import PartitionedHarness, calm, run


async def do(worker: PartitionWorker, *commands: Command) -> None:
    for command in commands:
        worker.submit(command)
    await calm()


def reach(worker: PartitionWorker) -> tuple[bool, bool]:
    return worker.is_available, worker.can_be_asked


def keeping(unsent: list[Command], is_taken: bool = True) -> Callable[[Command], bool]:
    """A hook that remembers what was not sent."""

    def take(command: Command) -> bool:
        unsent.append(command)
        return is_taken

    return take


def test_a_worker_is_out_of_reach_until_it_has_opened_again() -> None:
    """R-P4: nobody who asks meanwhile waits, and what was stored is there afterwards."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        opened: list[PartitionDoor] = []
        worker.on_opened = opened.append
        origin = Recorder()
        assert reach(worker) == (True, True)
        await do(worker, SendMany(origin, [1], [message("a")]))
        assert opened == [worker]
        store.is_down = True
        await do(worker, SendMany(origin, [2], [message("b")]))
        assert reach(worker) == (False, False)
        await do(worker, SendMany(origin, [3], [message("c")]))
        kinds = [reply.refusal.kind for reply in origin.take() if isinstance(reply, Refused)]
        assert kinds == [UNAVAILABLE, UNAVAILABLE]
        store.is_down = False
        worker.store_back()
        # Whoever comes now waits for the opening instead of being sent away.
        worker.submit(SendMany(origin, [5], [message("e")]))
        await calm()
        assert origin.take() == [SendsAccepted(origin, [5])]
        assert reach(worker) == (True, True)
        assert opened == [worker, worker]
        await do(worker, SendMany(origin, [4], [message("d")]))
        assert origin.take() == [SendsAccepted(origin, [4])]

    run(walk, partitions=1)


@pytest.mark.parametrize("is_away", [False, True])
def test_messages_that_nobody_else_has_wait_for_the_store(
    is_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R-S1: what was never sent is put back when the partition has opened again, and once."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        receiver = Recorder()
        opening = OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE)
        await do(worker, SendMany(Recorder(), [1, 2], [message("a"), message("b")]), opening)
        await do(worker, Grant(receiver, 5, False))
        unsent = receiver.deliveries()
        store.is_away, store.is_down = is_away, not is_away
        await do(worker, Requeue(MAIN, list(unsent[:1])), Requeue(MAIN, list(unsent[1:])))
        store.is_away = store.is_down = False
        worker.store_back()
        other = Recorder()
        await do(worker, OpenReceiver(other, MAIN, PEEK_LOCK), Grant(other, 5, False))
        assert [each.sequence for each in other.deliveries()] == [1, 2]
        store.is_down = True
        await do(worker, Requeue(MAIN, list(unsent)))

    run(walk, partitions=1)
    assert "requeue-lost partition=ns|q|0 messages=2" in caplog.text


@pytest.mark.parametrize("failures", [2, 3, 5])
def test_messages_that_nobody_else_has_survive_any_number_of_failures(
    failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    """R-S1: only a crash may lose them, however often the store opens and takes nothing."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        receiver = Recorder()
        opening = OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE)
        await do(worker, SendMany(Recorder(), [1, 2], [message("a"), message("b")]), opening)
        await do(worker, Grant(receiver, 5, False))
        unsent = receiver.deliveries()
        store.failing_appends = failures
        await do(worker, Requeue(MAIN, list(unsent)))
        # From the second failure on there is a pause before each opening.
        for left in range(failures - 2, -1, -1):
            assert store.failing_appends == left
            worker.store_back()
            await calm()
        other = Recorder()
        await do(worker, OpenReceiver(other, MAIN, PEEK_LOCK), Grant(other, 5, False))
        assert [each.sequence for each in other.deliveries()] == [1, 2]

    run(walk, partitions=1)
    assert "requeue-lost" not in caplog.text


@pytest.mark.parametrize("failures", [0, 1])
def test_what_was_decided_is_taken_from_a_shared_budget_until_it_is_handed_out(
    failures: int,
) -> None:
    """Whether the receiver gets it or the store fails: nothing of the budget is lost."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        receiver = Recorder()
        opening = OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE)
        await do(worker, SendMany(Recorder(), [1, 2], [message("a"), message("b")]), opening)
        budget = Budget("shared", 1)
        store.failing_appends = failures
        await do(worker, Grant(receiver, 5, False, False, 1_000, budget))
        assert len(receiver.deliveries()) == 1 - failures, "one ends the budget"
        assert budget.peak > 0
        assert budget.used == 0

    run(walk, partitions=1)


def test_a_store_that_is_taken_away_closes_its_receivers() -> None:
    """R-L4: as if an append had failed; a partition that nobody uses does nothing."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker] = bench.workers
        worker.store_lost()
        assert reach(worker) == (False, True), "nobody has tried yet"
        worker.store_back()
        assert reach(worker) == (True, True)
        receiver = Recorder()
        await do(worker, OpenReceiver(receiver, MAIN, PEEK_LOCK))
        await bench.take_away(0)
        [closed] = receiver.take()
        assert isinstance(closed, ReceiverClosed)
        assert closed.refusal.kind == UNAVAILABLE
        await do(worker, OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 1, False))
        [closed] = receiver.take()
        assert isinstance(closed, ReceiverClosed)
        await bench.give_back(0)
        assert reach(worker) == (True, True)
        worker.store_back()
        await do(worker, CloseReceiver(receiver, False))
        assert receiver.take() == []

    run(walk, partitions=1)


def test_a_lost_store_that_still_opens_is_back_at_once() -> None:
    """R-L4: locks are lost, messages are not."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker] = bench.workers
        receiver = Recorder()
        await do(
            worker,
            OpenReceiver(receiver, MAIN, PEEK_LOCK),
            Grant(receiver, 5, False),
            SendMany(Recorder(), [1], [message("a")]),
        )
        worker.store_lost()
        await calm()
        assert reach(worker) == (True, True)
        assert isinstance(receiver.replies[-1], ReceiverClosed)
        again = Recorder()
        await do(worker, OpenReceiver(again, MAIN, PEEK_LOCK), Grant(again, 5, False))
        assert len(again.deliveries()) == 1

    run(walk, partitions=1)


def test_sessions_that_are_held_or_waited_for_are_lost_with_the_partition() -> None:
    """R-S9: holders are closed, those who wait are refused, those who are done hear nothing."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker] = bench.workers
        holder, refused, waiting, gone, late = (Recorder() for _ in range(5))

        def accept(origin: Any, name: str | None, until: int = 1 << 60) -> AcceptSession:
            return AcceptSession(origin, 4, MAIN, PEEK_LOCK, name, until)

        await do(worker, accept(holder, "one"), accept(refused, "one"))
        await do(worker, accept(gone, None), accept(waiting, None))
        await do(worker, accept(late, None, bench.clock.now() + 10), CloseReceiver(gone, False))
        await bench.advance(10)
        assert isinstance(holder.take()[0], SessionAccepted)
        assert isinstance(refused.take()[0], Refused)
        assert isinstance(late.take()[0], Refused)
        await bench.take_away(0)
        [closed] = holder.take()
        assert isinstance(closed, ReceiverClosed)
        [told] = waiting.take()
        assert isinstance(told, Refused)
        assert (told.tags, told.refusal.kind) == ([4], UNAVAILABLE)
        assert [refused.take(), gone.take(), late.take()] == [[], [], []]
        await do(worker, accept(waiting, None))
        [told] = waiting.take()
        assert isinstance(told, Refused)
        await bench.give_back(0)
        await do(worker, accept(holder, "one"))
        assert isinstance(holder.take()[0], SessionAccepted)
        await bench.advance(60_000)
        assert isinstance(holder.take()[0], ReceiverClosed)
        await bench.take_away(0)
        assert holder.take() == [], "who was closed is not closed again"
        await do(worker, ListSessions(holder, 1, MAIN, None, 0, 1))
        assert isinstance(holder.take()[0], Refused)

    run(walk, partitions=1, requires_session=True)


def test_a_full_store_takes_no_messages_however_they_come() -> None:
    """R-T2: what only settles goes on, in a transaction too."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        origin, receiver = Recorder(), Recorder()
        await do(worker, OpenReceiver(receiver, MAIN, PEEK_LOCK), Grant(receiver, 1, False))
        await do(worker, SendMany(origin, [1], [message("a")]))
        origin.take()
        settling = SettleMany(origin, [1], Settlement(COMPLETE), [token(receiver.deliveries()[0])])
        sending = SendMany(origin, [1], [message("b")])
        unsent: list[Command] = []
        store.full = True
        wishes: list[Command] = [
            sending,
            SendBatch(origin, 1, [message("b")]),
            Schedule(origin, 1, [message("b")]),
            TakeOver(origin, 1, "source", [1], [message("b")], []),
            Commit(origin, 1, [settling, sending]),
            Commit(origin, 1, [TransferMessage("elsewhere", message("b"))]),
            SetSessionState(origin, 1, MAIN, "session", None, b"state"),
        ]
        for wish in wishes:
            await do(worker, wish)
            [reply] = origin.take()
            assert isinstance(reply, Refused)
            assert reply.refusal.kind == BUSY
        worker.pending_replies.on_unsent = keeping(unsent)
        await do(worker, *wishes)
        assert unsent == wishes
        assert origin.take() == []
        await do(worker, Commit(origin, 2, [settling]))
        assert origin.take() == [Numbered(origin, 2, [])]

    run(walk, partitions=1)


@pytest.mark.parametrize("is_taken", [True, False])
def test_sends_that_were_not_stored_may_go_elsewhere(is_taken: bool) -> None:
    """R-P4: those in doubt may not; what is not taken is refused."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        unsent: list[Command] = []

        worker.pending_replies.on_unsent = keeping(unsent, is_taken)
        origin = Recorder()
        await do(worker, SendMany(origin, [1], [message("a")]))
        store.is_down = True
        doubtful = SendMany(origin, [2], [message("b")])
        await do(worker, doubtful)
        later = SendMany(origin, [3], [message("c")])
        await do(worker, later)
        assert unsent == [later]
        refused = [reply.tags for reply in origin.take() if isinstance(reply, Refused)]
        assert refused == ([[2]] if is_taken else [[2], [3]])

    run(walk, partitions=1)


@pytest.mark.parametrize("is_taken", [True, False])
def test_nothing_is_in_doubt_where_the_store_was_away_already(is_taken: bool) -> None:
    """R-P4: sends that meet it before the partition has heard of it may go elsewhere too."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        unsent: list[Command] = []
        worker.pending_replies.on_unsent = keeping(unsent, is_taken)
        origin, receiver = Recorder(), Recorder()
        await do(worker, SendMany(origin, [1], [message("a")]))
        origin.take()
        await do(worker, OpenReceiver(receiver, MAIN, PEEK_LOCK))
        store.is_away = True
        wish = SendMany(origin, [2], [message("b")])
        await do(worker, wish)
        assert unsent == [wish]
        refused = [reply for reply in origin.take() if isinstance(reply, Refused)]
        assert [reply.tags for reply in refused] == ([] if is_taken else [[2]])
        assert all("doubt" not in reply.refusal.text for reply in refused)
        assert [reply for reply in receiver.take() if isinstance(reply, ReceiverClosed)]

    run(walk, partitions=1)


def test_a_worker_that_shuts_down_sends_nobody_elsewhere() -> None:
    """R-T2: the others shut down too."""

    async def walk(bench: PartitionedHarness) -> None:
        [worker], [store] = bench.workers, bench.stores
        unsent: list[Command] = []
        worker.pending_replies.on_unsent = keeping(unsent)
        store.is_down = True
        origin = Recorder()
        worker.submit(SendMany(origin, [1], [message("a")]))
        await worker.close()
        await do(worker, SendMany(origin, [2], [message("b")]), Grant(origin, 1, True))
        replies = [reply for reply in origin.take() if isinstance(reply, Refused)]
        assert [reply.tags for reply in replies] == [[1], [2]]
        assert all("shutting down" in reply.refusal.text for reply in replies)
        assert unsent == []

    run(walk, partitions=1)
