"""Single fields read at a known place, for those who cannot afford to decode a whole list.

Nothing here looks at where the list ends. A read past it is noticed afterwards, when the caller
compares the position with the end; a read past the buffer is one of READ_ERRORS on the way there.
"""

from struct import Struct, error
from typing import Final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.values.codec import skip

READ_ERRORS: Final = (IndexError, error)
UINT32: Final = Struct(">I")


def list_at(buffer: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Find the list behind a descriptor: where its fields begin, where it ends, their number."""
    at = position + 3 if buffer[position + 1] == 0x53 else skip(buffer, position + 1, end)
    code = buffer[at]
    if code == 0xC0:
        return at + 3, at + 2 + buffer[at + 1], buffer[at + 2]
    if code == 0xD0:
        after = at + 5 + int(UINT32.unpack_from(buffer, at + 1)[0])
        return at + 9, after, UINT32.unpack_from(buffer, at + 5)[0]
    if code == 0x45:
        return at + 1, at + 1, 0
    raise DecodeError("a performative that is not a list")


def uint_at(buffer: bytes, at: int, name: str) -> tuple[int, int]:
    """Read a uint, -1 for null."""
    code = buffer[at]
    if code == 0x52:
        return buffer[at + 1], at + 2
    if code == 0x43:
        return 0, at + 1
    if code == 0x70:
        return UINT32.unpack_from(buffer, at + 1)[0], at + 5
    if code == 0x40:
        return -1, at + 1
    raise DecodeError(f"{name} is not a uint")


def flag_at(buffer: bytes, at: int, name: str) -> tuple[int, int]:
    """Read a boolean as 0 or 1, -1 for null."""
    code = buffer[at]
    if code == 0x42:
        return 0, at + 1
    if code == 0x41:
        return 1, at + 1
    if code == 0x56 and buffer[at + 1] < 2:
        return buffer[at + 1], at + 2
    if code == 0x40:
        return -1, at + 1
    raise DecodeError(f"{name} is not a boolean")


def binary_at(buffer: bytes, at: int, name: str) -> tuple[bytes | None, int]:
    """Read a binary, None for null."""
    code = buffer[at]
    if code == 0x40:
        return None, at + 1
    if code == 0xA0:
        start = at + 2
        after = start + buffer[at + 1]
    elif code == 0xB0:
        start = at + 5
        after = start + int(UINT32.unpack_from(buffer, at + 1)[0])
    else:
        raise DecodeError(f"{name} is not binary")
    return buffer[start:after], after


def raw_fields(buffer: bytes, count: int, known: int) -> list[bytes]:
    """Cut the body of a list into its fields, still encoded; null and absent ones are empty."""
    raw: list[bytes] = []
    at = 0
    for _ in range(count):
        after = skip(buffer, at, len(buffer))
        raw.append(b"" if buffer[at] == 0x40 else buffer[at:after])
        at = after
    if at != len(buffer):
        raise cut()
    raw.extend([b""] * (known - count))
    return raw


def cut() -> DecodeError:
    """Make the error for fields that do not end where their list does."""
    return DecodeError("fields that do not end where their list does")
