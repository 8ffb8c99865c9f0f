"""What does a partitioned queue give over 1, 2 and 4 stores, beside a plain one?

Send, receive and complete 1 KB messages without a key, pipelined. One process with one event loop
decides for all partitions, so that more stores can only help as far as their commits overlap.
"""

from bench import client
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result
from bench.peeklock_server import Peeklock
from bench.plan import Plan

STORES = (1, 2, 4)
PLAIN_QUEUE = "plain queue, 1 store"
WINDOW = 1_000
MESSAGES = 100_000


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians and ratios."""
    print(machine(plan.directory))
    results: dict[str, list[Result]] = {}
    servers = {PLAIN_QUEUE: Peeklock(plan.directory / "plain", "compiled")}
    for stores in STORES:
        servers[f"16 partitions, {stores} stores"] = Peeklock(
            plan.directory / f"stores-{stores}",
            "compiled",
            settings={"stores": str(stores)},
            properties={"EnablePartitioning": True},
        )
    try:
        for server in servers.values():
            server.start()
        for _ in range(plan.rounds):
            for name, server in servers.items():
                found = client.run(server.endpoint, _load(plan, name))
                results.setdefault(name, []).append(found)
    finally:
        for server in servers.values():
            server.kill()
    plain = median([r.rate for r in results[PLAIN_QUEUE]])
    rows = [
        [
            name,
            f"{median([r.rate for r in found]):,.0f}",
            spread([r.rate for r in found]),
            f"{median([r.server_us for r in found]):.2f}",
            f"{median([r.rate for r in found]) / plain:.2f}",
        ]
        for name, found in results.items()
    ]
    columns = ["send + receive + complete, 1 KB", "msgs/s", "spread", "server us", "of plain"]
    table(f"Partitions, medians of {plan.rounds} interleaved rounds", columns, rows)


def _load(plan: Plan, name: str) -> Flood:
    messages = MESSAGES // (20 if plan.quick else 1)
    return Flood(
        messages=messages,
        window=WINDOW,
        credit=WINDOW,
        warmup=messages // 10,
        is_ordered=name == PLAIN_QUEUE,
    )
