"""How many messages per second go through one queue, and what does each cost the server?

Send, receive and complete 1 KB durable messages, pipelined, sender and receiver at once.
"""

from bench import client
from bench.contestants import COMPILED, PLAIN, RABBITMQ, contestants
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood, Result
from bench.plan import Plan

# Window and credit, and in how many parts the credit is topped up. Peeklock likes a wide window
# that is kept full; RabbitMQ is faster with few top-ups and a narrow window. Each is measured with
# what suits it, and Peeklock with RabbitMQ's choice too.
WIDE = (1000, 10)
WIDE_FEW = (1000, 2)
NARROW_FEW = (200, 2)
COURSES = {
    COMPILED: (WIDE, NARROW_FEW),
    PLAIN: (WIDE, NARROW_FEW),
    RABBITMQ: (WIDE_FEW, NARROW_FEW),
}
MESSAGES = {COMPILED: 400_000, PLAIN: 200_000, RABBITMQ: 60_000}


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians and ratios."""
    print(machine(plan.directory))
    results: dict[str, list[Result]] = {}
    with contestants(plan) as servers:
        for _ in range(plan.rounds):
            for name, server in servers.items():
                for course in COURSES[name]:
                    found = client.run(server.endpoint, _load(plan, name, course))
                    results.setdefault(_title(name, course), []).append(found)
    rows = [
        [
            name,
            f"{median([r.rate for r in found]):,.0f}",
            spread([r.rate for r in found]),
            f"{median([r.server_us for r in found]):.2f}",
            spread([r.server_us for r in found], 2),
            f"{median([r.client_us for r in found]):.2f}",
        ]
        for name, found in results.items()
    ]
    columns = [
        "send + receive + complete, 1 KB",
        "msgs/s",
        "spread",
        "server us",
        "spread",
        "client us",
    ]
    table(f"Throughput, medians of {plan.rounds} interleaved rounds", columns, rows)
    _judge(results)


def _title(name: str, course: tuple[int, int]) -> str:
    return f"{name}, window {course[0]}, credit in {course[1]} parts"


def _load(plan: Plan, name: str, course: tuple[int, int]) -> Flood:
    messages = MESSAGES[name] // (20 if plan.quick else 1)
    window, top_ups = course
    return Flood(
        messages=messages,
        window=window,
        credit=window,
        warmup=messages // 10,
        top_ups=top_ups,
    )


def _judge(results: dict[str, list[Result]]) -> None:
    rates = {name: median([r.rate for r in found]) for name, found in results.items()}
    compiled = _title(COMPILED, WIDE)
    plain = _title(PLAIN, WIDE)
    rival = max((rate for name, rate in rates.items() if name.startswith(RABBITMQ)), default=0.0)
    print()
    if rival:
        print(verdict("compiled beside RabbitMQ's best", rates[compiled] / rival, "times", least=6))
        print(verdict("plain beside RabbitMQ's best", rates[plain] / rival, "times", least=4))
    cost = median([r.server_us for r in results[compiled]])
    print(verdict("server CPU per message, compiled", cost, "us", most=10))
    cost = median([r.server_us for r in results[plain]])
    print(verdict("server CPU per message, plain", cost, "us", most=20))
