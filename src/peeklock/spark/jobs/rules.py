"""The rules of the performance article, as arithmetic over measured numbers (R-D4).

Rates are small below 1/s and high from 100/s on; clients are few up to 5 and many above 20.
"""

import math
from dataclasses import dataclass
from typing import Final, final

THROUGHPUT: Final = "throughput"
LATENCY: Final = "latency"

# Twenty times the rate is meant for a lock of a minute: a third of what is processed within it.
PREFETCH_FACTOR: Final = 20
PREFETCH_LOCK_S: Final = 60.0
PREFETCH_WITH_MANY: Final = 10
FLUSH_USUAL_MS: Final = 20
FLUSH_BUSY_MS: Final = 50
FLUSH_BUSY_WITH_SEVERAL_MS: Final = 100
HIGH_RATE: Final = 100.0
MANY_CLIENTS: Final = 20
# Products of rates lose less than this.
_LEAST: Final = 1e-6
# Nobody but the clients knows it.
NOT_KNOWN: Final = "not known"
# Below this a batch is no batch, however long it is waited for.
WORTH_WAITING: Final = 2.0

LOCK_S_MIN: Final = 5
LOCK_S_MAX: Final = 300
LOCK_FACTOR: Final = 2
PARTITION_COUNTS: Final = (1, 2, 4, 8, 16, 32)


@final
@dataclass(frozen=True, slots=True)
class LaneFigures:
    """What was measured of a queue or subscription."""

    entity: str
    sub_entity: str = ""
    is_topic: bool = False
    sent_per_s: float = 0.0
    receivers: int = 0
    deliveries: int = 0
    lock_losses: int = 0
    work_ms_p999: float = 0.0
    partitions: int = 1
    lock_s: float = PREFETCH_LOCK_S
    is_batched: bool = True  # whether commits may wait for others now


@final
@dataclass(frozen=True, slots=True)
class ConnectionFigures:
    """What was measured of all receivers of one connection."""

    connection: str
    receivers: int
    # In its busiest and in its slowest stretches.
    peak_per_s: float
    low_per_s: float
    # The most messages that they had locked at once.
    held: int = 0


@final
@dataclass(frozen=True, slots=True)
class Advice:
    """What to set, what it is now as far as the journal tells, and the arithmetic that says so."""

    setting: str
    now: str
    advised: str
    arithmetic: str


def prefetch(line: LaneFigures, crew: ConnectionFigures, goal: str, connections: int = 1) -> Advice:
    """Advise how many messages a connection's receivers may hold in advance.

    What is held at once is all that the journal tells of the present setting.
    """
    now = str(crew.held)
    if line.receivers > MANY_CLIENTS:
        text = f"{line.receivers} receivers are more than {MANY_CLIENTS}: few messages each"
        return Advice("prefetch", now, str(PREFETCH_WITH_MANY), text)
    if goal == LATENCY and line.receivers > 1:
        text = f"{line.receivers} receivers want low latency: whoever is free takes the next one"
        return Advice("prefetch", now, "0", text)
    # What waits here while this connection is slow could be with another one.
    rate = crew.low_per_s if connections > 1 else crew.peak_per_s
    wanted = PREFETCH_FACTOR * rate * line.lock_s / PREFETCH_LOCK_S
    slowest_s = line.work_ms_p999 / 1000
    # Well before the lock ends: the last of them must be processed, too.
    within_s = max(min(line.lock_s / 2, line.lock_s - slowest_s), 0.0)
    consumed = crew.low_per_s * within_s
    advised = math.floor(min(wanted, consumed) + _LEAST)
    shared = f", {connections} connections share the queue" if connections > 1 else ""
    text = (
        f"{PREFETCH_FACTOR} x {_short(rate)}/s (all receivers of the connection, {crew.receivers}"
        f"{shared}) x {_short(line.lock_s)} s lock / {PREFETCH_LOCK_S:.0f} s = {_short(wanted)}; "
        f"consumed within {_short(within_s)} s (half of the lock, or what the slowest work, "
        f"{_short(slowest_s)} s, leaves of it): {_short(crew.low_per_s)}/s x {_short(within_s)} s "
        f"= {_short(consumed)}"
    )
    return Advice("prefetch", now, str(advised), text)


def flush_interval(line: LaneFigures, senders: int, goal: str) -> Advice:
    """Return how long a sender waits for company."""
    rate = line.sent_per_s
    if goal == LATENCY:
        return Advice("flush interval", NOT_KNOWN, "0 ms", "low latency: a message leaves at once")
    if line.is_topic or senders > MANY_CLIENTS or rate < HIGH_RATE:
        interval_ms = FLUSH_USUAL_MS
    else:
        interval_ms = FLUSH_BUSY_MS if senders == 1 else FLUSH_BUSY_WITH_SEVERAL_MS
    together = rate / senders * FLUSH_BUSY_WITH_SEVERAL_MS / 1000
    if together < WORTH_WAITING:
        text = (
            f"{_short(rate)}/s of {_many(senders, 'sender')} is {_short(together)} messages in "
            f"{FLUSH_BUSY_WITH_SEVERAL_MS} ms: nothing to wait for"
        )
        return Advice("flush interval", NOT_KNOWN, "0 ms", text)
    gathered = rate / senders * interval_ms / 1000
    text = (
        f"{_short(rate)}/s of {_many(senders, 'sender')}: {_short(gathered)} messages in "
        f"{interval_ms} ms, "
        f"which adds {_short(interval_ms / 2)} ms on average"
    )
    return Advice("flush interval", NOT_KNOWN, f"{interval_ms} ms", text)


def lock_duration(line: LaneFigures) -> Advice:
    """Advise how long a lock must last for what the slowest handlers take."""
    now = f"{_short(line.lock_s)} s"
    wanted = LOCK_FACTOR * line.work_ms_p999 / 1000
    text = (
        f"{LOCK_FACTOR} x p99.9 of the work, {_short(line.work_ms_p999 / 1000)} s = "
        f"{_short(wanted)} s; {line.lock_losses} locks of {line.deliveries} deliveries were lost"
    )
    if line.lock_losses:
        # The work of a lost lock took longer than the journal can tell.
        wanted = max(wanted, LOCK_FACTOR * line.lock_s)
        text += f": at least {LOCK_FACTOR} x the present {now}"
    elif line.lock_s >= wanted:
        return Advice("lock duration", now, now, f"{text}: it may stay")
    if wanted > LOCK_S_MAX:
        text += f"; {LOCK_S_MAX} s are the most, the rest by renewing locks"
    # Five seconds are as fine as anybody sets it.
    rounded = min(max(math.ceil(wanted / 5) * 5, LOCK_S_MIN), LOCK_S_MAX)
    return Advice("lock duration", now, f"{rounded} s", text)


def partitions(line: LaneFigures, ceiling_per_s: float) -> Advice:
    """Return how many partitions carry the busiest stretch."""
    wanted = max(math.ceil(line.sent_per_s / ceiling_per_s), 1)
    fitting = next((n for n in PARTITION_COUNTS if n >= wanted), PARTITION_COUNTS[-1])
    text = (
        f"{_short(line.sent_per_s)}/s at most / {_short(ceiling_per_s)}/s of one partition = "
        f"{_short(line.sent_per_s / ceiling_per_s)}; it has {line.partitions}"
    )
    return Advice("partitions", str(line.partitions), str(fitting), text)


def batched_store_access(line: LaneFigures, goal: str) -> Advice:
    """Advise whether commits may wait for company."""
    now = "on" if line.is_batched else "off"
    if goal == LATENCY and line.sent_per_s < HIGH_RATE:
        text = f"low latency, and {_short(line.sent_per_s)}/s is below {HIGH_RATE:.0f}/s"
        return Advice("batched store access", now, "off", text)
    return Advice("batched store access", now, "on", "raises the rate at which messages are stored")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
