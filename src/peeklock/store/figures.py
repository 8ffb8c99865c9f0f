"""What a store took and has left: kept as it goes, whichever engine is there."""

from typing import Final, final

from peeklock.histogram import COMMIT_BYTES, WAIT_SECONDS, Histogram


@final
class StoreFigures:
    """One store's commits and cold reads, and the room on its disk when it was last looked at."""

    def __init__(self) -> None:
        # Wall seconds: these are waits for the disk.
        self.commits: Final = Histogram(WAIT_SECONDS)
        self.reads: Final = Histogram(WAIT_SECONDS)
        self.commit_bytes: Final = Histogram(COMMIT_BYTES)
        self.free_bytes: int = -1  # not known yet
        self.reserve_bytes: int = 0
