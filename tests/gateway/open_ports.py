"""The gateway's ports, listening in this process, with everything that clients need to use them."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import ssl
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from peeklock.budgets import Budget, Budgets
from peeklock.clock import SystemClock
from peeklock.gateway.http.health import Health
from peeklock.gateway.listening.certificates import AUTHORITY, FOLDER, server_names
from peeklock.gateway.listening.connections import AmqpConnections, HttpConnections
from peeklock.gateway.listening.listener import Listener
from peeklock.gateway.listening.tls import Tls
from tests.gateway.amqp.amqp_harness import AmqpHarness, serve
from tests.gateway.callers import trusting


class OpenPorts:
    """Two ports as a broker has them; the protocols are all served on both."""

    def __init__(self, bus: AmqpHarness, *, tls: Tls | None, amqp: Any, listener: Any) -> None:
        health = Health()
        health.is_serving = True
        self.bus = bus
        self.amqp = AmqpConnections(bus.namespace_contexts, **amqp)
        self.http = HttpConnections(health, amqp=self.amqp)
        self._budgets = Budgets()
        self.listener = Listener(
            self.amqp.protocol, self.http.protocol, tls, budgets=self._budgets, **listener
        )
        self.amqp_port = 0
        self.http_port = 0

    def budget(self, name: str) -> Budget:
        [found] = [budget for budget in self._budgets if budget.name == name]
        return found

    async def start(self) -> None:
        self.amqp_port = await self.listener.start("amqp", "127.0.0.1", 0)
        self.http_port = await self.listener.start("http", "127.0.0.1", 0)

    async def stop(self) -> None:
        self.listener.stop()
        self.http.stop()
        await self.amqp.stop()


@cache
def development() -> tuple[Tls, ssl.SSLContext]:
    """One authority for all tests of a run, and a client that trusts it."""
    data = Path(mkdtemp(prefix="peeklock-tests-"))
    atexit.register(shutil.rmtree, data)
    tls = Tls.of_authority(SystemClock(), data, server_names("127.0.0.1", ()))
    return tls, trusting(str(data / FOLDER / AUTHORITY))


def enter(
    test: Callable[[OpenPorts], Awaitable[None]],
    *,
    has_tls: bool = True,
    amqp: dict[str, Any] | None = None,
    **listener: Any,
) -> None:
    """Run a test against listening ports, and stop them."""

    async def whole(bus: AmqpHarness) -> None:
        tls = development()[0] if has_tls else None
        entrance = OpenPorts(bus, tls=tls, amqp=amqp or {}, listener=listener)
        await entrance.start()
        try:
            await asyncio.wait_for(test(entrance), 20)
        finally:
            await entrance.stop()

    serve(whole)
