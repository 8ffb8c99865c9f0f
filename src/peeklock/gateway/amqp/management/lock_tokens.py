"""Lock tokens as clients see them: a UUID, or its bytes as a delivery tag."""

from struct import Struct
from typing import Final
from uuid import UUID

from peeklock.entity.deliveries import LockToken

# The two numbers one after the other: as a UUID is written where its bytes have their own order.
_UUID: Final = Struct(">QQ")
# The first three fields of a UUID, as .NET writes them.
_MIXED: Final = Struct("<IHH")
# Of those, what neighbours share; then the lowest 16 bits, turned around, and the lock number.
_TAG: Final = Struct(">6sHQ")
pack_tag: Final = _TAG.pack


def tag_begin(sequence: int) -> bytes:
    """Write how the tags of all numbers begin that have the same upper 48 bits."""
    return _MIXED.pack(sequence >> 32, sequence >> 16 & 0xFFFF, 0)[:6]


def turned(sequence: int) -> int:
    """Turn the two lowest bytes around."""
    return (sequence & 0xFF) << 8 | sequence >> 8 & 0xFF


def token_of(uuid: UUID) -> LockToken:
    """Read a lock token from its form in management maps."""
    sequence, number = _UUID.unpack(uuid.bytes)
    return LockToken(sequence, number)


def uuid_of(token: LockToken) -> UUID:
    """Write a lock token as management maps carry it."""
    return UUID(bytes=_UUID.pack(token.sequence, token.number))
