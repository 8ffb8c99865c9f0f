"""The partition: the unit of everything. One owner, one state machine, one stream of records.

`decide` takes commands and the time and answers with records and replies; memory has changed by
then, and the owner must store the records before it lets the replies go. If storing fails, the
partition is thrown away and opened anew from the store. Nothing here sleeps, waits or fails
halfway: a wish that cannot be granted becomes a `Refused` reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, assert_never, final

from peeklock.entity.blueprint import Blueprint
from peeklock.entity.claims.claiming import Claiming
from peeklock.entity.commands import (
    MAIN,
    CancelScheduled,
    ClaimCommand,
    CloseReceiver,
    Command,
    Configure,
    Count,
    DeleteMany,
    Grant,
    OpenReceiver,
    Peek,
    PublishStages,
    ReceiveDeferred,
    RenewLocks,
    Requeue,
    Schedule,
    SendBatch,
    SendMany,
    SessionCommand,
    SettleAll,
    SettleMany,
    StageCommand,
    Tick,
    TransferCommand,
)
from peeklock.entity.decision import NO_REPLAY, Decision
from peeklock.entity.entries import Entry
from peeklock.entity.lane import LENGTHENED_AT_ONCE, Lane
from peeklock.entity.message import BodyBudget, Message
from peeklock.entity.moves.browsing import Browsing
from peeklock.entity.moves.configuring import Configuring
from peeklock.entity.moves.delivering import Delivering
from peeklock.entity.moves.depth import depths_of
from peeklock.entity.moves.entering import Entering
from peeklock.entity.moves.quarantining import Quarantining
from peeklock.entity.moves.releasing import Releasing
from peeklock.entity.moves.requeueing import Requeueing
from peeklock.entity.moves.scheduled import falling_due
from peeklock.entity.moves.settling import SETTLED_AT_ONCE, Settling, divided
from peeklock.entity.moves.ticking import Ticking
from peeklock.entity.opening.restore import Restoring
from peeklock.entity.records import Record
from peeklock.entity.replies import Reply
from peeklock.entity.sessions.accepting import Accepting
from peeklock.entity.stages.staging import Staging
from peeklock.entity.state import State
from peeklock.entity.stint import Stint
from peeklock.entity.topics.copying import Copying, messages_of
from peeklock.entity.transfers.commit import Committing
from peeklock.entity.upkeep.checkpoint import Checkpoints
from peeklock.entity.upkeep.invariants import check_invariants
from peeklock.entity.upkeep.memory import memory_expected, memory_of
from peeklock.entity.upkeep.relocating import Relocating

# Messages that an opening takes in, or puts into their lanes, in one step.
PLACED_AT_ONCE: Final = 2048

# Commands by how often they come; a new one of a family is carried out by its family.
_Rare: TypeAlias = (
    SessionCommand
    | ClaimCommand
    | StageCommand
    | TransferCommand
    | Schedule
    | CancelScheduled
    | DeleteMany
    | Count
    | Configure
)
_Other: TypeAlias = (
    _Rare
    | SendBatch
    | OpenReceiver
    | CloseReceiver
    | Requeue
    | SettleAll
    | RenewLocks
    | Peek
    | ReceiveDeferred
    | Tick
)


@final
class Partition:
    """One partition of a queue or topic."""

    __slots__ = (
        "_accepting",
        "_browsing",
        "_checkpoints",
        "_claiming",
        "_committing",
        "_configuring",
        "_copying",
        "_delivering",
        "_entering",
        "_held",
        "_lengthening",
        "_looks",
        "_quarantining",
        "_releasing",
        "_relocating",
        "_requeueing",
        "_restoring",
        "_settling",
        "_skipped_ms",
        "_staging",
        "_state",
        "_ticking",
    )

    def __init__(
        self,
        blueprint: Blueprint,
        index: int,
        budget: BodyBudget,
        random_source: Callable[[], int],
        stint: Stint | None = None,
    ) -> None:
        state = State(blueprint, index, budget, random_source, stint or Stint())
        self._state: State = state
        self._copying: Copying = Copying(state)
        self._entering: Entering = Entering(state, self._copying)
        self._settling: Settling = Settling(state)
        self._releasing: Releasing = Releasing(state, self._settling)
        self._accepting: Accepting = Accepting(state)
        self._delivering: Delivering = Delivering(state)
        self._requeueing: Requeueing = Requeueing(state)
        self._browsing: Browsing = Browsing(state, self._delivering)
        self._claiming: Claiming = Claiming(state)
        self._quarantining: Quarantining = Quarantining(state, self._claiming, self._requeueing)
        self._staging: Staging = Staging(state, self._entering, self._copying)
        self._committing: Committing = Committing(state, self._entering, self._settling)
        self._configuring: Configuring = Configuring(
            state, self._settling, self._accepting, self._staging
        )
        self._ticking: Ticking = Ticking(
            state, self._settling, self._accepting, self._claiming, self._entering, self._staging
        )
        self._checkpoints: Checkpoints = Checkpoints(state)
        self._relocating: Relocating = Relocating(state)
        self._restoring: Restoring | None = Restoring(state)
        self._skipped_ms: int = 0
        self._lengthening: Iterator[int] | None = None  # of locks, after the clock was set forward
        self._held: list[Command] = []  # what is carried out later, in order
        self._looks: list[Command] = []  # under way; nobody waits behind them

    # Opening.

    def restore(self, first_position: int, records: Sequence[Record]) -> None:
        """Take in records that were stored earlier, in order."""
        assert self._restoring is not None, "a partition is restored before it decides"
        self._restoring.apply(first_position, records)

    def begin_restoring(self, first_position: int, records: Sequence[Record]) -> None:
        """Records that were stored earlier; `restore_some` takes them in."""
        assert self._restoring is not None, "a partition is restored before it decides"
        self._restoring.begin(first_position, records)

    def restore_some(self) -> bool:
        """Take in some of them; return whether all are in."""
        assert self._restoring is not None, "a partition is restored before it decides"
        return self._restoring.go_on(PLACED_AT_ONCE)

    def place_some(self) -> bool:
        """All records are in: put some of the messages into their lanes; return whether all are
        there. Whoever is in no hurry calls it again and again before `opened`."""
        assert self._restoring is not None, "a partition is opened once"
        return self._restoring.place(PLACED_AT_ONCE)

    def opened(self, skipped_ms: int = 0) -> None:
        """All records are in: the partition lives from here on.

        So much of the clock's time never passed so far; only what is skipped later matters here.
        """
        assert self._restoring is not None, "a partition is opened once"
        self._skipped_ms = skipped_ms
        while not self._restoring.place(PLACED_AT_ONCE):
            pass
        self._checkpoints.opened(self._restoring.replayed)
        self._ticking.strays = self._restoring.strays
        self._restoring = None

    @property
    def latest_at(self) -> int:
        """The latest instant that the records tell of which were restored; 0 for none."""
        return self._state.latest_at

    # Living.

    def skip(self, skipped_ms: int) -> None:
        """How much of the clock's time never passed so far (`Clock.skipped_ms`), told before a
        decision: a lock lasts as long as it was given for, though its instant may be over."""
        while not self.skip_some(skipped_ms):
            pass

    def skip_some(self, skipped_ms: int) -> bool:
        """Return the same where there may be very many locks: a part of them; return whether those
        were all. Nothing is decided before that."""
        done = 0
        while True:
            lengthening = self._lengthening
            if lengthening is None:
                duration_ms = skipped_ms - self._skipped_ms
                if not duration_ms:
                    return True
                self._skipped_ms = skipped_ms
                self._lengthening = self._state.lengthening(duration_ms)
                continue
            moved = next(lengthening, -1)
            if moved < 0:
                self._lengthening = None
                continue
            done += 1 + moved
            if done >= LENGTHENED_AT_ONCE:
                return False

    def decide(self, commands: Sequence[Command], now: int) -> Decision:
        """Carry out commands, in order, then hand messages to whoever waits for them."""
        state = self._state
        first_position = state.next_position
        state.stint.begin()
        if state.seen.window_ms:
            state.seen.prune(now)
        is_topic = state.blueprint.router is not None
        if is_topic and self._copying.left:
            self._copying.go_on()
        for at, command in enumerate(commands):
            if is_topic and self._must_wait(command, now):
                self._held.append(command)
            elif isinstance(command, SendMany):
                self._entering.send_many(command, now)
            elif isinstance(command, SettleMany):
                if len(command.tokens) > SETTLED_AT_ONCE:
                    command, rest = divided(command)
                    self._settling.settle_many(command, now)
                    # Whatever follows comes after all of it: it may close a session.
                    self._held += [rest, *commands[at + 1 :]]
                    break
                self._settling.settle_many(command, now)
            elif isinstance(command, Grant):
                self._delivering.grant(command)
            else:
                self._decide_other(command, now)
                if self._configuring.is_under_way:
                    self._held += [command, *commands[at + 1 :]]
                    break
        if self._releasing.is_under_way:
            self._releasing.go_on(now)
        if not self._configuring.is_under_way:  # else nothing is locked again before all is free
            self._serve_sessions(now)
            self._delivering.deliver(now)
        if not state.dropped.is_empty:
            state.forget_dropped()
        records = state.take_records(now)
        return Decision(first_position, records, state.take_replies(), NO_REPLAY)

    def _must_wait(self, command: Command, now: int) -> bool:
        """Return whether a topic takes a command later. What brings messages and what changes the
        lanes keep their order; they wait while many copies are still to be made, while rules are
        asked, and where a change or a checkpoint needs all copies to be in their lanes."""
        copying = self._copying
        if isinstance(command, Configure):
            return len(self._held) > 0 or copying.left > 0
        messages = messages_of(command)
        if messages is None:
            return False
        if self._held or copying.is_full or (copying.left and self._checkpoints.wants_to_begin):
            return True
        return not copying.prepare(messages, now)

    def _serve_sessions(self, now: int) -> None:
        """Sessions that got messages or became free are offered to those who wait for one."""
        lanes: dict[int, Lane] = {}
        for line in self._state.touched:
            session = line.session
            if session is not None and session.holder is None:
                lane = line.whole()
                if lane.sessions is not None:
                    lane.sessions.offer(session)
                    lanes[lane.number] = lane
        for lane in lanes.values():
            self._accepting.serve_waiting(lane, now)

    def _decide_other(self, command: _Other, now: int) -> None:
        if isinstance(command, SendBatch):
            self._entering.send_batch(command, now)
        elif isinstance(command, OpenReceiver):
            self._delivering.open(command)
        elif isinstance(command, CloseReceiver):
            self._close(command, now)
        elif isinstance(command, Requeue):
            self._requeueing.requeue(command, now)
        elif isinstance(command, SettleAll):
            self._settling.settle_all(command, now)
        elif isinstance(command, RenewLocks):
            self._settling.renew(command, now)
        elif isinstance(command, Peek):
            if not self._browsing.peek(command):
                self._looks.append(command)
        elif isinstance(command, ReceiveDeferred):
            self._browsing.receive_deferred(command, now)
        elif isinstance(command, Tick):
            self._ticking.tick(now)
        else:
            self._decide_rare(command, now)

    def _decide_rare(self, command: _Rare, now: int) -> None:
        if isinstance(command, TransferCommand):
            self._committing.decide(command, now)
        elif isinstance(command, SessionCommand):
            if not self._accepting.decide(command, now):
                self._looks.append(command)
        elif isinstance(command, StageCommand):
            if not self._staging.decide(command, now):
                self._held.append(command)
        elif isinstance(command, ClaimCommand):
            self._claiming.decide(command, now)
        elif isinstance(command, Schedule):
            self._entering.schedule(command, now)
        elif isinstance(command, CancelScheduled):
            self._entering.cancel(command, now)
        elif isinstance(command, DeleteMany):
            if not self._browsing.delete_many(command, now):
                self._looks.append(command)
        elif isinstance(command, Count):
            self._browsing.count(command)
        elif isinstance(command, Configure):
            self._configuring.configure(command, now)
        else:
            assert_never(command)

    def take_leftovers(self) -> list[Command]:
        """Return what the partition wants to be asked before all else, once its last decision
        rests: what was too much for one. Who waits comes before who has had a turn."""
        leftovers = self._held
        self._held = []
        leftovers += self._staging.take_leftovers()
        leftovers += self._looks
        self._looks = []
        if self._ticking.take_more_due():
            if self._copying.owes_due:
                return [Tick(), *leftovers]
            leftovers.append(Tick())
        return leftovers

    @property
    def is_unfinished(self) -> bool:
        """Whether another decision would go on with something, although nobody asks."""
        return (
            self._copying.left > 0
            or self._delivering.is_cut
            or self._releasing.is_under_way
            or not self._state.dropped.is_empty
        )

    def next_deadline(self) -> int:
        """Return when a `Tick` is due; 0 while nothing is due ever."""
        return self._state.next_deadline()

    def bodies_wanted(self, now: int) -> list[Entry]:
        """Scheduled messages of a topic that fall due now, a stint of them; rules read them."""
        state = self._state
        if state.blueprint.router is None:
            return []
        stint = state.stint
        due = falling_due(state.lane(MAIN), now, stint.steps_max, stint.bytes_max)
        return [entry for entry in due if entry.message is None]

    def bodies_to_publish(self, command: PublishStages) -> list[Entry]:
        """Staged messages of a topic that are to be published; rules read them, too."""
        if self._state.blueprint.router is None:
            return []
        return self._staging.bodies_wanted(command)

    def bring_bodies(self, entries: list[Entry], messages: list[Message]) -> None:
        """The bodies that were wanted."""
        for entry, message in zip(entries, messages, strict=True):
            entry.message = message
            self._state.budget.left -= entry.size
            self._state.kept_bytes += entry.size

    # Damage.

    def undeliver(
        self, replies: list[Reply], positions: frozenset[int], content: bytes, now: int
    ) -> Decision:
        """Bodies at these positions cannot be read: their deliveries are taken out of the replies,
        which nobody has seen yet, and their messages go to the dead letters with that content."""
        first_position = self._state.next_position
        self._quarantining.undeliver(replies, positions, content, now)
        return self._set_apart(first_position, now)

    def quarantine(self, entries: list[Entry], content: bytes, now: int) -> Decision:
        """Return the bodies of these messages cannot be read: they go to the dead letters."""
        first_position = self._state.next_position
        self._quarantining.quarantine([entry.sequence for entry in entries], content, now)
        return self._set_apart(first_position, now)

    def _set_apart(self, first_position: int, now: int) -> Decision:
        self._serve_sessions(now)
        self._delivering.deliver(now)
        records = self._state.take_records(now)
        return Decision(first_position, records, self._state.take_replies(), NO_REPLAY)

    # Looking after the journal.

    @property
    def checkpoint_due(self) -> bool:
        """Whether a step of a checkpoint would do something now."""
        return self._checkpoints.is_due and not self._must_copy_first()

    def checkpoint_step(self, now: int) -> Decision:
        """Do one small step: a slice of a checkpoint, or its beginning or end."""
        first_position = self._state.next_position
        if self._must_copy_first():
            return Decision(first_position, [], [], NO_REPLAY)
        replay_from = self._checkpoints.step(now)
        records = self._state.take_records(now)
        return Decision(first_position, records, self._state.take_replies(), replay_from)

    def _must_copy_first(self) -> bool:
        """Return whether a checkpoint cannot begin yet: it would not find all copies."""
        return self._copying.left > 0 and not self._checkpoints.is_under_way

    def rests(self, size: int) -> None:
        """So many bytes were stored with the last decision, or read at opening."""
        self._checkpoints.rests(size)

    def last_words(self, now: int) -> Decision:
        """Return what waits for a good moment to be written, when there will be none any more."""
        state = self._state
        first_position = state.next_position
        state.notes.hurry(now)
        records = state.take_records(now)
        return Decision(first_position, records, state.take_replies(), NO_REPLAY)

    def live_blocks(self) -> list[int]:
        """Return the blocks of positions whose bodies are still needed."""
        return self._state.bodies.blocks()

    def replay_from(self) -> int:
        """Return the position from which the next opening starts."""
        return self._checkpoints.replay_from

    @property
    def is_relocating(self) -> bool:
        """Whether a walk for messages to relocate is under way."""
        return self._relocating.is_under_way

    def next_to_relocate(self, below: int, count_max: int) -> list[Entry]:
        """Return some live messages whose bodies lie in sparse blocks below a position, one a
        body."""
        return self._relocating.next(below, count_max)

    def relocate(self, entries: list[Entry], messages: list[Message], now: int) -> Decision:
        """Write their bodies again at the tail, for all copies that are still alive."""
        state = self._state
        first_position = state.next_position
        self._relocating.relocate(entries, messages, now)
        records = state.take_records(now)
        return Decision(first_position, records, state.take_replies(), NO_REPLAY)

    def told(self) -> None:
        """The replies of what was decided are on their way to those who asked."""
        self._delivering.told()

    def handed_out(self) -> None:
        """Those who asked have the replies that were told."""
        self._delivering.handed_out()

    def discard(self) -> None:
        """The partition is thrown away: the memory of its bodies is free for other partitions."""
        self._delivering.told()
        self._delivering.handed_out()
        state = self._state
        state.budget.left += state.kept_bytes
        state.kept_bytes = 0

    # Telling.

    @property
    def next_sequence(self) -> int:
        """The number that the next message gets."""
        return self._state.next_sequence

    @property
    def next_position(self) -> int:
        """The position that the next record gets."""
        return self._state.next_position

    @property
    def live_count(self) -> int:
        """How many messages live here, in all states."""
        return self._state.bodies.count

    def depths(self) -> Iterator[tuple[int, list[int]]]:
        """Return how many messages are in which state, by `depth.STATES`."""
        return depths_of(self._state.lanes)

    @property
    def memory_bytes(self) -> int:
        """What the messages here take in memory beside their bodies, about."""
        return memory_of(self._state) + self.memory_expected

    def has_session(self, lane_number: int, name: str) -> bool:
        """Return whether there is a session of that name in a lane."""
        lane = self._state.lanes.get(lane_number)
        return lane is not None and lane.sessions is not None and name in lane.sessions.by_id

    @property
    def copies_expected(self) -> int:
        """How many copies a topic's message will have, about."""
        return self._copying.expected

    @property
    def memory_expected(self) -> int:
        """What of it is for copies of messages that a topic has yet to publish."""
        return memory_expected(self._state, self._copying)

    def check(self) -> None:
        """The laws of a partition; breaks when one does not hold."""
        check_invariants(self._state, self._copying)

    # Change.

    def _close(self, command: CloseReceiver, now: int) -> None:
        receiver = self._delivering.close(command)
        if receiver is None:
            self._accepting.stop_waiting(command.origin)
        elif receiver.lane.session is not None:
            self._accepting.close(receiver, now)
        elif command.broken and self._state.policy(receiver.lane.number).unlock_on_disconnect:
            self._releasing.add(receiver)
