"""A long line: a relay in a process of its own that holds all it carries for a time, either way.

What is on its way does not wait for what went before: only the time is added, as by a distance.
"""

import asyncio
import subprocess
import sys
from collections import deque
from types import TracebackType
from typing import Final, Self, final

from bench.client import ROOT


@final
class LongLine:
    """The relay as the bench has it; clients connect to its port."""

    def __init__(self, target: int, each_way_ms: float) -> None:
        self._command = [
            *(sys.executable, "-m", "bench.delay"),
            *(str(target), str(each_way_ms)),
        ]
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@final
class _Held(asyncio.Protocol):
    """One direction of one connection: data goes on to the other side, later."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self.transport: asyncio.Transport | None = None
        self.other: _Held | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._put(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._put(b"")

    def _put(self, data: bytes) -> None:
        due = self._loop.time() + self._delay_s
        self._waiting.append((due, data))
        if len(self._waiting) == 1:
            self._loop.call_at(due, self._pass_on)

    def _pass_on(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            _, data = self._waiting.popleft()
            if self.other is None or self.other.transport is None:
                # The far side is not connected yet: nothing is lost, it only waits.
                self._waiting.appendleft((now + self._delay_s, data))
                break
            if data:
                self.other.transport.write(data)
            else:
                self.other.transport.close()
        if self._waiting:
            self._loop.call_at(self._waiting[0][0], self._pass_on)


async def relay(target: int, each_way_ms: float) -> None:
    """Serve until somebody ends the process."""
    loop = asyncio.get_running_loop()
    delay_s: Final = each_way_ms / 1000
    connecting: set[asyncio.Task[None]] = set()

    def accept() -> _Held:
        near = _Held(delay_s)
        task = loop.create_task(reach(near))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return near

    async def reach(near: _Held) -> None:
        _, far = await loop.create_connection(lambda: _Held(delay_s), "127.0.0.1", target)
        near.other, far.other = far, near

    server = await loop.create_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), float(sys.argv[2])))
