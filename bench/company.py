"""Does a store write gain from waiting for company? Batched store access on beside off (R-F3).

Many senders wait for each answer before they send again; the store is as fast as it is, or slower
by an emulated delay.
"""

import json
import os
import subprocess
import sys
import time

from bench import proc
from bench.client import COMPILED, ROOT
from bench.endpoint import Endpoint
from bench.ends import Sender
from bench.figures import machine, median, table
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from bench.pump import Pump

SENDERS = (1, 20, 100)
DELAYS_MS = (0, 10)
# Whether the queue is partitioned, and over how many stores.
LAYOUTS = {
    "plain queue": (False, 1),
    "16 partitions on 1 store": (True, 1),
    "16 partitions on 4 stores": (True, 4),
}


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians."""
    print(machine(plan.directory))
    seconds = 0.5 if plan.quick else 3.0
    rows = []
    for delay_ms in DELAYS_MS:
        servers = {
            batched: Peeklock(
                plan.directory / f"{delay_ms}-{batched}",
                "compiled",
                properties={"EnableBatchedOperations": batched},
                settings={"commit_delay_ms": str(delay_ms)},
            )
            for batched in (False, True)
        }
        results: dict[tuple[int, bool], list[tuple[float, float]]] = {}
        for server in servers.values():
            server.start()
        try:
            for _ in range(plan.rounds):
                for senders in SENDERS:
                    for batched, server in servers.items():
                        found = run(server.endpoint, senders, seconds)
                        results.setdefault((senders, batched), []).append(found)
        finally:
            for server in servers.values():
                server.kill()
        store = f"store + {delay_ms} ms" if delay_ms else "store as it is"
        for (senders, batched), measured in results.items():
            rows.append(
                [
                    f"{senders} senders, {store}",
                    "on" if batched else "off",
                    f"{median([rate for rate, _ in measured]):,.0f}",
                    f"{median([cost for _, cost in measured]):.0f}",
                ]
            )
    columns = ["each sender waits for its answer", "batched", "msgs/s", "server us"]
    table(f"Waiting for company, medians of {plan.rounds} rounds", columns, rows)
    _compare_partitions(plan, seconds)


def _compare_partitions(plan: Plan, seconds: float) -> None:
    """Measure senders that are spread over partitions and stores beside those of a plain queue."""
    servers = {
        name: Peeklock(
            plan.directory / name.replace(" ", "-"),
            "compiled",
            properties={"EnablePartitioning": partitioned},
            settings={"commit_delay_ms": str(DELAYS_MS[-1]), "stores": str(stores)},
        )
        for name, (partitioned, stores) in LAYOUTS.items()
    }
    results: dict[tuple[int, str], list[float]] = {}
    for server in servers.values():
        server.start()
    try:
        for _ in range(plan.rounds):
            for senders in SENDERS[1:]:
                for name, server in servers.items():
                    rate, _ = run(server.endpoint, senders, seconds)
                    results.setdefault((senders, name), []).append(rate)
    finally:
        for server in servers.values():
            server.kill()
    rows = []
    for (senders, name), rates in results.items():
        share = median(rates) / median(results[senders, next(iter(LAYOUTS))])
        rows.append([f"{senders} senders, {name}", f"{median(rates):,.0f}", f"{share:.2f}"])
    columns = [f"each waits, stores of {DELAYS_MS[-1]} ms", "msgs/s", "of plain"]
    table(f"Company over partitions, medians of {plan.rounds} rounds", columns, rows)


def run(endpoint: Endpoint, senders: int, seconds: float) -> tuple[float, float]:
    """Push from a process of its own, compiled; gives messages per second and server CPU each."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.company", endpoint.to_json(), str(senders), str(seconds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    rate, cost = json.loads(done.stdout)
    return rate, cost


def push(endpoint: Endpoint, senders: int, seconds: float) -> tuple[float, float]:
    """Send one message after another on each of so many connections."""
    ends = [Sender(endpoint, window=1) for _ in range(senders)]
    pump = Pump(*ends)
    _push_until(pump, ends, time.perf_counter() + seconds / 4)
    before = sum(end.accepted for end in ends)
    cpu_us = proc.cpu_us(endpoint.pid)
    begun = time.perf_counter()
    _push_until(pump, ends, begun + seconds)
    count = sum(end.accepted for end in ends) - before
    took_s = time.perf_counter() - begun
    cost = (proc.cpu_us(endpoint.pid) - cpu_us) / count
    pump.close()
    return count / took_s, cost


def _push_until(pump: Pump, ends: list[Sender], until: float) -> None:
    while time.perf_counter() < until:
        for end in ends:
            if end.room() > 0:
                end.send(1, 0)
        pump.flush()
        pump.wait(1.0)


if __name__ == "__main__":
    print(json.dumps(push(Endpoint.from_json(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
