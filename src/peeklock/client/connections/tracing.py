"""The wire, written to the log: each frame in a line, without what messages contain."""

import logging
from typing import Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.headers import AMQP_FRAME, HEAD_SIZE, frame_size
from peeklock.amqp.values.composites import decode_composite

_LOG: Final = logging.getLogger("peeklock.client.frames")


@final
class Trace:
    """One direction of a connection; the mark is `<` for what came and `>` for what was sent."""

    def __init__(self, name: str, mark: str) -> None:
        self._name: Final = name
        self._mark: Final = mark
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Write down the frames that are whole now."""
        if not _LOG.isEnabledFor(logging.DEBUG):
            self._rest = b""
            return
        data = self._rest + data
        at = 0
        while len(data) - at >= HEAD_SIZE:
            if data.startswith(b"AMQP", at):
                self._say(f"AMQP {'.'.join(str(part) for part in data[at + 4 : at + 8])}")
                at += HEAD_SIZE
                continue
            size = frame_size(data, at)
            if size < HEAD_SIZE:
                # The log began within a frame; what follows cannot be told.
                self._say(f"{len(data) - at} bytes that are no frame")
                at = len(data)
                break
            if len(data) - at < size:
                break
            self._frame(data, at, at + size)
            at += size
        self._rest = data[at:]

    def _frame(self, data: bytes, start: int, end: int) -> None:
        channel = int.from_bytes(data[start + 6 : start + 8], "big")
        body = start + 4 * data[start + 4]
        if body >= end:
            self._say("heartbeat")
            return
        where = f"channel {channel} " if data[start + 5] == AMQP_FRAME else "SASL "
        try:
            performative, after = decode_composite(data, body, end)
        except DecodeError as error:
            self._say(f"{where}a frame of {end - start} bytes: {error.text}")
            return
        # The payload is not shown: messages are their owners', and tokens travel in it.
        more = f" + {end - after} bytes" if end > after else ""
        self._say(f"{where}{performative}{more}")

    def _say(self, text: str) -> None:
        _LOG.debug("%s %s %s", self._name, self._mark, text)
