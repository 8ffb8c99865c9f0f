"""A limit of messages per second: one sender's share of what all may send."""

from typing import Final, final


@final
class Pace:
    """Tells when the next messages may leave. Time comes in as an argument, in seconds."""

    def __init__(self, per_second: float) -> None:
        self._per_second: Final = per_second
        self._free_at = 0.0

    @property
    def count_max(self) -> int:
        """How many messages may leave at once, so that the rate is kept within a second too."""
        return max(1, int(self._per_second / 10))

    def wait_s(self, count: int, now: float) -> float:
        """Take the right to send so many, and give how long to wait before.

        What was not used in the past is lost: nobody saves up for a burst.
        """
        start = max(self._free_at, now)
        self._free_at = start + count / self._per_second
        return start - now
