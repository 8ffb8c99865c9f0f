"""How many messages can be sent by REST, and what does a request cost?

Each connection posts one message of 1 KB and waits for the answer, beside AMQP senders that wait
for each answer too, and one that does not wait. Nobody receives.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from bench import client, company, posts
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from bench.posts import Posts

CONNECTIONS: Final = (1, 10, 100)
BATCH: Final = 100
WINDOW: Final = 1_000
MESSAGES: Final = 100_000
# Room for all that is sent and never received.
PROPERTIES: Final = {"MaxSizeInMegabytes": 5120}


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians, REST beside AMQP."""
    print(machine(plan.directory))
    results: dict[str, list[Result]] = {}
    with Peeklock(plan.directory, "compiled", properties=PROPERTIES) as server:
        ways = _ways(server, plan)
        for _ in range(plan.rounds):
            for title, run in ways.items():
                results.setdefault(title, []).append(run())
    alone = median([result.rate for result in results[_amqp_title(1)]])
    rows = [
        [
            title,
            f"{median([result.rate for result in found]):,.0f}",
            spread([result.rate for result in found]),
            f"{median([result.rate for result in found]) / alone:.2f}",
            f"{median([result.server_us for result in found]):.1f}",
            *_latencies(found),
        ]
        for title, found in results.items()
    ]
    columns = [
        "sends of 1 KB",
        *("msgs/s", "spread", "beside one AMQP sender", "server us"),
        *("request p50 ms", "p99 ms"),
    ]
    table(f"Sending by REST, medians of {plan.rounds} interleaved rounds", columns, rows)


def _ways(server: Peeklock, plan: Plan) -> dict[str, Callable[[], Result]]:
    seconds = 0.5 if plan.quick else 2.0
    messages = MESSAGES // (20 if plan.quick else 1)
    endpoint = server.endpoint
    ways: dict[str, Callable[[], Result]] = {}
    for count in CONNECTIONS:
        ways[f"REST, {count} connection{_s(count)}"] = partial(
            posts.run, endpoint, Posts(count, seconds)
        )
        ways[_amqp_title(count)] = partial(_one_by_one, server, count, seconds)
    ways[f"REST, 10 connections, {BATCH} messages a request"] = partial(
        posts.run, endpoint, Posts(10, seconds, BATCH)
    )
    load = Flood(messages=messages, window=WINDOW, credit=0, warmup=messages // 10)
    ways[f"AMQP, one sender with a window of {WINDOW:,}"] = partial(client.run, endpoint, load)
    return ways


def _one_by_one(server: Peeklock, senders: int, seconds: float) -> Result:
    rate, cost_us = company.run(server.endpoint, senders, seconds)
    count = round(rate * seconds)
    return Result(count, count / rate, cost_us * count, 0.0)


def _amqp_title(count: int) -> str:
    return f"AMQP, {count} sender{_s(count)}, each message waited for"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _latencies(found: list[Result]) -> list[str]:
    if not found[0].p50_ms:
        return ["", ""]
    p50, p99 = ([r.p50_ms for r in found], [r.p99_ms for r in found])
    return [f"{median(p50):.2f}", f"{median(p99):.2f}"]
