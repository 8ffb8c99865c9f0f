"""The outermost layer of the wire: protocol headers and frames [2.2, 2.3]."""

from struct import Struct
from typing import Final

# What each side says before the first frame: "AMQP", the protocol's id, and version 1.0.0.
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

# A frame begins with its size (4 bytes), its data offset in words, its type and its channel. A
# protocol header has the same length, so that a reader always waits for eight bytes first.
HEAD_SIZE: Final = 8
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
# Each side must be able to take frames of this size [2.8.3].
FRAME_SIZE_MIN: Final = 512

# The descriptor codes of what a frame may carry.
OPEN: Final = 0x10
BEGIN: Final = 0x11
ATTACH: Final = 0x12
FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
DETACH: Final = 0x16
END: Final = 0x17
CLOSE: Final = 0x18
SASL_MECHANISMS: Final = 0x40
SASL_INIT: Final = 0x41
SASL_OUTCOME: Final = 0x44
# A frame without a body: it only shows that the peer is alive [2.4.5].
EMPTY: Final = -1

HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

# Sequence numbers and handles are 32-bit and wrap around [2.8.10].
SERIAL_MASK: Final = 0xFFFFFFFF
SERIAL_HALF: Final = 0x80000000

_HEAD: Final = Struct(">IBBH")


def frame_head(size: int, channel: int, kind: int = AMQP_FRAME) -> bytes:
    """Write the eight bytes before a frame's body; `size` counts them too."""
    return _HEAD.pack(size, 2, kind, channel)


def frame_size(data: bytes, position: int) -> int:
    """Read the size that the frame at this position claims to have."""
    return (
        data[position] << 24
        | data[position + 1] << 16
        | data[position + 2] << 8
        | data[position + 3]
    )


def serial_distance(later: int, earlier: int) -> int:
    """Return how far one 32-bit serial number is ahead of another; below zero when it is behind."""
    distance = (later - earlier) & SERIAL_MASK
    return distance - SERIAL_MASK - 1 if distance >= SERIAL_HALF else distance
