"""A broker that is to be abused, and what is seen of it meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.proc import anonymous_bytes
from peeklock.version import is_compiled
from tests.pressure import ping
from tests.pressure.ping import Latency, Ping, latency
from tests.pressure.raw import Raw
from tests.wire.broker_process import BrokerProcess
from tests.wire.metrics import LoopSteps, Samples, scrape

# The promise to everybody else: the larger of the two.
PING_P99_MS_MAX: Final = 50.0
PING_P99_TIMES_MAX: Final = 3.0
# So long the idle broker is pinged, and at least so long the abused one.
IDLE_S: Final = 1.0
ABUSED_S_MIN: Final = 1.0
MEMORY_LOOKED_AT_EVERY_S: Final = 0.02
# Room for what any traffic takes and the allocator keeps.
GROWTH_BYTES_MAX: Final = 64 << 20


@dataclass
class Seen:
    """What an abuse did to the others; filled when it is over."""

    idle: Latency | None = None
    abused: Latency | None = None
    # Pings that failed: somebody else was cut off or refused.
    errors: list[str] = field(default_factory=list)
    # The broker's anonymous memory before, and the most of it meanwhile.
    memory_before: int = 0
    memory_peak: int = 0
    # Steps of the loop above 10 ms of CPU, and the longest of the broker's life with its cause.
    long_steps: int = 0
    longest_step: str = ""

    @property
    def growth(self) -> int:
        """Bytes of memory that the abuse cost at its worst."""
        return self.memory_peak - self.memory_before

    def __str__(self) -> str:
        return (
            f"idle {self.idle}, abused {self.abused}, memory {self.memory_before >> 20} MB and "
            f"{self.growth >> 20} MB more, errors {self.errors[:3]}, "
            f"{self.long_steps} long steps, longest {self.longest_step}"
        )


class AbusedBroker:
    """One broker process with the entities of one test, and the queue for pings."""

    def __init__(
        self,
        directory: Path,
        *,
        queues: dict[str, dict[str, Any]] | None = None,
        topics: Sequence[dict[str, Any]] = (),
        options: Sequence[str] = (),
    ) -> None:
        """Queues are names with the emulator's properties; topics are as in Config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        self.process = BrokerProcess(
            data=directory / "data",
            config=_write_config(directory / "Config.json", queues or {}, topics),
            log=directory / "broker.log",
            options=tuple(options),
        )

    @property
    def connection_string(self) -> str:
        return self.process.connection_string

    @property
    def pid(self) -> int:
        return self.process.pid

    def raw(self) -> Raw:
        """Connect a peer that says what it likes; with HTTP too, every port serves everything."""
        return Raw(self.process.amqp_port)

    def log(self) -> str:
        return self.process.log_since(0)

    def memory(self) -> int:
        """Give the broker's anonymous memory in bytes."""
        return anonymous_bytes(self.pid)

    def metrics(self) -> Samples:
        """Give what the broker tells at /metrics: every sample by name and labels."""
        return scrape(self.process.http_port)

    def steps(self) -> LoopSteps:
        """Give the histogram of its loop's steps."""
        return LoopSteps.of(self.metrics())

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Ask the broker by HTTP; gives status and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.process.http_port, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    @contextmanager
    def pressed(
        self,
        *,
        grows_at_most: int = GROWTH_BYTES_MAX,
        at_least_s: float = ABUSED_S_MIN,
        others_wait_ms: float = PING_P99_MS_MAX,
        long_steps_max: int = 0,
        cut_off_is_fine: bool = False,
    ) -> Iterator[Seen]:
        """Abuse the broker in the body of `with`; what was promised to the others is asserted.

        Pings the idle broker, then during the body and until `at_least_s` have passed. Asserts that
        the pings' p99 is at most 50 ms (or as stated; beside a short abuse, with `at_least_s=0`, it
        is the longest) or three times the idle one, that none failed, that the
        anonymous memory grew by no more than stated, that the broker still runs, and, where it is
        compiled, that no step of its loop took more than 10 ms of CPU (or so many as stated), and
        that what cannot be cut into steps kept its bounds (`tests.wire.metrics.WAITS`).
        """
        seen = Seen()
        pings = Ping(self.connection_string, self.pid)
        memory = _MemoryWatch(self.pid)
        try:
            idle_from = time.monotonic()
            time.sleep(IDLE_S)
            steps = self.steps()
            seen.memory_before = self.memory()
            memory.start()
            abused_from = time.monotonic()
            yield seen
            time.sleep(max(0.0, abused_from + at_least_s - time.monotonic()))
            abused_to = time.monotonic()
        finally:
            seen.memory_peak = memory.end()
            pings.end()
        samples = pings.between(abused_from, abused_to)
        seen.idle = latency(pings.between(idle_from, abused_from))
        seen.abused = latency(samples)
        seen.errors = [sample.error for sample in samples if sample.error]
        assert self.process.is_running, self.log()[-3000:]
        after = self.steps()
        seen.long_steps = after.long - steps.long
        seen.longest_step = f"{after.longest_s * 1000:.1f} ms, {after.cause}"
        bound = max(others_wait_ms, PING_P99_TIMES_MAX * seen.idle.p99_ms)
        assert seen.abused.p99_ms <= bound, f"others waited: {seen}"
        assert cut_off_is_fine or not seen.errors, f"others were cut off: {seen}"
        if is_fast():
            assert seen.long_steps <= long_steps_max, f"long steps: {seen}"
            assert after.waits == steps.waits, f"waits above their bounds: {after.faults()}"
        assert seen.growth <= grows_at_most, f"memory: {seen}"


class _MemoryWatch:
    """Notes the most anonymous memory that a process had."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> int:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._is_over.wait(MEMORY_LOOKED_AT_EVERY_S):
            try:
                self._peak = max(self._peak, anonymous_bytes(self._pid))
            except (OSError, LookupError):  # the process is gone; the test will notice
                return


def is_fast() -> bool:
    """Tell whether bounds in time are meant: they are promised of the compiled form."""
    return is_compiled()


def _write_config(
    path: Path, queues: dict[str, dict[str, Any]], topics: Sequence[dict[str, Any]]
) -> Path:
    listed = [{"Name": name, "Properties": properties} for name, properties in queues.items()]
    namespace = {
        "Name": "sbemulatorns",
        "Queues": [{"Name": ping.QUEUE}, *listed],
        "Topics": list(topics),
    }
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path
