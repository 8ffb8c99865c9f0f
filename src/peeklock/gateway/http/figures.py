"""What `/metrics` tells, as plain values: gathered on the loop, written down elsewhere."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from peeklock.broker.entities import Queue, Topic
from peeklock.budgets import Budget
from peeklock.entity.moves.depth import STATES
from peeklock.gateway.http.health import Health
from peeklock.histogram import Histogram
from peeklock.store.figures import StoreFigures
from peeklock.store.stores import StoreState
from peeklock.turns import TURNS
from peeklock.version import VERSION, is_compiled
from peeklock.watchdog import Watchdog

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

_OPEN: Final = "open"
_CLOSED: Final = "closed"
_UNAVAILABLE: Final = "unavailable"
_LANES_AT_ONCE: Final = 512


@final
@dataclass(frozen=True, slots=True)
class Spans:
    """A histogram at one instant: how many were at most each bound, and the sum of all."""

    buckets: list[tuple[str, int]]
    sum: float


def spans(found: Histogram) -> Spans:
    """Read a histogram."""
    buckets: list[tuple[str, int]] = []
    below = 0
    for bound, count in zip((*found.bounds, float("inf")), found.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), below))
    return Spans(buckets, found.sum)


@final
@dataclass(slots=True, init=False)
class Figure:
    """One name with its values, by the values of its labels."""

    name: Final[str]
    kind: Final[str]
    text: Final[str]
    labels: Final[tuple[str, ...]]
    values: Final[list[tuple[tuple[str, ...], float | Spans]]]

    def __init__(
        self,
        name: str,
        kind: str,
        text: str,
        labels: tuple[str, ...],
        values: Iterable[tuple[tuple[str, ...], float | Spans]],
    ) -> None:
        self.name = f"peeklock_{name}"
        self.kind = kind
        self.text = text
        self.labels = labels
        self.values = list(values)


@final
class Overview:
    """All that is told, in one place: packages keep their figures here or are asked for them."""

    def __init__(
        self,
        watchdog: Watchdog,
        budgets: Iterable[Budget],
        stores: Mapping[str, StoreFigures],
    ) -> None:
        self.health: Final = Health()
        self.watchdog: Final = watchdog
        self.budgets: Final = budgets
        self.stores: Final = stores
        # What was refused, by namespace and kind.
        self.refusals: Final[dict[tuple[str, str], int]] = {}
        # How many connections there are, by protocol.
        self.connections: Final[dict[str, Callable[[], int]]] = {}
        self.store_states: Callable[[], Iterable[StoreState]] = tuple
        # All queues and topics, each with its partitions.
        self.entities: Callable[[], Iterable[Queue | Topic]] = tuple

    async def gather(self) -> list[Figure]:
        """Read them all; nothing is opened, and no partition or store is asked."""
        holding = Holding()
        done = 0
        for entity in self.entities():
            for weight in holding.add(entity):
                done += weight
                if done >= _LANES_AT_ONCE:
                    done = 0
                    await TURNS.give_way()  # there may be very many
        return [
            *of_the_process(self.health),
            *of_budgets(self.budgets),
            *of_connections({name: count() for name, count in self.connections.items()}),
            *of_refusals(self.refusals),
            *holding.figures(),
            *of_stores(self.store_states(), self.stores),
            *of_loop(self.watchdog),
        ]


@final
class Holding:
    """What the partitions of each namespace hold: those that are open, others are not asked."""

    def __init__(self) -> None:
        self._memory: Final[Counter[str]] = Counter()
        # By namespace and state.
        self._messages: Final[Counter[tuple[str, str]]] = Counter()
        self._partitions: Final[Counter[tuple[str, str]]] = Counter()

    def add(self, entity: Queue | Topic) -> Iterator[int]:
        """Count the partitions of a queue or topic, and what is in them; gives the weight of each
        step, about that of so many lanes."""
        namespace = entity.namespace
        for worker in entity.partitions.workers:
            self._memory[namespace] += worker.memory_bytes
            unopened = _CLOSED if worker.is_available else _UNAVAILABLE
            self._partitions[namespace, _OPEN if worker.is_open else unopened] += 1
            yield 1
            for weight, counts in worker.depths():
                for state, count in zip(STATES, counts, strict=True):
                    self._messages[namespace, state] += count
                yield weight

    def figures(self) -> list[Figure]:
        """Tell it."""
        label = ("namespace",)
        memory = [((name,), count) for name, count in self._memory.items()]
        return [
            Figure("partitions", GAUGE, "Partitions", (*label, "state"), self._partitions.items()),
            Figure(
                "messages",
                GAUGE,
                "Messages in open partitions; of a topic, each subscription's copies",
                (*label, "state"),
                self._messages.items(),
            ),
            Figure(
                "message_memory_bytes",
                GAUGE,
                "What the messages of open partitions take in memory beside their bodies, about",
                label,
                memory,
            ),
        ]


def gauge(name: str, text: str, value: float) -> Figure:
    """Make a figure that goes up and down and has no labels."""
    return Figure(name, GAUGE, text, (), [((), value)])


def of_the_process(health: Health) -> list[Figure]:
    """Tell which build this is, and whether it serves."""
    form = "compiled" if is_compiled() else "plain"
    return [
        Figure(
            "build_info",
            GAUGE,
            "Version and form of the broker",
            ("version", "form"),
            [((VERSION, form), 1)],
        ),
        gauge("ready", "Whether clients are served", int(health.is_serving)),
    ]


def of_budgets(budgets: Iterable[Budget]) -> list[Figure]:
    """Tell every limit with its present use: what refused a client is found here."""
    listed = list(budgets)
    rows = (
        ("budget_limit", GAUGE, "How much may be in use", [each.limit for each in listed]),
        ("budget_used", GAUGE, "How much is in use", [each.used for each in listed]),
        ("budget_peak", GAUGE, "The most that was in use", [each.peak for each in listed]),
        ("budget_refused", COUNTER, "Refused for want of it", [each.refused for each in listed]),
    )
    return [
        Figure(
            name,
            kind,
            text,
            ("budget",),
            [((each.name,), value) for each, value in zip(listed, values, strict=True)],
        )
        for name, kind, text, values in rows
    ]


def of_refusals(counts: Mapping[tuple[str, str], int]) -> list[Figure]:
    """Tell what was refused, by namespace and kind."""
    values = [(labels, count) for labels, count in counts.items()]
    return [Figure("refusals", COUNTER, "Refused wishes", ("namespace", "kind"), values)]


def of_connections(counts: Mapping[str, int]) -> list[Figure]:
    """Tell how many connections there are, by protocol."""
    values = [((protocol,), count) for protocol, count in counts.items()]
    return [Figure("connections", GAUGE, "Open connections", ("protocol",), values)]


def of_loop(watchdog: Watchdog) -> list[Figure]:
    """Tell how long everybody waits for the steps of others."""
    longest = [((watchdog.longest_cause,), watchdog.longest_s)]
    rows = (
        ("loop_step_seconds", "CPU time of steps of the event loop", watchdog.steps),
        ("loop_turn_seconds", "Wall time of turns of the event loop", watchdog.turns),
        (
            "loop_large_message_seconds",
            "CPU time of steps that worked on one message above 4 MB",
            watchdog.large,
        ),
        ("loop_full_collection_seconds", "CPU time of full collections", watchdog.collections),
    )
    return [
        *(Figure(name, HISTOGRAM, text, (), [((), spans(found))]) for name, text, found in rows),
        Figure("loop_longest_step_seconds", GAUGE, "The longest step", ("cause",), longest),
    ]


def of_stores(states: Iterable[StoreState], figures: Mapping[str, StoreFigures]) -> list[Figure]:
    """Tell how the stores are, what room they have, and what commits and cold reads take."""
    online = [((state.name,), int(state.is_online)) for state in states]
    stores = [((name,), found) for name, found in figures.items()]
    label = ("store",)
    return [
        Figure("store_online", GAUGE, "Whether the store is there", label, online),
        Figure(
            "store_free_bytes",
            GAUGE,
            "Room that was left when it was last looked at",
            label,
            [(name, found.free_bytes) for name, found in stores if found.free_bytes >= 0],
        ),
        Figure(
            "store_reserve_bytes",
            GAUGE,
            "Room below which sends are refused",
            label,
            [(name, found.reserve_bytes) for name, found in stores],
        ),
        Figure(
            "store_commit_seconds",
            HISTOGRAM,
            "Wall time of commits, the wait for the disk included",
            label,
            [(name, spans(found.commits)) for name, found in stores],
        ),
        Figure(
            "store_commit_bytes",
            HISTOGRAM,
            "Bytes of records in a commit",
            label,
            [(name, spans(found.commit_bytes)) for name, found in stores],
        ),
        Figure(
            "store_read_seconds",
            HISTOGRAM,
            "Wall time of reading bodies that were not in memory",
            label,
            [(name, spans(found.reads)) for name, found in stores],
        ),
    ]
