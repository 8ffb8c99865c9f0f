"""Sentences that clients know by heart."""

from typing import Final

from peeklock.auth.rights import LISTEN, SEND, Rights
from peeklock.gateway.refusals import tracker

NO_SENDING_TO_DEAD_LETTERS: Final = "Messages cannot be sent to a dead-letter queue."
NO_SENDING_TO_SUBSCRIPTIONS: Final = (
    "Messages cannot be sent to a subscription; send them to its topic."
)
NO_STAGING_FOR_OTHERS: Final = (
    "Messages cannot be staged by way of one entity for another; stage them where they go."
)
NO_STAGING_IN_TRANSACTIONS: Final = (
    "Messages cannot be staged as part of a transaction: a stage is a transaction of its own."
)
NO_RECEIVING_FROM_TOPICS: Final = (
    "Messages cannot be received from a topic; receive them from one of its subscriptions."
)
NO_CLAIMING_WHILE_FORWARDING: Final = (
    "Messages cannot be claimed from an entity with auto-forwarding enabled."
)
NO_RECEIVING_WHILE_FORWARDING: Final = (
    "Cannot create a message receiver on an entity with auto-forwarding enabled."
)
SESSIONS_REQUIRED: Final = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message "
    "receiver."
)
SESSIONS_NOT_REQUIRED: Final = (
    "It is not possible for an entity that does not require sessions to create a sessionful "
    "message receiver."
)
NO_SESSIONS_IN_SUB_QUEUES: Final = (
    "A dead-letter queue has no sessions: receive from it without a session."
)

# What is said to whoever settles a delivery that is settled.
SETTLED_ALREADY: Final = (
    "The lock supplied is invalid. This delivery is settled; where its message is still locked, "
    "its lock token settles it."
)

# Why a link or a connection cannot stay.
TOO_MANY_TOKENS: Final = "Too many tokens came that no key has signed."
EXPIRED: Final = "ExpiredToken: The token that gave access to this link is expired."
REPLACED: Final = "ExpiredToken: A newer token has replaced the one that gave access to this link."
REVOKED: Final = (
    "InvalidSignature: The key that gave access to this link was removed or grants less now."
)
PLACE_NEEDED: Final = "The place of this connection without a token is needed."
MEMORY_NEEDED: Final = "The broker needs the memory of what this connection makes it hold."
TOO_MUCH_KEPT: Final = "Too much is unread or half said for a connection without a token."
STALLED: Final = "Messages were not taken for two minutes, and others need the memory."


def operation_timed_out(waited_ms: int) -> str:
    """Say that a request took longer than its client allows, and whether it was done is unknown."""
    seconds, ms = divmod(waited_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{ms:03}0000" if ms else ""
    return (
        "The operation did not complete within the allotted timeout of "
        f"{hours:02}:{minutes:02}:{seconds:02}{fraction}. The time allotted to this operation may "
        "have been a portion of a longer timeout."
    )


def entity_not_found(host: str, path: str) -> str:
    """Say that there is no such entity; the JavaScript client looks for these very words."""
    return f"The messaging entity 'sb://{host}/{path}' could not be found."


def unauthorized(wanted: Rights, host: str, path: str) -> str:
    """Say which right is missing."""
    claims = {SEND: "'Send'", LISTEN: "'Listen'"}.get(wanted, "'Send' or 'Listen'")
    return (
        f"Unauthorized access. {claims} claim(s) are required to perform this operation. "
        f"Resource: 'sb://{host}/{path}'."
    )


def entity_disabled(namespace: str, kind: str, path: str) -> str:
    """Say that the entity takes or gives no messages at present."""
    return f"Messaging entity '{tracker(namespace, kind, path)}' is currently disabled."
