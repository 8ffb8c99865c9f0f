"""What do thousands of connections cost that are only held?

Three servers side by side: one alone, one with 1,000 idle connections and one with 5,000, each with
a receiver that waits at another queue. On each, one queue works as in `throughput` and `latency`,
interleaved. Memory is the server's own (RssAnon), without the kernel's buffers.
"""

import time
from contextlib import ExitStack
from typing import Final

from bench import client, proc
from bench.crowd import Crowd
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result, Trickle
from bench.peeklock_server import Peeklock
from bench.plan import Plan

COUNTS: Final = (0, 1_000, 5_000)
QUICK_COUNTS: Final = (0, 100, 500)
MESSAGES: Final = 200_000
WINDOW: Final = 1_000
# More than the crowd, so that the clients that work find room.
SETTINGS: Final = {"connections_max": "10000"}


def answer(plan: Plan) -> None:
    """Bring the crowds, work beside them in interleaved rounds, and let them go."""
    print(machine(plan.directory))
    counts = QUICK_COUNTS if plan.quick else COUNTS
    messages = MESSAGES // (20 if plan.quick else 1)
    flood = Flood(messages=messages, window=WINDOW, credit=WINDOW, warmup=messages // 10)
    seconds = 1.0 if plan.quick else 5.0
    trickle = Trickle(rate=1_000, burst=1, seconds=seconds, warmup_seconds=seconds / 5)
    floods: dict[int, list[Result]] = {count: [] for count in counts}
    trickles: dict[int, list[Result]] = {count: [] for count in counts}
    with ExitStack() as stack:
        servers: dict[int, Peeklock] = {}
        crowds: dict[int, Crowd] = {}
        for count in counts:
            server = Peeklock(plan.directory / str(count), "compiled", settings=SETTINGS)
            servers[count] = stack.enter_context(server)
            # What opens with the first client is not the crowd's.
            client.run(server.endpoint, flood)
            client.run(server.endpoint.kept(), Flood(messages=1, window=1, credit=1))
            if count:
                crowds[count] = stack.enter_context(Crowd(server.endpoint.kept(), count))
        idle_us = _idle_us(servers, seconds)
        for _ in range(plan.rounds):
            for count, server in servers.items():
                floods[count].append(client.run(server.endpoint, flood))
            for count, server in servers.items():
                trickles[count].append(client.run(server.endpoint, trickle))
        leaving = {count: crowd.leave() for count, crowd in crowds.items()}
    _show_crowds(crowds, leaving, idle_us)
    _show_work(floods, trickles, plan.rounds)


def _idle_us(servers: dict[int, Peeklock], seconds: float) -> dict[int, float]:
    """Tell what a second costs each server in which nobody does anything."""
    before = {count: proc.cpu_us(server.pid) for count, server in servers.items()}
    time.sleep(seconds)
    return {
        count: (proc.cpu_us(server.pid) - before[count]) / seconds
        for count, server in servers.items()
    }


def _show_crowds(
    crowds: dict[int, Crowd], leaving: dict[int, float], idle_us: dict[int, float]
) -> None:
    rows = [
        [
            f"{count:,}",
            f"{crowd.connecting_s:.2f}",
            f"{count / crowd.connecting_s:,.0f}",
            f"{crowd.cpu_us:.0f}",
            f"{crowd.memory_bytes / 1024:.1f}",
            f"{idle_us[count] / 1000:.1f}",
            f"{leaving[count]:.2f}",
        ]
        for count, crowd in crowds.items()
    ]
    columns = [
        "connections, each with a receiver",
        *("s to connect", "connects/s", "server us each", "KB each"),
        *("idle CPU ms/s", "s to leave"),
    ]
    alone = idle_us[0] / 1000
    table(f"Idle connections; a server alone uses {alone:.1f} ms/s", columns, rows)


def _show_work(
    floods: dict[int, list[Result]], trickles: dict[int, list[Result]], rounds: int
) -> None:
    alone = median([result.rate for result in floods[0]])
    rows = [
        [
            f"{count:,}",
            f"{median([result.rate for result in floods[count]]):,.0f}",
            spread([result.rate for result in floods[count]]),
            f"{median([result.rate for result in floods[count]]) / alone:.2f}",
            f"{median([result.server_us for result in floods[count]]):.1f}",
            f"{median([result.p50_ms for result in trickles[count]]):.2f}",
            f"{median([result.p99_ms for result in trickles[count]]):.2f}",
            f"{median([result.server_us for result in trickles[count]]):.0f}",
        ]
        for count in floods
    ]
    columns = [
        "one queue works beside",
        *("msgs/s", "spread", "beside none", "server us"),
        *("p50 ms at 1,000/s", "p99 ms", "server us at 1,000/s"),
    ]
    table(f"Work beside them, 1 KB, medians of {rounds} interleaved rounds", columns, rows)
