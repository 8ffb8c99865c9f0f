"""A capture that will be killed: the driver, one of its executors, or all that it started."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ENDED_WITHIN_S: Final = 180.0
# What runs tasks: a JVM of its own on a cluster, Python workers in either case.
EXECUTORS: Final = ("CoarseGrainedExecutorBackend", "pyspark.daemon")


class CaptureProcess:
    """`peeklock pipeline capture` in a process group of its own."""

    def __init__(self, folder: Path, connection_string: str, queue: str, master: str) -> None:
        self.table = folder / "lake"
        self._log = folder / "capture.log"
        self._master = master
        self._connection_string = connection_string
        self._queue = queue
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, interval: str = "") -> None:
        """Start it: for ever with an interval, else until the queue is empty."""
        command = [
            *(sys.executable, "-m", "peeklock", "pipeline", "capture", self._queue),
            *("--connection-string", self._connection_string),
            *("--out", str(self.table), "--format", "delta", "--master", self._master),
            *(("--interval", interval) if interval else ()),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def finish(self) -> int:
        """Wait until it ends by itself; gives its status."""
        assert self._process is not None
        return self._process.wait(ENDED_WITHIN_S)

    def kill_driver(self) -> None:
        """End the driver without asking; what it started must not go on for it."""
        assert self._process is not None
        group = self._process.pid
        self._process.kill()
        self._process.wait()
        # Spark's JVM is a child; it ends by itself when its Python is gone, only not at once.
        for pid in list(_in_group(group)):
            _kill(pid)

    def kill_executor(self, random_source: random.Random) -> bool:
        """End one process that runs tasks; tells whether there was one."""
        assert self._process is not None
        found = [
            pid
            for pid in _in_group(self._process.pid)
            if any(name in _command(pid) for name in EXECUTORS)
        ]
        if not found:
            return False
        _kill(random_source.choice(found))
        return True

    def wait_for_rows(self, above: int, within_s: float) -> int:
        """Wait until the table has more rows than so many; gives how many, or gives up."""
        deadline = time.monotonic() + within_s
        while (count := self.count()) <= above and time.monotonic() < deadline:
            if not self.lives_on(0.2):
                break
        return count

    def lives_on(self, seconds: float) -> bool:
        """Let it work for so long; tells whether it still does."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def count(self) -> int:
        return len(self.ids())

    def ids(self) -> list[str]:
        """The message ids in the table, each as often as it is there."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.table)):
            return []
        table = DeltaTable(str(self.table)).to_pyarrow_table(columns=["message_id"])
        ids: list[str] = table.column("message_id").to_pylist()
        return ids

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-6_000:] if self._log.exists() else ""


def _in_group(group: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _group_of(int(entry.name)) == group:
            yield int(entry.name)


def _group_of(pid: int) -> int:
    try:
        # The Python workers leave the group for one of their own; the session stays.
        return os.getsid(pid)
    except OSError:
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have been faster
        os.kill(pid, signal.SIGKILL)
