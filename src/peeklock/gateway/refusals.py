"""The one place where refusals get their wire words: condition, status, text and tracking id.

Every kind of refusal has a row; a client reads from the condition whether a retry can succeed, so
a permanent failure must never get a condition that the clients retry (R-T2).
"""

import logging
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final, final

from peeklock.amqp.dialect import (
    ARGUMENT_ERROR,
    CLAIM_FENCED,
    ENTITY_DISABLED,
    ENTITY_EXISTS,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NO_MATCHING_SUBSCRIPTION,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    TIMEOUT,
)
from peeklock.auth.refusal import INVALID_SIGNATURE
from peeklock.clock import Clock, Instant
from peeklock.entity import refusals as kinds
from peeklock.entity.definition import QUEUE
from peeklock.entity.refusals import Refusal
from peeklock.gateway import logbook
from peeklock.gateway.identifiers import RandomSource, guid

_LOG: Final = logging.getLogger("peeklock.refusals")
# Clients can be refused as often as they like; whoever looks for a tracking id finds it unless
# there was a flood of its kind.
_LINES_MAX: Final = 100

_SUBSCRIPTIONS: Final = "/subscriptions/"

# Texts repeat what the client said. What is longer than any name or expression is cut, so that an
# answer fits into a frame of the client and a line of the log can be read.
_TEXT_LENGTH_MAX: Final = 4_096
_NAME_LENGTH_MAX: Final = 512


@final
@dataclass(slots=True)
class WireForm:
    """How one kind of refusal is told to clients; a link that must go may hear another word."""

    condition: Final[str]
    status: Final[int]
    _: KW_ONLY
    is_retryable: Final[bool] = False
    detaching: str = ""

    def __post_init__(self) -> None:
        self.detaching = self.detaching or self.condition


WIRE_FORMS: Final[dict[str, WireForm]] = {
    kinds.LOCK_LOST: WireForm(MESSAGE_LOCK_LOST, 410),
    kinds.MESSAGE_NOT_FOUND: WireForm(MESSAGE_NOT_FOUND, 404),
    kinds.MESSAGE_TOO_BIG: WireForm("amqp:link:message-size-exceeded", 403),
    kinds.NOT_ALLOWED: WireForm("amqp:not-allowed", 400),
    kinds.INVALID_ARGUMENT: WireForm(ARGUMENT_ERROR, 400),
    kinds.ENTITY_NOT_FOUND: WireForm("amqp:not-found", 404),
    kinds.ENTITY_DISABLED: WireForm(ENTITY_DISABLED, 400),
    kinds.UNAUTHORIZED: WireForm("amqp:unauthorized-access", 401),
    kinds.NOT_IMPLEMENTED: WireForm("amqp:not-implemented", 501),
    kinds.BUSY: WireForm(SERVER_BUSY, 503, is_retryable=True),
    # Clients try again after a pause and keep their link. An internal error in its place makes
    # Python's client give up a link that goes on; where the link does go, it is the word for that.
    kinds.UNAVAILABLE: WireForm(
        SERVER_BUSY, 503, is_retryable=True, detaching="amqp:internal-error"
    ),
    kinds.TIMED_OUT: WireForm(TIMEOUT, 408, is_retryable=True),
    kinds.INTERNAL: WireForm("amqp:internal-error", 500, is_retryable=True),
    kinds.SESSION_LOCK_LOST: WireForm(SESSION_LOCK_LOST, 410),
    kinds.SESSION_CANNOT_BE_LOCKED: WireForm(SESSION_CANNOT_BE_LOCKED, 410),
    kinds.SESSION_REQUIRED: WireForm("amqp:not-allowed", 400),
    kinds.CLAIM_FENCED: WireForm(CLAIM_FENCED, 409),
    kinds.QUOTA_EXCEEDED: WireForm("amqp:resource-limit-exceeded", 403),
    kinds.NO_MATCHING_SUBSCRIPTION: WireForm(NO_MATCHING_SUBSCRIPTION, 500),
    kinds.ENTITY_EXISTS: WireForm(ENTITY_EXISTS, 409),
    kinds.TRANSACTION_FAILED: WireForm("amqp:transaction:rollback", 400),
    kinds.TRANSACTION_UNKNOWN: WireForm("amqp:transaction:unknown-id", 400),
    kinds.TRANSACTION_TIMED_OUT: WireForm("amqp:transaction:timeout", 400),
    kinds.DETACHED: WireForm("amqp:link:detach-forced", 500, is_retryable=True),
}

# Our own trouble, not the client's: these lines are warnings.
_OURS: Final = frozenset({kinds.BUSY, kinds.UNAVAILABLE, kinds.INTERNAL})


@final
@dataclass(frozen=True, slots=True)
class Declined:
    """A refusal in wire words, ready for AMQP and HTTP."""

    condition: str
    detaching: str
    status: int
    text: str
    tracking_id: str


@final
class RefusalWriter:
    """Words refusals, gives each its tracking id and writes it down once."""

    def __init__(
        self,
        *,
        clock: Clock,
        random_source: RandomSource,
        namespace: str,
        counts: dict[tuple[str, str], int] | None = None,
    ) -> None:
        """Counts, by namespace and kind, are shared by all writers."""
        self._counts = {} if counts is None else counts
        self._clock = clock
        self._random_source = random_source
        self._namespace = namespace
        self._log = logbook.Sparing(_LOG, lines_max=_LINES_MAX)

    def decline(
        self,
        refusal: Refusal,
        *,
        entity: str,
        operation: str,
        peer: str,
        count: int = 1,
        kind: str = QUEUE,
    ) -> Declined:
        """Word a refusal of `count` equal wishes and log it under its tracking id."""
        form = WIRE_FORMS[refusal.kind]
        place = (self._namespace, refusal.kind)
        self._counts[place] = self._counts.get(place, 0) + count
        tracking_id = guid(self._random_source)
        entity = _cut(entity, _NAME_LENGTH_MAX)
        where = tracker(self._namespace, kind, entity)
        said = _cut(refusal.text, _TEXT_LENGTH_MAX)
        text = (
            f"{said} TrackingId:{tracking_id}, SystemTracker:{where}, "
            f"Timestamp:{_seconds(self._clock.now())}"
        )
        self._log.write(
            logging.WARNING if refusal.kind in _OURS else logging.INFO,
            "refused",
            operation=_cut(operation, _NAME_LENGTH_MAX),
            kind=refusal.kind,
            condition=form.condition,
            status=form.status,
            namespace=self._namespace,
            entity=entity or None,
            count=count,
            peer=peer,
            tracking=tracking_id,
            text=said,
            advice=_advice(refusal, entity),
        )
        return Declined(form.condition, form.detaching, form.status, text, tracking_id)


def _advice(refusal: Refusal, entity: str) -> str | None:
    """Say what to type about what newcomers meet first; clients may hide our text for a while."""
    if refusal.kind == kinds.ENTITY_NOT_FOUND:
        at = entity.lower().rfind(_SUBSCRIPTIONS)
        if at >= 0:
            topic, subscription = entity[:at], entity[at + len(_SUBSCRIPTIONS) :]
            lists, makes = (
                f"subscription list {topic}",
                f"subscription create {topic} {subscription}",
            )
        else:
            lists, makes = "queue list", f"queue create {entity or 'NAME'}"
        return f"peeklock {lists} shows what there is, peeklock {makes} makes it"
    if refusal.kind == kinds.UNAUTHORIZED and refusal.text.startswith(INVALID_SIGNATURE):
        return (
            "the connection string has a wrong key or key name: take the one that the broker "
            "prints when it is ready; keys are the AuthorizationRules of its --config file"
        )
    return None


def tracker(namespace: str, kind: str, path: str) -> str:
    """Name an entity as the service does in its texts (protocol 8.3): `ns:Queue:q`, `ns:Topic:t`,
    `ns:Topic:t|subscription`."""
    if not path:
        return namespace
    if kind == QUEUE:
        return f"{namespace}:Queue:{path}"
    at = path.lower().rfind(_SUBSCRIPTIONS)
    if at < 0:
        return f"{namespace}:Topic:{path}"
    return f"{namespace}:Topic:{path[:at]}|{path[at + len(_SUBSCRIPTIONS) :]}"


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}..."


def _seconds(instant: Instant) -> str:
    return datetime.fromtimestamp(instant // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
