"""A Peeklock of our own, started as a user starts it, in either form."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from bench.client import COMPILED, PLAIN
from bench.endpoint import KEPT, Endpoint
from bench.ports import free_port

QUEUE: Final = "bench"
READY_LINE: Final = b"Peeklock is ready"
READY_WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 60.0
FORMS: Final = {"compiled": COMPILED, "plain": PLAIN}


@final
class Peeklock:
    """One broker with its queues; it can be stopped, killed and started again on its data."""

    def __init__(
        self,
        directory: Path,
        form: str,
        *,
        settings: dict[str, str] | None = None,
        properties: dict[str, Any] | None = None,
        topics: list[dict[str, Any]] | None = None,
        queues: list[str] | None = None,
        build: Path | None = None,
    ) -> None:
        """Queues are further ones beside the two of the bench; a build may be another one."""
        self.name = f"Peeklock {form}"
        self.data = directory / "data"
        self._form = form
        self._config = directory / "Config.json"
        self._log = directory / "broker.log"
        self._port = free_port()
        self._http_port = free_port()
        while self._http_port == self._port:  # the first one was free again already
            self._http_port = free_port()
        names = {f"PEEKLOCK_{name.upper()}": value for name, value in (settings or {}).items()}
        self._environment = {
            **os.environ,
            **names,
            "PYTHONPATH": str(FORMS[form] if build is None else build),
            "PYTHONUNBUFFERED": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text(_config(properties or {}, topics or [], queues or []))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> float:
        """Start it and wait for its word; gives the seconds from the call to the ready line."""
        begun = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            self._wait_ready(self._process, begun + READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise
        return time.perf_counter() - begun

    def stop(self) -> float:
        """Ask it to end; gives the seconds that took."""
        begun = time.perf_counter()
        self._end(signal.SIGTERM)
        return time.perf_counter() - begun

    def kill(self) -> None:
        """End it without asking."""
        self._end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        """The process of the broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def endpoint(self) -> Endpoint:
        """The queue of its configuration, with the development key."""
        return Endpoint(
            port=self._port,
            user="RootManageSharedAccessKey",
            password="SAS_KEY_VALUE",
            address=QUEUE,
            terminus_durability=0,
            is_answered=True,
            pid=self.pid,
        )

    @property
    def connection_string(self) -> str:
        """What clients that take one are told."""
        return (
            f"Endpoint=sb://localhost:{self._port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

    @property
    def authority(self) -> Path:
        """Whom clients must trust for TLS."""
        return self.data / "tls" / "ca.pem"

    def version(self) -> str:
        """Give what `peeklock --version` prints, in one line."""
        command = [sys.executable, "-m", "peeklock", "--version"]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True
        )
        return ", ".join(done.stdout.split("\n")).strip(", ")

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "peeklock", "serve"),
            *("--data", str(self.data), "--config", str(self._config)),
            *("--host", "127.0.0.1", "--amqp-port", str(self._port)),
            *("--http-port", str(self._http_port)),
        ]

    def _wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        assert process.stdout is not None
        said = b""
        while not any(line.startswith(READY_LINE) for line in said.splitlines()):
            left = deadline - time.perf_counter()
            if left < 0 or not select.select([process.stdout], [], [], left)[0]:
                raise RuntimeError(f"{self.name} is not ready: {said.decode()}{self.log()}")
            more = os.read(process.stdout.fileno(), 65_536)
            if not more:
                raise RuntimeError(f"{self.name} ended: {said.decode()}{self.log()}")
            said += more

    def log(self) -> str:
        """Give the end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self._process = None
        process.send_signal(number)
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _config(properties: dict[str, Any], topics: list[dict[str, Any]], more: list[str]) -> str:
    """Write the emulator's file: the queue of the bench, the one that is only sent to, and more."""
    names = [QUEUE, QUEUE + KEPT, *more]
    queues = [{"Name": name, "Properties": properties} for name in names]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics}
    return json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}})
