"""What a broker tells at `/metrics`, and what its loop did: the histogram of the test report."""

from __future__ import annotations

import http.client
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

STEP_S_MAX: Final = 0.010
# On a machine that others keep busy CPU time is longer, too: they take turns with the broker in the
# caches of the processor. Where four times as much wants to run as there are cores, steps are held
# to the next bound of the histogram, and the report says so.
CROWDED_STEP_S_MAX: Final = 0.025
CROWDED_LOAD: Final = 4.0
# A virtual machine that is held up for a moment counts that as CPU time of whoever ran. It meets
# any step, once in some hundred thousand; one that is too long by itself comes again with its test.
STRAY_STEPS_ONE_IN: Final = 100_000
STRAY_STEP_S_MAX: Final = 0.025
STEPS: Final = "peeklock_loop_step_seconds"
LONGEST: Final = "peeklock_loop_longest_step_seconds"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def step_s_max() -> float:
    """How long a step may be on this machine, as it is now."""
    crowd = os.getloadavg()[1] / (os.cpu_count() or 1)
    return CROWDED_STEP_S_MAX if crowd > CROWDED_LOAD else STEP_S_MAX


def scrape(port: int) -> Samples:
    """Every sample of a broker's page, by name and labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
    finally:
        connection.close()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# What has a histogram of its own because it cannot be cut into steps, and how many seconds one may
# take: the largest message of 100 MB; a look for garbage among a million objects; a wait for the
# disk, below the shortest lock.
WAITS: Final = {
    "peeklock_loop_large_message_seconds": 0.25,
    "peeklock_loop_full_collection_seconds": 0.25,
    "peeklock_store_commit_seconds": 5.0,
    "peeklock_store_read_seconds": 5.0,
}


def too_long(samples: Samples) -> dict[str, int]:
    """How many of each kind took longer than they may."""
    found: dict[str, int] = {}
    for (name, labels), value in samples.items():
        kind, _, what = name.rpartition("_")
        if kind in WAITS and what == "count":
            bound = tuple(sorted([*labels, ("le", str(WAITS[kind]))]))
            found[kind] = found.get(kind, 0) + int(value - samples[f"{kind}_bucket", bound])
    return found


@dataclass
class LoopSteps:
    """How many steps took at most how many CPU seconds, the longest with its cause, and waits of
    other kinds that were too long."""

    below: dict[str, int] = field(default_factory=dict)
    longest_s: float = 0.0
    cause: str = ""
    waits: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(samples: Samples) -> LoopSteps:
        found = LoopSteps()
        for (name, labels), value in samples.items():
            if name == f"{STEPS}_bucket":
                found.below[dict(labels)["le"]] = int(value)
            elif name == LONGEST:
                found.longest_s, found.cause = value, dict(labels)["cause"]
        found.waits = too_long(samples)
        return found

    @property
    def count(self) -> int:
        return self.below.get("+Inf", 0)

    @property
    def long(self) -> int:
        """How many took longer than they may."""
        return self.count - self.below.get(str(STEP_S_MAX), 0)

    def add(self, other: LoopSteps) -> None:
        for bound, count in other.below.items():
            self.below[bound] = self.below.get(bound, 0) + count
        if other.longest_s > self.longest_s:
            self.longest_s, self.cause = other.longest_s, other.cause
        for kind, count in other.waits.items():
            self.waits[kind] = self.waits.get(kind, 0) + count

    def faults(self, step_s_max: float = STEP_S_MAX) -> list[str]:
        """What breaks the promises: steps above 10 ms but for a stray one in 100,000 up to 25 ms,
        and waits above their bounds."""
        faults = [
            f"{count} of {kind} took more than {WAITS[kind]:g} s"
            for kind, count in self.waits.items()
            if count
        ]
        stray = self.count // STRAY_STEPS_ONE_IN
        for bound, allowed in ((step_s_max, stray), (max(step_s_max, STRAY_STEP_S_MAX), 0)):
            long = self.count - self.below.get(str(bound), 0)
            if long > allowed:
                faults.append(f"{long} steps took more than {bound * 1000:g} ms of CPU")
        return faults

    def lines(self, step_s_max: float = STEP_S_MAX) -> list[str]:
        """The histogram as people read it."""
        lines: list[str] = []
        before = 0
        for bound in sorted(self.below, key=float):
            count = self.below[bound] - before
            before = self.below[bound]
            if count:
                limit = "longer" if bound == "+Inf" else f"up to {float(bound) * 1000:g} ms"
                lines.append(f"{limit:>14}  {count:>10,}")
        lines.append(f"the longest: {self.longest_s * 1000:.1f} ms of CPU, {self.cause}")
        return lines + [f"too long: {fault}" for fault in self.faults(step_s_max)]

    def to_words(self) -> dict[str, Any]:
        return asdict(self)
