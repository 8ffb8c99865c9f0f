"""What does the engine of the store cost? Segments beside LMDB, in interleaved rounds.

Both are the same build; each has its own directory on the same disk.
"""

from contextlib import ExitStack

from bench import client
from bench.contestants import Contestants, alone
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result, Trickle
from bench.peeklock_server import Peeklock
from bench.plan import Plan

ENGINES = ("segments", "lmdb")


def answer(plan: Plan) -> None:
    """Measure both engines in turns, and print medians."""
    print(machine(plan.directory))
    results: dict[tuple[str, str], list[Result]] = {}
    with ExitStack() as stack:
        servers: Contestants = {
            engine: stack.enter_context(
                Peeklock(plan.directory / engine, "compiled", settings={"store": engine})
            )
            for engine in ENGINES
        }
        for number in range(plan.rounds):
            # Who goes first changes: the second finds the machine warmer.
            order = ENGINES if number % 2 == 0 else ENGINES[::-1]
            for title, load in _loads(plan).items():
                for engine in order:
                    with alone(servers, engine) as server:
                        is_kept = isinstance(load, Flood) and not load.credit
                        place = server.endpoint.kept() if is_kept else server.endpoint
                        found = client.run(place, load)
                    results.setdefault((title, engine), []).append(found)
    _show(plan, results)


def _loads(plan: Plan) -> dict[str, Flood | Trickle]:
    few, some, many = (200, 5_000, 20_000) if plan.quick else (3_000, 60_000, 300_000)
    seconds = 1.0 if plan.quick else 4.0
    return {
        "5,000/s, 5 at a time": Trickle(5_000, 5, seconds, seconds / 5),
        "5,000/s, one by one": Trickle(5_000, 1, seconds, seconds / 5),
        "window 1, sent only": Flood(few, window=1, credit=0, warmup=few // 10),
        "window 1": Flood(few, window=1, credit=50, warmup=few // 10),
        "window 50": Flood(some, window=50, credit=50, warmup=some // 10),
        "window 1,000, credit 2,000": Flood(many, 1_000, 2_000, many // 10),
    }


def _show(plan: Plan, results: dict[tuple[str, str], list[Result]]) -> None:
    rows: list[list[str]] = []
    for (title, engine), found in results.items():
        is_trickle = title.startswith("5,000/s")
        p50 = f"{median([r.p50_ms for r in found]):.2f}" if is_trickle else ""
        p99 = f"{median([r.p99_ms for r in found]):.2f}" if is_trickle else ""
        rate = "" if is_trickle else f"{median([r.rate for r in found]):,.0f}"
        rates = "" if is_trickle else spread([r.rate for r in found])
        cpu = f"{median([r.server_us for r in found]):.1f}"
        rows.append([title, engine, p50, p99, rate, rates, cpu])
    columns = ["1 KB, durable", "engine", "p50 ms", "p99 ms", "msgs/s", "spread", "server us"]
    table(f"Engines, medians of {plan.rounds} interleaved rounds", columns, rows)
