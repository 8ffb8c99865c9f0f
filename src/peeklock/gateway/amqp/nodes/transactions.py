"""The transactions of one connection: what they gather, and how they end (protocol 7).

Every operation is answered at once and gathered; no partition hears of it before the commit. The
commit is one command to one entity, the *via*: where something is settled, scheduled or cancelled,
or else where the first message goes. Messages for other entities rest with the via's and are
forwarded afterwards, so that never more than one partition has to agree.
"""

from typing import Final, Protocol, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.states import TransactionalState
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import decode_composite
from peeklock.entity.commands import (
    CancelScheduled,
    Commit,
    Schedule,
    SendBatch,
    SettleAll,
    SettleMany,
    TransactionWork,
    TransferMessage,
)
from peeklock.entity.message import Message
from peeklock.entity.moves.entering import SESSION_REQUIRED_TEXT
from peeklock.entity.refusals import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SESSION_REQUIRED,
    TRANSACTION_FAILED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_UNKNOWN,
    UNAVAILABLE,
    Refusal,
)
from peeklock.entity.replies import NOBODY, Refused, Reply
from peeklock.gateway.amqp.namespace_context import Entity, GatewayLimits
from peeklock.gateway.identifiers import RandomSource

# The service's limits of one transaction.
MESSAGES_MAX: Final = 100
DURATION_MS: Final = 120_000

# Transactions of a connection that has shown no token.
_WITHOUT_TOKEN_MAX: Final = 10
NO_DEADLINE: Final = 1 << 62

# How many transactions that ran out of time are told from those that never were.
_REMEMBERED_MAX: Final = 100
# How many messages of a connection, at most, whose settlement was refused or rolled back can be
# settled again by their deliveries; older ones by their lock tokens.
_KEPT_MAX: Final = 10_000

_OTHER_ENTITY: Final = (
    "A transaction belongs to one entity: messages for another one need a link on the same AMQP "
    "session, and nothing can be settled, scheduled or cancelled there."
)
_UNKNOWN: Final = "The transaction is not known on this connection: it has ended, or never began."
_LINK_ENDED: Final = "A link was detached meanwhile, and what was asked over it may be missing."
_MISSED: Final = "A message that was to be settled is not held by this client, or not any more."
_TIMED_OUT: Final = "The transaction was rolled back because its time was over."


class TransactionListener(Protocol):
    """Who is told how a transaction ended."""

    def discharged(self, tag: int, refusal: Refusal | None) -> None:
        """It ended as was asked, or it was rolled back for this reason."""
        ...

    def flush(self) -> None:
        """Let the answer go."""
        ...


@final
class Work:
    """One operation within a transaction, and the link that it came on.

    Messages that are sent are named apart from the `command` of everything else, because it shows
    only at the end whether they stay with the entity or are forwarded to another one. A link that
    sends on behalf of another entity (`destination`) always has them forwarded.
    """

    __slots__ = (
        "command",
        "count",
        "destination",
        "entity",
        "ids",
        "link",
        "messages",
        "size",
        "via_keys",
    )

    def __init__(
        self,
        entity: Entity,
        link: Link,
        *,
        messages: list[Message] | None = None,
        via_keys: list[str | None] | None = None,
        destination: Entity | None = None,
        command: TransactionWork | None = None,
        ids: list[int] | None = None,
    ) -> None:
        self.entity: Final = entity
        self.link: Final = link
        self.messages: Final[list[Message] | None] = messages
        # By which partition of the via each message goes, where it says so.
        self.via_keys: Final[list[str | None] | None] = via_keys
        self.destination: Final = destination
        self.command: Final[TransactionWork | None] = command
        # Deliveries that are settled for the time being.
        self.ids: Final[list[int] | None] = ids
        sent: list[Message] = messages or []
        if isinstance(command, Schedule):
            sent = command.messages
        self.size: Final = sum(message.size for message in sent)
        self.count: Final = len(sent) if command is None else _count(command)


def _count(command: TransactionWork) -> int:
    if isinstance(command, Schedule):
        return len(command.messages)
    if isinstance(command, (SettleMany, SettleAll)):
        return len(command.tokens)
    assert isinstance(command, CancelScheduled), f"no transaction does {command!r}"
    return len(command.sequences)


@final
class Transaction:
    """What was asked for between declare and discharge."""

    __slots__ = (
        "count",
        "due",
        "id",
        "is_over",
        "owner",
        "refusal",
        "size",
        "under_way",
        "wish",
        "works",
    )

    def __init__(self, id: bytes, owner: TransactionListener) -> None:
        self.id: Final = id
        # The link that declared it; when that goes, the transaction is rolled back.
        self.owner: Final = owner
        self.works: Final[list[Work]] = []
        self.count = 0
        self.size = 0
        self.due = NO_DEADLINE
        # Why it can only be rolled back.
        self.refusal: Refusal | None = None
        self.is_over = False
        # Operations that wait for a partition's answer before they are part of this; the wish to
        # commit waits for them.
        self.under_way = 0
        self.wish: Ending | None = None

    def answer(self, outcome: bytes) -> bytes:
        """Write an outcome that holds only if this transaction does."""
        fields = b"\xa0" + bytes((len(self.id),)) + self.id + outcome
        assert len(fields) < 255, "what confirms an operation is short"
        return b"\x00\x53\x34\xc0" + bytes((len(fields) + 1, 2)) + fields

    def via(self) -> Entity:
        """The entity that commits."""
        return _via(self.works)

    def commands(self) -> list[TransactionWork]:
        """What the via has to carry out."""
        return _commands(self.works)

    def why_not(self, work: Work) -> Refusal | None:
        """Why an operation cannot be part of this transaction, or None."""
        if self.refusal is not None:
            return self.refusal
        works = [*self.works, work]
        owner_path = _via(works).owner_path
        sessions = {each.link.session for each in works if each.entity.owner_path == owner_path}
        for each in works:
            if each.entity.owner_path != owner_path and (
                each.messages is None
                or each.destination is not None
                or each.link.session not in sessions
            ):
                return Refusal(NOT_ALLOWED, _OTHER_ENTITY)
        if work.messages is None or work.destination is not None:
            return None
        # A key that is missing or wrong is told with the message, and not at the end.
        if work.entity.requires_session and not all(map(_has_session, work.messages)):
            return Refusal(SESSION_REQUIRED, SESSION_REQUIRED_TEXT)
        if work.entity.owner_path == owner_path:
            return work.entity.why_not_together(_commands(works))
        return None


def _has_session(message: Message) -> bool:
    return message.session_id is not None


def _commands(works: list[Work]) -> list[TransactionWork]:
    owner_path = _via(works).owner_path
    commands: list[TransactionWork] = []
    for work in works:
        messages = work.messages
        if messages is None:
            assert work.command is not None, "work has messages or a command"
            commands.append(work.command)
            continue
        destination = work.destination
        if destination is None and work.entity.owner_path != owner_path:
            destination = work.entity
        if destination is None:
            commands.append(SendBatch(NOBODY, 0, messages))
        else:
            commands += transfers(destination, messages, work.via_keys)
    return commands


def transfers(
    destination: Entity, messages: list[Message], via_keys: list[str | None] | None
) -> list[TransactionWork]:
    """Let messages be forwarded to another entity."""
    path = destination.path
    if via_keys is None:
        return [TransferMessage(path, message) for message in messages]
    return [
        TransferMessage(path, message, way) for message, way in zip(messages, via_keys, strict=True)
    ]


def _via(works: list[Work]) -> Entity:
    for work in works:
        if work.messages is None:
            return work.entity
    return works[0].entity


@final
class Transactions:
    """All transactions of a connection; another connection does not know their ids."""

    __slots__ = (
        "_kept",
        "_limits",
        "_living",
        "_random_source",
        "_size",
        "_timed_out",
        "deadline",
        "kept_max",
        "living_max",
    )

    def __init__(self, limits: GatewayLimits, random_source: RandomSource) -> None:
        self._limits: Final = limits
        self._random_source: Final[RandomSource] = random_source
        self._living: Final[dict[bytes, Transaction]] = {}
        self._timed_out: Final[dict[bytes, None]] = {}
        # What was settled in transactions that were rolled back, or refused to be settled, and may
        # be settled again; in the order in which it is forgotten.
        self._kept: Final[dict[tuple[Link, int], None]] = {}
        self.kept_max = _KEPT_MAX
        self._size = 0
        # When `expire` must be called at the latest.
        self.deadline = NO_DEADLINE
        # Before a token one is enough, and Java's client does declare one.
        self.living_max = _WITHOUT_TOKEN_MAX

    # --- while they live

    def declare(self, owner: TransactionListener) -> Transaction | Refusal:
        """Begin one; its time runs from its first operation on."""
        most = self.living_max
        if len(self._living) >= most:
            return Refusal(QUOTA_EXCEEDED, f"The connection has {most} open transactions.")
        id = ((self._random_source() << 64) | self._random_source()).to_bytes(16, "big")
        transaction = Transaction(id, owner)
        self._living[id] = transaction
        return transaction

    def find(self, id: bytes) -> Transaction | Refusal:
        """Give a transaction that can still be added to."""
        found = self._living.get(id)
        if found is not None:
            return found
        if id in self._timed_out:
            return Refusal(TRANSACTION_TIMED_OUT, _TIMED_OUT)
        return Refusal(TRANSACTION_UNKNOWN, _UNKNOWN)

    def named_by(self, state: bytes) -> Transaction | Refusal:
        """Give the transaction that the state of a transfer names."""
        try:
            found, _ = decode_composite(state)
        except DecodeError as error:
            return Refusal(INVALID_ARGUMENT, f"The delivery state cannot be read: {error.text}.")
        if not isinstance(found, TransactionalState):
            return Refusal(INVALID_ARGUMENT, "The state of a transfer can only be transactional.")
        return self.find(found.txn_id)

    def enlist(self, transaction: Transaction, work: Work, now: int) -> Refusal | None:
        """Make an operation part of a transaction, or say why not; then it is doomed."""
        if transaction.is_over:
            return Refusal(TRANSACTION_UNKNOWN, _UNKNOWN)
        self._touch(transaction, now)
        refusal = transaction.why_not(work) or self._beyond(transaction, work)
        if refusal is not None:
            self.doom(transaction, refusal)
            return refusal
        if work.count:
            transaction.works.append(work)
        transaction.count += work.count
        transaction.size += work.size
        self._size += work.size
        return None

    def _beyond(self, transaction: Transaction, work: Work) -> Refusal | None:
        """Say which limit an operation would break."""
        if transaction.count + work.count > MESSAGES_MAX:
            text = f"A transaction cannot have more than {MESSAGES_MAX} messages."
            return Refusal(QUOTA_EXCEEDED, text)
        most = self._limits.transaction_bytes_max
        if work.size and self._size + work.size > most:
            text = f"The open transactions of a connection hold {most} bytes at most."
            return Refusal(QUOTA_EXCEEDED, text)
        return None

    def doom(self, transaction: Transaction | Refusal, refusal: Refusal) -> None:
        """Let a transaction end with a rollback, because an operation of it was refused.

        What was refused would be missing, and not everybody looks: Java's client takes any answer
        to a message that it sends within a transaction for a success.
        """
        if isinstance(transaction, Transaction) and transaction.refusal is None:
            transaction.refusal = refusal

    def link_ended(self) -> None:
        """We ended a link: operations may be on their way over it that we will never see.

        A client that does not wait for their answers could commit the rest without them.
        """
        refusal = Refusal(TRANSACTION_FAILED, _LINK_ENDED)
        for transaction in self._living.values():
            self.doom(transaction, refusal)

    def missed(self, state: bytes) -> None:
        """Something was to be settled that is not known, or not any more: the rest must not be
        carried out without it."""
        self.doom(self.named_by(state), Refusal(TRANSACTION_FAILED, _MISSED))

    def begin(self, transaction: Transaction, now: int) -> None:
        """An operation asks a partition first: the commit waits until it is enlisted."""
        transaction.under_way += 1
        self._touch(transaction, now)

    def done(self, transaction: Transaction) -> None:
        """Such an operation has its answer."""
        transaction.under_way -= 1
        wish = transaction.wish
        if wish is not None and transaction.under_way == 0:
            transaction.wish = None
            self._commit(wish)

    def _touch(self, transaction: Transaction, now: int) -> None:
        if transaction.due == NO_DEADLINE:
            transaction.due = now + DURATION_MS
            self.deadline = min(self.deadline, transaction.due)

    # --- how they end

    def discharge(self, id: bytes, fail: bool, coordinator: TransactionListener, tag: int) -> None:
        """Carry out everything or nothing; the coordinator is told, now or later."""
        transaction = self._living.pop(id, None)
        if transaction is None:
            refusal = self.find(id)
            assert isinstance(refusal, Refusal), "it would have been found"
            # One that ran out of time is rolled back, which may be what is asked for.
            is_done = fail and id in self._timed_out
            self._timed_out.pop(id, None)
            coordinator.discharged(tag, None if is_done else refusal)
        elif fail:
            self._roll_back(transaction)
            coordinator.discharged(tag, None)
        else:
            wish = Ending(self, transaction, coordinator, tag)
            if transaction.under_way:
                transaction.wish = wish
            else:
                self._commit(wish)

    def _commit(self, wish: "Ending") -> None:
        transaction = wish.transaction
        if transaction.refusal is not None:
            self._roll_back(transaction)
            wish.coordinator.discharged(wish.tag, rolled_back(transaction.refusal))
        elif not transaction.works:
            transaction.is_over = True
            wish.coordinator.discharged(wish.tag, None)
        else:
            transaction.is_over = True
            transaction.via().submit(Commit(wish, wish.tag, transaction.commands()))

    def committed(self, transaction: Transaction) -> None:
        """The partition has carried it out."""
        self._size -= transaction.size
        for work in transaction.works:
            if work.ids is not None:
                work.link.forget(work.ids)

    def _roll_back(self, transaction: Transaction) -> None:
        """Forget the operations. Messages stay locked, and can be settled anew."""
        transaction.is_over = True
        self.undo(transaction)

    def undo(self, transaction: Transaction) -> None:
        """Nothing of it was or will be carried out."""
        self._size -= transaction.size
        for work in transaction.works:
            if work.ids is not None:
                self.keep(work.link, work.ids)

    def keep(self, link: Link, ids: list[int]) -> None:
        """Bound what links have settled for the time being: the oldest is settled for good."""
        for id in ids:
            key = (link, id)
            self._kept.pop(key, None)
            self._kept[key] = None
        while len(self._kept) > self.kept_max:
            oldest, id = next(iter(self._kept))
            del self._kept[(oldest, id)]
            oldest.forget([id])

    def expire(self, now: int) -> None:
        """Roll back what has taken too long; sets the next deadline."""
        if now < self.deadline:
            return
        for transaction in [each for each in self._living.values() if each.due <= now]:
            del self._living[transaction.id]
            self._roll_back(transaction)
            self._timed_out[transaction.id] = None
            while len(self._timed_out) > _REMEMBERED_MAX:
                del self._timed_out[next(iter(self._timed_out))]
        self.deadline = min((each.due for each in self._living.values()), default=NO_DEADLINE)

    def abandon(self, owner: TransactionListener) -> None:
        """Roll back what a coordinator link has left behind."""
        for transaction in [each for each in self._living.values() if each.owner is owner]:
            del self._living[transaction.id]
            self._roll_back(transaction)


@final
class Ending:
    """The origin of a commit: it tells the coordinator what the partition answered."""

    __slots__ = ("_transactions", "coordinator", "tag", "transaction")

    def __init__(
        self,
        transactions: Transactions,
        transaction: Transaction,
        coordinator: TransactionListener,
        tag: int,
    ) -> None:
        self._transactions: Final = transactions
        self.transaction: Final = transaction
        self.coordinator: Final = coordinator
        self.tag: Final = tag

    def replied(self, reply: Reply) -> None:
        """The transaction is carried out, or it is not."""
        if isinstance(reply, Refused):
            self._transactions.undo(self.transaction)
            self.coordinator.discharged(self.tag, rolled_back(reply.refusal))
        else:
            self._transactions.committed(self.transaction)
            self.coordinator.discharged(self.tag, None)

    def flush(self) -> None:
        """Let the answer go."""
        self.coordinator.flush()


def rolled_back(refusal: Refusal) -> Refusal:
    """Say that nothing was carried out, and why. Where that is in doubt it is not said."""
    if refusal.kind in (UNAVAILABLE, INTERNAL):
        return refusal
    return Refusal(TRANSACTION_FAILED, f"The transaction was rolled back. {refusal.text}")
