"""What a client over HTTP may take: time for a head and a body, a place, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.budgets import Budget, Budgets
from peeklock.gateway.http import protocol
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.hosts import Hosts
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.protocol import HttpProtocol
from peeklock.gateway.http.request import HttpRequest
from tests.broker.broker_harness import until
from tests.gateway.sockets import connected

GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = bytes(4 << 20)


class Bounds:
    """Everybody may send a megabyte."""

    def body_bytes_max(self, _request: HttpRequest) -> int:
        return 1 << 20

    def too_large(self, _request: HttpRequest) -> Answer:
        return Answer(403, {})


class Office:
    """Answers small and large, at once or when it is told."""

    def __init__(self, hosts: Hosts | None = None, **limits: int) -> None:
        self.budgets = Budgets()
        self.connection_quota = HttpConnectionQuota(self.budgets, **limits)
        self.hosts = hosts
        self.may_answer = asyncio.Event()
        self.answered = 0
        # Of one turn of the loop, and the most of any.
        self.in_turn = 0
        self.in_turn_max = 0
        self.writers: list[asyncio.StreamWriter] = []

    def budget(self, name: str) -> Budget:
        [found] = [each for each in self.budgets if each.name == name]
        return found

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connected(
            lambda: HttpProtocol(
                self.route, self.connection_quota, bounds=Bounds(), hosts=self.hosts
            )
        )
        self.writers.append(writer)
        return reader, writer

    def route(self, request: HttpRequest) -> Any:
        self.answered += 1
        if not self.in_turn:
            asyncio.get_running_loop().call_soon(self.turned)
        self.in_turn += 1
        self.in_turn_max = max(self.in_turn_max, self.in_turn)
        if request.path == "/large":
            return Answer(200, {}, content=LARGE)
        if request.path == "/slow":
            return self.later()
        return Answer(200, {"size": len(request.body)})

    def turned(self) -> None:
        self.in_turn = 0

    async def later(self) -> Answer:
        await self.may_answer.wait()
        return Answer(200, {})


def run(test: Callable[[Office], Awaitable[None]], **choices: Any) -> None:
    async def whole() -> None:
        office = Office(**choices)
        await asyncio.wait_for(test(office), 15)
        for connection in office.connection_quota:
            connection.abort()
        for writer in office.writers:
            writer.transport.abort()
        await until(lambda: not len(office.connection_quota))
        assert office.budget("http_connections").used == 0
        assert office.budget("http_bytes").used == 0

    asyncio.run(whole())


async def drip(writer: asyncio.StreamWriter, words: bytes) -> None:
    """Say a byte in each turn of the loop, for as long as somebody listens."""
    for index in range(len(words)):
        if writer.transport.is_closing():
            return
        writer.write(words[index : index + 1])
        await asyncio.sleep(0)


async def status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    [size] = [line.partition(": ")[2] for line in lines if line.startswith("content-length")]
    await reader.readexactly(int(size))
    return int(lines[0].split()[1])


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"GET / HTTP/1.1\r\n",
    ],
    ids=["head", "body", "chunks", "second head"],
)
def test_a_request_that_comes_byte_by_byte_has_a_time_in_all(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte every 6.5 seconds lived for ever."""
    monkeypatch.setattr(protocol, "HEAD_S_MAX", 0.1)
    monkeypatch.setattr(protocol, "BODY_S_MAX", 0.1)
    monkeypatch.setattr(protocol, "_REFUSED_S_MAX", 0.05)

    async def talk(office: Office) -> None:
        reader, writer = await office.connect()
        writer.write(begin)
        if begin.startswith(GET):
            assert await status(reader) == 200
        dripping = asyncio.ensure_future(drip(writer, b"1\r\nx\r\n" * 9_000))
        assert await status(reader) == 408
        assert await reader.read() == b""
        await dripping

    run(talk)


def test_a_large_body_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_S_MAX", 0.05)
    monkeypatch.setattr(protocol, "_BODY_BYTES_PER_S", 1 << 20)

    async def talk(office: Office) -> None:
        reader, writer = await office.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(6):
            writer.write(bytes(100_000))
            rested = asyncio.Event()
            loop.call_later(0.03, rested.set)
            await rested.wait()
        assert loop.time() - begun > 0.1
        assert await status(reader) == 200

    run(talk)


def test_who_waited_longest_makes_room() -> None:
    async def talk(office: Office) -> None:
        dripping = await office.connect()
        dripping[1].write(b"GET / HT")
        idle = await office.connect()
        idle[1].write(GET)
        assert await status(idle[0]) == 200
        third = await office.connect()
        third[1].write(GET)
        assert await status(third[0]) == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await status(dripping[0])
        assert len(office.connection_quota) == 2
        # Who is answered again is the last to go.
        idle[1].write(GET)
        assert await status(idle[0]) == 200
        await office.connect()
        assert await third[0].read() == b""
        assert office.budget("http_connections").refused == 2

    run(talk, connections_max=2)


def test_who_is_worked_for_is_not_let_go_and_the_next_is_told() -> None:
    async def talk(office: Office) -> None:
        busy = await office.connect()
        busy[1].write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: office.answered == 1)
        reader, _ = await office.connect()
        assert await status(reader) == 503
        assert await reader.read() == b""
        office.may_answer.set()
        assert await status(busy[0]) == 200

    run(talk, connections_max=1)


def test_many_requests_at_once_let_others_have_their_turn() -> None:
    async def talk(office: Office) -> None:
        reader, writer = await office.connect()
        writer.write(GET * 100)
        for _ in range(100):
            assert await status(reader) == 200
        assert office.answered == 100
        assert office.in_turn_max == 16

    run(talk)


def test_answers_that_nobody_reads_have_a_limit_together() -> None:
    """The one that was not read for longest goes; nobody who reads is refused."""

    async def talk(office: Office) -> None:
        for _ in range(4):
            _, writer = await office.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # both directions
            writer.write(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: office.answered == 4)
        budget = office.budget("http_bytes")
        await until(lambda: len(office.connection_quota) == 2)
        assert budget.used <= budget.limit
        assert budget.refused == 2
        reader, writer = await office.connect()
        writer.write(GET)
        assert await status(reader) == 200

    run(talk, bytes_max=len(LARGE) * 5 // 2)


def test_bodies_have_a_limit_together() -> None:
    async def talk(office: Office) -> None:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n"
        first = await office.connect()
        first[1].write(head + bytes(500_000))
        await until(lambda: office.budget("http_bytes").used > 300_000)
        second = await office.connect()
        second[1].write(head + bytes(500_000))
        assert await status(second[0]) == 503
        first[1].write(bytes(400_000))
        assert await status(first[0]) == 200
        assert office.budget("http_bytes").used == 0

    run(talk, bytes_max=850_000)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        (b"localhost:5300", b"", 200),
        (b"localhost:5300", b"Origin: http://localhost:5300\r\n", 200),
        (b"localhost:5300", b"Origin: http://evil.example\r\n", 403),
        (b"evil.example:5300", b"", 421),
    ],
)
def test_names_and_pages_of_others_are_refused(host: bytes, origin: bytes, expected: int) -> None:
    async def talk(office: Office) -> None:
        reader, writer = await office.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n" + origin + b"\r\n")
        assert await status(reader) == expected
        assert office.answered == (expected == 200)

    run(talk, hosts=Hosts(Namespaces([Namespace("ns")]), is_loopback=True))
