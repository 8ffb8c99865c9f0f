"""What may be given to a sender, and how it becomes a message."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

from peeklock.amqp.dialect import PARTITION_KEY
from peeklock.amqp.messages.message import AmqpMessage, encode_message
from peeklock.client.message import ServiceBusMessage
from peeklock.client.received import ServiceBusReceivedMessage

Sendable: TypeAlias = (
    ServiceBusMessage | ServiceBusReceivedMessage | AmqpMessage | Mapping[str, Any]
)


@final
class RawMessage:
    """A message given in AMQP's own sections, for what has no name of ours."""

    __slots__ = ("_message",)

    def __init__(self, message: AmqpMessage) -> None:
        self._message: Final = message

    @property
    def routing_key(self) -> str | None:
        """What all messages of a batch must share where the entity is partitioned."""
        properties = self._message.properties
        if properties is not None and properties.group_id is not None:
            return str(properties.group_id)
        key = (self._message.message_annotations or {}).get(PARTITION_KEY.decode())
        return None if key is None else str(key)

    def encoded(self) -> bytes:
        """Write the message for the wire."""
        return encode_message(self._message)


Outbound: TypeAlias = ServiceBusMessage | ServiceBusReceivedMessage | RawMessage


def as_message(given: Sendable) -> Outbound:
    """Take a message in any of the forms that a sender takes."""
    if isinstance(given, (ServiceBusMessage, ServiceBusReceivedMessage)):
        return given
    if isinstance(given, AmqpMessage):
        return RawMessage(given)
    if isinstance(given, Mapping):
        return ServiceBusMessage(**given)
    raise TypeError(f"a {type(given).__name__} is not a message")
