"""How soon is it there: with an empty store, and with a million messages waiting?

And what does a message that waits cost in memory? Only anonymous memory is counted (RssAnon): the
mapped pages of the store's file belong to the kernel, which drops them when it needs the room.
"""

import time

from bench import client, proc
from bench.ends import Receiver
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from bench.pump import Pump

FILL_WINDOW = 4_000
FORMS = ("compiled", "plain")


def answer(plan: Plan) -> None:
    """Measure starts, fill a queue, and measure how it comes back."""
    print(machine(plan.directory))
    starts = {form: _empty_starts(plan, form) for form in FORMS}
    rows = [[form, f"{median(found):.3f}", spread(found, 3)] for form, found in starts.items()]
    table("Start with an empty store", ["form", "s to ready", "spread"], rows)
    backlogs = {form: Backlog(plan, form) for form in FORMS}
    rows = [
        [
            form,
            f"{backlog.count:,}",
            f"{backlog.fill_rate:,.0f}",
            f"{backlog.ready_s:.2f}",
            f"{backlog.first_s:.2f}",
            f"{backlog.filled_bytes / backlog.count:.0f}",
            f"{backlog.reopened_bytes / backlog.count:.0f}",
            f"{backlog.disk_bytes / backlog.count:,.0f}",
        ]
        for form, backlog in backlogs.items()
    ]
    columns = [
        "killed with a backlog, opened again",
        *("messages", "filled/s", "s to ready", "s to first message"),
        *("B/msg filled", "B/msg reopened", "disk B/msg"),
    ]
    table("Reopening, and anonymous memory beyond that of an empty broker", columns, rows)
    _judge(starts["compiled"], backlogs["compiled"])


def _judge(starts: list[float], backlog: "Backlog") -> None:
    memory = max(backlog.filled_bytes, backlog.reopened_bytes) / backlog.count
    print()
    print(verdict("start with an empty store", median(starts), "s", most=0.5))
    print(verdict(f"reopening {backlog.count:,} messages", backlog.first_s, "s", most=3))
    print(verdict("anonymous memory per waiting message", memory, "bytes", most=250))


def _empty_starts(plan: Plan, form: str) -> list[float]:
    """Start on new data each time; the first start of all is left out, it reads from disk."""
    taken = []
    for number in range(plan.rounds + 1):
        server = Peeklock(plan.directory / f"empty-{form}-{number}", form)
        taken.append(server.start())
        server.stop()
    return taken[1:]


class Backlog:
    """One queue filled through the wire, its broker killed and started again."""

    def __init__(self, plan: Plan, form: str) -> None:
        self.count = 20_000 if plan.quick else 1_000_000
        with Peeklock(plan.directory / f"backlog-{form}", form) as server:
            # One message through the queue, so that the idle broker has opened its store.
            client.run(server.endpoint, Flood(messages=1, window=1, credit=1))
            idle = proc.anonymous_bytes(server.pid)
            load = Flood(messages=self.count, window=FILL_WINDOW, credit=0)
            self.fill_rate = client.run(server.endpoint, load).rate
            self.filled_bytes = proc.anonymous_bytes(server.pid) - idle
            self.disk_bytes = proc.tree_bytes(server.data)
            server.kill()
            begun = time.perf_counter()
            self.ready_s = server.start()
            _receive_one(server)
            self.first_s = time.perf_counter() - begun
            self.reopened_bytes = proc.anonymous_bytes(server.pid) - idle


def _receive_one(server: Peeklock) -> None:
    receiver = Receiver(server.endpoint, credit=1)
    pump = Pump(receiver)
    while receiver.received == 0:
        pump.flush()
        pump.wait()
    pump.close()
