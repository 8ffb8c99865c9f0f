"""What a batch holds."""

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.sections import batch_part


def batch_messages(payload: bytes) -> list[bytes]:
    """Take the messages out of a batch envelope: each of its data sections holds one whole."""
    messages: list[bytes] = []
    batch_part(payload, 0, len(payload), messages)
    if not messages:
        raise DecodeError("a batch without messages")
    return messages
