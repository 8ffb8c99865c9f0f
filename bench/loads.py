"""What the client does to a queue: flood it through a window, or trickle at a fixed rate."""

import time
from dataclasses import dataclass
from typing import Final

from bench import payload, proc
from bench.endpoint import Endpoint
from bench.ends import TOP_UPS, Receiver, Sender
from bench.line import LineError
from bench.pump import Pump
from peeklock.amqp.sessions.delivery import IncomingDelivery

# Silence of the server after which a load gives up.
STALLED_S: Final = 30.0
# A message that is due later than this after its instant says that the client could not keep up.
LATE_NS: Final = 1_000_000


@dataclass(frozen=True)
class Flood:
    """Send `messages` with `window` unsettled; with credit they are received and completed too.

    The first `warmup` messages are not measured. Messages may carry a label, ids of their own or
    the names of so many sessions. Where several partitions answer, there is no order to check.
    """

    messages: int
    window: int
    credit: int
    warmup: int = 0
    top_ups: int = TOP_UPS
    defer_every: int = 0
    label: str = ""
    has_ids: bool = False
    sessions: int = 0
    is_ordered: bool = True

    def shape(self) -> payload.Shape:
        """What each message carries beside its body."""
        return payload.Shape(label=self.label, has_ids=self.has_ids, sessions=self.sessions)


@dataclass(frozen=True)
class Trickle:
    """Send `burst` messages each `burst / rate` seconds, whatever the server does meanwhile."""

    rate: int
    burst: int
    seconds: float
    warmup_seconds: float
    credit: int = 1000
    top_ups: int = TOP_UPS


@dataclass(frozen=True)
class Result:
    """What was measured; latencies are of a trickle only, from the due instant to the arrival."""

    messages: int
    seconds: float
    server_cpu_us: float
    client_cpu_us: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    late_share: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def server_us(self) -> float:
        """Server CPU per message."""
        return self.server_cpu_us / self.messages

    @property
    def client_us(self) -> float:
        """Client CPU per message."""
        return self.client_cpu_us / self.messages


class Meter:
    """Time and CPU between its making and its reading."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._server = proc.cpu_us(pid)
        self._client = time.process_time()
        self._start = time.perf_counter()

    def read(self, messages: int) -> Result:
        """Tell what so many messages took."""
        return Result(
            messages=messages,
            seconds=time.perf_counter() - self._start,
            server_cpu_us=float(proc.cpu_us(self._pid) - self._server),
            client_cpu_us=(time.process_time() - self._client) * 1e6,
        )


def flood(endpoint: Endpoint, load: Flood) -> Result:
    """Push messages through the queue as fast as the window allows."""
    if load.credit == 0:
        return _fill(endpoint, load)
    order = Order()
    receiver = Receiver(
        endpoint,
        load.credit,
        order.check if load.is_ordered else None,
        top_ups=load.top_ups,
        defer_every=load.defer_every,
    )
    sender = Sender(endpoint, load.window, load.shape())
    pump = Pump(sender, receiver)
    _push(pump, sender, receiver, load.warmup)
    meter = Meter(endpoint.pid)
    _push(pump, sender, receiver, load.warmup + load.messages)
    result = meter.read(load.messages)
    pump.close()
    return result


def _push(pump: Pump, sender: Sender, receiver: Receiver, upto: int) -> None:
    progress = Progress()
    while receiver.completed < upto or sender.accepted < upto:
        count = min(sender.room(), upto - sender.sent)
        if count > 0:
            sender.send(count, 0)
        pump.flush()
        pump.wait(STALLED_S)
        progress.check(sender.accepted + receiver.completed)


def _fill(endpoint: Endpoint, load: Flood) -> Result:
    sender = Sender(endpoint, load.window, load.shape())
    pump = Pump(sender)
    _send(pump, sender, load.warmup)
    meter = Meter(endpoint.pid)
    _send(pump, sender, load.warmup + load.messages)
    result = meter.read(load.messages)
    pump.close()
    return result


def _send(pump: Pump, sender: Sender, upto: int) -> None:
    progress = Progress()
    while sender.accepted < upto:
        count = min(sender.room(), upto - sender.sent)
        if count > 0:
            sender.send(count, 0)
        pump.flush()
        pump.wait(STALLED_S)
        progress.check(sender.accepted)


def trickle(endpoint: Endpoint, load: Trickle) -> Result:
    """Offer messages at their instants and note how long each took to arrive.

    A message that could not leave in time keeps the instant at which it was due, so that a server
    that stalls is not asked less of.
    """
    stopwatch = Stopwatch()
    receiver = Receiver(endpoint, load.credit, stopwatch.note, top_ups=load.top_ups)
    sender = Sender(endpoint, window=1 << 30)
    pump = Pump(sender, receiver)
    _offer(pump, sender, receiver, load, load.warmup_seconds)
    stopwatch.reset()
    before = sender.sent
    meter = Meter(endpoint.pid)
    late = _offer(pump, sender, receiver, load, load.seconds)
    measured = meter.read(sender.sent - before)
    pump.close()
    taken = sorted(stopwatch.taken_ns)
    return Result(
        messages=measured.messages,
        seconds=measured.seconds,
        server_cpu_us=measured.server_cpu_us,
        client_cpu_us=measured.client_cpu_us,
        p50_ms=taken[len(taken) // 2] / 1e6,
        p99_ms=taken[len(taken) * 99 // 100] / 1e6,
        max_ms=taken[-1] / 1e6,
        late_share=late / measured.messages,
    )


def _offer(pump: Pump, sender: Sender, receiver: Receiver, load: Trickle, seconds: float) -> int:
    """Keep to the timetable, then wait for the rest; tells how many messages left late."""
    interval_ns = load.burst * 1_000_000_000 // load.rate
    target = sender.sent + round(seconds * load.rate / load.burst) * load.burst
    due_ns = time.perf_counter_ns() + interval_ns
    late = 0
    progress = Progress()
    while receiver.completed < target:
        now_ns = time.perf_counter_ns()
        while due_ns <= now_ns and sender.sent < target and sender.link.credit >= load.burst:
            if now_ns - due_ns > LATE_NS:
                late += load.burst
            sender.send(load.burst, due_ns)
            due_ns += interval_ns
        pump.flush()
        if sender.sent < target:
            pump.wait(max(0.0, (due_ns - time.perf_counter_ns()) / 1e9))
        else:
            pump.wait(STALLED_S)
        progress.check(receiver.completed)
    return late


class Order:
    """Checks that what arrives is what was sent, by the last message of each pass."""

    def __init__(self) -> None:
        self._count = 0

    def check(self, deliveries: list[IncomingDelivery]) -> None:
        """Compare the number in the body with the count."""
        self._count += len(deliveries)
        number, _ = payload.read(deliveries[-1].payload)
        if number != self._count - 1:
            raise LineError(f"message {number} came where {self._count - 1} should")


class Stopwatch:
    """How long messages took from their due instant to their arrival here."""

    def __init__(self) -> None:
        self.taken_ns: list[int] = []

    def note(self, deliveries: list[IncomingDelivery]) -> None:
        """Take the instant once for all that arrived together."""
        now_ns = time.perf_counter_ns()
        for delivery in deliveries:
            self.taken_ns.append(now_ns - payload.read(delivery.payload)[1])

    def reset(self) -> None:
        """Forget the warm-up."""
        self.taken_ns = []


class Progress:
    """Gives up when the server has not moved for long."""

    def __init__(self) -> None:
        self._count = -1
        self._since = time.monotonic()

    def check(self, count: int) -> None:
        """Note how far it got."""
        if count != self._count:
            self._count = count
            self._since = time.monotonic()
        elif time.monotonic() - self._since > STALLED_S:
            raise LineError(f"nothing moved for {STALLED_S:.0f} s, after {count} steps")
