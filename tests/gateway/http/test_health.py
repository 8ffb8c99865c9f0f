"""HTTP: health in the emulator's form, and clear answers to everything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.gateway.http.health import Health
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.protocol import HttpProtocol
from peeklock.gateway.listening.connections import HttpConnections
from tests.gateway.sockets import connected


async def ask(request: bytes, *, serving: bool = True) -> tuple[int, Any]:
    """Send a request that asks for the end of the connection, and give status and document."""
    health = Health()
    health.is_serving = serving
    connections = HttpConnections(health)
    reader, writer = await connected(connections.protocol)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else None


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 10)

    asyncio.run(limited())


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("serving", "status", "said"),
    [
        (True, 200, {"status": "healthy", "message": "Service is healthy."}),
        (
            False,
            503,
            {
                "status": "unhealthy",
                "message": "Service not available. Please try after some time.",
            },
        ),
    ],
)
def test_health_is_told_as_the_emulator_does(serving: bool, status: int, said: Any) -> None:
    async def talk() -> None:
        assert await ask(get("/health?x=1"), serving=serving) == (status, said)

    run(talk)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), 404),
        (get("/q/messages"), 404),
        (get("/health", "DELETE"), 405),
        (get("/health", "HEAD"), 200),
        (get("http://x/health"), 200),
        (get("https://x:443/health?y=1"), 200),
        (get("ftp://x/health"), 404),
        (get("http://x"), 404),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: -4\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 70_000, 431),
    ],
)
def test_everything_else_is_answered_clearly(request_bytes: bytes, status: int) -> None:
    async def talk() -> None:
        assert (await ask(request_bytes))[0] == status

    run(talk)


def test_a_body_that_is_too_large_is_not_read() -> None:
    async def talk() -> None:
        head = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
        assert (await ask(head + bytes(100_000)))[0] == 400

    run(talk)


def test_one_connection_serves_many_requests() -> None:
    async def talk() -> None:
        health = Health()
        health.is_serving = True
        connections = HttpConnectionQuota()
        reader, writer = await connected(
            lambda: HttpProtocol(lambda _request: health.answer(), connections)
        )
        for _ in range(3):
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(55)
        assert len(connections) == 1
        writer.close()
        await writer.wait_closed()

    run(talk)
