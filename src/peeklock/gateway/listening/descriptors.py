"""File descriptors: how many sockets there may be, and one that is spare for when none is left."""

import os
import resource
import socket
from typing import Final, final

# Left for the stores, for certificates that are read and for modules that are loaded late; of few
# descriptors fewer.
_KEPT_MAX: Final = 128
# Where the system names no limit.
_MANY: Final = 1 << 20


def sockets_max() -> int:
    """Tell how many sockets may be open beside what is open already."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = _MANY
    # The system gives the lowest number that is free: what is open is below.
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    return max(1, limit - probe - min(_KEPT_MAX, limit // 4))


@final
class SpareDescriptor:
    """A descriptor for a moment: with it a connection can be refused that could not be accepted.

    Without one it would stay in the system's line, and the listening socket readable for ever.
    """

    def __init__(self) -> None:
        self._number = -1
        self._take()

    def refuse(self, listening: socket.socket) -> bool:
        """Accept a connection and close it; answers whether that could be done."""
        if self._number < 0:
            self._take()
        if self._number < 0:
            return False
        self.close()
        try:
            listening.accept()[0].close()
        except OSError:
            return False
        finally:
            self._take()
        return True

    def close(self) -> None:
        """Give it back."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _take(self) -> None:
        try:
            self._number = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            # Somebody was quicker; it is tried again when it is needed.
            self._number = -1
