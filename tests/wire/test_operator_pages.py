"""The pages for operators: each command on them is typed as it stands, beside a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.broker_process import BrokerProcess, broker_python

PAGES = Path(__file__).parents[2] / "docs" / "howto"
NAMES = ("monitoring", "backup", "upgrade", "keys", "capacity", "troubleshooting")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, BrokerProcess]]:
    """A directory with `data` in it and a broker on that, as the pages have it."""
    directory = tmp_path_factory.mktemp("operator")
    config = directory / "Config.json"
    config.write_text(json.dumps(CONFIG))
    broker = BrokerProcess(data=directory / "data", config=config, log=directory / "broker.log")
    broker.start()
    program = directory / "bin" / "peeklock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{broker_python()}" -m peeklock "$@"\n')
    program.chmod(0o755)
    yield directory, broker
    assert broker.stop() == 0


@pytest.mark.plain_only("commands are the same for all entities")
@pytest.mark.parametrize("name", NAMES)
def test_each_command_of_a_page_works(name: str, place: tuple[Path, BrokerProcess]) -> None:
    directory, broker = place
    blocks = BLOCK.findall((PAGES / f"{name}.md").read_text())
    assert blocks, "a page without commands"
    commands = "".join(blocks).replace("localhost:5300", f"localhost:{broker.http_port}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PEEKLOCK_")}
    done = subprocess.run(
        ["sh", "-exc", commands],
        cwd=directory,
        env={
            **kept,
            "PATH": f"{directory / 'bin'}:{kept['PATH']}",
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + broker.log_since(0)
