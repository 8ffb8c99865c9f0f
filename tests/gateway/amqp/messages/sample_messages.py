"""Messages that are sent, acted on and told again, for the tests of the wording."""

from __future__ import annotations

from typing import Any

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.types import (
    Symbol,
)
from peeklock.entity import message as domain
from peeklock.entity.deliveries import STATE_ACTIVE, Delivery, Details
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.values import (
    CONTENT_TYPE,
    CORRELATION_ID,
    LABEL,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    TO,
)
from peeklock.gateway.amqp.messages.translate import incoming, outgoing
from peeklock.gateway.amqp.messages.wording import AmqpWording
from peeklock.gateway.identifiers import MessageIds
from tests.broker.seeded_random import SeededRandom

NOW = 1_700_000_000_000
TICKS = 10_000
IDS = MessageIds(SeededRandom(1).number)
WORDING = AmqpWording(SeededRandom(2).number)
TIMESPAN = Symbol("com.microsoft:timespan")
DATETIME_OFFSET = Symbol("com.microsoft:datetime-offset")
URI = Symbol("com.microsoft:uri")


def sent(*, wants_keys: bool = True, **sections: Any) -> domain.Message:
    sections.setdefault("properties", Properties(message_id="m"))
    sections.setdefault("body_kind", DATA_BODY)
    sections.setdefault("body", [b"body"])
    return incoming(encode_message(AmqpMessage(**sections)), NOW, IDS, wants_keys)


def told(message: domain.Message, details: Details | None = None) -> AmqpMessage:
    """The message as a receiver gets it."""
    head, bare = outgoing(delivery_of(message, details=details))
    return decode_message(head + bare)


def delivery_of(
    message: domain.Message, *, details: Details | None = None, expires_at: int = 0
) -> Delivery:
    return Delivery(5, 9, 0, 0, NOW, expires_at, 1, message, details, STATE_ACTIVE)


def body_of(message: domain.Message) -> bytes:
    return message.content[split(message.content).body_at :]


def acted(message: domain.Message, text: str) -> domain.Message:
    return WORDING.changed(message, SqlAction(text).apply(WORDING.reader(message, NOW)))


def bare_keys(message: domain.Message) -> domain.Message:
    """The same message as a store gives it whose entity did not ask for keys."""
    return domain.Message(
        message.envelope,
        message.content,
        domain.Traits(time_to_live_ms=message.time_to_live_ms, scheduled_at=message.scheduled_at),
    )


TEXTS = (CORRELATION_ID, TO, REPLY_TO, REPLY_TO_SESSION_ID, LABEL, CONTENT_TYPE)
