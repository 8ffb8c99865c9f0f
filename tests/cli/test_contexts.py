"""Brokers under a name."""

from __future__ import annotations

import json
import stat

import pytest
from typer.testing import CliRunner

from peeklock.cli.contexts import app, context_names, contexts_file, read_contexts
from tests.cli.test_broker_access import reached

KEY = "SharedAccessKeyName=n;SharedAccessKey=secret;UseDevelopmentEmulator=true"
DEV = f"Endpoint=sb://dev:7777;{KEY}"
PROD = f"Endpoint=sb://prod;{KEY}"


def run(*arguments: str, input: str | None = None) -> str:
    done = CliRunner().invoke(app, list(arguments), input=input)
    assert done.exit_code == 0, done.output
    return done.output


def two_contexts() -> None:
    run("add", "dev", "--connection-string", DEV, "--http-port", "81")
    run("add", "prod", "--connection-string", "-", "--tls", input=f"{PROD}\n")


def test_the_first_one_is_used_until_another_one_is() -> None:
    two_contexts()
    assert reached() == ("dev", 7777, 81, False)
    run("use", "prod")
    assert reached()[0] == "prod"
    run("remove", "prod")
    assert reached() == ("localhost", 5672, 5300, False)


def test_what_is_typed_wins_over_what_is_kept_and_that_over_variables() -> None:
    two_contexts()
    assert reached("--http-port", "9") == ("dev", 7777, 9, False)
    assert reached(PEEKLOCK_HTTP_PORT="9") == ("dev", 7777, 81, False)
    assert reached("--connection-string", PROD)[0] == "prod"
    assert reached(PEEKLOCK_CONNECTION_STRING=PROD)[0] == "prod"
    assert reached("--context", "dev", PEEKLOCK_CONNECTION_STRING=PROD)[0] == "dev"
    assert reached(PEEKLOCK_CONTEXT="prod") == ("prod", 5672, 5300, True)
    assert reached("--no-tls", PEEKLOCK_CONTEXT="prod") == ("prod", 5672, 5300, False)


def test_only_the_user_may_read_the_keys() -> None:
    two_contexts()
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    assert [path.name for path in contexts_file().parent.iterdir()] == ["contexts.json"]
    shown = run("list") + run("list", "-o", "json")
    assert "secret" not in shown
    assert "dev:7777" in shown


def test_a_list_says_which_is_used() -> None:
    two_contexts()
    shown = json.loads(run("list", "-o", "json"))["contexts"]
    assert [(one["name"], one["current"]) for one in shown] == [("dev", True), ("prod", False)]


def test_the_shell_completes_names() -> None:
    assert context_names() == []
    two_contexts()
    assert context_names("p") == ["prod"]
    contexts_file().write_text("{")
    assert context_names("p") == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["use", "x"], "there is no context 'x' (there are none yet)"),
        (["remove", "x"], "`peeklock context add x"),
        (["add", "x", "--connection-string", "Endpoint=sb://h"], "needs SharedAccessKeyName"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert problem in done.output
    assert read_contexts().by_name == {}


@pytest.mark.parametrize("content", ["{", "[]", '{"contexts": {"x": 5}}'])
def test_a_file_that_is_broken_is_named(content: str) -> None:
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text(content)
    done = CliRunner().invoke(app, ["list"])
    assert done.exit_code == 1
    assert "mend that file or remove it" in done.output
