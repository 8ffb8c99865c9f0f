"""A relay between client and broker that counts the frames of the client by what they are."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Final, Self

TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
_HEADER_SIZE: Final = 8


class FrameCounter:
    """Forwards to a port of this machine, in the loop of the test."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        # performative -> how many, of all connections together
        self.counts: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def via(self, connection_string: str) -> str:
        """The same broker, through here."""
        return connection_string.replace(f":{self._target};", f":{self.port};")

    async def _accept(self, near: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        far, requests = await asyncio.open_connection("127.0.0.1", self._target)
        loop = asyncio.get_running_loop()
        self._tasks.add(loop.create_task(self._carry(near, requests, is_counted=True)))
        self._tasks.add(loop.create_task(self._carry(far, answers, is_counted=False)))

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_counted: bool
    ) -> None:
        held = b""
        try:
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
                if is_counted:
                    held = self._count(held + data)
        except OSError:
            pass
        finally:
            sink.close()

    def _count(self, data: bytes) -> bytes:
        while len(data) >= _HEADER_SIZE:
            if data.startswith(b"AMQP"):
                data = data[_HEADER_SIZE:]
                continue
            size = int.from_bytes(data[:4], "big")
            if len(data) < size:
                break
            body = data[4 * data[4] : size]
            # Type 0 is AMQP; the descriptor of every performative is written in its short form.
            if data[5] == 0 and len(body) > 2:
                self.counts[body[2]] += 1
            data = data[size:]
        return data
