"""SIGHUP: it asks a service to read its configuration again, and says that a terminal has gone."""

import asyncio
import contextlib
import logging
import os
import signal
from typing import Final, final

from peeklock.gateway import logbook
from peeklock.gateway.http.reload import NotReloaded, Reloading, logged

_LOG: Final = logging.getLogger("peeklock.server")


@final
class Hangup:
    """Reloads on SIGHUP; where there was a terminal, it has gone, and the broker stops politely."""

    def __init__(self, stop: asyncio.Event, *, has_terminal: bool | None = None) -> None:
        """To be made early, because a terminal that has gone cannot be asked for."""
        # Known when there is something to reload.
        self.reload: Reloading | None = None
        self._stop = stop
        self._has_terminal = is_terminal_there() if has_terminal is None else has_terminal
        self._tasks: set[asyncio.Task[None]] = set()
        # Whoever started it to outlive the terminal (nohup) has said so by that.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self.came)

    def came(self) -> None:
        """The signal came."""
        if self._has_terminal:
            text = "The terminal has gone, and the broker stops; `peeklock reload` reloads."
            _LOG.info("%s", logbook.line("hangup", text=text))
            self._stop.set()
        elif self.reload is None:
            text = "Nothing is reloaded, because the broker has not started yet."
            _LOG.warning("%s", logbook.line("hangup", text=text))
        else:
            task = asyncio.get_running_loop().create_task(_reload(self.reload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _reload(reload: Reloading) -> None:
    # What is wrong was written down, and everything goes on as before.
    with contextlib.suppress(NotReloaded):
        await logged(reload)


def is_terminal_there() -> bool:
    """Tell whether this process has a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
