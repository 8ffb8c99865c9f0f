"""The four answers to a message, as a link says them and as a management node does."""

from collections.abc import Sequence
from typing import Any, Final, final

from peeklock.amqp.dialect import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.values.composites import ACCEPTED, encode_modified, encode_rejected
from peeklock.amqp.values.constructors import UUID_CODE
from peeklock.amqp.values.types import Array, Symbol
from peeklock.client.exceptions import MessageAlreadySettled
from peeklock.client.message import wire_properties
from peeklock.client.received import ServiceBusReceivedMessage

_DEAD_LETTER: Final = "com.microsoft:dead-letter"


@final
class ClientSettlement:
    """One answer, in both its forms."""

    __slots__ = ("arguments", "outcome")

    def __init__(self, outcome: bytes, status: str, **arguments: Any) -> None:
        self.outcome: Final = outcome
        self.arguments: Final[dict[str, Any]] = {"disposition-status": status, **arguments}

    def by_token(self, message: ServiceBusReceivedMessage) -> dict[str, Any]:
        """Return what to ask the management node for."""
        tokens = Array(UUID_CODE, [message.lock_token])
        return {"lock-tokens": tokens, **self.arguments}


COMPLETE: Final = ClientSettlement(ACCEPTED, "completed")


def abandon(properties: dict[str, Any] | None) -> ClientSettlement:
    """Give the message back, to be tried again."""
    return _modified("abandoned", False, properties)


def defer(properties: dict[str, Any] | None) -> ClientSettlement:
    """Set the message aside; only its number brings it back."""
    return _modified("defered", True, properties)


def dead_letter(
    reason: str | None, description: str | None, properties: dict[str, Any] | None
) -> ClientSettlement:
    """Move the message to the dead-letter queue."""
    changed = None if not properties else wire_properties(properties)
    info: dict[Any, Any] = {Symbol(key): value for key, value in (changed or {}).items()}
    if reason is not None:
        info[Symbol(DEAD_LETTER_REASON)] = reason
    if description is not None:
        info[Symbol(DEAD_LETTER_DESCRIPTION)] = description
    arguments: dict[str, Any] = {
        "deadletter-reason": reason,
        "deadletter-description": description,
    }
    if changed:
        arguments["properties-to-modify"] = changed
    error = AmqpError(_DEAD_LETTER, description, info or None)
    return ClientSettlement(encode_rejected(error), "suspended", **arguments)


def _modified(status: str, is_aside: bool, properties: dict[str, Any] | None) -> ClientSettlement:
    if not properties:
        outcome = encode_modified(delivery_failed=True, undeliverable_here=is_aside)
        return ClientSettlement(outcome, status)
    changed = wire_properties(properties)
    annotations = {Symbol(key): value for key, value in changed.items()}
    outcome = encode_modified(
        delivery_failed=True, undeliverable_here=is_aside, message_annotations=annotations
    )
    return ClientSettlement(outcome, status, **{"properties-to-modify": changed})


def check_settleable(message: ServiceBusReceivedMessage) -> None:
    """Make sure that there is something to settle, and that no transaction is about to do it."""
    check_locked(message)
    if message.transaction is not None:
        raise ValueError("the message belongs to a transaction that has not ended")


def check_all_settleable(messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Make sure of it for messages that are settled together: each of them has one answer."""
    for message in messages:
        check_settleable(message)
    if len(set(map(id, messages))) < len(messages):
        raise ValueError("a message is given twice")


def check_locked(message: ServiceBusReceivedMessage) -> None:
    """Make sure that the message has a lock, as far as is known."""
    if not isinstance(message, ServiceBusReceivedMessage):
        raise TypeError(f"a {type(message).__name__} is not a message that was received")
    if message.is_peeked:
        raise ValueError("a message that was peeked cannot be settled")
    if message.is_deleted:
        raise ValueError("a message that was received and deleted cannot be settled")
    if message.is_settled:
        raise MessageAlreadySettled("the message is settled already")
    if not message.has_lock:
        raise ValueError("a message without a lock cannot be settled")
