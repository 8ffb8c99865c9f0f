"""What do two nodes cost and give, beside one?

A partitioned queue over four stores; messages of 1 KB without a key are sent, received and
completed, pipelined. With two nodes half of the partitions are on the other node whichever one the
client has come to, so that half of all messages take a hop each way. What more cores would give is
computed from the CPU time, because the client needs cores as well.
"""

from pathlib import Path

from bench import client, proc
from bench.figures import machine, median, table, verdict
from bench.loads import Flood
from bench.peeklock_server import Peeklock
from bench.plan import Plan

STORES = 4
WINDOW = 1_000
MESSAGES = 100_000


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians and ratios."""
    print(machine(plan.directory))
    servers = {
        nodes: Peeklock(
            plan.directory / f"nodes-{nodes}",
            "compiled",
            settings={"stores": str(STORES), "nodes": str(nodes)},
            properties={"EnablePartitioning": True},
        )
        for nodes in (1, 2)
    }
    rates: dict[int, list[float]] = {1: [], 2: []}
    costs: dict[int, list[float]] = {1: [], 2: []}
    shares: list[float] = []
    try:
        for server in servers.values():
            server.start()
        for _ in range(plan.rounds):
            for nodes, server in servers.items():
                before = _cpu(server.pid)
                messages = MESSAGES // (20 if plan.quick else 1)
                load = Flood(messages=messages, window=WINDOW, credit=WINDOW, is_ordered=False)
                found = client.run(server.endpoint, load)
                spent = {pid: cpu - before.get(pid, 0) for pid, cpu in _cpu(server.pid).items()}
                rates[nodes].append(found.rate)
                costs[nodes].append(sum(spent.values()) / messages)
                if nodes > 1:
                    # The parent serves nobody.
                    two = sorted(spent.values())[-2:]
                    shares.append(two[0] / sum(two))
    finally:
        for server in servers.values():
            server.kill()
    rows = [
        [
            f"{nodes}",
            f"{median(rates[nodes]):,.0f}",
            f"{median(costs[nodes]):.2f}",
            f"{median(costs[nodes]) / median(costs[1]):.2f}",
        ]
        for nodes in servers
    ]
    columns = ["nodes", "msgs/s", "server us", "of one node"]
    table(f"Nodes, medians of {plan.rounds} interleaved rounds", columns, rows)
    print()
    ratio = median(costs[2]) / median(costs[1])
    print(verdict("CPU per message, two nodes of one", ratio, "", most=1.35))
    print(f"the node that had less to do: {median(shares):.0%} of the work")


def _cpu(pid: int) -> dict[int, int]:
    """The CPU time of a process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {each: proc.cpu_us(each) for each in (pid, *map(int, children))}
