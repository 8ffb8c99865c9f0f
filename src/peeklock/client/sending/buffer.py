"""What `send_soon` holds until its outcome is known: so many messages and bytes, and no more."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final, final

from peeklock.client.reporting import Outcome

# More small messages than a line of full batches carries, so that nothing waits on a good line.
PENDING_MESSAGES_MAX: Final = 50_000
# As much as the producers of Kafka hold: eight times what is under way at once.
PENDING_BYTES_MAX: Final = 32 << 20


@final
class SendBuffer:
    """Counts the messages of one sender that have no outcome yet."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        if messages_max < 1:
            raise ValueError("max_pending_messages must be at least 1")
        if bytes_max < 1:
            raise ValueError("max_pending_bytes must be at least 1")
        self.messages_max: Final = messages_max
        self.bytes_max: Final = bytes_max
        self.messages = 0
        self.size = 0

    def take(self, size: int) -> bool:
        """Hold a message if there is room; one that is larger than all of it is held alone."""
        if self.messages and (
            self.messages >= self.messages_max or self.size + size > self.bytes_max
        ):
            return False
        self.messages += 1
        self.size += size
        return True

    def give_back(self, size: int) -> None:
        """Hold a message no more: its outcome is known."""
        self.messages -= 1
        self.size -= size


@final
class Buffered:
    """A message that `send_soon` was given; awaiting it waits for room and gives its outcome.

    The message leaves whether or not this is awaited. Only a wait that is cancelled takes it back:
    a message that was not taken before the cancellation is not sent.
    """

    __slots__ = ("_give_up", "_room", "outcome")

    def __init__(
        self,
        outcome: Outcome,
        room: asyncio.Future[None] | None = None,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        # What becomes of the message; it can be awaited, too.
        self.outcome: Final = outcome
        self._room = room
        self._give_up = give_up

    def __await__(self) -> Generator[Any, None, Outcome]:
        room = self._room
        if room is not None and not room.done():
            try:
                yield from asyncio.shield(room).__await__()
            except asyncio.CancelledError:
                if self._give_up is not None:
                    self._give_up()
                raise
        return self.outcome
