"""The message that every bench sends: durable, 1 KB, with its number and its instant inside."""

import struct
from typing import Final

BODY_SIZE: Final = 1024

_NUMBERS: Final = struct.Struct(">QQ")
# A header that says durable, then one data section; the rest of the body is the same each time.
_BEGIN: Final = b"\x00\x53\x70\xc0\x02\x01\x41" + b"\x00\x53\x75\xb0" + BODY_SIZE.to_bytes(4, "big")
REST: Final = bytes(BODY_SIZE - _NUMBERS.size)


def head(number: int, due_ns: int) -> bytes:
    """Write what comes before `REST`: the sections' beginning, the number and the instant."""
    return _BEGIN + _NUMBERS.pack(number, due_ns)


def read(payload: bytes) -> tuple[int, int]:
    """Read number and instant; whatever a broker puts in front, the body is at the end."""
    numbers: tuple[int, int] = _NUMBERS.unpack_from(payload, len(payload) - BODY_SIZE)
    return numbers
