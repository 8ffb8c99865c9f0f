"""What a broker tells at `/metrics`, and what its loop did: the histogram of the test report."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

STEP_S_MAX: Final = 0.010
STEPS: Final = "peeklock_loop_step_seconds"
LONGEST: Final = "peeklock_loop_longest_step_seconds"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


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


@dataclass
class LoopSteps:
    """How many steps took at most how many CPU seconds, and the longest with its cause."""

    below: dict[str, int] = field(default_factory=dict)
    longest_s: float = 0.0
    cause: str = ""

    @staticmethod
    def of(samples: Samples) -> LoopSteps:
        found = LoopSteps()
        for (name, labels), value in samples.items():
            if name == f"{STEPS}_bucket":
                found.below[dict(labels)["le"]] = int(value)
            elif name == LONGEST:
                found.longest_s, found.cause = value, dict(labels)["cause"]
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

    def lines(self) -> list[str]:
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
        return lines

    def to_words(self) -> dict[str, Any]:
        return {"below": self.below, "longest_s": self.longest_s, "cause": self.cause}
