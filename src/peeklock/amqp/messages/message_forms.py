"""The two sections of a message that are composites [3.2]."""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.values.forms import ANY, field, form
from peeklock.amqp.values.types import Symbol, Timestamp, Ubyte, Uint


@final
@dataclass(slots=True, init=False)
class Header:
    """What the transport wants to know about a message [3.2.1]."""

    durable: Final[bool | None]
    priority: Final[int | None]
    ttl: Final[int | None]
    first_acquirer: Final[bool | None]
    delivery_count: Final[int | None]

    def __init__(
        self,
        *,
        durable: bool | None = None,
        priority: int | None = None,
        ttl: int | None = None,
        first_acquirer: bool | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.first_acquirer = first_acquirer
        self.delivery_count = delivery_count


HEADER: Final = form(
    Header,
    "header",
    0x70,
    field("durable", bool),
    field("priority", Ubyte),
    field("ttl", Uint),
    field("first-acquirer", bool),
    field("delivery-count", Uint),
)


@final
@dataclass(slots=True, init=False)
class Properties:
    """What the message says about itself [3.2.4]."""

    message_id: Final[Any]
    user_id: Final[bytes | None]
    to: Final[Any]
    subject: Final[str | None]
    reply_to: Final[Any]
    correlation_id: Final[Any]
    content_type: Final[str | None]
    content_encoding: Final[str | None]
    absolute_expiry_time: Final[int | None]
    creation_time: Final[int | None]
    group_id: Final[str | None]
    group_sequence: Final[int | None]
    reply_to_group_id: Final[str | None]

    def __init__(
        self,
        *,
        message_id: Any = None,
        user_id: bytes | None = None,
        to: Any = None,
        subject: str | None = None,
        reply_to: Any = None,
        correlation_id: Any = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        absolute_expiry_time: int | None = None,
        creation_time: int | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | None = None,
    ) -> None:
        self.message_id = message_id
        self.user_id = user_id
        self.to = to
        self.subject = subject
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.absolute_expiry_time = absolute_expiry_time
        self.creation_time = creation_time
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.reply_to_group_id = reply_to_group_id


PROPERTIES: Final = form(
    Properties,
    "properties",
    0x73,
    field("message-id", ANY),
    field("user-id", bytes),
    field("to", ANY),
    field("subject", str),
    field("reply-to", ANY),
    field("correlation-id", ANY),
    field("content-type", Symbol),
    field("content-encoding", Symbol),
    field("absolute-expiry-time", Timestamp),
    field("creation-time", Timestamp),
    field("group-id", str),
    field("group-sequence", Uint),
    field("reply-to-group-id", str),
)
