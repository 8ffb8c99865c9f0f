"""What does a store in PostgreSQL cost? Beside segments on the same disk, in interleaved rounds.

The database syncs as it does for everybody, with the memory that its packages come with; broker and
database talk through a socket of this machine. Its CPU is that of all its processes.
"""

from contextlib import ExitStack
from pathlib import Path

from bench import client, proc
from bench.contestants import Contestants, alone
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result, Trickle
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from tests.store.postgres.server import PostgresServer, running

EMBEDDED = "segments"
POSTGRES = "PostgreSQL"
RATE = 1_000
# What a new server has, but for what tests save.
SETTINGS = {"fsync": "on", "shared_buffers": "128MB", "autovacuum_naptime": "1min"}


def answer(plan: Plan) -> None:
    """Measure both in turns, and print medians."""
    print(machine(plan.directory))
    results: dict[tuple[str, str], list[tuple[Result, float]]] = {}
    with ExitStack() as stack:
        database = stack.enter_context(running(settings=SETTINGS, place=plan.directory))
        print(database.ask("select version()")[0][0])
        settings = {EMBEDDED: EMBEDDED, POSTGRES: database.new_database()}
        servers: Contestants = {
            name: stack.enter_context(
                Peeklock(plan.directory / name, "compiled", settings={"store": store})
            )
            for name, store in settings.items()
        }
        for number in range(plan.rounds):
            # Who goes first changes: the second finds the machine warmer.
            order = list(settings) if number % 2 == 0 else list(settings)[::-1]
            for title, load in _loads(plan).items():
                for name in order:
                    with alone(servers, name) as server:
                        is_kept = isinstance(load, Flood) and not load.credit
                        place = server.endpoint.kept() if is_kept else server.endpoint
                        before = database_us(database)
                        found = client.run(place, load)
                        each = (database_us(database) - before) / _messages(load)
                    results.setdefault((title, name), []).append((found, each))
    _show(plan, results)


def database_us(database: PostgresServer) -> int:
    """CPU time of the server and of all its processes that are there."""
    assert database.process is not None
    pid = database.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return proc.cpu_us(pid) + sum(proc.cpu_us(int(child)) for child in children)


def _messages(load: Flood | Trickle) -> int:
    """All that the load sends: the database's time is of all of it."""
    if isinstance(load, Flood):
        return load.messages + load.warmup
    return round(load.rate * (load.seconds + load.warmup_seconds))


def _loads(plan: Plan) -> dict[str, Flood | Trickle]:
    few, some, many = (200, 5_000, 20_000) if plan.quick else (3_000, 40_000, 200_000)
    seconds = 1.0 if plan.quick else 5.0
    return {
        f"{RATE:,}/s, one by one": Trickle(RATE, 1, seconds, seconds / 5),
        "window 1, sent only": Flood(few, window=1, credit=0, warmup=few // 10),
        "window 50": Flood(some, window=50, credit=50, warmup=some // 10),
        "window 1,000, credit 2,000": Flood(many, 1_000, 2_000, many // 10),
    }


def _show(plan: Plan, results: dict[tuple[str, str], list[tuple[Result, float]]]) -> None:
    rows: list[list[str]] = []
    for (title, name), measured in results.items():
        found = [result for result, _ in measured]
        is_trickle = "/s" in title
        p50 = f"{median([r.p50_ms for r in found]):.2f}" if is_trickle else ""
        p99 = f"{median([r.p99_ms for r in found]):.2f}" if is_trickle else ""
        rate = "" if is_trickle else f"{median([r.rate for r in found]):,.0f}"
        rates = "" if is_trickle else spread([r.rate for r in found])
        broker = f"{median([r.server_us for r in found]):.1f}"
        database = f"{median([each for _, each in measured]):.1f}" if name == POSTGRES else ""
        rows.append([title, name, p50, p99, rate, rates, broker, database])
    columns = ["1 KB, durable", "store", "p50 ms", "p99 ms", "msgs/s", "spread", "broker us"]
    table(f"Stores, medians of {plan.rounds} interleaved rounds", [*columns, "database us"], rows)
