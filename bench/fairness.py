"""What do the quiet notice of the loud?

A hundred quiet queues get a message each half second, and what it takes from its due instant to its
arrival is noted: on the idle broker, beside a queue at full rate, and beside a topic at full rate
of which one subscription has a reader with credit that stands still and never looks at its socket.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.client import COMPILED, ROOT
from bench.endpoint import Endpoint
from bench.ends import Receiver, Sender
from bench.figures import machine, median, spread, table
from bench.loads import Stopwatch
from bench.peeklock_server import QUEUE, Peeklock
from bench.plan import Plan
from bench.pump import Pump

QUIET: Final = 100
# One message each 5 ms, to one quiet queue after the other.
INTERVAL_NS: Final = 5_000_000
WINDOW: Final = 1_000
CREDIT: Final = 2_000
TOPIC: Final = "news"
READ: Final = f"{TOPIC}/Subscriptions/read"
STUCK: Final = f"{TOPIC}/Subscriptions/stuck"
# The load begins before the quiet are measured, and outlives them.
WARMUP_S: Final = 1.0

IDLE: Final = "idle broker"
LOUD_QUEUE: Final = "beside a queue at full rate"
STUCK_READER: Final = "beside a topic at full rate, one of whose readers stands still"


@dataclass(frozen=True)
class Quiet:
    """What the messages of the quiet queues took."""

    p50_ms: float
    p99_ms: float
    max_ms: float


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds on one broker, and print medians."""
    print(machine(plan.directory))
    seconds = 2.0 if plan.quick else 10.0
    results: dict[str, list[Quiet]] = {}
    rates: dict[str, list[float]] = {}
    with Peeklock(
        plan.directory / "fairness",
        "compiled",
        topics=[topic()],
        queues=[name(number) for number in range(QUIET)],
    ) as server:
        for _ in range(plan.rounds):
            for title, loud in _LOUD.items():
                load = _start("load", server.endpoint, *loud, str(seconds)) if loud else None
                quiet = _start("quiet", server.endpoint, str(seconds))
                results.setdefault(title, []).append(Quiet(**_result(quiet)))
                if load is not None:
                    rates.setdefault(title, []).append(_result(load)["rate"])
    rows = [
        [
            title,
            f"{median([r.p50_ms for r in found]):.2f}",
            f"{median([r.p99_ms for r in found]):.2f}",
            spread([r.p99_ms for r in found], 2),
            f"{median([r.max_ms for r in found]):.1f}",
            f"{median(rates[title]):,.0f}" if title in rates else "",
        ]
        for title, found in results.items()
    ]
    columns = [f"{QUIET} quiet queues", "p50 ms", "p99 ms", "spread", "max ms", "loud msgs/s"]
    table(f"From due to arrival, medians of {plan.rounds} rounds", columns, rows)


# Where the loud one sends, where it receives, and who receives nothing.
_LOUD: Final[dict[str, tuple[str, ...]]] = {
    IDLE: (),
    LOUD_QUEUE: (QUEUE, QUEUE, ""),
    STUCK_READER: (TOPIC, READ, STUCK),
}


def topic() -> dict[str, Any]:
    """Describe the topic whose one reader stands still."""
    names = ("read", "stuck")
    subscriptions = [{"Name": name, "Properties": {}, "Rules": []} for name in names]
    return {"Name": TOPIC, "Properties": {}, "Subscriptions": subscriptions}


def name(number: int) -> str:
    """Name a quiet queue."""
    return f"quiet-{number:03}"


def _start(kind: str, endpoint: Endpoint, *words: str) -> subprocess.Popen[str]:
    """Start a client in a process of its own, compiled."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.fairness", kind, endpoint.to_json(), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a client ended with {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


def listen(endpoint: Endpoint, seconds: float) -> Quiet:
    """Send to the quiet queues in turn, and note how long each message took to arrive."""
    stopwatch = Stopwatch()
    places = [endpoint.at(name(number)) for number in range(QUIET)]
    receivers = [Receiver(place, 10, stopwatch.note) for place in places]
    senders = [Sender(place, window=1 << 30) for place in places]
    pump = Pump(*receivers, *senders)
    _warm_up(pump, senders, receivers)
    stopwatch.reset()
    count = round(seconds * 1e9 / INTERVAL_NS)
    before = sum(receiver.completed for receiver in receivers)
    due_ns = time.perf_counter_ns() + round(WARMUP_S * 1e9)
    sent = 0
    while sum(receiver.completed for receiver in receivers) - before < count:
        while sent < count and due_ns <= time.perf_counter_ns():
            senders[sent % QUIET].send(1, due_ns)
            sent += 1
            due_ns += INTERVAL_NS
        pump.flush()
        left_s = (due_ns - time.perf_counter_ns()) / 1e9 if sent < count else 1.0
        pump.wait(max(0.0, left_s))
    pump.close()
    taken = sorted(stopwatch.taken_ns)
    return Quiet(
        p50_ms=taken[len(taken) // 2] / 1e6,
        p99_ms=taken[len(taken) * 99 // 100] / 1e6,
        max_ms=taken[-1] / 1e6,
    )


def _warm_up(pump: Pump, senders: list[Sender], receivers: list[Receiver]) -> None:
    """Open every queue: what a first message takes is not the question."""
    for sender in senders:
        sender.send(1, time.perf_counter_ns())
    while sum(receiver.completed for receiver in receivers) < QUIET:
        pump.flush()
        pump.wait(1.0)


def shout(endpoint: Endpoint, to: str, back: str, stuck: str, seconds: float) -> float:
    """Send, receive and complete as fast as possible; gives messages per second."""
    # With credit and without anybody who looks at its socket.
    still = Receiver(endpoint.at(stuck), CREDIT) if stuck else None
    receiver = Receiver(endpoint.at(back), CREDIT)
    sender = Sender(endpoint.at(to), WINDOW)
    pump = Pump(sender, receiver)
    begun = time.perf_counter()
    until = begun + seconds + 3 * WARMUP_S
    while time.perf_counter() < until:
        sender.send(max(0, sender.room()), 0)
        pump.flush()
        pump.wait(1.0)
    rate = receiver.completed / (time.perf_counter() - begun)
    pump.close()
    if still is not None:
        still.line.socket.close()
    return rate


if __name__ == "__main__":
    kind, place, *words = sys.argv[1:]
    where = Endpoint.from_json(place)
    if kind == "quiet":
        print(json.dumps(asdict(listen(where, float(words[0])))))
    else:
        to, back, stuck, seconds = words
        print(json.dumps({"rate": shout(where, to, back, stuck, float(seconds))}))
