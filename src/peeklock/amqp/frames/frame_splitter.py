"""Frames out of bytes that come in any cut, without copying what is whole already."""

from typing import Final, final

from peeklock.amqp.errors import FRAMING_ERROR, ProtocolError
from peeklock.amqp.frames.headers import HEAD_SIZE, frame_size

# Frames handled in one pass, so that a read full of tiny ones is several short steps of the owner.
# Transfers do not count, because they cost their bytes; frames that begin or end something count as
# many.
FRAMES_MAX: Final = 1_000
PERFORMATIVE_FRAMES: Final = 16


@final
class FrameSplitter:
    """The beginning of a frame whose rest has not come, and how large a frame may be.

    The beginning grows in place, so that a frame that arrives byte by byte costs no more than its
    size, and nothing is set aside for a size that is only claimed.
    """

    __slots__ = ("frame_max", "frames_left", "partial", "rest")

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self.partial = bytearray()
        # What is left for the next pass, and how many frames this one may still handle.
        self.rest: bytes = b""
        self.frames_left: int = FRAMES_MAX

    @property
    def size(self) -> int:
        """How much is kept."""
        return len(self.partial) + len(self.rest)

    def begin_pass(self, data: bytes) -> bytes:
        """Return what is to be read now: what the pass before left, and then the data."""
        self.frames_left = FRAMES_MAX
        if not self.rest:
            return data
        rest = self.rest
        self.rest = b""
        return rest + data if data else rest

    def ends_pass(self, data: bytes, position: int) -> bool:
        """Return whether the pass has handled enough; the rest is then kept for the next one."""
        if self.frames_left > 0:
            return False
        self.rest = data[position:]
        return True

    def keep(self, data: bytes) -> None:
        """Keep what came for the next pass, behind what is kept for it already."""
        self.rest = self.rest + data if self.rest else data

    def clear(self) -> None:
        """Forget all that was kept."""
        self.partial.clear()
        self.rest = b""

    def size_at(self, data: bytes, position: int) -> int:
        """Read the size of the frame at this position and refuse one that cannot be."""
        size = frame_size(data, position)
        if size < HEAD_SIZE or size > self.frame_max:
            raise ProtocolError(
                FRAMING_ERROR,
                f"a frame of {size} bytes; {HEAD_SIZE} to {self.frame_max} are allowed",
            )
        return size

    def top_up(self, data: bytes, *, header: bool) -> int:
        """Add what the cut frame still needs; return how much it took, or -1 if it lacks more.

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
        """Hand the beginning over and start afresh."""
        whole = bytes(self.partial)
        self.partial.clear()
        return whole
