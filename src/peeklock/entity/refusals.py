"""Refusals: a wish that was declined, with the reason. Values, not exceptions.

The gateway's table `refusals.py` gives each kind its wire codes; a test compares the two lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

LOCK_LOST: Final = "lock-lost"
MESSAGE_NOT_FOUND: Final = "message-not-found"
MESSAGE_TOO_BIG: Final = "message-too-big"
NOT_ALLOWED: Final = "not-allowed"
INVALID_ARGUMENT: Final = "invalid-argument"
ENTITY_NOT_FOUND: Final = "entity-not-found"
ENTITY_DISABLED: Final = "entity-disabled"
UNAUTHORIZED: Final = "unauthorized"
NOT_IMPLEMENTED: Final = "not-implemented"
BUSY: Final = "busy"  # full disk, overload: the same wish may succeed later
UNAVAILABLE: Final = "unavailable"  # the store failed: whether it was stored is in doubt
TIMED_OUT: Final = "timed-out"
INTERNAL: Final = "internal"
SESSION_LOCK_LOST: Final = "session-lock-lost"
SESSION_CANNOT_BE_LOCKED: Final = "session-cannot-be-locked"
SESSION_REQUIRED: Final = "session-required"
CLAIM_FENCED: Final = "claim-fenced"  # an owner with a later epoch has come
QUOTA_EXCEEDED: Final = "quota-exceeded"
NO_MATCHING_SUBSCRIPTION: Final = "no-matching-subscription"
ENTITY_EXISTS: Final = "entity-exists"
TRANSACTION_FAILED: Final = "transaction-failed"
TRANSACTION_UNKNOWN: Final = "transaction-unknown"
TRANSACTION_TIMED_OUT: Final = "transaction-timed-out"
DETACHED: Final = "detached"  # the link must go, and may come back at once

KINDS: Final = (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    INVALID_ARGUMENT,
    ENTITY_NOT_FOUND,
    ENTITY_DISABLED,
    UNAUTHORIZED,
    NOT_IMPLEMENTED,
    BUSY,
    UNAVAILABLE,
    TIMED_OUT,
    INTERNAL,
    SESSION_LOCK_LOST,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_REQUIRED,
    CLAIM_FENCED,
    QUOTA_EXCEEDED,
    NO_MATCHING_SUBSCRIPTION,
    ENTITY_EXISTS,
    TRANSACTION_FAILED,
    TRANSACTION_UNKNOWN,
    TRANSACTION_TIMED_OUT,
    DETACHED,
)

LOCK_LOST_TEXT: Final = (
    "The lock supplied is invalid. Either the lock expired, "
    "or the message has already been removed from the queue."
)

SESSION_LOCK_LOST_TEXT: Final = (
    "The session lock has expired on the MessageSession. Accept a new MessageSession."
)


@final
@dataclass(slots=True, init=False)
class Refusal:
    """Why a command was declined."""

    kind: Final[str]
    text: Final[str]

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text


def too_much_at_once(size: int, most: int) -> Refusal:
    """Return why several messages cannot be one answer."""
    text = (
        f"The messages asked for have {size} bytes, and those of one request may have {most} "
        "together. None was taken; ask for fewer at a time."
    )
    return Refusal(QUOTA_EXCEEDED, text)
