"""A RabbitMQ of our own: its node, its data and its ports are the bench's, and end with it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from bench import proc
from bench.endpoint import UNSETTLED_STATE, Endpoint
from bench.ports import free_port

PACKAGE: Final = "rabbitmq-server"
PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
READY_WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 20.0


class RabbitMqMissing(Exception):
    """RabbitMQ is not here and could not be installed."""


def install() -> None:
    """Install Debian's package unless it is here; it must not start a service of its own."""
    if PROGRAM.exists():
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RabbitMqMissing(f"install {PACKAGE} as root, or run with --without-rabbitmq")
    print(f"Installing {PACKAGE} ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    options = ["-y", "-qq", "--no-install-recommends"]
    subprocess.run(["apt-get", "update", "-qq"], check=False, env=environment)
    done = subprocess.run(
        ["apt-get", "install", *options, PACKAGE], check=False, env=environment, capture_output=True
    )
    if done.returncode != 0 or not PROGRAM.exists():
        raise RabbitMqMissing(f"apt-get could not install {PACKAGE}: {done.stderr.decode()}")


def version() -> str:
    """Tell the version that is installed."""
    found = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", PACKAGE],
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout


@final
class RabbitMq:
    """One node with the AMQP 1.0 plug-in, on the loopback only."""

    def __init__(self, directory: Path) -> None:
        self.name = f"RabbitMQ {version()}"
        self._directory = directory
        self._port = free_port()
        self._environment = self._make_environment()
        self._port_mapper: subprocess.Popen[bytes] | None = None
        self._script: subprocess.Popen[bytes] | None = None
        self._beam = 0

    def __enter__(self) -> Self:
        # Started here, because a node that starts it itself lets it listen on every address.
        self._port_mapper = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", self._environment["ERL_EPMD_PORT"]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        log = (self._directory / "console.log").open("wb")
        with log:
            self._script = subprocess.Popen(
                [str(PROGRAM)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def endpoint(self) -> Endpoint:
        """The queue that its first link declares."""
        return Endpoint(
            port=self._port,
            user="guest",
            password="guest",
            address="/queue/bench",
            terminus_durability=UNSETTLED_STATE,
            is_answered=False,
            pid=self._beam,
        )

    def _make_environment(self) -> dict[str, str]:
        directory = self._directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\n")
        (directory / "rabbitmq-env.conf").touch()
        loopback_only = "-kernel inet_dist_use_interface {127,0,0,1}"
        return {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"peeklock-bench-{os.getpid()}@localhost",
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback_only,
            "RABBITMQ_CTL_ERL_ARGS": loopback_only,
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _wait(self) -> None:
        assert self._script is not None
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._listens():
            if self._script.poll() is not None or time.monotonic() > deadline:
                console = (self._directory / "console.log").read_text(errors="replace")
                raise RuntimeError(f"RabbitMQ did not start:\n{console[-3000:]}")
            time.sleep(0.2)
        beam = proc.descendant(self._script.pid, "beam.smp")
        if beam is None:
            raise RuntimeError("RabbitMQ listens, but its beam.smp is not to be found")
        self._beam = beam

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False

    def _stop(self) -> None:
        """End the node, then the port mapper; each by its id, and without mercy if need be."""
        if self._script is not None:
            beam = proc.descendant(self._script.pid, "beam.smp")
            if beam is not None:
                os.kill(beam, signal.SIGTERM)
            try:
                self._script.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                if beam is not None:
                    os.kill(beam, signal.SIGKILL)
                self._script.kill()
                self._script.wait()
        if self._port_mapper is not None:
            self._port_mapper.terminate()
            self._port_mapper.wait()
