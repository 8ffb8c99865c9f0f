"""How long does a message take at a moderate rate, and what is the fixed price of a batch?

At 5,000 messages per second batches are small, so that what counts is not the codec but what each
round costs: system calls, wake-ups of the commit thread, one flush to disk. The same price shows in
a sender that waits for each answer: sent only, each message is a round trip with one commit; with
a receiver beside, its completion is another. A small window (50) lies in between.
"""

from bench import client
from bench.contestants import COMPILED, RABBITMQ, alone, contestants
from bench.ends import TOP_UPS
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood, Result, Trickle
from bench.plan import Plan

RATE = 5_000
# Five messages each millisecond, as an application with a timer sends; or evenly, one by one.
BURSTS = (5, 1)


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians."""
    print(machine(plan.directory))
    trickles: dict[str, list[Result]] = {}
    floods: dict[str, list[Result]] = {}
    with contestants(plan) as servers:
        for _ in range(plan.rounds):
            for name in servers:
                with alone(servers, name) as server:
                    for burst in BURSTS:
                        found = client.run(server.endpoint, _trickle(plan, name, burst))
                        trickles.setdefault(f"{name}, {_words(burst)}", []).append(found)
                    for title, load in _floods(plan, name).items():
                        place = server.endpoint if load.credit else server.endpoint.kept()
                        found = client.run(place, load)
                        floods.setdefault(f"{name}, {title}", []).append(found)
    _show_trickles(plan, trickles)
    _show_floods(plan, floods)
    best = trickles[f"{COMPILED}, {_words(BURSTS[0])}"]
    print()
    print(verdict(f"p50 at {RATE}/s", median([r.p50_ms for r in best]), "ms", most=0.8))
    print(verdict(f"p99 at {RATE}/s", median([r.p99_ms for r in best]), "ms", most=1.5))


def _trickle(plan: Plan, name: str, burst: int) -> Trickle:
    seconds = 1.0 if plan.quick else 5.0
    return Trickle(
        rate=RATE,
        burst=burst,
        seconds=seconds,
        warmup_seconds=seconds / 5,
        top_ups=_top_ups(name),
    )


def _top_ups(name: str) -> int:
    """Give the way of granting credit that the server likes, as in throughput.py."""
    return 2 if name == RABBITMQ else TOP_UPS


def _words(burst: int) -> str:
    return "one by one" if burst == 1 else f"{burst} at a time"


def _floods(plan: Plan, name: str) -> dict[str, Flood]:
    few, many = (200, 5_000) if plan.quick else (4_000, 60_000)
    if name == RABBITMQ:
        many //= 2
    return {
        "window 1, sent only": Flood(few, window=1, credit=0, warmup=few // 10),
        "window 1": Flood(few, window=1, credit=50, warmup=few // 10, top_ups=_top_ups(name)),
        "window 50": Flood(many, window=50, credit=50, warmup=many // 10, top_ups=_top_ups(name)),
    }


def _show_trickles(plan: Plan, results: dict[str, list[Result]]) -> None:
    rows = [
        [
            name,
            f"{median([r.p50_ms for r in found]):.2f}",
            f"{median([r.p99_ms for r in found]):.2f}",
            spread([r.p99_ms for r in found], 2),
            f"{median([r.server_us for r in found]):.0f}",
            f"{median([r.late_share for r in found]):.1%}",
        ]
        for name, found in results.items()
    ]
    columns = [f"{RATE} messages/s, 1 KB", "p50 ms", "p99 ms", "spread", "server us", "sent late"]
    table(f"Latency from due to arrival, medians of {plan.rounds} rounds", columns, rows)


def _show_floods(plan: Plan, results: dict[str, list[Result]]) -> None:
    rows = [
        [
            name,
            f"{median([r.rate for r in found]):,.0f}",
            spread([r.rate for r in found]),
            f"{median([r.server_us for r in found]):.1f}",
        ]
        for name, found in results.items()
    ]
    columns = ["one sender, one receiver", "msgs/s", "spread", "server us"]
    table(f"Small windows, medians of {plan.rounds} rounds", columns, rows)
