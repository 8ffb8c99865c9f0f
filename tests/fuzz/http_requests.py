"""Requests over HTTP: heads, properties and bodies of messages, by the real protocol."""

import asyncio
from typing import Any, Final

from peeklock.gateway.http.answer import Answer, bad_request
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.messages.incoming import is_batch, read_batch, read_message
from peeklock.gateway.http.messages.malformed import MalformedRequest
from peeklock.gateway.http.messages.places import place_of
from peeklock.gateway.http.protocol import HttpProtocol
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.identifiers import MessageIds
from tests.store.builders import shown

NOW: Final = 1_800_000_000_000
_LOOP: Final = asyncio.new_event_loop()


class _Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def rest(data: bytes) -> str:
    """What a client sends; the first byte says in which pieces."""
    return _LOOP.run_until_complete(_served(data))


async def _served(data: bytes) -> str:
    told: list[str] = []

    def route(request: HttpRequest) -> Answer:
        told.append(f"{request.method} {request.target} {request.segments()}")
        told.append(f"{place_of(request.method, request.path)} {request.flag('timeout')}")
        ids = MessageIds(lambda: 1)
        try:
            if is_batch(request):
                told.extend(repr(shown(each)) for each in read_batch(request, NOW, ids, True))
            else:
                told.append(repr(shown(read_message(request, NOW, ids, True))))
        except MalformedRequest as error:
            return bad_request(str(error))
        return Answer(201, {})

    wire = _Wire()
    protocol = HttpProtocol(route, HttpConnectionQuota())
    protocol.connection_made(wire)
    # Each arrival has a price of its own, whatever comes with it.
    piece = 16 * data[0] if data else 0
    at = 1
    while at < len(data) and not wire.is_closed:
        after = at + piece if piece else len(data)
        protocol.data_received(data[at:after])
        at = after
        await asyncio.sleep(0)
    protocol.eof_received()
    protocol.connection_lost(None)
    lines = bytes(wire.written).split(b"\r\n")
    told += [line.decode("latin-1") for line in lines if not line.lower().startswith(b"date:")]
    return "\n".join(told)
