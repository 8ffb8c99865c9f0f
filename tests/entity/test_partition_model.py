"""The partition beside a naive model: whatever is asked, both must give the same answers, and a
replay of what was written down must give the living state, locks aside.

`PEEKLOCK_SEED` chooses another run; a failure names its seed and prints the steps."""

import os
import secrets
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from peeklock.entity import commands as ask
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import DEAD, MAIN, PEEK_LOCK, RECEIVE_AND_DELETE, Command
from peeklock.entity.definition import ACTIVE, FOREVER_MS, STATUSES, QueueDefinition
from peeklock.entity.deliveries import STATE_CLAIMED, STATE_DEFERRED, STATE_SCHEDULED, LockToken
from peeklock.entity.message import NEVER, NO_DURATION, Message, traits_of
from peeklock.entity.replies import Origin
from peeklock.entity.stint import STINT_STEPS
from peeklock.entity.upkeep.live_bodies import BLOCK
from tests.entity.model_pair import EVERYTHING, Pair
from tests.entity.origins import by

SENDER: Final = by("sender")
MANAGER: Final = by("manager")

# Drawn once per step and cut into small numbers: a step that draws little leaves room for many.
picks = st.integers(0, (1 << 30) - 1)
lanes = st.sampled_from([MAIN, MAIN, DEAD])
modes = st.sampled_from([PEEK_LOCK, PEEK_LOCK, PEEK_LOCK, RECEIVE_AND_DELETE])
durations = st.sampled_from([0, 1, 1, 999, 1_000, 4_000, 5_000, 5_001, 30_000, 400_000])
outcomes = st.sampled_from(
    [ask.COMPLETE, ask.ABANDON, ask.ABANDON, ask.DEFER, ask.DEFER, ask.DEAD_LETTER, ask.RELEASE]
)
changes = st.sampled_from([None, None, {}, {"a": b"1"}, {"a": b"2", "b": b""}, {"c": b"3"}])
notes = st.sampled_from(
    [
        (None, None),
        (None, None),
        ("why", ""),
        ("", "d"),
    ]
)
definitions = st.builds(
    QueueDefinition,
    st.just("orders"),
    lock_duration_ms=st.sampled_from([5_000, 5_000, 5_000, 30_000]),
    delivery_count_max=st.sampled_from([1, 2, 3, 3, 10]),
    time_to_live_ms=st.sampled_from([FOREVER_MS, FOREVER_MS, FOREVER_MS, 1_000, 8_000]),
    dead_letter_on_expiration=st.booleans(),
    message_size_max=st.sampled_from([30, 100, 100]),
    unlock_on_disconnect=st.booleans(),
    status=st.sampled_from([ACTIVE] * 20 + list(STATUSES)),
)
# What is drawn of a message: bytes of filling, life, delay (-1: it is not scheduled).
Draft = tuple[int, int, int]
drafts = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 5, 40]),
        st.sampled_from([NO_DURATION] * 3 + [0, 1_000, 6_000, 100_000, (1 << 63) - 1]),
        st.sampled_from([-1, -1, -1, -1, 0, 1_000, 6_000, 100_000]),
    ),
    min_size=1,
    max_size=5,
)
# Who claims, and with which epoch (0: with none). Late ones fence the early ones.
owners = st.tuples(st.sampled_from(["one", "one", "two"]), st.sampled_from([0, 1, 1, 1, 2]))
# How a token is presented: as it was given, or with another number, chance or lane in it.
SPOILERS: Final = [(0, 0)] * 12 + [(0, 1), (1, 0), (0, 1 << 48), (0, 1 << 60)]

# How many steps each example took: some that the engine derives from others are short.
lengths: list[int] = []


def few(pick: int, count_max: int) -> list[int]:
    """One to so many small numbers out of a large one."""
    count = pick % count_max + 1
    return [(pick >> 4 + 6 * place) & 63 for place in range(count)]


class PartitionBesideModel(RuleBasedStateMachine):
    """Draws what is asked; `Pair` asks it and compares."""

    @initialize(
        definition=definitions,
        index=st.sampled_from([0, 0, 3, 32_767]),
        memory=st.sampled_from([0, 60, 1_000_000]),
        before_block=st.integers(2, 30),
        steps_max=st.sampled_from([1, 2, 3, STINT_STEPS, STINT_STEPS]),
        drafts=drafts,
        credit=st.integers(0, 8),
    )
    def start(
        self,
        definition: QueueDefinition,
        index: int,
        memory: int,
        before_block: int,
        steps_max: int,
        drafts: list[Draft],
        credit: int,
    ) -> None:
        # Shortly before the end of a block of positions, so there is soon one to relocate from.
        first = BLOCK - before_block
        self.pair = Pair(definition, index=index, memory=memory, first=first, steps_max=steps_max)
        self.held: list[Command] = []
        self.hold_left = 0
        self.count = 0
        self.receivers: dict[Origin, int] = {}
        self.steps = 0
        self.send_many(drafts)
        self.open(MAIN, PEEK_LOCK, credit)

    @invariant()
    def counted(self) -> None:
        self.steps = getattr(self, "steps", -1) + 1

    def submit(self, command: Command) -> None:
        """Ask at once, or together with what follows."""
        self.held.append(command)
        if self.hold_left > 0:
            self.hold_left -= 1
        else:
            self.let_go()

    def let_go(self) -> None:
        self.hold_left = 0
        if self.held:
            held, self.held = self.held, []
            self.pair.ask(*held)

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.let_go()
            self.pair.crash()
            lengths.append(self.steps)

    def next(self) -> int:
        self.count += 1
        return self.count

    @rule(count=st.integers(1, 4))
    def several_at_once(self, count: int) -> None:
        self.hold_left = count

    # Sending.

    def message(self, draft: Draft) -> Message:
        filling, life, delay = draft
        scheduled_at = NEVER if delay < 0 else self.pair.now + delay
        content = b"%d" % self.next() + b"." * filling
        return Message(b"e", content, traits_of(life, scheduled_at))

    @rule(drafts=drafts)
    def send_many(self, drafts: list[Draft]) -> None:
        messages = [self.message(draft) for draft in drafts]
        self.submit(ask.SendMany(SENDER, [self.next() for _ in drafts], messages))

    @rule(drafts=drafts)
    def send_batch(self, drafts: list[Draft]) -> None:
        messages = [self.message(draft) for draft in drafts]
        self.submit(ask.SendBatch(SENDER, self.next(), messages))

    @rule(drafts=drafts)
    def schedule(self, drafts: list[Draft]) -> None:
        messages = [self.message(draft) for draft in drafts]
        self.submit(ask.Schedule(MANAGER, self.next(), messages))

    @precondition(lambda self: self.pair.model.rows)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        sequences = self.numbers(pick, MAIN, STATE_SCHEDULED)
        self.submit(ask.CancelScheduled(MANAGER, self.next(), sequences))

    def numbers(self, pick: int, lane: int, state: int) -> list[int]:
        """Mostly numbers of messages in that state, now and then of any message or of none."""
        rows = self.pair.model.rows
        fitting = [row.sequence for row in rows if (row.lane, row.state) == (lane, state)]
        others = [row.sequence for row in rows] + [0, self.pair.model.next_sequence]
        if pick % 19 == 0:
            return []
        return [
            fitting[each % len(fitting)] if fitting and each < 56 else others[each % len(others)]
            for each in few(pick, 3)
        ]

    # Receiving.

    @rule(lane=lanes, mode=modes, limit=st.integers(0, 6))
    def open(self, lane: int, mode: int, limit: int) -> None:
        origin = by(f"receiver {self.next()}")
        self.receivers[origin] = limit
        self.submit(ask.OpenReceiver(origin, lane, mode))
        self.submit(ask.Grant(origin, limit, False))

    @precondition(lambda self: self.receivers)
    @rule(
        pick=st.integers(0, 5),
        more=st.integers(-1, 6),
        drain=st.booleans(),
        size=st.sampled_from([-1, 0, 1, 9, 60, ask.ANY_SIZE, ask.ANY_SIZE]),
    )
    def grant(self, pick: int, more: int, drain: bool, size: int) -> None:
        origin = self.receiver(pick)
        self.let_go()
        waiter = self.pair.model.receivers[origin]
        self.receivers[origin] = max(0, waiter.delivered + more)
        size_limit = max(0, waiter.size_delivered + size)
        self.submit(ask.Grant(origin, self.receivers[origin], drain, False, size_limit))

    @precondition(lambda self: self.pair.removed)
    @rule(pick=picks, count=st.integers(1, 3))
    def requeue(self, pick: int, count: int) -> None:
        """What receive-and-delete handed out was never sent, as a link finds out later."""
        self.let_go()
        removed = self.pair.removed
        lane = removed[pick % len(removed)][0]
        back = [each for number, each in removed if number == lane][:count]
        self.pair.removed = [pair for pair in removed if pair[1] not in back]
        self.submit(ask.Requeue(lane, back))

    def receiver(self, pick: int) -> Origin:
        return list(self.receivers)[pick % len(self.receivers)]

    @precondition(lambda self: self.receivers)
    @rule(pick=st.integers(0, 5), broken=st.booleans())
    def close(self, pick: int, broken: bool) -> None:
        origin = self.receiver(pick)
        del self.receivers[origin]
        self.submit(ask.CloseReceiver(origin, broken))

    @precondition(lambda self: self.pair.model.rows)
    @rule(pick=picks, lane=lanes, mode=modes)
    def receive_deferred(self, pick: int, lane: int, mode: int) -> None:
        sequences = self.numbers(pick, lane, STATE_DEFERRED)
        self.submit(ask.ReceiveDeferred(MANAGER, self.next(), lane, sequences, mode))

    # Settling.

    def has_locks(self) -> bool:
        return any(row.number for row in self.pair.model.rows)

    def tokens(self, pick: int, count_max: int) -> list[LockToken]:
        """Mostly tokens of living locks, else any that were ever given; the last may be spoilt."""
        rows = [row for row in self.pair.model.rows if row.number]
        living = [LockToken(row.sequence, row.number) for row in rows]
        given = [*self.pair.tokens, LockToken(1, 1)]
        chosen = [
            living[each % len(living)] if living and each < 58 else given[-1 - each % len(given)]
            for each in few(pick, count_max)
        ]
        sequence, number = SPOILERS[pick // 7 % len(SPOILERS)]
        last = chosen.pop()
        return [*chosen, LockToken(last.sequence + sequence, last.number ^ number)]

    @precondition(lambda self: self.has_locks())
    @rule(pick=picks, outcome=outcomes, changes=changes, note=notes)
    def settle_many(
        self,
        pick: int,
        outcome: int,
        changes: dict[str, bytes] | None,
        note: tuple[str | None, str | None],
    ) -> None:
        tokens = self.tokens(pick, 4)
        tags = [self.next() for _ in tokens]
        self.submit(ask.SettleMany(SENDER, tags, ask.Settlement(outcome, changes, *note), tokens))

    @precondition(lambda self: self.has_locks())
    @rule(pick=picks, outcome=outcomes, changes=changes, note=notes)
    def settle_all(
        self,
        pick: int,
        outcome: int,
        changes: dict[str, bytes] | None,
        note: tuple[str | None, str | None],
    ) -> None:
        tokens = self.tokens(pick, 3)
        settlement = ask.Settlement(outcome, changes, *note)
        self.submit(ask.SettleAll(MANAGER, self.next(), settlement, tokens))

    @precondition(lambda self: self.pair.tokens)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        self.submit(ask.RenewLocks(MANAGER, self.next(), self.tokens(pick, 3)))

    # Looking and deleting.

    @rule(
        lane=lanes,
        start=st.sampled_from([0, 0, 1, 3, 9]),
        count_max=st.sampled_from([1, 3, EVERYTHING]),
        bytes_max=st.sampled_from([1, 25, EVERYTHING]),
    )
    def peek(self, lane: int, start: int, count_max: int, bytes_max: int) -> None:
        rows = self.pair.model.rows
        from_sequence = rows[start % len(rows)].sequence if start and rows else start
        self.submit(ask.Peek(MANAGER, self.next(), lane, from_sequence, count_max, bytes_max))

    @rule(lane=lanes, count_max=st.integers(0, 3), ago=st.sampled_from([-1, 0, 1_000]))
    def delete_many(self, lane: int, count_max: int, ago: int) -> None:
        before = self.pair.now - ago
        self.submit(ask.DeleteMany(MANAGER, self.next(), lane, count_max, before))

    @rule()
    def count_all(self) -> None:
        self.submit(ask.Count(MANAGER, self.next()))

    # Claims.

    @rule(
        owner=owners,
        lane=lanes,
        count=st.sampled_from([1, 2, 3, 8, 70]),
        bytes_max=st.sampled_from([0, 0, 1, 12, 50]),
        timeout_ms=st.sampled_from([NO_DURATION, NO_DURATION, 900, 8_000]),
        upto=st.sampled_from([None, None, -1, 2, 5]),
    )
    def claim(
        self,
        owner: tuple[str, int],
        lane: int,
        count: int,
        bytes_max: int,
        timeout_ms: int,
        upto: int | None,
    ) -> None:
        bound: dict[int, int] | None = None
        if upto is not None:
            rows = self.pair.model.rows
            bound = {self.pair.index: rows[upto % len(rows)].sequence} if rows and upto >= 0 else {}
        name, epoch = owner
        wish = (name, max(1, epoch), count, bytes_max, timeout_ms, bound)
        self.submit(ask.ClaimMessages(MANAGER, self.next(), lane, *wish))

    @rule(owner=owners, lane=lanes, start=st.sampled_from([0, 0, 2]), count=st.integers(1, 9))
    def list_claims(self, owner: tuple[str, int], lane: int, start: int, count: int) -> None:
        rows = self.pair.model.rows
        first = rows[start % len(rows)].sequence if start and rows else start
        self.submit(ask.ListClaims(MANAGER, self.next(), lane, *owner, first, count))

    def has_claims(self) -> bool:
        return any(row.owner for row in self.pair.model.rows)

    @precondition(lambda self: self.has_claims())
    @rule(pick=picks, owner=owners, lane=lanes, bytes_max=st.sampled_from([1, 25, EVERYTHING]))
    def fetch_claims(self, pick: int, owner: tuple[str, int], lane: int, bytes_max: int) -> None:
        name, lane, sequences = self.claimed(pick, owner[0], lane)
        self.submit(ask.FetchClaims(MANAGER, self.next(), lane, name, sequences, bytes_max))

    @precondition(lambda self: self.has_claims())
    @rule(pick=picks, owner=owners, lane=lanes, outcome=outcomes, changes=changes, note=notes)
    def settle_claims(
        self,
        pick: int,
        owner: tuple[str, int],
        lane: int,
        outcome: int,
        changes: dict[str, bytes] | None,
        note: tuple[str | None, str | None],
    ) -> None:
        name, lane, sequences = self.claimed(pick, owner[0], lane)
        settlement = ask.Settlement(outcome, changes, *note)
        wish = (name, owner[1], sequences, settlement)
        self.submit(ask.SettleClaims(MANAGER, self.next(), lane, *wish))

    def claimed(self, pick: int, owner: str, lane: int) -> tuple[str, int, list[int]]:
        """Mostly what somebody has claimed, now and then what another has or nobody."""
        rows = [row for row in self.pair.model.rows if row.owner]
        if pick % 5:
            row = rows[pick % len(rows)]
            owner, lane = row.owner, row.lane
        return owner, lane, self.numbers(pick, lane, STATE_CLAIMED)

    # Time and change.

    @rule(definition=definitions)
    def configure(self, definition: QueueDefinition) -> None:
        self.submit(ask.Configure(queue_blueprint(definition)))

    @precondition(lambda self: self.pair.model.definition.status != ACTIVE)
    @rule()
    def enable(self) -> None:
        self.submit(ask.Configure(queue_blueprint(QueueDefinition("orders"))))

    @rule(duration=durations, noticed=st.booleans())
    def time_passes(self, duration: int, noticed: bool) -> None:
        self.let_go()
        self.pair.advance(duration, noticed=noticed)

    @precondition(lambda self: self.instants())
    @rule(pick=picks, early=st.sampled_from([0, 0, 1]), noticed=st.booleans())
    def an_instant_comes(self, pick: int, early: int, noticed: bool) -> None:
        instants = self.instants()
        self.let_go()
        # The early ones are the likely ones.
        instant = instants[pick % (pick % len(instants) + 1)]
        self.pair.advance(instant - early - self.pair.now, noticed=noticed)

    def instants(self) -> list[int]:
        """When something ends or begins that has an end or a beginning, soonest first."""
        rows = self.pair.model.rows
        times = {at for row in rows for at in (row.locked_until, row.expires_at, row.scheduled_at)}
        times.update(self.pair.model.claims.deadlines().values())
        return sorted(at for at in times if at > self.pair.now)

    @precondition(lambda self: self.has_locks())
    @rule(pick=picks, early=st.sampled_from([0, 1]), outcome=outcomes)
    def settle_at_the_last_instant(self, pick: int, early: int, outcome: int) -> None:
        locked = [row for row in self.pair.model.rows if row.number]
        row = locked[pick % len(locked)]
        instant, token = row.locked_until, LockToken(row.sequence, row.number)
        self.let_go()
        self.pair.advance(max(0, instant - early - self.pair.now), noticed=False)
        if pick % 3:
            self.submit(ask.SettleMany(SENDER, [self.next()], ask.Settlement(outcome), [token]))
        else:
            self.submit(ask.RenewLocks(MANAGER, self.next(), [token]))

    # The journal.

    @rule(steps=st.integers(1, 3))
    def checkpoint_step(self, steps: int) -> None:
        self.let_go()
        for _ in range(steps):
            self.pair.checkpoint_step()

    @rule()
    def checkpoint_step_with_the_next(self) -> None:
        self.pair.checkpoint_waits = True

    @rule(count_max=st.sampled_from([1, 3, 100]))
    def relocate(self, count_max: int) -> None:
        self.let_go()
        self.pair.relocate(count_max)

    @rule()
    def replay(self) -> None:
        self.let_go()
        self.pair.compare_replay()

    @rule()
    def crash(self) -> None:
        self.let_go()
        self.pair.crash()
        self.receivers.clear()
        self.open(MAIN, PEEK_LOCK, 3)


def run(number: int, examples: int, steps: int) -> None:
    """Run the machine; the seed makes every draw, so it repeats the run."""
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = seed(number)(PartitionBesideModel)
    try:
        run_state_machine_as_test(machine, settings=limits)
    except BaseException as problem:
        problem.add_note(f"to repeat it: PEEKLOCK_SEED={number}, {examples} examples")
        raise


@pytest.mark.timeout(300)
def test_the_partition_and_the_model_agree() -> None:
    """R-S1 to R-S8, R-L1 to R-L4, in any order and any mixture."""
    lengths.clear()
    run(int(os.environ.get("PEEKLOCK_SEED", "20")), examples=360, steps=100)
    assert len([each for each in lengths if each >= 100]) >= 200


@pytest.mark.torture
def test_the_partition_and_the_model_agree_for_a_long_time() -> None:
    run(int(os.environ.get("PEEKLOCK_SEED") or secrets.randbits(32)), examples=5_000, steps=200)
