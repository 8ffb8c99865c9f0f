"""A broker in its own process, started as a user starts it and stopped as a system stops it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.wire import sas

READY_LINE: Final = "Peeklock is ready"
# Generous, because other things may run on the machine; the start itself is measured in bench/.
READY_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 20.0


def broker_python() -> str:
    """Which interpreter runs the broker: the same tests serve the compiled and the plain build."""
    return os.environ.get("PEEKLOCK_WIRE_PYTHON", sys.executable)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def binding_problem(port: int) -> str | None:
    """Why a port cannot be listened on, None when it can."""
    with socket.socket() as probe:
        # As the broker does: connections that have just ended are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return None


class BrokerProcess:
    """One `peeklock serve` with its data, its configuration, its ports and its log."""

    def __init__(
        self,
        *,
        data: Path,
        config: Path,
        log: Path,
        options: tuple[str, ...] = (),
        program: tuple[str, ...] | None = None,
    ) -> None:
        self.data = data
        self.config = config
        self.log = log
        # What it is started with besides its places and ports.
        self.options = options
        self._program = program or (broker_python(), "-m", "peeklock")
        self.amqp_port = free_port()
        self.http_port = free_port()
        while self.http_port == self.amqp_port:  # the first one was free again already
            self.http_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connection_string(self) -> str:
        return sas.connection_string(self.amqp_port)

    @property
    def authority(self) -> Path:
        """Whom clients must trust for TLS."""
        return self.data / "tls" / "ca.pem"

    def start(self) -> None:
        """Start it, or start it again on the same data and ports, and wait until it listens."""
        seen = self.log_size()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._is_ready(self.log_since(seen)):
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"the broker ended with {self._process.returncode}:\n{self.log_since(seen)}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker is not ready:\n{self.log_since(seen)}")
            time.sleep(0.02)

    def command(self) -> list[str]:
        return [
            *(*self._program, "serve"),
            *("--data", str(self.data)),
            *("--config", str(self.config)),
            *("--host", "127.0.0.1"),
            *("--amqp-port", str(self.amqp_port)),
            *("--http-port", str(self.http_port)),
            *self.options,
        ]

    @staticmethod
    def _is_ready(text: str) -> bool:
        return any(line.startswith(READY_LINE) for line in text.splitlines())

    def stop(self) -> int:
        """Ask it to end, as a service manager does, and give its exit code."""
        return self.end(signal.SIGTERM)

    def kill(self) -> int:
        """End it without asking: nothing is flushed that was not flushed before."""
        return self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> int:
        if self._process is None:
            raise RuntimeError("the broker was not started")
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process, once it was started."""
        if self._process is None:
            raise RuntimeError("the broker was not started")
        return self._process.pid

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, position: int) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")
