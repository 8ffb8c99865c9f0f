"""Sends by REST from a process of its own: each connection posts again when it is answered.

`run` is the bench's side; `python -m bench.posts ENDPOINT LOAD` is the other process.
"""

import base64
import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from bench.client import COMPILED, ROOT, ClientError
from bench.endpoint import Endpoint
from bench.http_line import HttpLine, must_be, request
from bench.loads import STALLED_S, Meter, Result
from bench.payload import BODY_SIZE

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"
CREATED: Final = 201


@dataclass(frozen=True)
class Posts:
    """Post on so many connections; with a batch each request carries so many messages."""

    connections: int
    seconds: float
    batch: int = 1


def run(endpoint: Endpoint, load: Posts) -> Result:
    """Put the load on the queue from another process; latencies are those of requests."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.posts", endpoint.to_json(), json.dumps(asdict(load))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClientError(done.stderr.strip())
    return Result(**json.loads(done.stdout))


def push(endpoint: Endpoint, load: Posts) -> Result:
    """Post for a while, and count what was answered after a quarter of it."""
    written = _request(endpoint, load.batch)
    selector = selectors.DefaultSelector()
    lines = [HttpLine(endpoint) for _ in range(load.connections)]
    asked_ns: dict[HttpLine, int] = {}
    for line in lines:
        selector.register(line, selectors.EVENT_READ, line)
        asked_ns[line] = time.perf_counter_ns()
        line.send(written)
    _post_until(selector, asked_ns, written, time.perf_counter() + load.seconds / 4)
    meter = Meter(endpoint.pid)
    taken = _post_until(selector, asked_ns, written, time.perf_counter() + load.seconds)
    measured = meter.read(len(taken) * load.batch)
    for line in lines:
        line.close()
    taken.sort()
    return Result(
        messages=measured.messages,
        seconds=measured.seconds,
        server_cpu_us=measured.server_cpu_us,
        client_cpu_us=measured.client_cpu_us,
        p50_ms=taken[len(taken) // 2] / 1e6,
        p99_ms=taken[len(taken) * 99 // 100] / 1e6,
        max_ms=taken[-1] / 1e6,
    )


def _post_until(
    selector: selectors.BaseSelector, asked_ns: dict[HttpLine, int], written: bytes, until: float
) -> list[int]:
    """Go on posting; gives how long each request took that was answered."""
    taken: list[int] = []
    while time.perf_counter() < until:
        found = selector.select(STALLED_S)
        if not found:
            raise ClientError(f"nothing was answered for {STALLED_S:.0f} s")
        for key, _ in found:
            line: HttpLine = key.data
            reply = line.take()
            if reply is not None:
                must_be(reply, CREATED)
                now_ns = time.perf_counter_ns()
                taken.append(now_ns - asked_ns[line])
                asked_ns[line] = now_ns
                line.send(written)
    return taken


def _request(endpoint: Endpoint, batch: int) -> bytes:
    target = f"/{endpoint.address}/messages"
    if batch == 1:
        octets = "application/octet-stream"
        return request(endpoint, "POST", target, bytes(BODY_SIZE), Content_Type=octets)
    text = base64.b64encode(bytes(BODY_SIZE * 3 // 4)).decode()
    body = json.dumps([{"Body": text}] * batch).encode()
    return request(endpoint, "POST", target, body, Content_Type=BATCH_TYPE)


if __name__ == "__main__":
    found = push(Endpoint.from_json(sys.argv[1]), Posts(**json.loads(sys.argv[2])))
    print(json.dumps(asdict(found)))
