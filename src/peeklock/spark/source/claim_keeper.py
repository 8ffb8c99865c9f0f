"""Claims as a reader needs them: four verbs, whoever keeps them.

`BrokerClaimKeeper` asks our broker, where each verb is one operation that may be repeated. Where
there is no such operation, `deferral.DeferralClaimKeeper` does the same by deferring messages.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, final

from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int, Uint
from peeklock.client.exceptions import ClaimFenced, ServiceBusError, ServiceBusServerBusyError
from peeklock.spark.entity_client import patiently
from peeklock.spark.offsets import partition_of
from peeklock.spark.options import SourceOptions
from peeklock.spark.source.arrow import number_of

AUTO: Final = "auto"
BROKER: Final = "broker"
DEFERRAL: Final = "deferral"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
SUSPENDED: Final = "suspended"
DEAD_LETTERS: Final = "/$DeadLetterQueue"

NOT_IMPLEMENTED: Final = "amqp:not-implemented"
# Who claims nothing, and only looks.
NOBODY: Final = "peeklock.spark/nobody"

# A request has at most 65,536 values: numbers, sizes, attempts and sessions of so many fit.
PAGE: Final = 10_000
FETCH_BYTES: Final = 2 << 20
_FIRST_FETCH: Final = 2_000
PEEK_COUNT: Final = 250
_CLAIM: Final = "com.peeklock:claim-messages"
_LIST: Final = "com.peeklock:list-claims"
_FETCH: Final = "com.peeklock:fetch-claims"
_SETTLE: Final = "com.peeklock:settle-claims"
_PEEK: Final = "com.microsoft:peek-message"


class EntityManagement(Protocol):
    """What a keeper of claims asks: the management node of an entity."""

    def manage(
        self,
        operation: str,
        arguments: dict[Any, Any],
        sub_queue: str = "",
        *,
        is_repeatable: bool = True,
    ) -> dict[Any, Any]:
        """Ask the management node of the entity, or of a sub queue of it; once, if it must not be
        asked again when the answer is lost."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """One message that belongs to this reader until it is settled."""

    number: int
    size: int
    session_id: str | None = None
    # How often it was fetched since it was claimed, as far as the broker remembers.
    attempts: int = 0


@final
@dataclass(frozen=True, slots=True)
class Backlog:
    """How the entity is: the highest number of each partition, and what waits there."""

    last_numbers: dict[int, int]
    active: int
    oldest_enqueued: int  # -1: nothing waits


@final
@dataclass(frozen=True, slots=True)
class ClaimPage:
    """Some of the messages that were asked for, and how many of the numbers it answers."""

    payloads: list[bytes]
    looked_at: int


class ClaimKeeper(Protocol):
    """Who has claimed what."""

    @property
    def kind(self) -> str:
        """Return which kind of keeper it is, so that tasks open the same."""
        ...

    def enter(self) -> None:
        """Become the one reader of this name; a former one is fenced where that is possible."""
        ...

    def claim(
        self, rows: int, size: int, sessions: int, upto: dict[int, int] | None
    ) -> list[ClaimedMessage]:
        """Claim what is ready, the oldest first; nothing when there is nothing.

        A size of 0 is any number of bytes.
        After a failure that may pass nobody knows whether it was done: `listed` tells.
        """
        ...

    def listed(self) -> list[ClaimedMessage]:
        """List everything that this reader has claimed."""
        ...

    def backlog(self) -> Backlog:
        """Return how much there is besides."""
        ...

    def fetch(self, numbers: Sequence[int], *, omit_body: bool) -> Iterator[ClaimPage]:
        """Return claimed messages in the order of the numbers; those that are gone are left out."""
        ...

    def heads(self, numbers: Sequence[int], sub_queue: str = "") -> list[bytes]:
        """Look at messages without their bodies, claimed or not, without being counted."""
        ...

    def settle(
        self, numbers: Sequence[int], outcome: str, *, note: dict[str, Any] | None = None
    ) -> int:
        """End claims; numbers that are not claimed are ignored. Return how many were."""
        ...


@final
class BrokerClaimKeeper:
    """Claims that the broker keeps: one operation for each verb."""

    kind: Final = BROKER

    def __init__(self, wire: EntityManagement, options: SourceOptions) -> None:
        self._wire = wire
        self._owner = options.consumer_id
        self._timeout_ms = options.claim_timeout_ms
        self._entity = options.entity
        self._access = options.access
        self._epoch = 0

    def enter(self) -> None:
        """Take the next epoch; whoever had the last one is told with its next question."""
        while not self._epoch:
            last = int(self._listing(0, 1, epoch=0)["epoch"])
            try:
                self._listing(0, 1, epoch=last + 1)
            except ClaimFenced:
                continue  # Somebody was quicker, and is to be overtaken.
            self._epoch = last + 1

    def claim(
        self, rows: int, size: int, sessions: int, upto: dict[int, int] | None
    ) -> list[ClaimedMessage]:
        """Claim in one call; the broker divides it among its partitions."""
        asked: dict[str, Any] = {
            "owner": self._owner,
            "epoch": self._epoch,
            "message-count": Int(min(rows, PAGE)),
            "max-bytes": size,
            "claim-timeout": Uint(self._timeout_ms),
            "session-count": Int(sessions),
        }
        if upto is not None:
            asked["upto"] = Array(LONG, list(upto.values()))
        # Not twice: what was claimed for a lost answer would be known to nobody.
        answer = self._asked(_CLAIM, asked, is_repeatable=False)
        return _claimed(answer) if answer else []

    def listed(self) -> list[ClaimedMessage]:
        """List page by page."""
        found: list[ClaimedMessage] = []
        first = 0
        while True:
            page = _claimed(patiently(partial(self._whole_page, first), self._access))
            found += page
            if len(page) < PAGE:
                return found
            first = page[-1].number + 1

    def _whole_page(self, first: int) -> dict[Any, Any]:
        """List a page of all partitions: what one of them holds must not be taken for gone."""
        answer = self._listing(first, PAGE, epoch=self._epoch)
        if missing := _items(answer, "missing-partitions"):
            raise ServiceBusServerBusyError(
                f"partitions {', '.join(map(str, missing))} of '{self._entity}' cannot be reached, "
                "so that nobody can tell what this reader has claimed there"
            )
        return answer

    def backlog(self) -> Backlog:
        """Ask for one claim, because the rest of the answer is what is wanted."""
        answer = self._listing(0, 1, epoch=self._epoch)
        oldest = answer.get("oldest-enqueued")
        return Backlog(
            {partition_of(number): number for number in _items(answer, "last-sequence-numbers")},
            int(answer.get("active-count") or 0),
            -1 if oldest is None else int(oldest),
        )

    def fetch(self, numbers: Sequence[int], *, omit_body: bool) -> Iterator[ClaimPage]:
        """Ask again and again for what the bytes of one answer did not reach; never for many more
        than have fitted before."""
        at = 0
        count = _FIRST_FETCH
        while at < len(numbers):
            answer = self._asked(
                _FETCH,
                {
                    "owner": self._owner,
                    "sequence-numbers": Array(LONG, list(numbers[at : at + count])),
                    "omit-message-body": omit_body,
                    "max-bytes": FETCH_BYTES,
                },
            )
            page = ClaimPage(_messages(answer), int(answer["looked-at"]))
            yield page
            at += page.looked_at
            count = min(PAGE, 2 * page.looked_at)

    def heads(self, numbers: Sequence[int], sub_queue: str = "") -> list[bytes]:
        """Peek: it counts no attempt."""
        return heads(self._wire, numbers, sub_queue)

    def settle(
        self, numbers: Sequence[int], outcome: str, *, note: dict[str, Any] | None = None
    ) -> int:
        """Settle in pages; a repeat settles what is left."""
        count = 0
        for at in range(0, len(numbers), PAGE):
            asked = {
                "owner": self._owner,
                "sequence-numbers": Array(LONG, list(numbers[at : at + PAGE])),
                "disposition-status": outcome,
                **(note or {}),
            }
            if self._epoch:
                asked["epoch"] = self._epoch
            count += int(self._asked(_SETTLE, asked).get("message-count") or 0)
        return count

    def _listing(self, first: int, count: int, *, epoch: int) -> dict[Any, Any]:
        asked = {
            "owner": self._owner,
            "from-sequence-number": first,
            "message-count": Int(count),
        }
        if epoch:
            asked["epoch"] = epoch
        return self._asked(_LIST, asked)

    def _asked(
        self, operation: str, arguments: dict[str, Any], *, is_repeatable: bool = True
    ) -> dict[Any, Any]:
        try:
            return self._wire.manage(operation, arguments, is_repeatable=is_repeatable)
        except ClaimFenced as fenced:
            if not self._epoch:
                raise
            raise ClaimFenced(
                f"another query reads '{self._entity}' as '{self._owner}' and has taken over; "
                "one consumerId is for one running query, give the other a name of its own "
                f"({fenced})",
                condition=fenced.condition,
            ) from fenced


def heads(wire: EntityManagement, numbers: Sequence[int], sub_queue: str = "") -> list[bytes]:
    """Look at messages by their numbers, in ascending order, without their bodies."""
    pages = peek_pages(wire, numbers, omit_body=True, sub_queue=sub_queue)
    return [payload for page in pages for payload in page.payloads]


def peek_pages(
    wire: EntityManagement, numbers: Sequence[int], *, omit_body: bool, sub_queue: str = ""
) -> Iterator[ClaimPage]:
    """Walk over an entity from number to number, and keep what was asked for."""
    wanted = sorted(numbers)
    at = 0
    while at < len(wanted):
        payloads = peek_page(
            wire, wanted[at], len(wanted) - at, omit_body=omit_body, sub_queue=sub_queue
        )
        known = [(number_of(payload), payload) for payload in payloads]
        last = max((number for number, _ in known if number is not None), default=None)
        upto = len(wanted) if last is None else bisect_right(wanted, last)
        asked = set(wanted[at:upto])
        yield ClaimPage([payload for number, payload in known if number in asked], upto - at)
        at = upto


def peek_page(
    wire: EntityManagement, first: int, count: int, *, omit_body: bool, sub_queue: str = ""
) -> list[bytes]:
    """Peek once: what the entity has from this number on."""
    asked = {
        "from-sequence-number": first,
        "message-count": Int(min(count, PEEK_COUNT)),
        "omit-message-body": omit_body,
    }
    return _messages(wire.manage(_PEEK, asked, sub_queue))


def last_numbers(wire: EntityManagement) -> dict[int, int]:
    """Find the highest number of each partition: the broker knows, elsewhere one must walk."""
    answer = _looked_up(wire)
    if answer is not None:
        numbers = _items(answer, "last-sequence-numbers")
        return {partition_of(number): number for number in numbers}
    return {partition_of(number): number for number, _ in walk(wire)}


def active_count(wire: EntityManagement) -> int:
    """Return how many messages are ready to be received; elsewhere, whether there is any."""
    answer = _looked_up(wire)
    if answer is not None:
        return int(answer.get("active-count") or 0)
    return len(peek_page(wire, 0, 1, omit_body=True))


def keeps_claims(wire: EntityManagement) -> bool:
    """Return whether the broker keeps claims; to ask fences nobody."""
    return _looked_up(wire) is not None


def walk(wire: EntityManagement) -> Iterator[tuple[int, bytes]]:
    """Look at everything without bodies."""
    first = 0
    while True:
        known = [
            (number_of(one), one) for one in peek_page(wire, first, PEEK_COUNT, omit_body=True)
        ]
        numbered = [(number, one) for number, one in known if number is not None]
        if not numbered:
            return
        yield from numbered
        first = numbered[-1][0] + 1


def _looked_up(wire: EntityManagement) -> dict[Any, Any] | None:
    """List the claims of nobody, for what else is in the answer; None where there is no such."""
    asked = {"owner": NOBODY, "from-sequence-number": 0, "message-count": Int(1)}
    try:
        return wire.manage(_LIST, asked)
    except ServiceBusError as error:
        if error.condition != NOT_IMPLEMENTED:
            raise
        return None


def _messages(answer: dict[Any, Any]) -> list[bytes]:
    return [bytes(entry["message"]) for entry in answer.get("messages") or []]


def _items(answer: dict[Any, Any], name: str) -> list[Any]:
    value = answer.get(name)
    return list(value.items) if isinstance(value, Array) else list(value or [])


def _claimed(answer: dict[Any, Any]) -> list[ClaimedMessage]:
    numbers = _items(answer, "sequence-numbers")
    sizes = _items(answer, "sizes")
    sessions = _items(answer, "session-ids") or [None] * len(numbers)
    attempts = _items(answer, "attempts") or [0] * len(numbers)
    return [
        ClaimedMessage(int(number), int(size), session, int(times))
        for number, size, session, times in zip(numbers, sizes, sessions, attempts, strict=True)
    ]
