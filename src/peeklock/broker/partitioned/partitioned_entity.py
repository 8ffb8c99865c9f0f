"""An entity of several partitions: it answers exactly the commands that one partition answers.

Whoever asks does not notice the partitions. What belongs to one of them goes there as it is, and
its replies go straight to the origin; only what concerns several is asked in parts and answered
once. Partitions whose store is out of reach are gone round where that is allowed (R-P4), and named
in the refusal where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

from peeklock.broker.partitioned.claim_walks import ClaimWalk, FetchWalk, list_claims, settle_claims
from peeklock.broker.partitioned.commit_partition import partition_of_commit
from peeklock.broker.partitioned.credit_ledger import CreditLedger
from peeklock.broker.partitioned.message_walks import DeleteWalk, PeekWalk
from peeklock.broker.partitioned.reach import NOWHERE, ReachablePartitions
from peeklock.broker.partitioned.rerouted_sends import ReroutedSend, rerouted
from peeklock.broker.partitioned.session_seeker import SessionSeeker
from peeklock.broker.partitioned.split_commands import SplitCommands
from peeklock.broker.partitioned.stage_publication import (
    PublicationCompletion,
    StagePublication,
    StagesUnderWay,
    drop_stages,
)
from peeklock.broker.partitioned.take_over import TakeOvers
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.refusing import refusal_reply
from peeklock.entity.commands import (
    COMMAND_ROWS,
    AcceptSession,
    CancelScheduled,
    ClaimMessages,
    CloseReceiver,
    Command,
    Commit,
    DeleteMany,
    DropStages,
    FetchClaims,
    GetSessionState,
    Grant,
    ListClaims,
    ListSessions,
    OpenReceiver,
    Peek,
    PublishStages,
    ReceiveDeferred,
    RenewLocks,
    RenewSession,
    Requeue,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    SetSessionState,
    SettleAll,
    SettleClaims,
    SettleMany,
    Stage,
    TakeOver,
)
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import Message
from peeklock.entity.refusals import LOCK_LOST, LOCK_LOST_TEXT, NOT_ALLOWED, Refusal
from peeklock.entity.replies import Origin
from peeklock.entity.routing import (
    Routing,
    has_conflict,
    partition_of_key,
    partition_of_sequence,
)
from peeklock.entity.tables.command_rows import ALL, CommandRow

_TO_ALL: Final[dict[Any, CommandRow]] = {row.command: row for row in COMMAND_ROWS if row.way == ALL}

CONFLICT_TEXT: Final = (
    "SessionId and PartitionKey of a message are both set and differ. "
    "On a partitioned entity they must be the same."
)
MIXED_TEXT: Final = (
    "The messages of a batch have different keys (SessionId or PartitionKey). "
    "On a partitioned entity a batch goes to one partition and needs one key."
)
NO_KEY_TEXT: Final = (
    "Sequence numbers inside a transaction on a partitioned entity need a partition key."
)


@final
class PartitionedEntity:
    """All partitions of an entity, addressed as one."""

    __slots__ = (
        "_claim_turn",
        "_reach",
        "_receivers",
        "_routing",
        "_split_commands",
        "_take_overs",
        "_under_way",
        "on_opened",
        "workers",
    )

    def __init__(self, workers: list[PartitionDoor], routing: Routing) -> None:
        self.workers: Final[list[PartitionDoor]] = workers
        self._routing: Final[Routing] = routing
        # Told each time that a partition has opened; the workers' own hook is taken.
        self.on_opened: Callable[[PartitionDoor], None] | None = None
        self._reach: Final[ReachablePartitions] = ReachablePartitions(workers)
        self._split_commands: Final[SplitCommands] = SplitCommands(self._reach)
        self._take_overs: Final[TakeOvers] = TakeOvers(self._reach)
        self._under_way: Final[StagesUnderWay] = StagesUnderWay()
        self._claim_turn: int = 0
        self._receivers: dict[Origin, CreditLedger | SessionSeeker] = {}
        for index, worker in enumerate(workers):
            worker.on_opened = partial(self._opened, index)
            worker.set_on_unsent(partial(self._unsent, index))

    def submit(self, command: Command) -> None:
        """Ask whom it concerns; the reply goes to the command's origin."""
        if isinstance(command, SendMany):
            self._send_many(command)
        elif isinstance(command, SettleMany):
            self._settle_many(command)
        elif isinstance(command, Grant):
            receiver = self._receivers.get(command.origin)
            if receiver is not None:
                receiver.grant(command)
        elif isinstance(command, (SendBatch, Schedule)):
            self._send_whole(command)
        elif isinstance(command, OpenReceiver):
            ledger = CreditLedger(command, self._reach, self._forget)
            self._receivers[command.origin] = ledger
            ledger.open()
        elif isinstance(command, AcceptSession):
            self._accept(command)
        elif isinstance(command, CloseReceiver):
            receiver = self._receivers.pop(command.origin, None)
            if receiver is not None:
                receiver.close(command.broken)
        else:
            self._submit_other(command)

    def _submit_other(self, command: Command) -> None:
        if isinstance(command, SettleAll):
            self._split_commands.settle_all(command)
        elif isinstance(command, Requeue):
            self._requeue(command)
        elif isinstance(command, RenewLocks):
            self._split_commands.renew(command)
        elif isinstance(command, CancelScheduled):
            self._split_commands.cancel(command)
        elif isinstance(command, ReceiveDeferred):
            if command.session_id is None:
                self._split_commands.receive_deferred(command)
            else:
                self._pass(
                    self._partition_of(command.session_id), self._deferred_for_holder(command)
                )
        elif isinstance(command, ListSessions):
            self._split_commands.list_sessions(command)
        elif isinstance(command, Peek):
            if command.session_id is None:
                PeekWalk(command, self._reach).start()
            else:
                self._pass(self._partition_of(command.session_id), command)
        elif isinstance(command, DeleteMany):
            if command.session_id is None:
                DeleteWalk(command, self._reach).start()
            else:
                self._pass(self._partition_of(command.session_id), command)
        else:
            self._submit_rare(command)

    def _submit_rare(self, command: Command) -> None:
        if isinstance(command, (RenewSession, GetSessionState, SetSessionState)):
            self._pass(self._partition_of(command.session_id), self._for_holder(command))
        elif isinstance(command, ClaimMessages):
            self._claim(command)
        elif isinstance(command, ListClaims):
            list_claims(command, self._reach)
        elif isinstance(command, FetchClaims):
            FetchWalk(command, self._reach).start()
        elif isinstance(command, SettleClaims):
            settle_claims(command, self._reach)
        elif isinstance(command, Stage):
            self._stage(command)
        elif isinstance(command, PublishStages):
            StagePublication(command, self._reach, self._under_way).start()
        elif isinstance(command, DropStages):
            drop_stages(command, self._reach, self._under_way)
        elif isinstance(command, TakeOver):
            self._take_over(command)
        elif isinstance(command, Commit):
            partition_index = partition_of_commit(command, len(self.workers), self._routing)
            if isinstance(partition_index, Refusal):
                self._reach.refuse(command.origin, [command.tag], partition_index)
            else:
                self._pass(partition_index, command)
        elif isinstance(command, Reserve):
            key = None if command.message is None else self._routing.key_of(command.message)
            if key is None:
                refusal = Refusal(NOT_ALLOWED, NO_KEY_TEXT)
                self._reach.refuse(command.origin, [command.tag], refusal)
            else:
                self._pass(self._partition_of(key), command)
        else:
            self._submit_to_all(command)

    def _submit_to_all(self, command: Command) -> None:
        """Ask all partitions, as the command's row says."""
        row = _TO_ALL.get(type(command))
        assert row is not None, f"no entity knows the command {command!r}"
        if row.join is not None:
            self._split_commands.ask_all(command, row.join)
        else:
            for worker in self.workers:
                worker.submit(command)

    # Sends.

    def _send_many(self, command: SendMany) -> None:
        """Each message to its partition; those without a key go together, to the one in turn."""
        messages = command.messages
        by_partition: dict[int, list[int]] = {}
        keyless = self._sort_out(command.origin, command.tags, messages, by_partition)
        for partition_index, places in by_partition.items():
            self._pass(partition_index, _part(command, places))
        if keyless:
            self._pass(self._reach.next_partition(), _part(command, keyless))
        elif not messages:
            self._pass(0, command)

    def _sort_out(
        self,
        origin: Origin,
        tags: list[int],
        messages: list[Message],
        by_partition: dict[int, list[int]],
    ) -> list[int]:
        """Find which of the messages go where, by their places, and refuse those that would have
        to go to two partitions; answers those that may go anywhere.

        These are apart from those with a key even in the same partition: only they may go
        elsewhere.
        """
        keyless: list[int] = []
        conflicts: list[int] = []
        for at, message in enumerate(messages):
            if has_conflict(message):
                conflicts.append(tags[at])
                continue
            key = self._routing.key_of(message)
            if key is None:
                keyless.append(at)
            else:
                by_partition.setdefault(self._partition_of(key), []).append(at)
        if conflicts:
            self._reach.refuse(origin, conflicts, Refusal(NOT_ALLOWED, CONFLICT_TEXT))
        return keyless

    def _stage(self, command: Stage) -> None:
        """Staged messages go where they would go if they were sent."""
        if command.is_whole:
            self._send_whole(command)
            return
        by_partition: dict[int, list[int]] = {}
        keyless = self._sort_out(command.origin, command.tags, command.messages, by_partition)
        for partition_index, places in by_partition.items():
            self._pass(partition_index, _part_of_stage(command, places))
        if keyless:
            self._pass(self._reach.next_partition(), _part_of_stage(command, keyless))

    def _send_whole(self, command: SendBatch | Schedule | Stage) -> None:
        """All messages of a batch to one partition: that of their key, or the one in turn."""
        text = _why_not_together(command.messages, self._routing)
        if text:
            tags = command.tags if isinstance(command, Stage) else [command.tag]
            self._reach.refuse(command.origin, tags, Refusal(NOT_ALLOWED, text))
            return
        if isinstance(command, Schedule) and command.reserved:
            self._pass(partition_of_sequence(command.reserved[0]), command)
            return
        key = self._first_key(command.messages)
        self._pass(
            self._reach.next_partition() if key is None else self._partition_of(key), command
        )

    def _unsent(self, index: int, command: Command) -> bool:
        """A partition could not store these sends: without a key they go elsewhere (R-P4)."""
        if not isinstance(command, (SendMany, SendBatch, Schedule, Stage)):
            return False
        is_bound = isinstance(command, Schedule) and bool(command.reserved)
        if is_bound or self._first_key(command.messages) is not None:
            return False
        origin = command.origin
        way = origin if isinstance(origin, ReroutedSend) else ReroutedSend(origin)
        way.tried[index] = True
        partition_index = self._reach.next_partition(way.tried)
        if partition_index == NOWHERE:
            return False
        self._reach.ask(partition_index, rerouted(command, way))
        return True

    def _take_over(self, command: TakeOver) -> None:
        for message in command.messages:
            if has_conflict(message):
                refusal = Refusal(NOT_ALLOWED, CONFLICT_TEXT)
                self._reach.refuse(command.origin, [command.tag], refusal)
                return
        self._take_overs.take_over(command, self._routing)

    def _first_key(self, messages: list[Message]) -> str | None:
        return self._routing.key_of(messages[0]) if messages else None

    # Receivers.

    def _settle_many(self, command: SettleMany) -> None:
        """Each settlement to the partition that its token names."""
        by_partition: dict[int, list[int]] = {}
        for at, token in enumerate(command.tokens):
            by_partition.setdefault(partition_of_sequence(token.sequence), []).append(at)
        for partition_index, places in by_partition.items():
            if not self._reach.has(partition_index):
                lost = [command.tags[at] for at in places]
                refusal = Refusal(LOCK_LOST, LOCK_LOST_TEXT)
                self._reach.refuse(command.origin, lost, refusal)
            elif len(by_partition) == 1:
                self._pass(partition_index, command)
            else:
                tags = [command.tags[at] for at in places]
                tokens = [command.tokens[at] for at in places]
                part = SettleMany(
                    command.origin, tags, command.settlement, tokens, command.consumer
                )
                self._pass(partition_index, part)

    def _requeue(self, command: Requeue) -> None:
        """Each message back to its partition, which keeps it until it can be put back."""
        by_partition: dict[int, list[Delivery]] = {}
        for delivery in command.deliveries:
            by_partition.setdefault(partition_of_sequence(delivery.sequence), []).append(delivery)
        for partition_index, deliveries in by_partition.items():
            self._reach.ask(partition_index, Requeue(command.lane, deliveries))

    def _accept(self, command: AcceptSession) -> None:
        seeker = SessionSeeker(command, self._reach, self._forget)
        self._receivers[command.origin] = seeker
        if command.session_id is None:
            seeker.seek(self._reach.in_turn())
        else:
            seeker.seek([self._partition_of(command.session_id)])

    def _for_holder(self, command: RenewSession | GetSessionState | SetSessionState) -> Command:
        """The same command, with the holder under the name that the partition knows."""
        holder = self._holder(command.holder)
        origin, tag, lane, name = command.origin, command.tag, command.lane, command.session_id
        if isinstance(command, RenewSession):
            return RenewSession(origin, tag, lane, name, holder)
        if isinstance(command, GetSessionState):
            return GetSessionState(origin, tag, lane, name, holder)
        return SetSessionState(origin, tag, lane, name, holder, command.state)

    def _deferred_for_holder(self, command: ReceiveDeferred) -> Command:
        return ReceiveDeferred(
            command.origin,
            command.tag,
            command.lane,
            command.sequences,
            command.mode,
            command.session_id,
            self._holder(command.holder),
            command.consumer,
            command.bytes_max,
        )

    def _claim(self, command: ClaimMessages) -> None:
        """Each claim begins at another partition; sends take turns of their own, so that no rhythm
        of both keeps one partition last."""
        self._claim_turn = (self._claim_turn + 1) % len(self.workers)
        ClaimWalk(command, self._reach, self._claim_turn).start()

    def _holder(self, origin: Origin | None) -> Origin | None:
        """Who holds a session, as its partition knows it."""
        seeker = None if origin is None else self._receivers.get(origin)
        if isinstance(seeker, SessionSeeker) and seeker.holder is not None:
            return seeker.holder
        return origin

    def _forget(self, origin: Origin) -> None:
        self._receivers.pop(origin, None)

    def _opened(self, index: int, worker: PartitionDoor) -> None:
        for receiver in list(self._receivers.values()):
            receiver.opened(index)
        self._take_overs.opened(index)
        PublicationCompletion(index, self._reach).start()
        if self.on_opened is not None:
            self.on_opened(worker)

    # One partition.

    def _partition_of(self, key: str) -> int:
        return partition_of_key(key, len(self.workers))

    def _pass(self, index: int, command: Command) -> None:
        """Ask one partition, or say at once that it is out of reach."""
        if index != NOWHERE and self._reach.can_ask(index):
            self._reach.ask(index, command)
            return
        lost = list(range(len(self.workers))) if index == NOWHERE else [index]
        reply = refusal_reply(command, self._reach.out_of_reach(lost))
        if reply is not None:
            self._reach.answer(reply)


def _part(command: SendMany, places: list[int]) -> SendMany:
    """Some of the sends; the command itself where they are all."""
    if len(places) == len(command.messages):
        return command
    tags = [command.tags[at] for at in places]
    return SendMany(command.origin, tags, [command.messages[at] for at in places])


def _part_of_stage(command: Stage, places: list[int]) -> Stage:
    """Some of the staged messages; the command itself where they are all."""
    if len(places) == len(command.messages):
        return command
    tags = [command.tags[at] for at in places]
    messages = [command.messages[at] for at in places]
    return Stage(command.origin, tags, messages, command.stage)


def _why_not_together(messages: list[Message], routing: Routing) -> str:
    """Why these messages cannot go to one partition; empty where they can."""
    keys: set[str | None] = set()
    for message in messages:
        if has_conflict(message):
            return CONFLICT_TEXT
        keys.add(routing.shared_key_of(message))
    return MIXED_TEXT if len(keys) > 1 else ""
