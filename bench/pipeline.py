"""How fast is a queue captured into a lake, and how fast is its whole story audited?

`capture` and `audit` as users run them: `peeklock pipeline NAME` on this machine, then the same
files by `spark-submit` on a standalone master with two workers. Times are of the whole command,
with the start of Spark.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import client
from bench.figures import machine, table
from bench.loads import Flood
from bench.peeklock_server import QUEUE, Peeklock
from bench.plan import Plan
from bench.spark_cluster import StandaloneCluster

MESSAGES: Final = 1_000_000
PROPERTIES: Final = {"MaxSizeInMegabytes": 5120}
# The journal must keep all of it until it was audited.
SETTINGS: Final = {"journal_retention_bytes": str(16 << 30)}
JOBS: Final = Path(client.COMPILED) / "peeklock" / "spark" / "jobs"


def answer(plan: Plan) -> None:
    """Run both jobs on both kinds of Spark, each on a fresh broker, and print what they took."""
    print(machine(plan.directory))
    messages = MESSAGES // (50 if plan.quick else 1)
    os.environ["PYTHONPATH"] = str(client.COMPILED)
    rows = _measure(plan.directory / "here", messages, "local[2]", _locally)
    with StandaloneCluster(plan.directory / "spark") as cluster:

        def submitted(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            return cluster.submit(JOBS / f"{name}.py", *arguments)

        rows += _measure(plan.directory / "there", messages, "standalone, 2 workers", submitted)
    columns = ["job", "messages", "seconds", "messages/s"]
    table(f"The pipeline over {messages:,} messages of 1 KB", columns, rows)


def _locally(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peeklock", "pipeline", name, *arguments]
    return subprocess.run(
        [*command, "--master", "local[2]"], capture_output=True, text=True, check=False
    )


def _measure(
    place: Path,
    messages: int,
    where: str,
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> list[list[str]]:
    place.mkdir(parents=True)
    rows = []
    with Peeklock(place, "compiled", properties=PROPERTIES, settings=SETTINGS) as server:
        client.run(server.endpoint, Flood(messages=messages, window=1_000, credit=0, has_ids=True))
        reach = ("--connection-string", server.connection_string)
        lake = place / "lake"
        ways = {
            "capture": (QUEUE, *reach, "--out", str(lake), "--max-messages", "100000"),
            "audit": ("--entity", QUEUE, *reach, "--out", str(place / "audit")),
        }
        for name, arguments in ways.items():
            begun = time.perf_counter()
            done = run(name, *arguments)
            took = time.perf_counter() - begun
            if done.returncode != 0:
                raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stderr[-4000:]}")
            title = f"{name}, {where}"
            rows.append([title, f"{messages:,}", f"{took:.1f}", f"{messages / took:,.0f}"])
            print(f"{title}: {took:.1f} s", flush=True)
        found = _rows_in(lake)
        if found != messages:
            raise RuntimeError(f"the lake has {found:,} rows of {messages:,}")
    return rows


def _rows_in(lake: Path) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(str(lake)).to_pyarrow_dataset().count_rows())
