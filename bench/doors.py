"""What do TLS and WebSockets cost?

The same flood as in `throughput`, over each way in, interleaved: plain AMQP, AMQP in TLS, AMQP in a
WebSocket, and in a WebSocket in TLS.
"""

from dataclasses import replace
from typing import Final

from bench import client
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result
from bench.peeklock_server import Peeklock
from bench.plan import Plan

MESSAGES: Final = 200_000
WINDOW: Final = 1_000
# Title, whether there is TLS, whether there is a WebSocket.
WAYS: Final = (
    ("plain AMQP", False, False),
    ("AMQP in TLS", True, False),
    ("WebSocket", False, True),
    ("WebSocket in TLS", True, True),
)


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians, and what each costs beside plain AMQP."""
    print(machine(plan.directory))
    messages = MESSAGES // (20 if plan.quick else 1)
    load = Flood(messages=messages, window=WINDOW, credit=WINDOW, warmup=messages // 10)
    results: dict[str, list[Result]] = {}
    with Peeklock(plan.directory, "compiled") as server:
        for _ in range(plan.rounds):
            for title, is_tls, is_websocket in WAYS:
                authority = str(server.authority) if is_tls else ""
                endpoint = replace(server.endpoint, authority=authority, is_websocket=is_websocket)
                results.setdefault(title, []).append(client.run(endpoint, load))
    plain = median([result.rate for result in results[WAYS[0][0]]])
    rows = [
        [
            title,
            f"{median([result.rate for result in found]):,.0f}",
            spread([result.rate for result in found]),
            f"{median([result.rate for result in found]) / plain:.2f}",
            f"{median([result.server_us for result in found]):.2f}",
            f"{median([result.client_us for result in found]):.2f}",
        ]
        for title, found in results.items()
    ]
    columns = [
        "send + receive + complete, 1 KB",
        "msgs/s",
        "spread",
        "beside plain",
        "server us",
        "client us",
    ]
    table(f"Ways in, medians of {plan.rounds} interleaved rounds", columns, rows)
