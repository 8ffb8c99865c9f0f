"""What does an old deferred message cost the journal?

A message that nobody takes keeps its chunk of the journal alive. When the journal's retention has
passed, such bodies are carried forward to the tail, so that the old chunks can go. Measured here is
what that costs when one message was deferred, and when one of each thousand or of each twenty is
(every block of the journal then stays sparse), beside the same traffic with none.
"""

import time
from dataclasses import dataclass

from bench import client, proc
from bench.figures import machine, table
from bench.loads import Flood, Result, flood
from bench.peeklock_server import Peeklock
from bench.plan import Plan

# A message whose number is a multiple of this is deferred; zero defers none.
FIRST_ONLY = 1 << 62
CASES = {
    "none deferred": 0,
    "one old message deferred": FIRST_ONLY,
    "one of each thousand deferred": 1_000,
    "one of each twenty deferred": 20,
}
RETENTION_MS = 1_000
RETENTION_BYTES = 64 << 20
WINDOW = 500
MIB = 1 << 20


@dataclass(frozen=True)
class Cost:
    """The traffic's figures and what the store took meanwhile and afterwards."""

    traffic: Result
    written_bytes: int
    disk_bytes: int
    idle_written_bytes: int
    idle_cpu_us: int
    reopened_s: float


def answer(plan: Plan) -> None:
    """Run the same traffic over each case, one after the other, and print what it cost."""
    print(machine(plan.directory))
    print(f"journal retention {RETENTION_MS} ms and {RETENTION_BYTES // MIB} MiB")
    rows = []
    for title, every in CASES.items():
        cost = _measure(plan, every)
        messages = cost.traffic.messages
        rows.append(
            [
                title,
                f"{messages:,}",
                f"{cost.traffic.rate:,.0f}",
                f"{cost.traffic.server_us:.2f}",
                f"{cost.written_bytes / messages:,.0f}",
                f"{cost.disk_bytes / MIB:,.0f}",
                f"{cost.idle_written_bytes / MIB:.1f}",
                f"{cost.idle_cpu_us / 1000:.0f}",
                f"{cost.reopened_s:.2f}",
            ]
        )
    columns = [
        *("1 KB messages through one queue", "messages", "msgs/s", "server us"),
        *("B written/msg", "MiB on disk", "idle MiB written", "idle CPU ms", "s to reopen"),
    ]
    table("One old deferred message", columns, rows)


def _measure(plan: Plan, every: int) -> Cost:
    messages, idle_s = (20_000, 2.0) if plan.quick else (500_000, 45.0)
    directory = plan.directory / f"deferred-{every}"
    settings = {
        "journal_retention_ms": str(RETENTION_MS),
        "journal_retention_bytes": str(RETENTION_BYTES),
    }
    with Peeklock(directory, "compiled", settings=settings) as server:
        before = proc.written_bytes(server.pid)
        load = Flood(messages=messages, window=WINDOW, credit=WINDOW, defer_every=every)
        traffic = client.run(server.endpoint, load)
        written = proc.written_bytes(server.pid)
        cpu_us = proc.cpu_us(server.pid)
        # Housekeeping goes on when nobody sends: what it still writes belongs to the price.
        time.sleep(idle_s)
        idle_written = proc.written_bytes(server.pid) - written
        idle_cpu_us = proc.cpu_us(server.pid) - cpu_us
        disk = proc.tree_bytes(server.data)
        server.kill()
        begun = time.perf_counter()
        server.start()
        # The partition opens when it is used first.
        flood(server.endpoint, Flood(messages=1, window=1, credit=1))
        reopened_s = time.perf_counter() - begun
        return Cost(traffic, written - before, disk, idle_written, idle_cpu_us, reopened_s)
