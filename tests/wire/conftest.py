"""The broker that the wire tests talk to, the queues it has, and its log when a test fails."""

import gc
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from peeklock.version import is_compiled
from tests.wire.broker_process import BrokerProcess, binding_problem
from tests.wire.clients import FLAVOURS, Bus, Flavour, LoopThread
from tests.wire.entities import PARTITIONED, STORES, Queues, broker_options, write_config
from tests.wire.metrics import STEP_S_MAX, LoopSteps, scrape, step_s_max
from tests.wire.side_by_side import ModuleRun

# Of the shared brokers of all processes, once they have ended.
_STEPS = LoopSteps()
_BROKERS = pytest.StashKey[list[tuple[BrokerProcess, int]]]()
AMQPS_PORT = 5671
HTTPS_PORT = 443
# How Kombu calls the namespace `peeklock`.
CELERY_HOST = "peeklock.servicebus.windows.net"
# The end of a log says why; the beginning of a long one is noise.
LOG_SHOWN_CHARACTERS = 6000


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "side_by_side: the tests of a module run at the same time, because they wait"
    )
    config.addinivalue_line(
        "markers", "plain_only(reason): what a partitioned entity does not promise, or has not"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the steps of this process's broker to the process that reports; there, long ones make
    the whole run fail. They are promised of the compiled form."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["loop_steps"] = _STEPS.to_words()
    elif is_compiled() and _STEPS.faults(step_s_max()) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process hands over at its end."""
    words = getattr(node, "workeroutput", {}).get("loop_steps")
    if words is not None:
        _STEPS.add(LoopSteps(**words))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long the steps of the shared brokers' loops were."""
    if _STEPS.count:
        terminalreporter.section("steps of the event loop, CPU time")
        bound = step_s_max()
        for line in _STEPS.lines(bound):
            terminalreporter.write_line(line)
        if bound > STEP_S_MAX:
            terminalreporter.write_line(f"others kept the machine busy: {bound * 1000:g} ms count")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests share: each of them has queues of its own."""
    process = make_broker(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    _STEPS.add(LoopSteps.of(scrape(process.http_port)))
    # A broker that served hundreds of clients must still end politely.
    assert process.stop() == 0


@pytest.fixture
def own_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """A broker that one test may stop, kill and start again."""
    process = make_broker(tmp_path, counts={"plain": 6, "short-lock": 2})
    request.node.stash.setdefault(_BROKERS, []).append((process, 0))
    process.start()
    yield process
    if process.is_running:
        process.kill()


@pytest.fixture
def start_broker(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that are not started, for tests of the start itself."""
    made: list[BrokerProcess] = []

    def make(name: str = "broker", **options: Any) -> BrokerProcess:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        process = make_broker(directory, **options)
        request.node.stash.setdefault(_BROKERS, []).append((process, 0))
        made.append(process)
        return process

    yield make
    for process in made:
        if process.is_running:
            process.kill()


def make_broker(
    directory: Path, *, counts: dict[str, int] | None = None, stores: int = STORES
) -> BrokerProcess:
    config = write_config(directory / "Config.json", counts=counts)
    return BrokerProcess(
        data=directory / "data",
        config=config,
        log=directory / "broker.log",
        options=broker_options(stores),
    )


@pytest.fixture(scope="module")
def usual_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that also listens on 5671 and 443, for clients that cannot be told another port."""
    for port in (AMQPS_PORT, HTTPS_PORT):
        if problem := binding_problem(port):
            pytest.skip(f"port {port} cannot be bound here: {problem}")
    process = make_broker(tmp_path_factory.mktemp("usual-ports"), counts={"plain": 2})
    process.options += ("--amqps-port", str(AMQPS_PORT), "--https-port", str(HTTPS_PORT))
    process.options += ("--tls-name", CELERY_HOST)
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def queues() -> Queues:
    return Queues()


@pytest.fixture
def queue(queues: Queues, request: pytest.FixtureRequest) -> str:
    """A queue that no other test has touched."""
    return queues.of(request.node.nodeid)


@pytest.fixture(scope="session")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def buses(broker: BrokerProcess, loop: LoopThread) -> Iterator[dict[Flavour, Bus]]:
    """The official client in both flavours, connected to the shared broker."""
    made: dict[Flavour, Bus] = {
        flavour: Bus(flavour, broker.connection_string, loop) for flavour in FLAVOURS
    }
    yield made
    for bus in made.values():
        bus.close()


@pytest.fixture(params=FLAVOURS)
def bus(request: pytest.FixtureRequest, buses: dict[Flavour, Bus]) -> Bus:
    """Each test that asks for this runs once per flavour."""
    flavour: Flavour = request.param
    return buses[flavour]


@pytest.fixture(scope="module", autouse=True)
def _module_run(request: pytest.FixtureRequest) -> Iterator[ModuleRun | None]:
    """Starts the tests of a module that run side by side; only those that were chosen."""
    tests = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    mark = tests[0].get_closest_marker("side_by_side")
    if mark is None:
        yield None
        return
    run = ModuleRun(
        buses=request.getfixturevalue("buses"),
        queues=request.getfixturevalue("queues"),
        broker=request.getfixturevalue("broker"),
    )
    run.start(tests, **mark.kwargs)
    yield run
    run.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Take the result of a test that is under way instead of calling it again."""
    run = pyfuncitem.funcargs.get("_module_run")
    if not isinstance(run, ModuleRun):
        return None
    run.result_of(pyfuncitem)
    return True


@pytest.fixture(params=FLAVOURS)
def own_bus(
    request: pytest.FixtureRequest, own_broker: BrokerProcess, loop: LoopThread
) -> Iterator[Bus]:
    """The official client in both flavours, connected to a broker that the test may end."""
    made = Bus(request.param, own_broker.connection_string, loop)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _remember_log_position(request: pytest.FixtureRequest, _module_run: ModuleRun | None) -> None:
    for name in ("broker", "usual_ports"):
        if name in request.fixturenames:
            process: BrokerProcess = request.getfixturevalue(name)
            position = process.log_size() if _module_run is None else _module_run.log_position
            request.node.stash.setdefault(_BROKERS, []).append((process, position))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Forgive the client the sockets that it forgets when its connection breaks under it; leave out
    what makes no sense on partitioned entities."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in here:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"))
    left_out = [item for item in here if PARTITIONED and item.get_closest_marker("plain_only")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def _collect_what_the_client_forgot() -> Iterator[None]:
    yield
    # Here, where it is still forgiven, and not at some later moment in somebody else's test.
    gc.collect()


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
