"""An event loop whose clock can be moved: what is due by then is done in its next turn."""

import asyncio


class MovingLoop(asyncio.SelectorEventLoop):
    """The loop of a test that does not wait for the wall clock."""

    ahead_s = 0.0

    def time(self) -> float:
        """The loop's own time, which timers go by."""
        return super().time() + self.ahead_s


def move(seconds: float) -> None:
    """Let time pass for the timers of the loop that is running."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovingLoop)
    loop.ahead_s += seconds
