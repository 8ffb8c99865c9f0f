"""Source, wheels and clone: each is installed where nothing else is, and carries a message."""

import json
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from peeklock.version import VERSION
from setup import compiler_problem
from tests.packages import fresh
from tests.packages.fresh import ROOT, Fresh
from tests.wire.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(600)

WARNING = re.compile(r"^ *warning: Peeklock .*$", re.MULTILINE)
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}]}}


@pytest.fixture(scope="session", autouse=True)
def _wheelhouse() -> None:
    fresh.fill_wheelhouse()


def test_the_source_is_installed(tmp_path: Path) -> None:
    """Plain, because the compiled wheel is built of it already."""
    environment = Fresh(tmp_path / "fresh")
    said = environment.install(str(fresh.source_archive()), PEEKLOCK_PURE="1")
    assert WARNING.findall(said) == []
    check(environment, tmp_path, form="no")


def test_the_plain_wheel_is_installed(tmp_path: Path) -> None:
    environment = Fresh(tmp_path / "fresh")
    environment.install(str(fresh.wheel(is_compiled=False)))
    check(environment, tmp_path, form="no")


@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_the_compiled_wheel_is_installed(tmp_path: Path) -> None:
    environment = Fresh(tmp_path / "fresh")
    environment.install(str(fresh.wheel(is_compiled=True)))
    check(environment, tmp_path, form="yes")


@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_the_clone_is_installed(tmp_path: Path) -> None:
    """`pip install .`, with a build environment of its own; objects of `make compile` are used."""
    environment = Fresh(tmp_path / "fresh")
    said = environment.install(str(ROOT))
    assert WARNING.findall(said) == []
    check(environment, tmp_path, form="yes")


@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_a_compiler_that_fails_gives_a_plain_installation_and_a_warning(tmp_path: Path) -> None:
    failing = shutil.which("false")
    assert failing is not None
    form = failed_build(unpacked(tmp_path), tmp_path, CC=failing)
    assert form.startswith(f"no, because compiling failed (Command '['{failing}'")


@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_a_module_that_mypyc_refuses_gives_a_plain_installation_and_a_warning(
    tmp_path: Path,
) -> None:
    source = unpacked(tmp_path)
    with (source / "src" / "peeklock" / "budgets.py").open("a") as module:
        module.write('\nNOT_A_NUMBER: int = "text"\n')
    form = failed_build(source, tmp_path)
    assert form == "no, because compiling failed (exit code 1)"


def test_without_a_compiler_the_installation_is_plain_and_says_so(tmp_path: Path) -> None:
    form = failed_build(unpacked(tmp_path), tmp_path, CC="no-such-compiler")
    assert form == "no, because there is no C compiler (no-such-compiler)"


@pytest.mark.parametrize("extra", ["spark", "pipeline"])
def test_an_extra_finds_all_it_needs(extra: str) -> None:
    """Resolved only, in the environment of the tests, which has it: Spark is large."""
    said = fresh.pip("install", "--dry-run", f"{fresh.wheel(is_compiled=False)}[{extra}]")
    assert "does not provide the extra" not in said


@pytest.mark.torture
def test_the_clone_is_installed_with_all_that_the_pipeline_needs(tmp_path: Path) -> None:
    environment = Fresh(tmp_path / "fresh")
    environment.install(f"{ROOT}[pipeline]", PEEKLOCK_PURE="1", PIP_NO_INDEX="0")
    assert "--out" in environment.run("peeklock", "pipeline", "capture", "--help")


def check(environment: Fresh, directory: Path, form: str) -> None:
    """The command line tells its form, serves, sends and receives."""
    told = environment.run("peeklock", "--version")
    assert told.splitlines() == [f"peeklock {VERSION}", f"compiled: {form}"]
    assert environment.run("python", "-c", FIXTURE).split() == ["peeklock.testing.plugin", "made"]
    config = directory / "Config.json"
    config.write_text(json.dumps(CONFIG))
    broker = BrokerProcess(
        program=(str(environment.bin / "peeklock"),),
        data=directory / "data",
        config=config,
        log=directory / "broker.log",
    )
    broker.start()
    try:
        bus = ("--connection-string", broker.connection_string)
        environment.run("peeklock", "send", "orders", "--body", "a cup of tea", *bus)
        received = environment.run("peeklock", "receive", "orders", "--output", "json", *bus)
        assert "a cup of tea" in received
    finally:
        assert broker.stop() == 0


# pytest finds the plugin, and what its fixture needs is there.
FIXTURE = """
from importlib.metadata import entry_points
from peeklock.testing import InProcessBroker
print(*(e.value for e in entry_points(group="pytest11") if e.value.startswith("peeklock")))
with InProcessBroker() as broker, broker.namespace() as servicebus:
    servicebus.create_queue("orders")
    print("made")
"""


def unpacked(directory: Path) -> Path:
    """The source as somebody has it who never saw the repository."""
    with tarfile.open(fresh.source_archive()) as packed:
        packed.extractall(directory / "source", filter="data")
    (source,) = (directory / "source").iterdir()
    return source


def failed_build(source: Path, directory: Path, **environment: str) -> str:
    """Build a wheel that turns out plain with one warning; return the form that it tells."""
    options = ("--verbose", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory))
    said = fresh.pip("wheel", *options, str(source), **environment)
    (warning,) = WARNING.findall(said)
    assert "Traceback" not in said
    (wheel,) = directory.glob("*.whl")
    assert wheel.name == f"peeklock-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed:
        reason = packed.read("peeklock/plain.txt").decode().strip()
    assert reason in warning
    installed = Fresh(directory / "fresh")
    installed.install("--no-deps", str(wheel))
    return (
        installed.run("python", "-c", "from peeklock.version import describe; print(describe())")
        .partition("compiled: ")[2]
        .strip()
    )
