"""The command line: options and environment reach the settings, and errors are said in a line."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from peeklock.cli.main import app
from peeklock.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, with nothing of ours in the environment but this."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PEEKLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "peeklock", *arguments],
        env={**kept, "NO_COLOR": "1", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_version_names_the_form() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert re.fullmatch(rf"peeklock {re.escape(VERSION)}\ncompiled: (yes|no)\n", done.stdout)


def test_the_version_waits_for_no_broker() -> None:
    code = "import sys; from peeklock.cli.main import app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"asyncio", "lmdb", "peeklock.server"}.isdisjoint(loaded)


def test_help_names_every_option_with_its_variable() -> None:
    shown = " ".join(run("serve", "--help", COLUMNS="300").stdout.split())
    command = typer.main.get_command(app).get_command(None, "serve")  # type: ignore[attr-defined]  # a group
    for option in command.params:
        if option.hidden:
            continue  # what nodes are told by their parent is nobody else's
        assert option.opts[0] in shown
        if option.name != "help":
            assert option.envvar == f"PEEKLOCK_{option.name.upper()}"
            assert option.envvar in shown


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--amqp-port", "70000"], {}, "--amqp-port"),
        ([], {"PEEKLOCK_AMQP_PORT": "many"}, "--amqp-port"),
        (["--store", "paper"], {}, "paper"),
        ([], {"PEEKLOCK_STORE": "paper"}, "paper"),
        (["--store", "memory", "--store", "postgres://db/bus"], {}, "stands alone"),
        ([], {"PEEKLOCK_STORE": "postgres://db/bus postgres://db/bus"}, "one store only"),
        (["--stores", "2"], {"PEEKLOCK_STORE": "postgres://db/bus"}, "repeat --store"),
        ([], {"PEEKLOCK_HTTP_PORT": "-1"}, "--http-port"),
        (["--stores", "0"], {}, "--stores"),
        ([], {"PEEKLOCK_STORES": "65"}, "--stores"),
        (["--entities-max", "0"], {}, "--entities-max"),
        ([], {"PEEKLOCK_PARTITIONED_ENTITIES_MAX": "-1"}, "--partitioned-entities-max"),
        (["--config", "no-such-file.json"], {}, "no-such-file.json"),
        ([], {"PEEKLOCK_CONFIG": "no-such-file.json"}, "no-such-file.json"),
        ([], {"PEEKLOCK_JOURNAL_RETENTION_MS": "-5"}, "--journal-retention-ms"),
        (["--data", "pyproject.toml"], {}, "pyproject.toml"),
        ([], {"PEEKLOCK_AMQPS_PORT": "many"}, "--amqps-port"),
        (["--https-port", "-1"], {}, "--https-port"),
        (["--tls", "perhaps"], {}, "perhaps"),
        (["--tls-key", "no-such-file.pem"], {}, "no-such-file.pem"),
        (["--tls-certificate", "pyproject.toml"], {}, "together"),
        ([], {"PEEKLOCK_TLS_KEY": "pyproject.toml"}, "together"),
        (["--tls-name", "bus.example", "--tls-name", "no name"], {}, "'no name'"),
        ([], {"PEEKLOCK_TLS_NAME": "bus.example b\u00fcs"}, "'b\u00fcs'"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_served(
    arguments: list[str], environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["serve", *arguments], env=environment)
    assert done.exit_code == 2
    assert said in done.output


def test_an_open_address_with_the_development_key_is_refused(tmp_path: Path) -> None:
    done = run("serve", "--host", "0.0.0.0", "--data", str(tmp_path), PEEKLOCK_AMQP_PORT="0")
    assert done.returncode == 1
    assert "--allow-development-key" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    address = "postgres://me:secret@127.0.0.1:1/bus"
    done = run("serve", "--store", address, "--data", str(tmp_path), PEEKLOCK_AMQP_PORT="0")
    assert done.returncode == 1
    assert "cannot serve: 127.0.0.1:1/bus cannot be reached" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("listener", ["amqp", "http"])
def test_a_port_that_is_taken_is_told_with_its_option(tmp_path: Path, listener: str) -> None:
    ports = {"PEEKLOCK_AMQP_PORT": "0", "PEEKLOCK_HTTP_PORT": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports[f"PEEKLOCK_{listener.upper()}_PORT"] = str(port)
        done = run("serve", PEEKLOCK_DATA=str(tmp_path / "data"), **ports)
    assert done.returncode == 1
    assert f"{port}" in done.stderr
    assert f"PEEKLOCK_{listener.upper()}_PORT=PORT chooses another port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_is_told_with_its_full_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Config.json").write_text("{")
    done = run("serve", "--config", "Config.json", PEEKLOCK_DATA=str(tmp_path / "data"))
    assert f"{tmp_path / 'Config.json'}: is not JSON" in done.stderr


def test_a_wrong_configuration_is_told_with_its_path(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{}]}]}}')
    done = run("serve", "--config", str(config), PEEKLOCK_DATA=str(tmp_path / "data"))
    assert done.returncode == 1
    assert "UserConfig.Namespaces[0].Queues[0].Name: is missing" in done.stderr
