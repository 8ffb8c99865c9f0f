"""What can go wrong on the wire.

    Exception
      ProtocolError     the peer broke a rule that its whole connection rests on
        DecodeError     the peer's bytes are not what they claim to be

What the peer did wrong on a link or in a session ends only that (`Link.end`, `Session.fail`). A
mistake of our own (a value that has no AMQP form, say) is a TypeError or a ValueError, never one of
these. `AmqpError` is not an exception: it is the `error` that travels in close, end, detach and
rejected [2.8.14].
"""

from dataclasses import dataclass
from typing import Any, Final, final

# Shared conditions [2.8.15].
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

# Connection conditions [2.8.16].
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"

# Session conditions [2.8.17].
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

# Link conditions [2.8.18].
DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_STOLEN: Final = "amqp:link:stolen"

# Transaction conditions [4.5.8].
TRANSACTION_UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"


class ProtocolError(Exception):
    """A rule of the protocol that the peer broke."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.text = text


@final
class DecodeError(ProtocolError):
    """Bytes that cannot be read as what they should be."""

    def __init__(self, text: str) -> None:
        super().__init__(DECODE_ERROR, text)


@final
@dataclass(slots=True, init=False)
class AmqpError:
    """The wire's `error`: a condition, a text for people, and details as a map."""

    condition: Final[str]
    description: Final[str | None]
    info: Final[dict[Any, Any] | None]

    def __init__(
        self,
        condition: str,
        description: str | None = None,
        info: dict[Any, Any] | None = None,
    ) -> None:
        self.condition = condition
        self.description = description
        self.info = info
