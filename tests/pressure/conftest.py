"""How a pressure test is written.

```python
def test_somebody_does_something_bad(start_broker: StartBroker) -> None:
    queues = {"q": {"MaxMessageSizeInKilobytes": 1024}}
    broker = start_broker(queues=queues, options=("--stores", "2"))
    with broker.pressed(grows_at_most=100 << 20) as seen:
        ...  # the abuse: clients of your own, or broker.raw()
    assert ...  # what it got, and that nothing acknowledged was lost
```

- `start_broker(name, queues=, topics=, options=)` starts an `AbusedBroker` (`abused_broker.py`),
  compiled or plain as the tests are. The name is its directory: the same name is the same data.
  It has a queue `ping` beside yours. `broker.process` is the `BrokerProcess`: start, stop, kill.
- `broker.pressed(...)` pings the idle broker, then beside the body of `with`; afterwards it asserts
  what is promised to the others: p99 of the pings, none of them failed, bound of memory, no step
  of the loop above 10 ms of CPU (compiled only).
  `seen` tells the figures.
- `broker.memory()`, `broker.log()`, `broker.get("/path")`, `broker.connection_string`;
  `broker.metrics()` and `broker.steps()` read `/metrics`, budgets and the loop's steps among it.
- `broker.raw()` (`raw.py`) is a socket that says what it likes: `open(has_key=...)`, `begin`,
  `attach`, `grant`, `send(frame(...))`, `next`, `wait_for`, `is_ended_within`.

Tests here run alone, one after the other (`make pressure`), all in two minutes: each has a few
seconds. Longer forms are marked `torture`. `python -m pytest tests/pressure` runs them plain, with
`PYTHONPATH=build/compiled` compiled; bounds on CPU time are meant for the latter (`is_fast()`).
"""

import fcntl
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.pressure.abused_broker import AbusedBroker

StartBroker: TypeAlias = Callable[..., AbusedBroker]

_BROKERS = pytest.StashKey[list[AbusedBroker]]()
LOG_SHOWN_CHARACTERS = 6000


@pytest.fixture
def start_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartBroker]:
    """Starts brokers that end with the test."""
    made: list[AbusedBroker] = request.node.stash.setdefault(_BROKERS, [])

    def make(name: str = "broker", *, starts: bool = True, **choices: Any) -> AbusedBroker:
        broker = AbusedBroker(tmp_path / name, **choices)
        made.append(broker)
        if starts:
            broker.process.start()
        return broker

    yield make
    for broker in made:
        if broker.process.is_running:
            broker.process.kill()


@pytest.fixture(autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Take turns, should several processes run these tests: the bounds are of one broker."""
    with (tmp_path_factory.getbasetemp().parent / "pressure.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the broker wrote while the failing test ran."""
    report = yield
    if report.failed:
        for broker in item.stash.get(_BROKERS, []):
            report.sections.append(("broker log", broker.log()[-LOG_SHOWN_CHARACTERS:]))
    return report
