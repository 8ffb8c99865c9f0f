"""What can go wrong, in the words of azure-servicebus, and what may succeed when it is tried again.

    ServiceBusError
      ServiceBusConnectionError              the connection or the link is gone
      ServiceBusCommunicationError           nobody can be reached
      ServiceBusAuthenticationError          the key or token is not accepted
      ServiceBusAuthorizationError           it is, but does not allow this
      OperationTimeoutError                  no answer in time
      ServiceBusServerBusyError              the broker asks to come again later
      ServiceBusQuotaExceededError           the entity is full
      MessageSizeExceededError               the message or batch is too large (a ValueError too)
      MessageAlreadySettled                  (a ValueError too)
      MessageLockLostError, MessageNotFoundError
      SessionLockLostError, SessionCannotBeLockedError
      MessagingEntityNotFoundError, MessagingEntityDisabledError, MessagingEntityAlreadyExistsError
      AutoLockRenewFailed, AutoLockRenewTimeout
      TransactionRolledBackError             nothing of the transaction was carried out
      TransactionInDoubtError                all of it was, or nothing
      ClaimFenced                            another reader of the same name has taken over

`condition` is the wire's word for the reason, empty where there is none.
"""

from typing import ClassVar, Final

from peeklock.amqp.dialect import (
    CLAIM_FENCED,
    ENTITY_DISABLED,
    ENTITY_EXISTS,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    TIMEOUT,
)
from peeklock.amqp.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    FRAMING_ERROR,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)


class ServiceBusError(Exception):
    """The root of all that the client raises for what the broker or the network did."""

    # What the kind says when the condition does not.
    _is_retryable: ClassVar[bool] = False

    def __init__(
        self, message: str = "", *, condition: str = "", is_retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.condition = condition
        self.is_retryable = type(self)._is_retryable if is_retryable is None else is_retryable

    def __reduce__(self) -> tuple[object, ...]:
        # An exception with keyword arguments would not survive being pickled, as Spark does.
        return _rebuilt, (type(self), self.message, self.condition, self.is_retryable)


class ServiceBusConnectionError(ServiceBusError):
    """The connection or the link is gone; what was under way may or may not have happened."""

    _is_retryable = True


class ServiceBusCommunicationError(ServiceBusError):
    """Nobody can be reached at the address."""

    _is_retryable = True


class ServiceBusAuthenticationError(ServiceBusError):
    """The key or token was not accepted."""


class ServiceBusAuthorizationError(ServiceBusError):
    """The key or token does not allow what was asked."""


class OperationTimeoutError(ServiceBusError):
    """The answer did not come in time."""

    _is_retryable = True


class ServiceBusServerBusyError(ServiceBusError):
    """The broker asks to come again later."""

    _is_retryable = True


class ServiceBusQuotaExceededError(ServiceBusError):
    """The entity is full, or there are too many of something."""


class MessageSizeExceededError(ServiceBusError, ValueError):
    """The message or the batch is larger than the entity takes."""


class MessageAlreadySettled(ServiceBusError, ValueError):
    """The message was settled before, or there is nothing to settle."""


class MessageLockLostError(ServiceBusError):
    """The lock on the message ended before it was settled."""


class SessionLockLostError(ServiceBusError):
    """The lock on the session ended; another receiver may have it."""


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver holds the session."""

    _is_retryable = True


class MessageNotFoundError(ServiceBusError):
    """There is no message with this sequence number, or not for this receiver."""


class MessagingEntityNotFoundError(ServiceBusError):
    """There is no such queue, topic or subscription."""


class MessagingEntityDisabledError(ServiceBusError):
    """The entity does not take, or does not give, messages now."""


class MessagingEntityAlreadyExistsError(ServiceBusError):
    """There is an entity of that name already."""


class AutoLockRenewFailed(ServiceBusError):
    """A lock could not be renewed in the background."""


class AutoLockRenewTimeout(ServiceBusError):
    """A lock was renewed for as long as was allowed, and is not any more."""


class TransactionRolledBackError(ServiceBusError):
    """Nothing of the transaction was carried out; it can be begun anew."""


class TransactionInDoubtError(ServiceBusError):
    """The connection was lost while the transaction was committed: wholly, or not at all."""


class ClaimFenced(ServiceBusError):
    """Another reader with the same name has taken over."""


_BY_CONDITION: Final[dict[str, type[ServiceBusError]]] = {
    CLAIM_FENCED: ClaimFenced,
    TIMEOUT: OperationTimeoutError,
    SERVER_BUSY: ServiceBusServerBusyError,
    MESSAGE_LOCK_LOST: MessageLockLostError,
    SESSION_LOCK_LOST: SessionLockLostError,
    SESSION_CANNOT_BE_LOCKED: SessionCannotBeLockedError,
    MESSAGE_NOT_FOUND: MessageNotFoundError,
    ENTITY_DISABLED: MessagingEntityDisabledError,
    ENTITY_EXISTS: MessagingEntityAlreadyExistsError,
    "com.microsoft:auth-failed": ServiceBusAuthorizationError,
    UNAUTHORIZED_ACCESS: ServiceBusAuthorizationError,
    NOT_FOUND: MessagingEntityNotFoundError,
    RESOURCE_LIMIT_EXCEEDED: ServiceBusQuotaExceededError,
    MESSAGE_SIZE_EXCEEDED: MessageSizeExceededError,
    TRANSACTION_ROLLBACK: TransactionRolledBackError,
    TRANSACTION_TIMEOUT: TransactionRolledBackError,
    TRANSACTION_UNKNOWN_ID: TransactionRolledBackError,
    DETACH_FORCED: ServiceBusConnectionError,
    CONNECTION_FORCED: ServiceBusConnectionError,
    FRAMING_ERROR: ServiceBusConnectionError,
}

# Conditions without a kind of their own after which another try makes sense.
_RETRYABLE: Final = frozenset(
    {
        INTERNAL_ERROR,
        "com.microsoft:operation-cancelled",
        "com.microsoft:container-close",
        "com.microsoft:store-lock-lost",
        "com.microsoft:partition-not-owned",
    }
)

_BY_STATUS: Final[dict[int, type[ServiceBusError]]] = {
    401: ServiceBusAuthorizationError,
    403: ServiceBusQuotaExceededError,
    404: MessagingEntityNotFoundError,
    408: OperationTimeoutError,
    409: MessagingEntityAlreadyExistsError,
    410: MessageLockLostError,
    503: ServiceBusServerBusyError,
}


def from_condition(condition: str, message: str) -> ServiceBusError:
    """Return the exception for a condition of the wire."""
    kind = _BY_CONDITION.get(condition)
    if kind is not None:
        return kind(message, condition=condition)
    return ServiceBusError(message, condition=condition, is_retryable=condition in _RETRYABLE)


def from_error(error: AmqpError | None, otherwise: str) -> ServiceBusError:
    """Return the exception for what the broker said, or did not say, when it ended something."""
    if error is None:
        return ServiceBusConnectionError(otherwise)
    return from_condition(error.condition, error.description or f"{otherwise}: {error.condition}")


def from_status(status: int, condition: str, message: str) -> ServiceBusError:
    """Return the exception for an answer to a request; the condition says more than the status."""
    if condition:
        return from_condition(condition, message)
    kind = _BY_STATUS.get(status, ServiceBusError)
    if kind is ServiceBusError:
        return ServiceBusError(message, is_retryable=status >= 500 and status != 501)
    return kind(message)


def from_token_status(status: int, message: str) -> ServiceBusError:
    """Return the exception for a token that was not taken."""
    if status == 404:
        return MessagingEntityNotFoundError(message, condition=NOT_FOUND)
    if status in (408, 503) or status >= 500:
        return from_status(status, "", message)
    return ServiceBusAuthenticationError(message, condition=UNAUTHORIZED_ACCESS)


def _rebuilt(
    kind: type[ServiceBusError], message: str, condition: str, is_retryable: bool
) -> ServiceBusError:
    return kind(message, condition=condition, is_retryable=is_retryable)
