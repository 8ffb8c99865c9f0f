"""A real partition and the naive model, asked the same things at the same time."""

import random
from collections.abc import Sequence
from typing import Any, Final

from peeklock.clock import MANUAL_START
from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.commands import DEAD, MAIN, PEEK_LOCK, RECEIVE_AND_DELETE, Command
from peeklock.entity.decision import Decision
from peeklock.entity.definition import ACTIVE, QueueDefinition
from peeklock.entity.deliveries import Delivery, Details, LockToken
from peeklock.entity.message import BodyBudget
from peeklock.entity.partition import Partition
from peeklock.entity.records import CheckpointBegun, CheckpointEnded
from peeklock.entity.replies import Reply
from peeklock.entity.stint import STINT_STEPS, Stint
from peeklock.entity.upkeep.checkpoint import STEP_BYTES
from tests.entity.journal import Journal
from tests.entity.journal_facts import next_due
from tests.entity.model import UNTOLD, Answer, Model
from tests.entity.origins import by

EVERYTHING: Final = 1 << 62
LOOKER: Final = by("looker")
# What shows messages whose time is over but that no timer has fired for yet.
LOOKS: Final = (ask.Peek, ask.Count, ask.DeleteMany, ask.ListClaims)


class Pair:
    """Asks both, compares the answers, and keeps what was written down."""

    def __init__(
        self,
        definition: QueueDefinition,
        *,
        index: int = 0,
        memory: int = 0,
        first: int = 0,
        steps_max: int = STINT_STEPS,
    ) -> None:
        self.now = MANUAL_START
        self.steps_max = steps_max
        self.index = index
        self.memory = memory
        # Half of them write checkpoints in the smallest steps that there are.
        self.step_bytes = 50 if first % 2 else STEP_BYTES
        self.random = random.Random(first)
        self.model = Model(definition, index)
        self.tokens: list[LockToken] = []
        self.removed: list[tuple[int, Delivery]] = []  # by receive-and-delete, with their lanes
        self.late = False
        self.checkpoint_waits = False
        # An empty checkpoint is how a journal begins whose beginning was trimmed away.
        begun = CheckpointBegun(self.now, self.model.next_sequence)
        self.first = first
        self.journal = Journal(first)
        self.journal.add(Decision(first, [begun, CheckpointEnded(self.now, first)], [], first))
        self.budget = BodyBudget(memory)
        self.partition = self.reopened(definition, self.budget, first)

    def reopened(self, definition: QueueDefinition, budget: BodyBudget, first: int) -> Partition:
        """A new partition with what the journal tells from a position on."""
        stint = Stint(self.steps_max)
        partition = Partition(
            queue_blueprint(definition), self.index, budget, self.random_source, stint
        )
        partition._checkpoints.step_bytes = self.step_bytes
        for position, records in self.journal.replay(first):
            partition.restore(position, records)
        partition.opened()
        partition.check()
        return partition

    def random_source(self) -> int:
        return self.random.getrandbits(64)

    # Asking.

    def ask(self, *commands: Command) -> None:
        """Ask both sides the same."""
        for together in self.apart(commands):
            self.ask_together(together)

    def ask_together(self, commands: tuple[Command, ...]) -> None:
        """One decision on both sides; where time had passed unnoticed, the timer fires as well:
        before a look, because it may show what is over, else afterwards."""
        if self.late and any(isinstance(command, LOOKS) for command in commands):
            commands = (ask.Tick(), *commands)
        if any(isinstance(command, ask.Tick) for command in commands):
            self.late = False
            if self.steps_max < STINT_STEPS:
                # In stints, what is asked together with the timer finds a part of it done.
                self.decide((ask.Tick(),))
                commands = tuple(each for each in commands if not isinstance(each, ask.Tick))
        self.decide(commands)
        if self.late:
            self.late = False
            self.decide((ask.Tick(),))
        self.check()

    @staticmethod
    def apart(commands: tuple[Command, ...]) -> list[tuple[Command, ...]]:
        """The locks of a receiver that is gone are released after all that a decision was asked:
        what comes behind its end is asked in another one."""
        found: list[tuple[Command, ...]] = [()]
        for command in commands:
            found[-1] += (command,)
            if isinstance(command, ask.CloseReceiver):
                found.append(())
        return [each for each in found if each]

    def decide(self, commands: tuple[Command, ...]) -> None:
        replies = self.step(commands)
        is_one = True
        leftovers = self.partition.take_leftovers()
        while leftovers or self.partition.is_unfinished:
            is_one = False
            replies += self.step(leftovers)
            leftovers = self.partition.take_leftovers()
        expected = [each for command in commands for each in self.model.decide(command, self.now)]
        # A delivery may end the life of what it finds too old; the timer does the rest.
        old = [row for row in self.model.ready(MAIN) if 0 < row.expires_at <= self.now]
        for row in old:
            self.model.expire(row, self.now)
        self.late = self.late or len(old) > 0
        highest = self.deliver(replies)
        if not self.late:
            # What a later stint brings back may have lower numbers than an earlier one's.
            self.model.check_rest(highest if is_one else {})
        expected += self.model.drained()
        got = [answer for reply in replies for answer in self.answers(reply)]
        if self.late or not is_one:
            # Where time has passed unnoticed, what is over may still count as more.
            got = [(*each[:3], None) if each[2] == "drained" else each for each in got]
            expected = [(*each[:3], None) if each[2] == "drained" else each for each in expected]
        assert sorted(got, key=_order) == sorted(expected, key=_order)

    def step(self, commands: Sequence[Command]) -> list[Reply]:
        """One decision of the partition, which rests before the next one is taken."""
        decision = self.partition.decide(commands, self.now)
        self.partition.check()
        if self.checkpoint_waits and decision.records:
            # As the worker does it: a step rests together with what has to rest anyway.
            self.checkpoint_waits = False
            step = self.partition.checkpoint_step(self.now)
            decision.records += step.records
            decision.replay_from = step.replay_from
        self.journal.add(decision)
        return decision.replies

    def deliver(self, replies: list[Reply]) -> dict[int, int]:
        """Have the model judge each delivery; answers the highest number of each lane."""
        highest: dict[int, int] = {}
        for reply in replies:
            if isinstance(reply, told.Delivered):
                for delivery in reply.deliveries:
                    row = self.model.deliver(reply.origin, reply.mode, delivery, self.now)
                    assert self.view(delivery) == row.view()
                    highest[row.lane] = max(highest.get(row.lane, 0), row.sequence)
                    if reply.mode == RECEIVE_AND_DELETE:
                        delivery.message = self.journal.body(delivery.position)
                        self.removed.append((row.lane, delivery))
                    self.take(delivery, reply.mode)
            elif isinstance(reply, told.Found):
                for delivery in reply.deliveries:
                    if delivery.number:
                        self.take(delivery, PEEK_LOCK)
        return highest

    def take(self, delivery: Delivery, mode: int) -> None:
        """Tell the model the number of a new lock, and remember its token."""
        for row in self.model.rows:
            # Where a later command of the same decision dropped the lock, there is none to tell.
            if row.number == UNTOLD and row.sequence == delivery.sequence:
                self.model.told(row, delivery, mode)
                break
        if mode != RECEIVE_AND_DELETE:
            self.tokens.append(LockToken(delivery.sequence, delivery.number))

    def answers(self, reply: Reply) -> list[Answer]:
        """A real reply in the model's words."""
        match reply:
            case told.SendsAccepted():
                return [(reply.origin, tag, "accepted", None) for tag in reply.tags]
            case told.Settled():
                return [(reply.origin, tag, "settled", reply.outcome) for tag in reply.tags]
            case told.Refused():
                return [(reply.origin, tag, reply.refusal.kind, None) for tag in reply.tags]
            case told.Numbered():
                return [(reply.origin, reply.tag, "numbered", reply.numbers)]
            case told.Found():
                views = [self.view(delivery) for delivery in reply.deliveries]
                return [(reply.origin, reply.tag, "found", views)]
            case told.ClaimsMade():
                made = (reply.sequences, reply.sizes, reply.limit)
                return [(reply.origin, reply.tag, "claimed", made)]
            case told.ClaimsListed():
                rows = list(zip(reply.sequences, reply.sizes, reply.attempts, strict=True))
                lane = (reply.last_sequences, reply.active, reply.oldest_enqueued_at)
                return [(reply.origin, reply.tag, "listed", (reply.epoch, rows, *lane))]
            case told.ClaimsFetched():
                views = [self.view(delivery) for delivery in reply.deliveries]
                return [(reply.origin, reply.tag, "fetched", (views, reply.looked_at))]
            case told.Drained():
                return [(reply.origin, 0, "drained", reply.has_more)]
            case told.Counted():
                return [(reply.origin, reply.tag, "counted", _counts(reply))]
            case _:
                return []  # deliveries are judged by `deliver`

    def view(self, delivery: Delivery) -> tuple[Any, ...]:
        """A real delivery in the model's words; its body is fetched as the worker fetches it."""
        stored = self.journal.body(delivery.position)
        if delivery.message is not None:
            assert delivery.message.content == stored.content
        details = delivery.details if delivery.details is not None else Details()
        assert details.enqueue_sequence == 0
        instants = (delivery.enqueued_at, delivery.expires_at, details.scheduled_at)
        story = (delivery.delivery_count, details.reason, details.description)
        changes = details.changes or {}
        return (delivery.sequence, delivery.state, *instants, *story, changes, stored.content)

    # Time.

    def advance(self, duration_ms: int, *, noticed: bool = True) -> None:
        """Let time pass, with the timer firing at the end or not."""
        self.now += duration_ms
        self.late = True
        if noticed:
            self.ask(ask.Tick())
            deadline = self.partition.next_deadline()
            assert deadline == 0 or deadline > self.now, "a timer that has fired does not go on"

    # Comparing.

    def check(self) -> None:
        """What must be equal whenever both are at rest."""
        partition, model = self.partition, self.model
        assert partition.next_sequence == model.next_sequence
        assert partition.live_count == len(model.rows)
        assert partition.next_position == self.journal.next_position
        deadlines = model.deadlines()
        if deadlines:
            assert 0 < next_due(partition) <= min(deadlines), "the timer fires in time"
        else:
            assert next_due(partition) == 0, "nothing is due ever"
        assert self.budget.left <= self.memory
        if not model.rows:
            assert self.budget.left == self.memory, "what is gone holds no memory"

    def compare_replay(self) -> None:
        """Replaying the records gives the living state, locks aside: from the last checkpoint on,
        and from the very first record on."""
        for first in {self.journal.replay_from, self.first}:
            budget = BodyBudget(self.memory)
            copy = self.reopened(QueueDefinition("copy", status=ACTIVE), budget, first)
            assert copy.next_sequence == self.partition.next_sequence
            assert copy.next_position == self.partition.next_position
            assert copy.live_blocks() == self.partition.live_blocks()
            for lane in (MAIN, DEAD):
                look = ask.Peek(LOOKER, 0, lane, 0, EVERYTHING, EVERYTHING)
                (found,) = copy.decide([look], self.now).replies
                rows = [row.view() for row in self.model.rows if row.lane == lane]
                assert self.answers(found) == [(LOOKER, 0, "found", rows)]
            for lane, owner in self.model.claims.owners:
                command = ask.ListClaims(LOOKER, 0, lane, owner, NO_EPOCH, 0, EVERYTHING)
                (listed,) = copy.decide([command], self.now).replies
                assert isinstance(listed, told.ClaimsListed)
                assert listed.sequences == list(self.model.claims.of(lane, owner))

    def crash(self) -> None:
        """The process dies; another one opens the partition from what was written down."""
        self.compare_replay()
        self.budget = BodyBudget(self.memory)
        definition = self.model.definition
        self.partition = self.reopened(definition, self.budget, self.journal.replay_from)
        self.model.crash()
        self.model.claims.crash(self.partition, self.now)
        self.late = self.checkpoint_waits = False
        self.ask(ask.Tick(), ask.Count(LOOKER, 0))

    # Looking after the journal.

    def checkpoint_step(self) -> None:
        """One step of a checkpoint; what it makes needless is trimmed."""
        decision = self.partition.checkpoint_step(self.now)
        assert decision.replies == []
        self.journal.add(decision)
        self.journal.trim(self.partition.live_blocks())
        self.partition.check()
        self.check()

    def relocate(self, count_max: int) -> int:
        """One step of relocating bodies to the tail; answers how many were relocated."""
        entries = self.partition.next_to_relocate(self.partition.next_position, count_max)
        bodies = [self.journal.body(entry.position) for entry in entries]
        self.journal.add(self.partition.relocate(entries, bodies, self.now))
        self.journal.trim(self.partition.live_blocks())
        self.partition.check()
        self.check()
        return len(entries)


def _order(answer: Answer) -> tuple[str, int, str]:
    return (str(answer[0]), answer[1], answer[2])


def _counts(reply: told.Counted) -> tuple[int, ...]:
    states = (reply.active, reply.dead_letter, reply.scheduled, reply.deferred, reply.locked)
    return (*states, reply.claimed, reply.bytes)
