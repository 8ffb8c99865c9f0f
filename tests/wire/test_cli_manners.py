"""How commands behave towards people and pipes, against a real broker: contexts, questions, errors,
lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.broker_process import broker_python
from tests.wire.conftest import make_broker
from tests.wire.test_cli import Shell


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    process = make_broker(tmp_path_factory.mktemp("cli"), counts={})
    process.start()
    yield Shell(process)
    assert process.stop() == 0


def test_a_context_stands_for_a_broker(shell: Shell, tmp_path: Path) -> None:
    home = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "PEEKLOCK_CONNECTION_STRING": "",
        "PEEKLOCK_HTTP_PORT": "",
    }
    added = shell.run(
        *("context", "add", "here", "--connection-string", "-"),
        *("--http-port", str(shell.broker.http_port)),
        input=shell.broker.connection_string,
        **home,
    )
    assert added.returncode == 0, added.stderr
    made = shell.run("queue", "create", "by-context", **home)
    assert made.returncode == 0, made.stderr
    assert "DefaultMessageTimeToLive" in made.stdout
    assert "never" in made.stdout
    unknown = shell.run("queue", "list", **{**home, "PEEKLOCK_CONTEXT": "there"})
    assert "there is no context 'there' (here)" in unknown.stderr
    # What is named stands for itself, whatever the variables are meant for.
    elsewhere = {**home, "PEEKLOCK_HTTP_PORT": "1"}
    done = shell.run("queue", "list", "--context", "here", **elsewhere)
    assert "by-context" in done.stdout, done.stderr


def test_what_goes_for_good_is_asked_for(shell: Shell) -> None:
    shell.json("queue", "create", "asked")
    assert shell.json("send", "asked", "--lines", input="one\ntwo\n") == {"sent": 2}
    assert shell.bodies("peek", "asked") == ["one", "two"]
    assert "--yes does it" in shell.fails("purge", "asked")
    assert "--yes does it" in shell.fails("queue", "delete", "asked")
    assert shell.json("purge", "asked", "--dry-run") == {"would_delete": 2}
    early = ("purge", "asked", "--dry-run", "--before", "2000-01-01T00:00:00Z")
    assert shell.json(*early) == {"would_delete": 0}
    would = shell.run("queue", "delete", "asked", "--dry-run").stdout
    assert would == "would delete the queue 'asked' with 2 active messages\n"
    assert shell.bodies("peek", "asked") == ["one", "two"]
    assert shell.json("purge", "asked", "--yes") == {"deleted": 2}


def test_lines_of_json_go_through_pipes(shell: Shell) -> None:
    shell.json("queue", "create", "piped")
    shell.json("send", "piped", "--body", "x", "--count", "3")
    lines = shell.run("peek", "piped", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["Body"] for line in lines] == ["x"] * 3
    names = shell.run("queue", "list", "-o", "jsonl").stdout.splitlines()
    assert "piped" in [json.loads(line)["Name"] for line in names]


def test_the_reason_of_a_dead_letter_is_shown_and_its_id_unbroken(shell: Shell) -> None:
    shell.json("queue", "create", "late", "--dead-letter-expired")
    name = "an-id-that-is-longer-than-a-column-of-a-narrow-terminal-would-be"
    shell.json("send", "late", "--body", "b" * 100, "--message-id", name, "--ttl", "1ms")
    done = shell.run("peek", "late", "--dead-letter", COLUMNS="60")
    for _ in range(100):
        if name in done.stdout:
            break
        done = shell.run("peek", "late", "--dead-letter", COLUMNS="60")
    assert name in done.stdout
    assert "TTLExpired" in "".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["queue", "create", "known"], "`peeklock queue update known` changes it"),
        (["queue", "show", "nobody"], "`peeklock queue list`"),
        (["peek", "nobody"], "`peeklock queue list`"),
        (["queue", "list", "--http-port", "1"], "`peeklock serve` starts a broker"),
        (["peek", "known", "--amqp-port", "1"], "`peeklock serve` starts a broker"),
    ],
)
def test_errors_say_what_to_do(shell: Shell, arguments: list[str], advice: str) -> None:
    shell.run("queue", "create", "known")
    assert advice in shell.fails(*arguments)


def test_a_wrong_key_is_told_with_where_to_find_the_right_one(shell: Shell) -> None:
    wrong = shell.broker.connection_string.replace("SAS_KEY_VALUE", "nonsense")
    for arguments in (("queue", "list"), ("peek", "known")):
        said = shell.fails(*arguments, PEEKLOCK_CONNECTION_STRING=wrong)
        assert "the key or its name is wrong" in said


def test_following_prints_each_message_as_it_comes(shell: Shell) -> None:
    shell.json("queue", "create", "followed")
    environment = os.environ | {
        "PEEKLOCK_CONNECTION_STRING": shell.broker.connection_string,
        "PEEKLOCK_HTTP_PORT": str(shell.broker.http_port),
    }
    command = [broker_python(), "-m", "peeklock", "receive", "followed", "--follow", "-o", "jsonl"]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has switched it off for all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        for body in ("first", "second"):
            shell.json("send", "followed", "--body", body)
            assert json.loads(process.stdout.readline())["Body"] == body
        process.send_signal(signal.SIGINT)
    # Ctrl-C is how it ends; what was printed is completed, or comes again if it was not.
    assert process.returncode in (1, 130)
