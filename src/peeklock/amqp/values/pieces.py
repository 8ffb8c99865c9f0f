"""Large values, encoded without copying what is large in them: a list of pieces instead of one."""

from struct import Struct
from typing import Any, Final, final

from peeklock.amqp.values.constructors import BINARY32, LIST32, MAP32
from peeklock.amqp.values.encoder import encode

# Bytes up to this are copied: a piece of its own would cost as much.
_COPIED_MAX: Final = 1_024
_BINARY: Final = Struct(">BI")
_COMPOUND: Final = Struct(">BII")


@final
class Pieces:
    """A binary value whose bytes lie in several places."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts: Final = parts
        self.size: Final = sum([len(part) for part in parts])


def encode_pieces(value: Any) -> list[bytes]:
    """Encode a value; maps and lists may hold `Pieces`, and these are not copied."""
    pieces: list[bytes] = []
    _add(pieces, value)
    return pieces


def _add(pieces: list[bytes], value: Any) -> int:
    """Add the encoded form of a value, and tell its size."""
    if isinstance(value, Pieces):
        pieces.append(_BINARY.pack(BINARY32, value.size))
        pieces += value.parts
        return 5 + value.size
    if type(value) is bytes and len(value) > _COPIED_MAX:
        pieces.append(_BINARY.pack(BINARY32, len(value)))
        pieces.append(value)
        return 5 + len(value)
    if type(value) is dict:
        return _add_compound(pieces, MAP32, [each for pair in value.items() for each in pair])
    if type(value) is list:
        return _add_compound(pieces, LIST32, value)
    encoded = encode(value)
    pieces.append(encoded)
    return len(encoded)


def _add_compound(pieces: list[bytes], code: int, items: list[Any]) -> int:
    at = len(pieces)
    pieces.append(b"")  # the head, which tells the size of what follows
    size = 4
    for item in items:
        size += _add(pieces, item)
    pieces[at] = _COMPOUND.pack(code, size, len(items))
    return 5 + size
