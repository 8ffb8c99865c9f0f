"""Which exception stands for which word of the wire."""

import pickle

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.client import exceptions
from peeklock.client.exceptions import (
    ClaimFenced,
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
    from_condition,
    from_error,
    from_status,
    from_token_status,
)

# Condition, exception, whether it is tried again.
CONDITIONS = [
    ("amqp:not-found", "MessagingEntityNotFoundError", False),
    ("amqp:unauthorized-access", "ServiceBusAuthorizationError", False),
    ("com.microsoft:auth-failed", "ServiceBusAuthorizationError", False),
    ("amqp:not-allowed", "ServiceBusError", False),
    ("amqp:not-implemented", "ServiceBusError", False),
    ("amqp:resource-limit-exceeded", "ServiceBusQuotaExceededError", False),
    ("amqp:link:message-size-exceeded", "MessageSizeExceededError", False),
    ("amqp:link:detach-forced", "ServiceBusConnectionError", True),
    ("amqp:connection:forced", "ServiceBusConnectionError", True),
    ("amqp:link:stolen", "ServiceBusError", False),
    ("amqp:internal-error", "ServiceBusError", True),
    ("com.microsoft:timeout", "OperationTimeoutError", True),
    ("com.microsoft:server-busy", "ServiceBusServerBusyError", True),
    ("com.microsoft:message-lock-lost", "MessageLockLostError", False),
    ("com.microsoft:session-lock-lost", "SessionLockLostError", False),
    ("com.microsoft:session-cannot-be-locked", "SessionCannotBeLockedError", True),
    ("com.microsoft:message-not-found", "MessageNotFoundError", False),
    ("com.microsoft:entity-disabled", "MessagingEntityDisabledError", False),
    ("com.microsoft:entity-already-exists", "MessagingEntityAlreadyExistsError", False),
    ("com.microsoft:argument-error", "ServiceBusError", False),
    ("com.microsoft:operation-cancelled", "ServiceBusError", True),
    ("com.peeklock:claim-fenced", "ClaimFenced", False),
    ("com.example:unknown", "ServiceBusError", False),
]


@pytest.mark.parametrize(("condition", "name", "is_retryable"), CONDITIONS)
def test_conditions(condition: str, name: str, is_retryable: bool) -> None:
    error = from_condition(condition, "why")
    assert (type(error).__name__, error.is_retryable) == (name, is_retryable)
    assert (error.condition, error.message, str(error)) == (condition, "why", "why")


def test_the_condition_says_more_than_the_status() -> None:
    assert type(from_status(410, "com.peeklock:claim-fenced", "")) is ClaimFenced
    assert type(from_status(410, "", "")) is MessageLockLostError
    assert type(from_status(404, "", "")) is MessagingEntityNotFoundError
    assert type(from_status(408, "", "")) is OperationTimeoutError
    assert type(from_status(503, "", "")) is ServiceBusServerBusyError
    assert [from_status(status, "", "").is_retryable for status in (400, 500, 501)] == [
        False,
        True,
        False,
    ]


def test_a_token_that_is_not_taken_is_a_matter_of_authentication() -> None:
    assert type(from_token_status(401, "")) is ServiceBusAuthenticationError
    assert type(from_token_status(404, "")) is MessagingEntityNotFoundError
    assert type(from_token_status(503, "")) is ServiceBusServerBusyError


def test_an_end_without_a_reason_is_a_lost_connection() -> None:
    error = from_error(None, "the link was detached")
    assert type(error) is ServiceBusConnectionError
    assert (error.is_retryable, str(error)) == (True, "the link was detached")
    assert str(from_error(AmqpError("amqp:not-allowed"), "it")) == "it: amqp:not-allowed"


def test_every_exception_has_one_root_and_survives_a_journey() -> None:
    """Spark sends what a task raises to the driver."""
    kinds = [
        kind
        for kind in vars(exceptions).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert len(kinds) == 22
    for kind in kinds:
        assert issubclass(kind, ServiceBusError)
        error = kind("text", condition="c", is_retryable=True)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert (copy.message, copy.condition, copy.is_retryable) == ("text", "c", True)
    assert issubclass(MessageAlreadySettled, ValueError)
