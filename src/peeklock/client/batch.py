"""A batch: messages that travel as one, filled by bytes."""

from struct import Struct
from typing import Final, final

from peeklock.amqp.dialect import PARTITION_KEY
from peeklock.amqp.messages.annotations import find_annotation
from peeklock.amqp.messages.properties import GROUP_ID, MESSAGE_ID, id_text, read_properties
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.encoder import encode, encode_into
from peeklock.amqp.values.types import Symbol
from peeklock.client.exceptions import MessageSizeExceededError
from peeklock.client.message import properties_section
from peeklock.client.sending.outbound import Sendable, as_message

# What the service allows on its standard tier, headers included.
BATCH_SIZE_DEFAULT: Final = 262_144
_UINT32: Final = Struct(">I")
_NARROW: Final = 256
_NULL: Final = b"\x40"


@final
class ServiceBusMessageBatch:
    """Messages that are sent as one: all of them are accepted, or none."""

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        self._max_size = max_size_in_bytes or BATCH_SIZE_DEFAULT
        self._pieces: list[bytes] = []
        self._size = 0
        self._count = 0

    def __repr__(self) -> str:
        return f"ServiceBusMessageBatch({self._count} messages, {self._size} bytes)"

    def __len__(self) -> int:
        return self._count

    @property
    def max_size_in_bytes(self) -> int:
        """How large the batch may become."""
        return self._max_size

    @property
    def size_in_bytes(self) -> int:
        """How large the batch is, as it will be sent."""
        return self._size

    def add_message(self, message: Sendable) -> None:
        """Add a message.

        Parameters:
            message: what is added.

        Raises:
            MessageSizeExceededError: it has no room; the batch is as it was.
        """
        if not self.add_payload(as_message(message).encoded()):
            raise MessageSizeExceededError(
                f"the batch has reached its size limit of {self._max_size} bytes"
            )

    def add_payload(self, payload: bytes) -> bool:
        """Add a message that is encoded already; return whether it had room."""
        front = b"" if self._count else envelope_front(payload)
        more = len(front) + entry_size(payload)
        if self._size + more > self._max_size:
            return False
        if front:
            self._pieces.append(front)
        self._pieces.append(_entry_head(len(payload)))
        self._pieces.append(payload)
        self._size += more
        self._count += 1
        return True

    def encoded(self) -> bytes:
        """Write the batch for the wire."""
        return b"".join(self._pieces)


def entry_size(payload: bytes) -> int:
    """Return how many bytes a message takes within a batch."""
    size = len(payload)
    return size + (5 if size < _NARROW else 8)


def envelope_front(payload: bytes) -> bytes:
    """Write what the envelope says of its messages: the keys of the first.

    A service that spreads messages over partitions reads them there, and not in each message.
    """
    if payload.startswith(b"\x00\x53\x75"):
        return b""  # Content and nothing else: the most common message has no keys.
    cut = split(payload)
    out = bytearray()
    key = find_annotation(cut.annotations, PARTITION_KEY)
    if key is not None:
        out += b"\x00\x53\x72"
        encode_into(out, {Symbol(PARTITION_KEY.decode()): str(key)})
    own = read_properties(cut.bare, cut.properties_at)
    message_id = id_text(own.raw(MESSAGE_ID), "message-id")
    group = own.raw(GROUP_ID)
    if message_id is not None or group:
        fields = [_NULL] * (GROUP_ID + 1 if group else 1)
        if message_id is not None:
            fields[MESSAGE_ID] = encode(message_id)
        if group:
            fields[GROUP_ID] = group
        out += properties_section(fields)
    return bytes(out)


def _entry_head(size: int) -> bytes:
    if size < _NARROW:
        return b"\x00\x53\x75\xa0" + bytes((size,))
    return b"\x00\x53\x75\xb0" + _UINT32.pack(size)
