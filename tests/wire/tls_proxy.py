"""TLS in front of the broker, for a client that speaks nothing else."""

import asyncio
import contextlib
import ssl
import subprocess
from pathlib import Path

from tests.wire.clients import LoopThread


class TlsProxy:
    """Takes TLS on a port of its own and carries what is in it to a port of this machine."""

    def __init__(self, port: int, directory: Path, loop: LoopThread) -> None:
        self._target = port
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        key, self.certificate = directory / "key.pem", directory / "certificate.pem"
        make_certificate(key, self.certificate)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._server: asyncio.Server = loop.call(self._listen)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far, forth = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_carry(near, forth), _carry(far, back))
        finally:
            forth.close()
            back.close()

    def close(self) -> None:
        self._loop.call(self._end)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    # An end that breaks off is the other one's to notice.
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


def make_certificate(key: Path, certificate: Path) -> None:
    """Make a certificate that says localhost and is trusted by nobody who is not told to."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
