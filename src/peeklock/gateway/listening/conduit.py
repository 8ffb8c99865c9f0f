"""The way of one accepted connection, whatever it speaks: nobody who does not read stays.

A conduit stands between the system's transport and a protocol class: to the one it is a protocol,
to the other a transport, so that neither knows of it. It counts what is written and looks whether
the peer takes it. A peer to whom nothing is to be said may be silent for ever; one who leaves
what was said unread is let go, and so is one who does not let a closing connection end.
"""

import asyncio
import fcntl
import logging
import struct
import termios
from collections.abc import Callable
from math import inf
from typing import Any, Final, final

from peeklock.gateway import logbook
from peeklock.settings import WRITE_TIMEOUT_MS

WRITE_S_MAX: Final = WRITE_TIMEOUT_MS / 1000
# How long a peer may read nothing while the connection closes.
CLOSE_S_MAX: Final = 15.0
# Who reads at least so fast is waited for, however much there is to be read before the end.
_CLOSE_BYTES_PER_S: Final = 16 * 1024
# How many times it is looked during the time that is allowed.
_LOOKS: Final = 4

_int: Final = struct.Struct("i")
_LOG: Final = logbook.Sparing(logging.getLogger("peeklock.listeners"))


@final
class Conduit(asyncio.Transport, asyncio.Protocol):
    """A transport whose peer must read, with a deadline for its end."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        peer: str,
        on_lost: Callable[[], None],
        *,
        write_s_max: float = WRITE_S_MAX,
        close_s_max: float = CLOSE_S_MAX,
    ) -> None:
        super().__init__()
        self._inner: asyncio.Protocol | None = inner
        self._peer = peer
        self._on_lost = on_lost
        self._write_s_max = write_s_max
        self._close_s_max = close_s_max
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Below TLS there is a transport of its own, with bytes of its own that wait.
        self._below: asyncio.WriteTransport | None = None
        self._written = 0
        # What the peer had taken when it was last looked, and when it last took something.
        self._taken = 0
        self._moved_at = 0.0
        self._closed_by = inf
        self._timer: asyncio.TimerHandle | None = None

    # --- what the system's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a transport, in clear or with TLS around it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        assert self._inner is not None
        self._inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._inner is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer has said all; unless somebody still has an answer for it, this is the end."""
        is_kept = self._inner is not None and self._inner.eof_received()
        if not is_kept:
            self.close()
        return is_kept

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is written to."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it; nothing here holds what was behind it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        inner, self._inner = self._inner, None
        self._transport = self._below = None
        self._on_lost()
        if inner is not None:
            inner.connection_lost(exc)

    # --- what the protocol class calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; from the first that the peer does not take at once it is watched."""
        transport = self._transport
        if transport is None:
            return
        transport.write(data)
        self._written += len(data)
        if self._timer is None:
            # As `get_write_buffer_size`, which would be a call more for each piece of data.
            below = self._below
            if transport.get_write_buffer_size() or (below and below.get_write_buffer_size()):
                self._watch()

    def write_eof(self) -> None:
        """Say that nothing more will be written."""
        if self._transport is not None:
            self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Tell whether one direction can end before the other."""
        return self._transport is not None and self._transport.can_write_eof()

    def close(self) -> None:
        """Close when everything written is sent, for which there is a deadline."""
        if self._transport is None or self._closed_by != inf:
            return
        patience = self._close_s_max + self.get_write_buffer_size() / _CLOSE_BYTES_PER_S
        self._closed_by = self._loop.time() + patience
        if self._timer is not None:
            self._timer.cancel()
        # A second close makes a transport of TLS forget what it needs to be aborted.
        if not self._transport.is_closing():
            self._transport.close()
        self._watch()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        if self._below is not None:
            # Where TLS has ended politely, only this one is left, perhaps with bytes unread.
            self._below.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be written."""
        return self._transport is None or self._transport.is_closing()

    def is_reading(self) -> bool:
        """Tell whether bytes are taken from the peer."""
        return self._transport is not None and self._transport.is_reading()

    def pause_reading(self) -> None:
        """Take nothing more from the peer."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the peer again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol class have the connection."""
        assert isinstance(protocol, asyncio.Protocol)
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Give the protocol class that has the connection."""
        assert self._inner is not None
        return self._inner

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when the protocol class is to pause, and when to go on."""
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Tell when it pauses and goes on: the lower first."""
        assert self._transport is not None
        return self._transport.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Tell how much waits in this process for the peer, above and below TLS."""
        if self._transport is None:
            return 0
        size = self._transport.get_write_buffer_size()
        return size if self._below is None else size + self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Tell what is known of the connection."""
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # --- whether the peer reads

    def _watch(self) -> None:
        self._taken = self._taken_by_peer()
        self._moved_at = self._loop.time()
        self._timer = self._loop.call_later(self._patience_s / _LOOKS, self._look)

    @property
    def _patience_s(self) -> float:
        return self._write_s_max if self._closed_by == inf else self._close_s_max

    def _look(self) -> None:
        self._timer = None
        waiting = self.get_write_buffer_size()
        is_closed = self._closed_by != inf
        if not waiting and not is_closed:
            return
        now = self._loop.time()
        taken = self._taken_by_peer()
        if taken > self._taken:
            self._moved_at = now
        self._taken = taken
        if now - self._moved_at >= self._patience_s or now >= self._closed_by:
            text = "The end was waited for." if is_closed else "What was written was not read."
            _LOG.write(logging.INFO, "cut-off", peer=self._peer, unread=waiting, text=text)
            self.abort()
        else:
            self._timer = self._loop.call_later(self._patience_s / _LOOKS, self._look)

    def _taken_by_peer(self) -> int:
        """Tell how many bytes the peer's system has acknowledged; only that it grows means
        something, because TLS adds bytes of its own."""
        return self._written - self.get_write_buffer_size() - self._held_by_system()

    def _held_by_system(self) -> int:
        # A slow reader empties this first, a long time before the system takes more from us.
        accepted = self.get_extra_info("socket")
        if accepted is None or accepted.fileno() < 0:
            return 0
        try:
            held = fcntl.ioctl(accepted.fileno(), termios.TIOCOUTQ, _int.pack(0))
        except OSError:
            # Not every system tells it.
            return 0
        found: int = _int.unpack(held)[0]
        return found
