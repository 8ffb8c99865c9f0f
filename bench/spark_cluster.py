"""A standalone Spark on this machine: a master and workers, started from the PySpark package."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from bench.ports import free_port

READY_WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 20.0
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_JOINED: Final = re.compile(r"Registering worker")


@final
class StandaloneCluster:
    """`spark-submit --master URL` runs programs on it; each worker has one core."""

    def __init__(self, folder: Path, workers: int = 2, memory: str = "2g") -> None:
        self._folder = folder
        self._workers = workers
        self._memory = memory
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """What `--master` is to be."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        place = ("--host", "127.0.0.1", "--webui-port", "0")
        try:
            self._start("master", _MASTER, *place, "--port", str(self._port))
            self._await("master", re.compile(r"New state: ALIVE"), 1)
            for number in range(self._workers):
                work = str(self._folder / f"work{number}")
                room = ("--cores", "1", "--memory", self._memory, "--work-dir", work)
                self._start(f"worker{number}", _WORKER, *place, *room, self.url)
            self._await("master", _JOINED, self._workers)
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

    def submit(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program with `spark-submit` and wait for its end."""
        command = [str(_home() / "bin" / "spark-submit"), "--master", self.url]
        settings = (
            "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1",
            # As many tasks as this cluster has cores, a few times; 200 is for larger ones.
            f"spark.sql.shuffle.partitions={4 * self._workers}",
        )
        quiet = [part for setting in settings for part in ("--conf", setting)]
        return subprocess.run(
            [*command, *quiet, str(program), *arguments],
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def _start(self, name: str, what: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(_home() / "bin" / "spark-class"), what, *arguments],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _await(self, name: str, word: re.Pattern[str], times: int) -> None:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + READY_WITHIN_S
        while len(word.findall(text := log.read_text(errors="replace"))) < times:
            if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                raise RuntimeError(f"the {name} of Spark is not ready:\n{text[-2000:]}")
            time.sleep(0.1)

    def _stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _environment() -> dict[str, str]:
    from peeklock.spark.jvm import java_home

    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
