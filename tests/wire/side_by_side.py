"""Scenarios that wait for real seconds, side by side: a module takes as long as its longest one.

A module lists its scenarios, asks for one test per flavour and scenario, and each test reports how
its own went.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest

from tests.wire.clients import FLAVOURS, Bus, Flavour
from tests.wire.entities import Queues

Scenario = Callable[[Bus, Queues], None]
# The longest scenario takes about 15 s; the rest is room for a busy machine.
SCENARIO_WITHIN_S: Final = 90.0


class Runs:
    """The scenarios of one module, all under way."""

    def __init__(self, buses: dict[Flavour, Bus], queues: Queues, chosen: set[str]) -> None:
        self._buses = buses
        self._queues = queues
        self._chosen = chosen
        self._pool = ThreadPoolExecutor(max_workers=64)
        self._futures: dict[tuple[Flavour, Scenario], Future[None]] = {}

    def start(self, scenarios: list[Scenario]) -> None:
        for flavour in FLAVOURS:
            for scenario in scenarios:
                if case_id(scenario, flavour) in self._chosen:
                    self._futures[flavour, scenario] = self._pool.submit(
                        scenario, self._buses[flavour], self._queues
                    )

    def result_of(self, flavour: Flavour, scenario: Scenario) -> None:
        self._futures[flavour, scenario].result(SCENARIO_WITHIN_S)

    def close(self) -> None:
        self._pool.shutdown()


def case_id(scenario: Scenario, flavour: Flavour) -> str:
    return f"{scenario.__name__}-{flavour}"


def cases(scenarios: list[Scenario]) -> pytest.MarkDecorator:
    """One test per scenario and flavour."""
    return pytest.mark.parametrize(
        ("scenario", "flavour"),
        [
            pytest.param(scenario, flavour, id=case_id(scenario, flavour))
            for flavour in FLAVOURS
            for scenario in scenarios
        ],
    )
