"""HTTP byte by byte: a connection to a broker, on which anything may be said."""

from __future__ import annotations

import asyncio
import json
from xml.etree.ElementTree import fromstring

from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.protocol import HttpProtocol
from tests.gateway.matrix.watched_broker import WatchedBroker
from tests.gateway.sockets import connected

ATOM_TYPE = "application/atom+xml"


class Reply:
    """An answer: its status, its headers by lower-case name, and its body."""

    def __init__(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        pairs = [line.partition(": ")[::2] for line in lines[1:] if line]
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = b""

    @property
    def error(self) -> str:
        """What an error says, in either of the two forms."""
        if self.headers["content-type"].startswith("application/json"):
            text = json.loads(self.body)["error"]
        else:
            document = fromstring(self.body)
            assert document.findtext("Code") == str(self.status)
            text = document.findtext("Detail")
        assert isinstance(text, str)
        return text


class HttpConnection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, broker: WatchedBroker) -> HttpConnection:
        connections = HttpConnectionQuota()

        def protocol() -> HttpProtocol:
            return HttpProtocol(broker.router.route, connections, bounds=broker.messages)

        return cls(*await connected(protocol))

    async def say(self, raw: bytes, *, has_body: bool = True) -> Reply:
        """Say something and read the answer."""
        self.writer.write(raw)
        reply = Reply(await self.reader.readuntil(b"\r\n\r\n"))
        if has_body and reply.status != 204:
            reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
        return reply

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def request(
    broker: WatchedBroker,
    method: str,
    target: str | bytes,
    body: bytes = b"",
    *headers: tuple[str, str | bytes],
    token: str | bytes | None = None,
) -> bytes:
    """A request by somebody who may do everything, unless another token is given."""
    line = method.encode() + b" " + (target.encode() if isinstance(target, str) else target)
    lines = [line + b" HTTP/1.1", b"Host: localhost"]
    shown = broker.root() if token is None else token
    for name, value in (("Authorization", shown), *headers):
        text = value.encode("latin-1") if isinstance(value, str) else value
        lines.append(name.encode() + b": " + text)
    lines.append(f"Content-Length: {len(body)}".encode())
    return b"\r\n".join([*lines, b"", b""]) + body


async def check_refused(broker: WatchedBroker, raw: bytes, *, has_body: bool = True) -> Reply:
    """It is the client's fault, it is said what is wrong, nothing is changed, and life goes on."""
    before = await broker.state()
    line = await HttpConnection.to(broker)
    reply = await line.say(raw, has_body=has_body)
    assert 400 <= reply.status < 500, (reply.status, raw[:300])
    if has_body:
        assert reply.error
    assert await broker.state() == before, raw[:300]
    if reply.headers.get("connection") == "close":
        await line.close()
        line = await HttpConnection.to(broker)
    healthy = await line.say(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
    assert healthy.status == 200
    await line.close()
    return reply
