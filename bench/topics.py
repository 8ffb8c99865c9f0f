"""What does a publish cost with 1, 10, 100 and 2,000 subscriptions?

Messages of 1 KB are published and left where they are. Either every subscription takes each of
them, or one does, found by a correlation filter or by an SQL filter; all the others have a filter
of the same kind that asks for something else.
"""

from typing import Any

from bench import client
from bench.figures import machine, median, spread, table
from bench.loads import Flood, Result
from bench.peeklock_server import Peeklock
from bench.plan import Plan

SUBSCRIPTIONS = (1, 10, 100, 2_000)
LABEL = "wanted"
WINDOW = 200
# Copies that a round may leave: memory and disk are not the question.
COPIES = 400_000
MESSAGES = 20_000


def answer(plan: Plan) -> None:
    """Measure each topic in interleaved rounds on one broker, and print rates and ratios."""
    print(machine(plan.directory))
    topics = [_topic(kind, count) for kind in KINDS for count in SUBSCRIPTIONS]
    results: dict[tuple[str, int], list[Result]] = {}
    # Nothing is kept of what was trimmed: the topics are refilled round by round.
    with Peeklock(plan.directory / "topics", "compiled", topics=topics) as server:
        for _ in range(plan.rounds):
            for kind in KINDS:
                for count in SUBSCRIPTIONS:
                    endpoint = server.endpoint.at(_name(kind, count))
                    found = client.run(endpoint, _load(plan, kind, count))
                    results.setdefault((kind, count), []).append(found)
    rows = []
    for (kind, count), rounds in results.items():
        rate = median([r.rate for r in rounds])
        one = median([r.rate for r in results[(kind, 1)]])
        copies = count if kind == ALL else 1
        rows.append(
            [
                f"{count:,} subscriptions, {kind}",
                f"{rate:,.0f}",
                spread([r.rate for r in rounds]),
                f"{rate * copies:,.0f}",
                f"{median([r.server_us for r in rounds]):.1f}",
                f"{rate / one:.2f}",
            ]
        )
    columns = ["publish, 1 KB", "msgs/s", "spread", "copies/s", "server us/msg", "of one"]
    table(f"Publishing, medians of {plan.rounds} interleaved rounds", columns, rows)


ALL = "each takes all"
CORRELATION = "one takes it by correlation"
SQL = "one takes it by SQL"
KINDS = (ALL, CORRELATION, SQL)


def _load(plan: Plan, kind: str, count: int) -> Flood:
    messages = min(MESSAGES, COPIES // count if kind == ALL else MESSAGES)
    messages = max(20, messages // (20 if plan.quick else 1))
    return Flood(
        messages=messages, window=WINDOW, credit=0, warmup=max(1, messages // 10), label=LABEL
    )


def _name(kind: str, count: int) -> str:
    return f"topic-{KINDS.index(kind)}-{count}"


def _topic(kind: str, count: int) -> dict[str, Any]:
    return {
        "Name": _name(kind, count),
        "Properties": {},
        "Subscriptions": [
            {"Name": f"s{index}", "Properties": {}, "Rules": _rules(kind, index)}
            for index in range(count)
        ],
    }


def _rules(kind: str, index: int) -> list[dict[str, Any]]:
    label = LABEL if index == 0 else f"other-{index}"
    if kind == CORRELATION:
        filter = {"FilterType": "Correlation", "CorrelationFilter": {"Label": label}}
    elif kind == SQL:
        # Two comparisons, so that it is a condition and not an equality in disguise.
        text = f"sys.Label LIKE '{label}%' AND sys.Label <> 'x'"
        filter = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}}
    else:
        return []
    return [{"Name": "only", "Properties": filter}]
