"""What does a remembered message id cost?

A queue that looks for duplicates remembers the id of each message for its whole window, however
soon the message is gone. A million messages with ids go through such a queue and through one that
does not remember; the difference of the memory is what the ids take.
"""

from bench import client, proc
from bench.figures import machine, table
from bench.loads import Flood
from bench.peeklock_server import Peeklock
from bench.plan import Plan

CASES = {
    "remembered": {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "PT1H",
    },
    "not remembered": {},
}
WINDOW = 1_000


def answer(plan: Plan) -> None:
    """Push the same messages through both queues, then reopen the one that remembers."""
    print(machine(plan.directory))
    messages = 20_000 if plan.quick else 1_000_000
    rows = []
    memory: dict[str, int] = {}
    for name, properties in CASES.items():
        directory = plan.directory / name.replace(" ", "-")
        with Peeklock(directory, "compiled", properties=properties) as server:
            before = proc.anonymous_bytes(server.pid)
            load = Flood(messages=messages, window=WINDOW, credit=WINDOW, has_ids=True)
            traffic = client.run(server.endpoint, load)
            memory[name] = proc.anonymous_bytes(server.pid) - before
            server.kill()
            reopened_s = server.start()
        rows.append(
            [
                f"{messages:,} ids of 32 characters, {name}",
                f"{traffic.rate:,.0f}",
                f"{traffic.server_us:.2f}",
                f"{memory[name] / (1 << 20):,.0f}",
                f"{reopened_s:.2f}",
            ]
        )
    columns = ["1 KB messages", "msgs/s", "server us", "MiB more than at the start", "s to start"]
    table("Duplicate detection", columns, rows)
    each = (memory["remembered"] - memory["not remembered"]) / messages
    print(f"\n{each:.0f} bytes for each remembered id")
