"""Where a transaction on a partitioned entity is carried out: all of it in one partition (R-P7)."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.commands import (
    CancelScheduled,
    Commit,
    Schedule,
    SendBatch,
    SendMany,
    SettleAll,
    SettleMany,
    TransactionWork,
    TransferMessage,
)
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    LOCK_LOST,
    LOCK_LOST_TEXT,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    Refusal,
)
from peeklock.entity.replies import NOBODY
from peeklock.entity.routing import (
    Routing,
    has_conflict,
    partition_of_key,
    partition_of_sequence,
)

RULE: Final = (
    "A transaction on a partitioned entity needs one and the same partition key "
    "(SessionId or PartitionKey) on all its messages"
)
NO_KEY: Final = f"{RULE}: a message has none."
TWO_KEYS: Final = f"{RULE}: there are two."
TWO_PARTITIONS: Final = f"{RULE}: its operations concern different partitions."
NO_VIA_KEY: Final = (
    "A transaction that only sends to other entities by way of a partitioned one needs a "
    "partition key for the way (TransactionPartitionKey)."
)


def partition_of_commit(command: Commit, partitions: int, routing: Routing) -> int | Refusal:
    """The one partition that all the work concerns, or why there is none."""
    plan = _Plan(partitions, routing)
    for work in command.work:
        if isinstance(work, (SendMany, SendBatch, Schedule)):
            for message in work.messages:
                plan.send(message)
            if isinstance(work, Schedule) and work.reserved:
                for sequence in work.reserved:
                    plan.number(sequence, Refusal(MESSAGE_NOT_FOUND, "No such sequence number."))
        elif isinstance(work, (SettleMany, SettleAll)):
            for token in work.tokens:
                plan.number(token.sequence, Refusal(LOCK_LOST, LOCK_LOST_TEXT))
        elif isinstance(work, CancelScheduled):
            for sequence in work.sequences:
                text = f"No scheduled message has the sequence number {sequence}."
                plan.number(sequence, Refusal(MESSAGE_NOT_FOUND, text))
        else:
            plan.transfer(work)
    return plan.result()


def why_not_together(
    work: list[TransactionWork], partitions: int, routing: Routing
) -> Refusal | None:
    """Why operations that are not asked for yet will not make a transaction, as far as their keys
    tell; whether what they name is there shows when they are carried out."""
    partition_index = partition_of_commit(Commit(NOBODY, 0, work), partitions, routing)
    return (
        partition_index
        if isinstance(partition_index, Refusal) and partition_index.kind == NOT_ALLOWED
        else None
    )


@final
class _Plan:
    """What the operations of a transaction ask for."""

    __slots__ = ("_indexes", "_keys", "_partitions", "_refusal", "_routing", "_via_keys")

    def __init__(self, partitions: int, routing: Routing) -> None:
        self._partitions: Final[int] = partitions
        self._routing: Final[Routing] = routing
        self._keys: set[str] = set()
        self._indexes: set[int] = set()
        self._via_keys: set[str | None] = set()  # the keys of messages for other entities
        self._refusal: Refusal | None = None

    def send(self, message: Message) -> None:
        """A message for this entity."""
        key = self._routing.key_of(message)
        if has_conflict(message):
            self._refuse(Refusal(NOT_ALLOWED, TWO_KEYS))
        elif key is None:
            self._refuse(Refusal(NOT_ALLOWED, NO_KEY))
        else:
            self._keys.add(key)
            self._indexes.add(partition_of_key(key, self._partitions))

    def number(self, sequence: int, refusal: Refusal) -> None:
        """A message that is here; the refusal is for one that cannot be."""
        partition_index = partition_of_sequence(sequence)
        if 0 <= partition_index < self._partitions:
            self._indexes.add(partition_index)
        else:
            self._refuse(refusal)

    def transfer(self, work: TransferMessage) -> None:
        """A message for another entity: it rests with the others, wherever they are."""
        key = work.way
        if key is None:
            key = work.message.partition_key
        self._via_keys.add(work.message.session_id if key is None else key)

    def result(self) -> int | Refusal:
        """The partition, or what is wrong."""
        if self._refusal is not None:
            return self._refusal
        if len(self._keys) > 1:
            return Refusal(NOT_ALLOWED, TWO_KEYS)
        if len(self._indexes) > 1:
            return Refusal(NOT_ALLOWED, TWO_PARTITIONS)
        if self._indexes:
            return self._indexes.pop()
        if not self._via_keys:
            return 0  # nothing is to be done, which any partition can do
        if None in self._via_keys:
            return Refusal(NOT_ALLOWED, NO_VIA_KEY)
        if len(self._via_keys) > 1:
            return Refusal(NOT_ALLOWED, TWO_KEYS)
        return partition_of_key(self._via_keys.pop() or "", self._partitions)

    def _refuse(self, refusal: Refusal) -> None:
        if self._refusal is None:
            self._refusal = refusal
