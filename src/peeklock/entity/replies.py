"""What a partition answers. Replies leave only after the records of their decision rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

from peeklock.entity.deliveries import Delivery
from peeklock.entity.refusals import Refusal
from peeklock.entity.rules.rule import Rule

# No lane has this number.
NO_LANE: Final = -1


class Origin(Protocol):
    """Who asked: every reply goes back to the origin of its command. It is also the identity of a
    receiver, so that it is compared with nothing but itself."""

    def replied(self, reply: Reply) -> None:
        """Take in a reply; what it leads to may wait for `flush`."""
        ...

    def flush(self) -> None:
        """Write out what the replies of this round led to: no more follow for now."""
        ...


@final
@dataclass(slots=True, init=False)
class SendsAccepted:
    """The sends with these tags are stored (SendMany, SendBatch)."""

    origin: Final[Origin]
    tags: Final[list[int]]

    def __init__(self, origin: Origin, tags: list[int]) -> None:
        self.origin = origin
        self.tags = tags


@final
@dataclass(slots=True, init=False)
class Delivered:
    """Messages for a receiver, in order; `size` is what they use up of the grant's bytes."""

    origin: Final[Origin]
    mode: Final[int]
    deliveries: Final[list[Delivery]]
    size: Final[int]

    def __init__(self, origin: Origin, mode: int, deliveries: list[Delivery], size: int) -> None:
        self.origin = origin
        self.mode = mode
        self.deliveries = deliveries
        self.size = size


@final
@dataclass(slots=True, init=False)
class Settled:
    """The settlements with these tags were carried out with that outcome."""

    origin: Final[Origin]
    tags: Final[list[int]]
    outcome: Final[int]

    def __init__(self, origin: Origin, tags: list[int], outcome: int) -> None:
        self.origin = origin
        self.tags = tags
        self.outcome = outcome


@final
@dataclass(slots=True, init=False)
class Refused:
    """The wishes with these tags were declined, all for the same reason."""

    origin: Final[Origin]
    tags: Final[list[int]]
    refusal: Final[Refusal]

    def __init__(self, origin: Origin, tags: list[int], refusal: Refusal) -> None:
        self.origin = origin
        self.tags = tags
        self.refusal = refusal


@final
@dataclass(slots=True, init=False)
class Drained:
    """The receiver's credit is used up: nothing more comes until it grants again.

    `has_more` tells that the grant's bytes ended before its count and before the messages did: a
    drain goes on with the next grant.
    """

    origin: Final[Origin]
    has_more: Final[bool]

    def __init__(self, origin: Origin, has_more: bool = False) -> None:
        self.origin = origin
        self.has_more = has_more


@final
@dataclass(slots=True, init=False)
class Ready:
    """Messages wait for a receiver that watches and has no credit here: a grant would find some.

    It follows `Drained`, at once or later; others may have taken the messages meanwhile.
    """

    origin: Final[Origin]

    def __init__(self, origin: Origin) -> None:
        self.origin = origin


@final
@dataclass(slots=True, init=False)
class ReceiverClosed:
    """The partition let a receiver go (its store failed, its entity is gone); its locks are lost.
    It may open again."""

    origin: Final[Origin]
    refusal: Final[Refusal]

    def __init__(self, origin: Origin, refusal: Refusal) -> None:
        self.origin = origin
        self.refusal = refusal


@final
@dataclass(slots=True, init=False)
class SessionAccepted:
    """The origin holds this session now, until an instant that it may move by renewing."""

    origin: Final[Origin]
    tag: Final[int]
    session_id: Final[str]
    locked_until: Final[int]

    def __init__(self, origin: Origin, tag: int, session_id: str, locked_until: int) -> None:
        self.origin = origin
        self.tag = tag
        self.session_id = session_id
        self.locked_until = locked_until


@final
@dataclass(slots=True, init=False)
class StateFound:
    """What was stored with a session; None where nothing was."""

    origin: Final[Origin]
    tag: Final[int]
    state: Final[bytes | None]

    def __init__(self, origin: Origin, tag: int, state: bytes | None) -> None:
        self.origin = origin
        self.tag = tag
        self.state = state


@final
@dataclass(slots=True, init=False)
class Named:
    """Names of sessions, in their order."""

    origin: Final[Origin]
    tag: Final[int]
    names: Final[list[str]]

    def __init__(self, origin: Origin, tag: int, names: list[str]) -> None:
        self.origin = origin
        self.tag = tag
        self.names = names


@final
@dataclass(slots=True, init=False)
class Numbered:
    """A wish was carried out and this is its list of numbers: sequence numbers of scheduled
    messages, new expiries of renewed locks, the count of deleted messages; empty for Cancel and
    SettleAll."""

    origin: Final[Origin]
    tag: Final[int]
    numbers: Final[list[int]]

    def __init__(self, origin: Origin, tag: int, numbers: list[int]) -> None:
        self.origin = origin
        self.tag = tag
        self.numbers = numbers


@final
@dataclass(slots=True, init=False)
class Found:
    """Messages that were looked at (Peek) or fetched (ReceiveDeferred).

    `removed_from` is the lane that they were taken out of for good, or NO_LANE. `first_lost` is the
    lowest number that was found and left out, because its body is damaged; 0 for none.
    """

    origin: Final[Origin]
    tag: Final[int]
    deliveries: Final[list[Delivery]]
    removed_from: Final[int]
    first_lost: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        deliveries: list[Delivery],
        removed_from: int = NO_LANE,
        first_lost: int = 0,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.deliveries = deliveries
        self.removed_from = removed_from
        self.first_lost = first_lost


@final
@dataclass(slots=True, init=False)
class ClaimsMade:
    """What an owner got: numbers in order, sizes, and sessions where the lane has them.

    `limit` is how many messages the claim may have in all, given what is in it: less than it was
    asked for where one of them failed before.
    """

    origin: Final[Origin]
    tag: Final[int]
    sequences: Final[list[int]]
    sizes: Final[list[int]]
    session_ids: Final[list[str | None] | None]
    limit: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        sequences: list[int],
        sizes: list[int],
        session_ids: list[str | None] | None,
        limit: int,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.sequences = sequences
        self.sizes = sizes
        self.session_ids = session_ids
        self.limit = limit


@final
@dataclass(slots=True, init=False)
class ClaimsListed:
    """What an owner has, and how the lane is; an epoch of 0 is that of an owner nobody knows."""

    origin: Final[Origin]
    tag: Final[int]
    epoch: Final[int]
    sequences: Final[list[int]]
    sizes: Final[list[int]]
    attempts: Final[list[int]]  # how often each was fetched since it was claimed, or since opening
    session_ids: Final[list[str | None] | None]
    last_sequences: Final[list[int]]  # by partition: the highest number that was given so far
    active: Final[int]
    oldest_enqueued_at: Final[int]  # 0: nothing is ready
    missing: Final[list[int]]  # partitions that could not be asked: the list is not all there is

    def __init__(
        self,
        origin: Origin,
        tag: int,
        epoch: int,
        sequences: list[int],
        sizes: list[int],
        attempts: list[int],
        session_ids: list[str | None] | None,
        last_sequences: list[int],
        active: int,
        oldest_enqueued_at: int,
        missing: list[int],
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.epoch = epoch
        self.sequences = sequences
        self.sizes = sizes
        self.attempts = attempts
        self.session_ids = session_ids
        self.last_sequences = last_sequences
        self.active = active
        self.oldest_enqueued_at = oldest_enqueued_at
        self.missing = missing


@final
@dataclass(slots=True, init=False)
class ClaimsFetched:
    """Claimed messages, and how many of the numbers asked for were looked at before there was no
    room for more."""

    origin: Final[Origin]
    tag: Final[int]
    deliveries: Final[list[Delivery]]
    looked_at: Final[int]

    def __init__(
        self, origin: Origin, tag: int, deliveries: list[Delivery], looked_at: int
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.deliveries = deliveries
        self.looked_at = looked_at


@final
@dataclass(slots=True, init=False)
class Counted:
    """How many messages are in which state, and their bytes. Those on their way to other entities
    belong to the partition and are told with its main lane only."""

    origin: Final[Origin]
    tag: Final[int]
    active: Final[int]
    dead_letter: Final[int]
    scheduled: Final[int]
    deferred: Final[int]
    locked: Final[int]
    bytes: Final[int]
    transfer: Final[int]
    transfer_dead_letter: Final[int]
    claimed: Final[int]  # of the lane itself: what is claimed of its dead letters is among those

    def __init__(
        self,
        origin: Origin,
        tag: int,
        active: int,
        dead_letter: int,
        scheduled: int,
        deferred: int,
        locked: int,
        bytes: int,
        transfer: int = 0,
        transfer_dead_letter: int = 0,
        claimed: int = 0,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.active = active
        self.dead_letter = dead_letter
        self.scheduled = scheduled
        self.deferred = deferred
        self.locked = locked
        self.bytes = bytes
        self.transfer = transfer
        self.transfer_dead_letter = transfer_dead_letter
        self.claimed = claimed


@final
@dataclass(slots=True, init=False)
class BatchPublished:
    """A writer's batch is published: how many messages now, and the stages that are its own."""

    origin: Final[Origin]
    tag: Final[int]
    count: Final[int]
    stages: Final[list[str]]

    def __init__(self, origin: Origin, tag: int, count: int, stages: list[str]) -> None:
        self.origin = origin
        self.tag = tag
        self.count = count
        self.stages = stages


@final
@dataclass(slots=True, init=False)
class StagesTold:
    """The stages that have messages, and for each writer its last batch and the stages of it, as
    far as they are remembered."""

    origin: Final[Origin]
    tag: Final[int]
    names: Final[list[str]]
    batches: Final[list[tuple[str, int, list[str]]]]

    def __init__(
        self, origin: Origin, tag: int, names: list[str], batches: list[tuple[str, int, list[str]]]
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.names = names
        self.batches = batches


@final
@dataclass(slots=True, init=False)
class RulesFound:
    """The rules that were asked for."""

    origin: Final[Origin]
    tag: Final[int]
    rules: Final[list[Rule]]

    def __init__(self, origin: Origin, tag: int, rules: list[Rule]) -> None:
        self.origin = origin
        self.tag = tag
        self.rules = rules


Reply: TypeAlias = (
    SendsAccepted
    | Delivered
    | Settled
    | Refused
    | Drained
    | Ready
    | Numbered
    | Found
    | ClaimsMade
    | ClaimsListed
    | ClaimsFetched
    | Counted
    | ReceiverClosed
    | SessionAccepted
    | StateFound
    | Named
    | BatchPublished
    | StagesTold
    | RulesFound
)


@final
class Nobody:
    """The origin of what nobody waits for; a lost lock is nobody's loss then."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def replied(self, reply: Reply) -> None:
        """Nobody waits for it."""

    def flush(self) -> None:
        """There is nothing to write out."""


NOBODY: Final = Nobody()
