"""One SparkSession and one broker for all tests of Spark; each test has entities of its own."""

import json
import logging
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_broker import Bus
from tests.wire.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BROKERS = pytest.StashKey[list[tuple[BrokerProcess, int]]]()
LOG_SHOWN_CHARACTERS = 6000
PATIENCE_S = 400
# What makes small jobs quick; the rest is as Spark has it.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "10ms",
    # Where a column was made is told in errors, and found out for each one.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Compiling takes longer than what is compiled: plans are large here and rows are few.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A real Spark on two cores. It takes six seconds to start, so that all tests share it."""
    from pyspark.sql import SparkSession

    from peeklock.spark.jvm import prepare

    # Java, and the Python of the workers, whatever the machine has.
    prepare("local[2]")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    warehouse = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("peeklock-tests")
    for key, value in QUICK.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse / "warehouse"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for the checkpoint of one query, which is made by Spark."""
    return str(tmp_path / "checkpoint")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests share."""
    process = make_broker(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def bus(broker: BrokerProcess) -> Bus:
    """The shared broker: `bus.queue()`, `bus.send(...)`, `bus.peek(...)`, `bus.options`."""
    return Bus(broker)


@pytest.fixture
def own_broker(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that one test may stop, kill and start again."""
    made: list[BrokerProcess] = []

    def make(name: str = "broker", *options: str) -> BrokerProcess:
        directory = tmp_path / name
        directory.mkdir()
        process = make_broker(directory, options)
        request.node.stash.setdefault(_BROKERS, []).append((process, 0))
        made.append(process)
        process.start()
        return process

    yield make
    for process in made:
        if process.is_running:
            process.kill()


def make_broker(directory: Path, options: tuple[str, ...] = ()) -> BrokerProcess:
    """Prepare a broker without entities: tests make theirs while it runs."""
    config = directory / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}))
    return BrokerProcess(
        data=directory / "data", config=config, log=directory / "broker.log", options=options
    )


@pytest.fixture(autouse=True)
def _remember_log_position(request: pytest.FixtureRequest) -> None:
    if "broker" in request.fixturenames:
        process: BrokerProcess = request.getfixturevalue("broker")
        request.node.stash.setdefault(_BROKERS, []).append((process, process.log_size()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Forgive Spark what it leaves open, here and nowhere else."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            # A test that is cut off in the middle of a call takes all behind it along: what Java
            # answers then is taken for the answer to the next call.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PATIENCE_S))
            # It asks Python for things that Python will not have for ever.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the broker wrote while the failing test ran."""
    report = yield
    if report.failed:
        for process, position in item.stash.get(_BROKERS, []):
            text = process.log_since(position)[-LOG_SHOWN_CHARACTERS:]
            report.sections.append(("broker log", text))
    return report
