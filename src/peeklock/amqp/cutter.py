"""Frames out of bytes that come in any cut, without copying what is whole already."""

from typing import final

from peeklock.amqp.errors import FRAMING_ERROR, ProtocolError
from peeklock.amqp.frames import HEAD_SIZE, frame_size


@final
class Cutter:
    """The beginning of a frame whose rest has not come, and how large a frame may be.

    The beginning grows in place, so that a frame that arrives byte by byte costs no more than its
    size, and nothing is set aside for a size that is only claimed.
    """

    __slots__ = ("frame_max", "partial")

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self.partial = bytearray()

    def size_at(self, data: bytes, position: int) -> int:
        """Reads the size of the frame at this position and refuses one that cannot be."""
        size = frame_size(data, position)
        if size < HEAD_SIZE or size > self.frame_max:
            raise ProtocolError(
                FRAMING_ERROR,
                f"a frame of {size} bytes; {HEAD_SIZE} to {self.frame_max} are allowed",
            )
        return size

    def top_up(self, data: bytes, *, header: bool) -> int:
        """Adds what the cut frame still needs; returns how much it took, or -1 if it lacks more.

        `header` says that a protocol header is expected, which has no size of its own.
        """
        partial = self.partial
        taken = 0
        if len(partial) < HEAD_SIZE:
            taken = min(HEAD_SIZE - len(partial), len(data))
            partial += data[:taken]
            if len(partial) < HEAD_SIZE:
                return -1
        needed = HEAD_SIZE if header else self.size_at(bytes(partial[:HEAD_SIZE]), 0)
        missing = needed - len(partial)
        if len(data) - taken < missing:
            partial += data[taken:]
            return -1
        partial += data[taken : taken + missing]
        return taken + missing

    def take(self) -> bytes:
        """Hands the beginning over and starts afresh."""
        whole = bytes(self.partial)
        self.partial.clear()
        return whole
