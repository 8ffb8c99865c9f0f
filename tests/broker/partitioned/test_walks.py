"""Random walks over an entity of four partitions, some of which fail and return under load.

Nothing that was acknowledged is lost, nothing is stored twice, no receiver gets more than it
asked for, a drain gives exactly what there is, and the messages of a key keep their order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import cast

import pytest

from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    CloseReceiver,
    Count,
    Grant,
    OpenReceiver,
    SendBatch,
    SendMany,
    SettleMany,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.records import Record
from peeklock.entity.replies import (
    Counted,
    Delivered,
    Drained,
    ReceiverClosed,
    Refused,
    Reply,
    SendsAccepted,
    Settled,
)
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.settlement import Settlement
from peeklock.store.store import PartitionId, Store, Unavailable
from tests.broker.broker_harness import Recorder, _Turn, message, token
from tests.broker.partitioned.harness import PARTITIONS, FaultyStore, PartitionedHarness, calm, run

KEYS = 6


class Receiver:
    """An origin that checks what it gets."""

    def __init__(self, walk: Walk, mode: int) -> None:
        self.walk = walk
        self.mode = mode
        self.count = 0
        self.limit = 0
        self.most = 0  # the highest limit that may still be under way
        self.drains = 0
        self.got = 0
        self.held: dict[str, LockToken] = {}
        self.settling: dict[int, tuple[str, int]] = {}
        self.is_open = True

    def replied(self, reply: Reply) -> None:
        walk = self.walk
        assert reply.origin is self
        if isinstance(reply, Delivered):
            self.count += len(reply.deliveries)
            self.got += len(reply.deliveries)
            assert self.count <= self.most, "never more than was asked for"
            for each in reply.deliveries:
                assert each.message is not None
                text = each.message.content.decode()
                assert walk.numbers.setdefault(text, each.sequence) == each.sequence, "stored twice"
                assert text not in walk.gone, "what is done does not come again"
                if self.mode == PEEK_LOCK:
                    self.held[text] = token(each)
                else:
                    walk.gone.add(text)
        elif isinstance(reply, Drained):
            self.drains -= 1
            self.count = max(self.count, self.limit)
        elif isinstance(reply, Settled):
            for tag in reply.tags:
                text, outcome = self.settling.pop(tag)
                if outcome == COMPLETE:
                    walk.gone.add(text)
        elif isinstance(reply, Refused):
            for tag in reply.tags:
                walk.doubted.add(self.settling.pop(tag)[0])
        else:
            assert isinstance(reply, ReceiverClosed)
            self.is_open = False

    def flush(self) -> None:
        pass


class DoubtfulStore(FaultyStore):
    """Fails after it has kept what it was given, which nobody can know."""

    async def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> int:
        size = await self._store.append(partition, epoch, first_position, records, replay_from)
        if self.is_down:
            raise Unavailable("the answer was lost")
        return size


class Walk:
    """One random walk."""

    def __init__(self, bench: PartitionedHarness, seed: int, *, fails: bool) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.fails = fails
        self.sender = Recorder()
        self.sent: dict[int, list[str]] = {}
        self.keys: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.gone: set[str] = set()
        self.doubted: set[str] = set()
        self.tag = 0
        self.receivers: list[Receiver] = []

    async def go(self, steps: int) -> None:
        actions = [self.send, self.send, self.grant, self.grant, self.settle, self.attach]
        for _ in range(steps):
            action = self.random.choice(actions)
            action()
            for _ in range(self.random.choice((0, 1, 2, 5, 20))):
                await _Turn()
            if self.fails and self.random.random() < 0.1:
                await self.fail_or_return()
            if self.random.random() < 0.05:
                await self.look()
        await self.end()

    def send(self) -> None:
        number = self.random.choice((1, 1, 2, 7))
        key = self.random.choice([None, *[f"key{each}" for each in range(KEYS)]])
        tags = list(range(self.tag, self.tag + number))
        self.tag += number
        texts = [f"m{tag}" for tag in tags]
        mixed = self.random.random() < 0.3
        messages = []
        for text in texts:
            own = f"key{self.random.randrange(KEYS)}" if mixed else key
            if own is not None:
                self.keys[text] = own
            messages.append(message(text, partition_key=own))
        if not mixed and self.random.random() < 0.3:
            self.sent[tags[0]] = texts
            self.bench.spread.submit(SendBatch(self.sender, tags[0], messages))
        else:
            for tag, text in zip(tags, texts, strict=True):
                self.sent[tag] = [text]
            self.bench.spread.submit(SendMany(self.sender, tags, messages))

    def attach(self) -> None:
        if len(self.receivers) < 3:
            may_delete = not any(isinstance(each, DoubtfulStore) for each in self.bench.stores)
            deletes = may_delete and self.random.random() < 0.3
            receiver = Receiver(self, RECEIVE_AND_DELETE if deletes else PEEK_LOCK)
            self.receivers.append(receiver)
            self.bench.spread.submit(OpenReceiver(receiver, MAIN, receiver.mode))

    def grant(self) -> None:
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            if receiver.drains:
                return  # until it is answered nobody knows how far the count is
            if self.random.random() < 0.1:
                receiver.limit = receiver.count
            else:
                receiver.limit = max(receiver.limit, receiver.count + self.random.randrange(12))
            receiver.most = max(receiver.most, receiver.limit)
            drain = self.random.random() < 0.3
            receiver.drains += drain
            self.bench.spread.submit(Grant(receiver, receiver.limit, drain))

    def settle(self) -> None:
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            texts = [text for text in receiver.held if self.random.random() < 0.7]
            outcome = self.random.choice((COMPLETE, COMPLETE, ABANDON))
            self.settle_with(receiver, texts, outcome)

    def settle_with(self, receiver: Receiver, texts: list[str], outcome: int) -> None:
        tokens = [receiver.held.pop(text) for text in texts]
        tags = list(range(self.tag, self.tag + len(texts)))
        self.tag += len(texts)
        receiver.settling.update(
            (tag, (text, outcome)) for tag, text in zip(tags, texts, strict=True)
        )
        if tags:
            self.bench.spread.submit(SettleMany(receiver, tags, Settlement(outcome), tokens))

    async def fail_or_return(self) -> None:
        index = self.random.randrange(PARTITIONS)
        if self.bench.stores[index].is_down:
            await self.give_back(index)
        elif sum(store.is_down for store in self.bench.stores) < 2:
            self.bench.stores[index].is_down = True
            if self.random.random() < 0.5:
                self.bench.workers[index].store_lost()

    async def give_back(self, index: int) -> None:
        bench = self.bench
        # Whether the worker has noticed by now decides on the locks.
        await calm()
        if not bench.workers[index].is_available:
            for receiver in self.receivers:
                for text, held in list(receiver.held.items()):
                    if partition_of_sequence(held.sequence) == index:
                        del receiver.held[text]
        bench.stores[index].is_down = False
        bench.workers[index].store_back()

    async def look(self) -> None:
        """At rest, with all partitions there: the counts of both sides are the same."""
        await calm()
        self.note_answers()
        if any(store.is_down for store in self.bench.stores):
            return
        if any(not worker.is_available for worker in self.bench.workers):
            return
        held = sum(len(receiver.held) for receiver in self.receivers)
        before = await self.count()
        assert before.locked == held
        for receiver in self.receivers:
            assert receiver.is_open
            assert not receiver.drains, "a drain is answered when all is at rest"
            receiver.most = max(receiver.limit, receiver.count)
            assert receiver.count >= receiver.limit or before.active == before.locked
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            receiver.got = 0
            size = self.random.randrange(1, 20)
            receiver.limit = receiver.most = receiver.count + size
            receiver.drains += 1
            await self.bench.do(Grant(receiver, receiver.limit, True))
            assert not receiver.drains
            assert receiver.got == min(size, before.active - before.locked), "a drain is exact"

    async def count(self) -> Counted:
        counted = await self.bench.ask(Count(Recorder(), 1))
        assert isinstance(counted, Counted)
        return counted

    def note_answers(self) -> None:
        for reply in self.sender.take():
            if isinstance(reply, SendsAccepted):
                for tag in reply.tags:
                    self.accepted.update(self.sent.pop(tag))
            else:
                assert isinstance(reply, Refused)
                for tag in reply.tags:
                    del self.sent[tag]

    async def end(self) -> None:
        """All partitions return, and one receiver takes all that is left."""
        for index in range(PARTITIONS):
            if self.bench.stores[index].is_down:
                await self.give_back(index)
        await calm()
        self.note_answers()
        assert not self.sent, "every send is answered"
        await self.look()
        for receiver in self.receivers:
            assert not receiver.settling, "every settlement is answered"
            await self.bench.do(CloseReceiver(receiver, False))
        await self.bench.advance(60_000)
        last = Receiver(self, PEEK_LOCK)
        last.limit = last.most = 100_000
        last.drains = 1
        await self.bench.do(OpenReceiver(last, MAIN, PEEK_LOCK), Grant(last, last.limit, True))
        assert last.drains == 0
        self.settle_with(last, list(last.held), COMPLETE)
        await calm()
        assert self.accepted <= self.gone | self.doubted, "nothing acknowledged is lost"
        assert (await self.count()).active == 0
        for key in set(self.keys.values()):
            mine = [text for text in self.numbers if self.keys.get(text) == key]
            by_number = sorted(mine, key=lambda text: self.numbers[text])
            assert by_number == sorted(mine, key=lambda text: int(text[1:])), "order within a key"
        for worker in self.bench.workers:
            assert worker._partition is not None
            worker._partition.check()


@pytest.mark.parametrize("seed", range(25))
def test_a_walk_without_failures(seed: int) -> None:
    """R-P3, R-P5: everything sent is received once."""

    async def walk(bench: PartitionedHarness) -> None:
        steps = Walk(bench, seed, fails=False)
        await steps.go(200)
        assert not steps.doubted
        assert steps.accepted == steps.gone

    run(walk, seed=seed, delivery_count_max=2_000)


@pytest.mark.parametrize("seed", range(25))
def test_a_walk_with_stores_that_fail_and_return(seed: int) -> None:
    """R-P4, R-P5: what was acknowledged is received, once; what was refused was not stored."""

    async def walk(bench: PartitionedHarness) -> None:
        steps = Walk(bench, seed, fails=True)
        await steps.go(200)
        assert set(steps.numbers) == steps.accepted

    run(walk, seed=seed, delivery_count_max=2_000)


@pytest.mark.parametrize("seed", range(25))
def test_a_walk_with_stores_that_keep_what_they_deny(seed: int) -> None:
    """R-P4: a send in doubt is not stored a second time, and nothing acknowledged is lost."""

    async def walk(bench: PartitionedHarness) -> None:
        for index, worker in enumerate(bench.workers):
            store = DoubtfulStore()
            bench.stores[index] = store
            worker._store = cast(Store, store)
        await Walk(bench, seed, fails=True).go(200)

    run(walk, seed=seed, delivery_count_max=2_000)
