"""Has the hot path kept its speed? Another build beside this one, in interleaved rounds.

`--before` names a checkout of an earlier commit that was compiled (`make compile` there). Both
builds serve the same loads from the same client; what counts is server CPU per message, and
instructions where the machine has a counter for them.
"""

import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, final

from bench import client
from bench.client import COMPILED
from bench.contestants import alone
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood, Result, Trickle
from bench.peeklock_server import Peeklock
from bench.plan import Plan

ROUNDS: Final = 9
BEFORE: Final = "before"
AFTER: Final = "after"
# What may be added, and by how much instructions may grow: they have no noise.
CPU_RATIO_MAX: Final = 1.05
INSTRUCTIONS_RATIO_MAX: Final = 1.03


def answer(plan: Plan) -> None:
    """Measure both builds in turns, and print medians, spread and ratios."""
    if plan.before is None:
        sys.exit("compare needs --before, a checkout of an earlier commit that was compiled")
    print(machine(plan.directory))
    loads = _loads(plan)
    results: dict[tuple[str, str], list[Result]] = {}
    instructions: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        builds = {BEFORE: _build(plan.before), AFTER: COMPILED}
        servers = {
            name: stack.enter_context(Peeklock(plan.directory / name, "compiled", build=build))
            for name, build in builds.items()
        }
        for name, server in servers.items():
            print(f"{name}: {server.version()}, {builds[name]}")
        for number in range(1 if plan.quick else max(plan.rounds, ROUNDS)):
            # Who goes first changes: the second finds the machine warmer.
            order = (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE)
            for title, load in loads.items():
                for name in order:
                    endpoint = servers[name].endpoint
                    with alone(dict(servers), name), Counter(endpoint.pid) as seen:
                        found = client.run(endpoint, load)
                    results.setdefault((title, name), []).append(found)
                    if seen.instructions:
                        each = seen.instructions / (found.messages + _warmup(load))
                        instructions.setdefault((title, name), []).append(each)
    _show(results, instructions)


def _loads(plan: Plan) -> dict[str, Flood | Trickle]:
    messages = 20_000 if plan.quick else 200_000
    seconds = 1.0 if plan.quick else 4.0
    return {
        "window 1,000, credit 2,000": Flood(messages, 1_000, 2_000, messages // 10),
        "window 200, credit 200": Flood(messages, 200, 200, messages // 10, 2),
        "5,000/s, 5 at a time": Trickle(5_000, 5, seconds, seconds / 5),
    }


def _warmup(load: Flood | Trickle) -> int:
    """How many messages came before those that are counted."""
    return load.warmup if isinstance(load, Flood) else round(load.warmup_seconds * load.rate)


def _build(place: Path) -> Path:
    """Find the compiled copy of a checkout, or take the place for one."""
    for found in (place / "build" / "compiled", place):
        if list(found.glob("peeklock/amqp/connection*.so")):
            return found.resolve()
    sys.exit(f"there is no compiled copy in {place}: run `make compile` there")


@final
class Counter:
    """Counts the instructions of a process by `perf stat`; 0 where the machine cannot."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process: subprocess.Popen[str] | None = None
        self.instructions = 0

    def __enter__(self) -> "Counter":
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "-p", str(self._pid)]
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        except FileNotFoundError:
            self._process = None
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            _, said = self._process.communicate()
            counted = re.search(r"^(\d+),", said, re.MULTILINE)
            self.instructions = int(counted[1]) if counted else 0


def _show(
    results: dict[tuple[str, str], list[Result]],
    instructions: dict[tuple[str, str], list[float]],
) -> None:
    rows: list[list[str]] = []
    judged: list[str] = []
    for title in dict.fromkeys(title for title, _ in results):
        before, after = results[(title, BEFORE)], results[(title, AFTER)]
        ratio = median([r.server_us for r in after]) / median([r.server_us for r in before])
        for name, found in ((BEFORE, before), (AFTER, after)):
            counted = instructions.get((title, name))
            rows.append(
                [
                    f"{title}, {name}",
                    f"{median([r.server_us for r in found]):.2f}",
                    spread([r.server_us for r in found], 2),
                    f"{median([r.rate for r in found]):,.0f}",
                    f"{median(counted):,.0f}" if counted else "no counter",
                    f"{ratio:.3f}" if name == AFTER else "",
                ]
            )
        judged.append(verdict(f"server CPU, {title}", ratio, "of before", most=CPU_RATIO_MAX))
        counts = [instructions.get((title, name)) for name in (BEFORE, AFTER)]
        if counts[0] and counts[1]:
            share = median(counts[1]) / median(counts[0])
            what = f"instructions, {title}"
            judged.append(verdict(what, share, "of before", most=INSTRUCTIONS_RATIO_MAX))
    columns = ["1 KB", "server us", "spread", "msgs/s", "instructions", "ratio"]
    rounds = len(next(iter(results.values())))
    table(f"Two builds, medians of {rounds} interleaved rounds", columns, rows)
    print()
    for line in judged:
        print(line)
