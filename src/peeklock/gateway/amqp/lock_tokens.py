"""Lock tokens as clients see them: a UUID, or its bytes as a delivery tag."""

from struct import Struct
from typing import Final
from uuid import UUID

from peeklock.entity.commands import LockToken

# The sequence number in the three fields that .NET writes in little-endian order, the lock number.
_TAG: Final = Struct("<IHHQ")
_pack_tag: Final = _TAG.pack


def lock_tag(sequence: int, number: int) -> bytes:
    """Write a lock token as a delivery tag: the 16 bytes of its UUID in .NET's mixed order."""
    return _pack_tag(sequence >> 32, sequence >> 16 & 0xFFFF, sequence & 0xFFFF, number)


def token_of(uuid: UUID) -> LockToken:
    """Read a lock token from its form in management maps."""
    high, middle, low, number = _TAG.unpack(uuid.bytes_le)
    return LockToken(high << 32 | middle << 16 | low, number)


def uuid_of(token: LockToken) -> UUID:
    """Write a lock token as management maps carry it."""
    return UUID(bytes_le=lock_tag(token.sequence, token.number))
