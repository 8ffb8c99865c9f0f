"""Many clients that do nothing: each holds a connection with one receiver that waits for a message.

`Crowd` is the bench's side; `python -m bench.crowd ENDPOINT COUNT` is the other process, which
holds them until its input ends.
"""

import json
import os
import resource
import selectors
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self, final

from bench import proc
from bench.client import COMPILED, ROOT, ClientError
from bench.endpoint import Endpoint
from bench.ends import SECOND
from bench.line import Line, LineError, now_ms
from peeklock.amqp.events import AttachAnswered
from peeklock.amqp.frames.termini import Source

# How many come at the same moment, as the pods of a deployment do.
COMING_AT_ONCE: Final = 100
STALLED_S: Final = 30.0
# How often heartbeats are looked after; the broker wants one every two minutes.
TICK_S: Final = 10.0
# Files that the process needs beside its connections.
SPARE_FILES: Final = 100
GONE_WITHIN_S: Final = 60.0


@final
class Crowd:
    """So many idle clients of one server, and what their coming cost it."""

    def __init__(self, endpoint: Endpoint, count: int) -> None:
        self._pid = endpoint.pid
        self._files = proc.open_files(endpoint.pid)
        memory = proc.anonymous_bytes(endpoint.pid)
        cpu_us = proc.cpu_us(endpoint.pid)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.crowd", endpoint.to_json(), str(count)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(COMPILED)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            self.__exit__(None, None, None)
            raise ClientError(f"{count} connections could not be held")
        self.connecting_s: float = json.loads(said)
        self.cpu_us = (proc.cpu_us(endpoint.pid) - cpu_us) / count
        self.memory_bytes = (proc.anonymous_bytes(endpoint.pid) - memory) / count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def leave(self) -> float:
        """Let all hang up at once, without a word; gives the seconds until the server knows."""
        begun = time.perf_counter()
        self._process.kill()
        self._process.wait()
        while proc.open_files(self._pid) > self._files:
            if time.perf_counter() - begun > GONE_WITHIN_S:
                raise ClientError("the server holds connections whose clients are gone")
            time.sleep(0.005)
        return time.perf_counter() - begun


@final
class Holder:
    """The connections themselves, in the process of the crowd."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lines: list[Line] = []
        self._selector = selectors.DefaultSelector()
        self._waiting = 0

    def connect(self, count: int) -> float:
        """Make them, a hundred at a time; gives the seconds until each had its receiver."""
        begun = time.perf_counter()
        while self._waiting or len(self._lines) < count:
            while self._waiting < COMING_AT_ONCE and len(self._lines) < count:
                self._come()
            if not self._take(STALLED_S):
                raise LineError(f"nothing came for {STALLED_S:.0f} s, {self._waiting} wait")
        return time.perf_counter() - begun

    def hold(self) -> None:
        """Keep them alive until nobody is there who wants them."""
        self._selector.register(sys.stdin, selectors.EVENT_READ, None)
        tick_at = time.monotonic()
        while not self._is_told_to_end(max(0.0, tick_at - time.monotonic())):
            if time.monotonic() >= tick_at:
                for line in self._lines:
                    line.connection.tick(now_ms())
                    line.flush()
                tick_at += TICK_S

    def _come(self) -> None:
        at = self._endpoint
        line = Line(at.port, at.user, at.password, f"idle-{len(self._lines)}", at.way)
        source = Source(address=at.address, durable=at.terminus_durability)
        line.session.attach_receiver("idle", source, rcv_settle_mode=SECOND)
        line.flush()
        self._lines.append(line)
        self._selector.register(line, selectors.EVENT_READ, line)
        self._waiting += 1

    def _take(self, timeout_s: float) -> bool:
        found = self._selector.select(timeout_s)
        for key, _ in found:
            self._read(key.data)
        return bool(found)

    def _read(self, line: Line) -> None:
        for event in line.read():
            if isinstance(event, AttachAnswered):
                event.link.grant(1)
                self._waiting -= 1
        line.flush()

    def _is_told_to_end(self, timeout_s: float) -> bool:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                return True
            self._read(key.data)
        return False


def allow_files(count: int) -> None:
    """Let this process open so many files; an error says what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(endpoint: Endpoint, count: int) -> None:
    """Connect, say how long that took, and hold."""
    allow_files(count)
    holder = Holder(endpoint)
    print(json.dumps(holder.connect(count)), flush=True)
    holder.hold()


if __name__ == "__main__":
    main(Endpoint.from_json(sys.argv[1]), int(sys.argv[2]))
