"""A broker in this process: on a thread and a loop of its own, listening on loopback, in memory."""

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, final

from peeklock.configuration.content import Configuration
from peeklock.server import BrokerParts, assemble
from peeklock.settings import MEMORY, Settings
from peeklock.testbed.controls import Controls
from peeklock.testing.service_bus import ServiceBus
from peeklock.watchdog import Watchdog

_T = TypeVar("_T")
# Far beyond what anything here takes: a test that hangs should say where.
_PATIENCE_S: Final = 60.0


@final
class InProcessBroker:
    """Started with the first namespace that is asked for; `close` ends it.

    A clock does not run backwards, and who comes later expects the present: a broker whose clock
    was moved is exchanged for a new one when nobody has a namespace in it any more.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_of_loop: threading.Thread | None = None
        self._directory: Path | None = None
        self._parts: BrokerParts | None = None
        self._namespaces = 0

    # --- namespaces

    @contextlib.contextmanager
    def namespace(
        self, name: str = "", document: Mapping[str, Any] | None = None
    ) -> Iterator[ServiceBus]:
        """Have a fresh namespace, with entities as `Config.json` describes them; it is dropped
        with all that is in it at the end."""
        with self._lock:
            controls = self._started()
            # Not before: one that did not start has nobody in it.
            self._namespaces += 1
        try:
            made = self.call(controls.namespaces.make(name, document))
            bus = ServiceBus(self.call, controls, made, self.authority)
            try:
                yield bus
            finally:
                self.call(controls.drop(made.name))
        finally:
            with self._lock:
                self._namespaces -= 1
                if not self._namespaces and controls.clock.moved_ms:
                    self._let_go()

    @property
    def authority(self) -> Path:
        """The certificate that clients trust for TLS: Python's administration client, which uses
        nothing else, takes it as `connection_verify`."""
        assert self._directory is not None, "the broker is started"
        return self._directory / "tls" / "ca.pem"

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something on the broker's loop, and wait for it."""
        assert self._loop is not None, "the broker is started"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    # --- starting and ending

    def close(self) -> None:
        """End the broker and its thread."""
        with self._lock:
            self._let_go()
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
                assert self._thread_of_loop is not None
                self._thread_of_loop.join()
                loop.close()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def __enter__(self) -> "InProcessBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> Controls:
        if self._loop is None:
            # First: it may fail, and a loop is there with its thread or not at all.
            self._directory = Path(tempfile.mkdtemp(prefix="peeklock-"))
            self._loop = asyncio.new_event_loop()
            # A daemon: a test run that is broken off must not wait for it.
            self._thread_of_loop = threading.Thread(
                target=self._loop.run_forever, name="peeklock", daemon=True
            )
            self._thread_of_loop.start()
        if self._parts is None:
            self._parts = self.call(self._start())
        controls = self._parts.controls
        assert controls is not None, "it was asked for"
        return controls

    async def _start(self) -> BrokerParts:
        assert self._directory is not None
        settings = Settings(
            data=self._directory, amqp_port=0, http_port=0, store=MEMORY, is_testing=True
        )
        parts = await assemble(settings, Configuration(), Watchdog())
        await parts.start()
        return parts

    def _let_go(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            self.call(parts.stop())
