"""The examples, and the code on the page about testing: run as their readers run them."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.broker_process import BrokerProcess
from tests.wire.java import java_client
from tests.wire.javascript import JAVASCRIPT, node

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "howto" / "testing.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHIN_S = 100


@pytest.fixture(scope="module")
def under_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that was started with `--testing`."""
    directory = tmp_path_factory.mktemp("under-test")
    config = directory / "Config.json"
    config.write_text('{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}')
    process = BrokerProcess(
        data=directory / "data", config=config, log=directory / "log", options=("--testing",)
    )
    process.start()
    yield process
    assert process.stop() == 0
    # A directory would keep instants of a clock that was moved: there is none but for TLS.
    assert sorted(path.name for path in process.data.iterdir()) == ["tls"]


def run(command: list[str], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_for_pytest_and_the_python_on_the_page(tmp_path: Path) -> None:
    """As in a project of its own: nothing of ours but the plugin."""
    shutil.copytree(EXAMPLES / "pytest", tmp_path, dirs_exist_ok=True)
    blocks = [text for kind, text in BLOCK.findall(PAGE.read_text()) if kind == "python"]
    for number, text in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(text)
    options = ("-q", "-p", "peeklock.testing.plugin", "-p", "no:cacheprovider")
    # The client forgets sockets when its connection breaks, and that is not what is shown here.
    command = [sys.executable, "-m", "pytest", *options, "-W", "default", "--rootdir", "."]
    said = run([*command, "-c", os.devnull, "."], tmp_path)
    assert f"{5 + len(blocks)} passed" in said


def test_the_commands_on_the_page(under_test: BrokerProcess, tmp_path: Path) -> None:
    """The line that starts the broker aside: it was started, on other ports."""
    blocks = [text for kind, text in BLOCK.findall(PAGE.read_text()) if kind == "sh"]
    (commands,) = [text for text in blocks if "curl" in text]
    start, *lines = commands.splitlines()
    assert start == "peeklock serve --testing &"
    for line in lines:
        here = line.replace("localhost:5300", f"localhost:{under_test.http_port}")
        command = here.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
        json.loads(run(["bash", "-c", command], tmp_path))
    assert len(lines) == 4


def test_the_example_for_javascript(under_test: BrokerProcess, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "javascript", tmp_path / "javascript")
    program = node()
    (tmp_path / "javascript" / "node_modules").symlink_to((JAVASCRIPT / "node_modules").resolve())
    said = run([program, "--test"], tmp_path / "javascript", PEEKLOCK_HTTP=at(under_test))
    assert "# pass 2" in said


# The first run fetches the client.
@pytest.mark.timeout(300)
def test_the_example_for_java(under_test: BrokerProcess, tmp_path: Path) -> None:
    command = java_client(EXAMPLES / "java" / "Orders.java")
    said = run(command, tmp_path, PEEKLOCK_HTTP=at(under_test))
    told = ["told its name", "told its connection_string", "lock lost", "delivered again"]
    assert said.splitlines() == told


def test_a_broker_that_is_not_under_test_has_nothing_of_it(broker: BrokerProcess) -> None:
    url = f"http://localhost:{broker.http_port}/$testing/clock"
    request = urllib.request.Request(url, b'{"advance": 1}', method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=WITHIN_S)
    refused.value.close()
    assert refused.value.code in (401, 404)


def at(broker: BrokerProcess) -> str:
    return f"http://localhost:{broker.http_port}"
