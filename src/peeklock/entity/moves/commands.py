"""What a partition can be asked about its messages, and by receivers.

The words are part of those in `commands`, from where the others import them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from peeklock.budgets import Budget
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import Message
from peeklock.entity.replies import Counted, Origin
from peeklock.entity.settlement import Settlement
from peeklock.entity.tables.command_rows import ALL, KEY, RECEIVER, TOKEN, WALK, CommandRow

if TYPE_CHECKING:  # blueprints name lanes, which are numbers of this module
    from peeklock.entity.blueprint import Blueprint

# Lanes. The dead-letter lane of lane n is n | 1.
MAIN: Final = 0
DEAD: Final = 1
TRANSFER: Final = 2  # on its way to another entity, with a transaction
TRANSFER_DEAD: Final = 3

# How a receiver receives.
PEEK_LOCK: Final = 0
RECEIVE_AND_DELETE: Final = 1
FORWARD: Final = 2  # the broker itself, on the way to another entity: its locks do not expire
# What the deferred messages of one fetch may have together; half of what may wait unread.
DEFERRED_BYTES_MAX: Final = 32 << 20


@final
@dataclass(slots=True, init=False)
class SendMany:
    """Several messages, each its own send: tag i belongs to message i."""

    origin: Final[Origin]
    tags: Final[list[int]]
    messages: Final[list[Message]]

    def __init__(self, origin: Origin, tags: list[int], messages: list[Message]) -> None:
        self.origin = origin
        self.tags = tags
        self.messages = messages


@final
@dataclass(slots=True, init=False)
class SendBatch:
    """Several messages that are stored all or none, answered once (R-T5)."""

    origin: Final[Origin]
    tag: Final[int]
    messages: Final[list[Message]]

    def __init__(self, origin: Origin, tag: int, messages: list[Message]) -> None:
        self.origin = origin
        self.tag = tag
        self.messages = messages


@final
@dataclass(slots=True, init=False)
class Schedule:
    """Messages for later, all or none; the reply names their sequence numbers in order.

    Inside a transaction the numbers were reserved before, because the client was told them.
    """

    origin: Final[Origin]
    tag: Final[int]
    messages: Final[list[Message]]
    reserved: Final[list[int] | None]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        messages: list[Message],
        reserved: list[int] | None = None,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.messages = messages
        self.reserved = reserved


@final
@dataclass(slots=True, init=False)
class CancelScheduled:
    """Take scheduled messages back before they are due; one unknown number refuses all."""

    origin: Final[Origin]
    tag: Final[int]
    sequences: Final[list[int]]

    def __init__(self, origin: Origin, tag: int, sequences: list[int]) -> None:
        self.origin = origin
        self.tag = tag
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class OpenReceiver:
    """A receiver on a lane, without credit at first. Its origin is its identity, `consumer` is
    what the journal calls it."""

    origin: Final[Origin]
    lane: Final[int]
    mode: Final[int]
    consumer: Final[str]

    def __init__(self, origin: Origin, lane: int, mode: int, consumer: str = "") -> None:
        self.origin = origin
        self.lane = lane
        self.mode = mode
        self.consumer = consumer


# A grant that only its count bounds.
ANY_SIZE: Final = 1 << 61


@final
@dataclass(slots=True, init=False)
class Grant:
    """Credit as absolute limits: how many deliveries the receiver takes since it was opened, and
    how many bytes of messages. Whichever ends first ends the grant; the last message may exceed
    the bytes, so that one of any size can be delivered.

    An absolute number has no race with deliveries that are still on their way. With `drain` the
    unused rest of the count is given back at once: the reply `Drained` follows the deliveries.

    With `watch`, which goes together with `drain`, the receiver is told by `Ready` when there is
    something to grant for: at once if messages are left, else as soon as there are some. It is
    told once; any later grant ends the watch, and one with `watch` begins the next.

    With a `budget`, which many receivers share, nothing is handed out while that is exhausted: the
    receiver is told by `Ready` that there is something, and must grant again.
    """

    origin: Final[Origin]
    limit: Final[int]
    drain: Final[bool]
    watch: Final[bool]
    size_limit: Final[int]
    budget: Final[Budget | None]

    def __init__(
        self,
        origin: Origin,
        limit: int,
        drain: bool,
        watch: bool = False,
        size_limit: int = ANY_SIZE,
        budget: Budget | None = None,
    ) -> None:
        self.origin = origin
        self.limit = limit
        self.drain = drain
        self.watch = watch
        self.size_limit = size_limit
        self.budget = budget


@final
@dataclass(slots=True, init=False)
class CloseReceiver:
    """The receiver is gone. Its locks stay until they expire, unless the queue says otherwise and
    the connection broke."""

    origin: Final[Origin]
    broken: Final[bool]

    def __init__(self, origin: Origin, broken: bool) -> None:
        self.origin = origin
        self.broken = broken


@final
@dataclass(slots=True, init=False)
class Requeue:
    """Messages that receive-and-delete removed from a lane and that were never sent go back: with
    their numbers, places and counts. Nobody is answered. `is_repeat` is asked again after a
    failure that left open whether they are back already.

    The deliveries come with their messages.
    """

    lane: Final[int]
    deliveries: Final[list[Delivery]]
    is_repeat: Final[bool]

    def __init__(self, lane: int, deliveries: list[Delivery], is_repeat: bool = False) -> None:
        self.lane = lane
        self.deliveries = deliveries
        self.is_repeat = is_repeat

    @property
    def size(self) -> int:
        """The bytes of all its messages."""
        total = 0
        for delivery in self.deliveries:
            assert delivery.message is not None, "a delivery that left has its message"
            total += delivery.message.size
        return total


@final
@dataclass(slots=True, init=False)
class SettleMany:
    """One settlement of several messages, each answered by its own tag."""

    origin: Final[Origin]
    tags: Final[list[int]]
    settlement: Final[Settlement]
    tokens: Final[list[LockToken]]
    consumer: Final[str]

    def __init__(
        self,
        origin: Origin,
        tags: list[int],
        settlement: Settlement,
        tokens: list[LockToken],
        consumer: str = "",
    ) -> None:
        self.origin = origin
        self.tags = tags
        self.settlement = settlement
        self.tokens = tokens
        self.consumer = consumer


@final
@dataclass(slots=True, init=False)
class SettleAll:
    """One settlement of several messages that stand or fall together (one `$management` call),
    answered once."""

    origin: Final[Origin]
    tag: Final[int]
    settlement: Final[Settlement]
    tokens: Final[list[LockToken]]
    consumer: Final[str]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        settlement: Settlement,
        tokens: list[LockToken],
        consumer: str = "",
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.settlement = settlement
        self.tokens = tokens
        self.consumer = consumer


@final
@dataclass(slots=True, init=False)
class RenewLocks:
    """Give locks a whole duration from now; one lost lock refuses all."""

    origin: Final[Origin]
    tag: Final[int]
    tokens: Final[list[LockToken]]
    consumer: Final[str]

    def __init__(
        self, origin: Origin, tag: int, tokens: list[LockToken], consumer: str = ""
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.tokens = tokens
        self.consumer = consumer


@final
@dataclass(slots=True, init=False)
class Peek:
    """Look at messages in sequence order from a number on, locked, deferred, scheduled or not."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    from_sequence: Final[int]
    count_max: Final[int]
    bytes_max: Final[int]
    session_id: Final[str | None]  # None: of all sessions

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        from_sequence: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.from_sequence = from_sequence
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.session_id = session_id


@final
@dataclass(slots=True, init=False)
class ReceiveDeferred:
    """Fetch deferred messages by number; one that is not there refuses all (R-S6), and so do
    several that have more than `bytes_max` together: they are one answer.

    Where the lane has sessions, the named one must be held: by `holder`, or by anybody where the
    gateway cannot tell (None).
    """

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    sequences: Final[list[int]]
    mode: Final[int]
    session_id: Final[str | None]
    holder: Final[Origin | None]
    consumer: Final[str]
    bytes_max: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        sequences: list[int],
        mode: int,
        session_id: str | None = None,
        holder: Origin | None = None,
        consumer: str = "",
        bytes_max: int = DEFERRED_BYTES_MAX,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.sequences = sequences
        self.mode = mode
        self.session_id = session_id
        self.holder = holder
        self.consumer = consumer
        self.bytes_max = bytes_max


@final
@dataclass(slots=True, init=False)
class DeleteMany:
    """Delete up to `count_max` messages that were enqueued before an instant; locked ones stay."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    count_max: Final[int]
    enqueued_before: Final[int]
    session_id: Final[str | None]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        count_max: int,
        enqueued_before: int,
        session_id: str | None = None,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.count_max = count_max
        self.enqueued_before = enqueued_before
        self.session_id = session_id


@final
@dataclass(slots=True, init=False)
class Configure:
    """The entity's description changed while it lives; lanes that it no longer has are emptied."""

    # Any: the compiled form looks the type of a field up when this module is imported, and
    # blueprints come later.
    blueprint: Final[Any]

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint


@final
@dataclass(slots=True, init=False)
class Count:
    """How many messages of a lane and its dead-letter lane are in which state, right now."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]

    def __init__(self, origin: Origin, tag: int, lane: int = MAIN) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane


@final
@dataclass(slots=True, init=False)
class Tick:
    """A deadline has come: locks, schedules and expiries that are due are acted on."""

    def __init__(self) -> None:
        pass


def _join_counts(command: Count, answers: list[Any]) -> Counted:
    return Counted(
        command.origin,
        command.tag,
        active=sum([each.active for each in answers]),
        dead_letter=sum([each.dead_letter for each in answers]),
        scheduled=sum([each.scheduled for each in answers]),
        deferred=sum([each.deferred for each in answers]),
        locked=sum([each.locked for each in answers]),
        bytes=sum([each.bytes for each in answers]),
        transfer=sum([each.transfer for each in answers]),
        transfer_dead_letter=sum([each.transfer_dead_letter for each in answers]),
        claimed=sum([each.claimed for each in answers]),
    )


MessageCommand: TypeAlias = (
    SendMany
    | SettleMany
    | Grant
    | SendBatch
    | Schedule
    | CancelScheduled
    | OpenReceiver
    | CloseReceiver
    | Requeue
    | SettleAll
    | RenewLocks
    | Peek
    | ReceiveDeferred
    | DeleteMany
    | Configure
    | Count
    | Tick
)

MESSAGE_COMMANDS: Final = (
    CommandRow(SendMany, KEY),
    CommandRow(SendBatch, KEY),
    CommandRow(Schedule, KEY),
    CommandRow(CancelScheduled, TOKEN),
    CommandRow(OpenReceiver, RECEIVER),
    CommandRow(Grant, RECEIVER),
    CommandRow(CloseReceiver, RECEIVER),
    CommandRow(Requeue, TOKEN),
    CommandRow(SettleMany, TOKEN),
    CommandRow(SettleAll, TOKEN),
    CommandRow(RenewLocks, TOKEN),
    CommandRow(Peek, WALK),
    CommandRow(ReceiveDeferred, TOKEN),
    CommandRow(DeleteMany, WALK),
    CommandRow(Count, ALL, _join_counts),
    CommandRow(Configure, ALL),
    CommandRow(Tick, ALL),
)
