"""The words that Service Bus adds to AMQP 1.0, as broker and clients must spell them alike.

What only one side says stands where it is said.
"""

from typing import Final

# --- conditions of errors

ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ENTITY_DISABLED: Final = "com.microsoft:entity-disabled"
ENTITY_EXISTS: Final = "com.microsoft:entity-already-exists"
MESSAGE_LOCK_LOST: Final = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
NO_MATCHING_SUBSCRIPTION: Final = "com.microsoft:no-matching-subscription"
SERVER_BUSY: Final = "com.microsoft:server-busy"
SESSION_CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST: Final = "com.microsoft:session-lock-lost"
# Of an error, and of the link that may wait so long for a session.
TIMEOUT: Final = "com.microsoft:timeout"
# A word of Peeklock's own.
CLAIM_FENCED: Final = "com.peeklock:claim-fenced"

# --- annotations of messages

# A word of Peeklock's own, beside the state: Java's client fails at one that it does not know.
CLAIMED: Final = b"com.peeklock:claimed"
DEAD_LETTER_SOURCE: Final = b"x-opt-deadletter-source"
ENQUEUE_SEQUENCE_NUMBER: Final = b"x-opt-enqueue-sequence-number"
ENQUEUED_TIME: Final = b"x-opt-enqueued-time"
LOCK_TOKEN: Final = b"x-opt-lock-token"
LOCKED_UNTIL: Final = b"x-opt-locked-until"
MESSAGE_STATE: Final = b"x-opt-message-state"
PARTITION_ID: Final = b"x-opt-partition-id"
PARTITION_KEY: Final = b"x-opt-partition-key"
SCHEDULED_TIME: Final = b"x-opt-scheduled-enqueue-time"
SEQUENCE_NUMBER: Final = b"x-opt-sequence-number"
VIA_PARTITION_KEY: Final = b"x-opt-via-partition-key"

# --- application properties of dead letters

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"

# --- links, transfers, requests

SESSION_FILTER: Final = "com.microsoft:session-filter"
SESSION_LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
BATCH_SIZE_MAX: Final = "com.microsoft:max-message-batch-size"
# A link that is attached to one entity says by it that another one is meant (send-via).
TRANSFER_DESTINATION: Final = "com.microsoft:transfer-destination-address"
# The message format of a transfer that carries several messages.
BATCH_FORMAT: Final = 0x80013700
# The link of a session receiver that a request to `$management` is made for.
ASSOCIATED_LINK: Final = "associated-link-name"
# How long a request to `$management` may take, in milliseconds; Go's client leaves the prefix out.
SERVER_TIMEOUT: Final = "com.microsoft:server-timeout"
SERVER_TIMEOUT_BARE: Final = "server-timeout"

# .NET counts in ticks of 100 ns from the year 1.
TICKS_PER_MS: Final = 10_000
TICKS_AT_1970: Final = 621_355_968_000_000_000

# --- AMQP in a WebSocket

WEBSOCKET_PATH: Final = "/$servicebus/websocket"
WEBSOCKET_PROTOCOL: Final = "AMQPWSB10"
