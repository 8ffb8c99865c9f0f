"""What a message says of itself that could not be forwarded and is a dead letter for that."""

from __future__ import annotations

from typing import Final

from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    ENTITY_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NO_MATCHING_SUBSCRIPTION,
    QUOTA_EXCEEDED,
    SESSION_REQUIRED,
    Refusal,
)
from peeklock.entity.settlement import DEAD_LETTER, Settlement
from peeklock.entity.topics.copying import SESSION_MISSING, SESSION_MISSING_TEXT

HOPS_EXCEEDED: Final = "MaxTransferHopCountExceeded"
HOPS_EXCEEDED_TEXT: Final = (
    "The maximum number of allowed hops when forwarding between queues. Value is set to four."
)

FAILED: Final = "TransferFailed"
_REASONS: Final = {
    ENTITY_NOT_FOUND: "MessagingEntityNotFound",
    ENTITY_DISABLED: "MessagingEntityDisabled",
    QUOTA_EXCEEDED: "QuotaExceeded",
    MESSAGE_TOO_BIG: "MessageSizeExceeded",
    NO_MATCHING_SUBSCRIPTION: "NoMatchingSubscription",
}

TOO_MANY_HOPS: Final = Settlement(DEAD_LETTER, None, HOPS_EXCEEDED, HOPS_EXCEEDED_TEXT)


def dead_letter_of(refusal: Refusal) -> Settlement:
    """Return what makes a dead letter that says why it could not be forwarded."""
    if refusal.kind == SESSION_REQUIRED:
        return Settlement(DEAD_LETTER, None, SESSION_MISSING, SESSION_MISSING_TEXT)
    return Settlement(DEAD_LETTER, None, _REASONS.get(refusal.kind, FAILED), refusal.text)
