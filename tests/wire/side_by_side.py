"""Tests that mostly wait, run side by side: a module takes about as long as its longest one.

The clients sleep while they connect, close and wait for locks. In a module marked `side_by_side`
all chosen tests start together, on a few threads; pytest then asks for one result after the other.
"""

import inspect
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, Flavour
from tests.wire.entities import Queues

# More would make the clients compete for two cores, and tests that look at the clock would notice.
# Modules that do little but sleep ask for more: `side_by_side(at_once=...)`.
AT_ONCE: Final = 10
RESULT_WITHIN_S: Final = 110.0


class ModuleRun:
    """The tests of one module, all under way."""

    def __init__(self, *, buses: dict[Flavour, Bus], queues: Queues, broker: BrokerProcess) -> None:
        self._buses = buses
        self._queues = queues
        self._broker = broker
        self.log_position = broker.log_size()
        self._pool: ThreadPoolExecutor | None = None
        self._results: dict[str, Future[None]] = {}

    def start(self, tests: list[pytest.Function], *, at_once: int = AT_ONCE) -> None:
        self._pool = ThreadPoolExecutor(max_workers=at_once)
        for test in tests:
            arguments = self._arguments(test)
            self._results[test.nodeid] = self._pool.submit(test.function, **arguments)

    def _arguments(self, test: pytest.Function) -> dict[str, Any]:
        """What the test asks for: its own parameters and the few things that all may share."""
        parameters: dict[str, Any] = test.callspec.params if hasattr(test, "callspec") else {}
        shared: dict[str, Any] = {"queues": self._queues, "broker": self._broker}
        if "bus" in parameters:
            shared["bus"] = self._buses[parameters["bus"]]
        names = inspect.signature(test.function).parameters
        if "queue" in names:
            shared["queue"] = self._queues.of(test.nodeid)
        return {name: shared[name] if name in shared else parameters[name] for name in names}

    def result_of(self, test: pytest.Function) -> None:
        self._results[test.nodeid].result(RESULT_WITHIN_S)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
