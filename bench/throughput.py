"""How many messages per second go through one queue, and what does each cost the server?

Send, receive and complete 1 KB durable messages, pipelined, sender and receiver at once.
"""

from bench import client
from bench.contestants import COMPILED, PLAIN, RABBITMQ, alone, contestants
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood, Result
from bench.plan import Plan

# Window, credit, and in how many parts the credit is topped up. RabbitMQ is faster with a narrow
# window and few top-ups, Peeklock with wide ones that are kept full: each runs all courses, and its
# best one counts.
COURSES = ((1000, 2000, 10), (1000, 1000, 10), (1000, 1000, 2), (200, 200, 2))
MESSAGES = {COMPILED: 400_000, PLAIN: 200_000, RABBITMQ: 60_000}


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians and ratios."""
    print(machine(plan.directory))
    results: dict[str, list[Result]] = {}
    with contestants(plan) as servers:
        for _ in range(plan.rounds):
            for name in servers:
                with alone(servers, name) as server:
                    for course in COURSES:
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


def _title(name: str, course: tuple[int, int, int]) -> str:
    return f"{name}, window {course[0]}, credit {course[1]} in {course[2]} parts"


def _load(plan: Plan, name: str, course: tuple[int, int, int]) -> Flood:
    messages = MESSAGES[name] // (20 if plan.quick else 1)
    window, credit, top_ups = course
    return Flood(
        messages=messages,
        window=window,
        credit=credit,
        warmup=messages // 10,
        top_ups=top_ups,
    )


def _judge(results: dict[str, list[Result]]) -> None:
    best = {name: _best(results, name) for name in (COMPILED, PLAIN)}
    print()
    rival = _best(results, RABBITMQ) if any(each.startswith(RABBITMQ) for each in results) else None
    if rival is not None:
        for name, least in ((COMPILED, 6), (PLAIN, 4)):
            ratio = _rate(best[name]) / _rate(rival)
            print(verdict(f"{name} beside RabbitMQ, each at its best", ratio, "times", least=least))
    for name, most in ((COMPILED, 10), (PLAIN, 20)):
        cost = median([result.server_us for result in best[name]])
        print(verdict(f"server CPU per message, {name}", cost, "us", most=most))


def _best(results: dict[str, list[Result]], name: str) -> list[Result]:
    """The rounds of the course that suited a server best."""
    return max((found for title, found in results.items() if title.startswith(name)), key=_rate)


def _rate(found: list[Result]) -> float:
    return median([result.rate for result in found])
