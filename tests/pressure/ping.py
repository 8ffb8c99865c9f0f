"""A ping: one message after another through a queue of its own, in a process of its own.

It stands for everybody who has nothing to do with an abuse. As a program it pings until its input
ends and writes a line per ping; as a module it starts that program and reads the lines.

What the broker's threads and the ping itself waited for a core is taken off: a machine that others
keep busy is not the broker's doing, while a loop that is busy is, and runs all the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final, final

from peeklock.client import ServiceBusClient, ServiceBusMessage

QUEUE: Final = "ping"
# So often a ping is due. Whoever waits longer hides those that were due meanwhile: they are added.
INTERVAL_S: Final = 0.005
STARTED_WITHIN_S: Final = 30.0
ENDED_WITHIN_S: Final = 20.0
# A ping that takes longer has failed.
ANSWERED_WITHIN_S: Final = 15.0
ROOT: Final = Path(__file__).resolve().parents[2]


@final
@dataclass(frozen=True)
class Sample:
    """When a ping began, by the monotonic clock that all processes share, and what it took; of
    that, what was spent waiting for a core."""

    begun_s: float
    taken_s: float
    starved_s: float = 0.0
    error: str = ""


@final
@dataclass(frozen=True)
class Latency:
    """What pings took, those included that could not begin because one before them waited."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    count: int


class Ping:
    """The process that pings a broker from its start to its end."""

    def __init__(self, connection_string: str, pid: int, queue: str = QUEUE) -> None:
        self._samples: list[Sample] = []
        self._first = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pressure.ping", connection_string, str(pid), queue],
            cwd=ROOT,
            env=dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._first.wait(STARTED_WITHIN_S):
            self._process.kill()
            raise RuntimeError("no ping came back")

    def between(self, begin_s: float, end_s: float) -> list[Sample]:
        """Give the pings that were under way in a span of the monotonic clock."""
        return [
            sample
            for sample in list(self._samples)
            if sample.begun_s + sample.taken_s > begin_s and sample.begun_s < end_s
        ]

    def end(self) -> None:
        """Let the last ping come back, and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(ENDED_WITHIN_S)
        finally:
            self._process.kill()
            self._reader.join()
            self._process.stdout.close()

    def _read(self) -> None:
        lines: IO[str] | None = self._process.stdout
        assert lines is not None
        for line in lines:
            self._samples.append(Sample(**json.loads(line)))
            self._first.set()


def latency(samples: Sequence[Sample]) -> Latency:
    """Sum up pings; one that took long stands for all that were due while it did."""
    taken: list[float] = []
    for sample in samples:
        left_s = max(0.0, sample.taken_s - sample.starved_s)
        taken.append(left_s)
        while (left_s := left_s - INTERVAL_S) > INTERVAL_S:
            taken.append(left_s)
    taken.sort()
    if not taken:
        raise ValueError("there was no ping")
    return Latency(
        p50_ms=taken[len(taken) // 2] * 1000,
        p99_ms=taken[len(taken) * 99 // 100] * 1000,
        longest_ms=taken[-1] * 1000,
        count=len(samples),
    )


def starved_s(pid: int | str) -> float:
    """Tell how long a process's threads could have run and had no core: its first thread, and the
    one of the others that waited most."""
    waited: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            waited[task.name] = int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):  # the thread has just ended, or the kernel does not count
            continue
    first = waited.pop(str(pid), 0)
    return (first + max(waited.values(), default=0)) / 1e9


def _starved_s(pid: int) -> float:
    try:
        return starved_s(pid) + starved_s(os.getpid())
    except OSError:  # the broker is gone, which the ping will notice
        return 0.0


async def _ping(connection_string: str, pid: int, queue: str) -> None:
    """Ping until standard input ends. Nothing is tried again: who is cut off says so."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    while not ended.is_set():
        # A client that was cut off comes again, so that the pings after it are known too.
        begun_s = time.monotonic()
        try:
            async with (
                ServiceBusClient.from_connection_string(
                    connection_string, retry_total=0, flush_interval=0.0
                ) as client,
                client.get_queue_sender(queue) as sender,
                client.get_queue_receiver(queue) as receiver,
            ):
                while not ended.is_set():
                    starved_before_s = _starved_s(pid)
                    begun_s = time.monotonic()
                    async with asyncio.timeout(ANSWERED_WITHIN_S):
                        await sender.send_messages(ServiceBusMessage(b"ping"))
                        [message] = await receiver.receive_messages(1, ANSWERED_WITHIN_S)
                        await receiver.complete_message(message)
                    taken_s = time.monotonic() - begun_s
                    starved = max(0.0, _starved_s(pid) - starved_before_s)
                    _write(Sample(begun_s, taken_s, starved))
                    await asyncio.sleep(max(0.0, INTERVAL_S - taken_s))
        except Exception as error:  # noqa: BLE001  whatever it was, the test is told
            text = f"{type(error).__name__}: {error}"
            _write(Sample(begun_s, time.monotonic() - begun_s, error=text))
            await asyncio.sleep(INTERVAL_S)


def _write(sample: Sample) -> None:
    sys.stdout.write(json.dumps(asdict(sample)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_ping(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
