"""What a broker says when it is ready; that it can be typed as it stands is shown in tests/packages
and tests/wire."""

import sys
from pathlib import Path

import pytest

from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.configuration.content import Configuration, ConfiguredNamespace
from peeklock.ready_text import connection_string, ready_lines, say_ready
from peeklock.settings import Settings


@pytest.mark.parametrize(
    ("host", "port", "place"),
    [
        ("127.0.0.1", 5672, "sb://localhost;"),
        ("127.0.0.1", 7777, "sb://localhost:7777;"),
        ("10.1.2.3", 5672, "sb://10.1.2.3;"),
        ("0.0.0.0", 5672, "sb://localhost;"),
    ],
)
def test_the_connection_string_fits_the_listener(host: str, port: int, place: str) -> None:
    said = connection_string(Settings(host=host), (development_rule(),), port)
    assert said == (
        f"Endpoint={place}SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


def test_a_key_that_is_a_secret_is_not_said() -> None:
    said = connection_string(Settings(), (AuthorizationRule("mine", "secret"),), 5672)
    assert "secret" not in said
    assert "SharedAccessKeyName=mine;" in said


def test_a_namespace_without_rules_still_says_where_it_listens() -> None:
    assert connection_string(Settings(), (), 5672).startswith("Endpoint=sb://localhost;")


def test_a_namespace_is_named_before_the_host_where_its_key_does_not_tell_it() -> None:
    """R-F7."""
    said = connection_string(Settings(), (development_rule(),), 5673, "depot")
    assert said.startswith("Endpoint=sb://depot.localhost:5673;")


def test_each_namespace_is_told_how_to_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    """R-F7."""
    own = ConfiguredNamespace("own", (AuthorizationRule("root", "secret"),))
    both = (ConfiguredNamespace("one"), own, ConfiguredNamespace("two"))
    say_ready(Settings(), Configuration(both), {"AMQP": 5672, "HTTP": 5300})
    ready, *lines = capsys.readouterr().out.splitlines()
    assert ready.startswith("Peeklock is ready")
    del lines[3:]
    assert [line.split(";")[0] for line in lines] == [
        "Endpoint=sb://localhost",
        "Endpoint=sb://localhost",
        "Endpoint=sb://two.localhost",
    ]
    assert "secret" not in "".join(lines)


def steps(
    rule: AuthorizationRule | None = None, *, amqp: int = 5672, http: int = 5300
) -> list[str]:
    """What there is to be typed."""
    namespace = ConfiguredNamespace("ns", (rule or development_rule(),))
    lines = ready_lines(Settings(), Configuration((namespace,)), {"AMQP": amqp, "HTTP": http})
    return [line.strip() for line in lines[lines.index("Next, in another terminal:") + 1 :]]


def test_it_ends_with_what_to_do_next() -> None:
    words = [line.split()[-4:] for line in steps()]
    assert words[0][-3:] == ["queue", "create", "first"]
    assert words[1] == ["send", "first", "--body", "hello"]
    assert words[2][-2:] == ["receive", "first"]


def test_commands_are_told_where_a_broker_on_other_ports_is() -> None:
    said = steps(amqp=7777, http=8888)
    assert said[0].startswith("export PEEKLOCK_CONNECTION_STRING='Endpoint=sb://localhost:7777;")
    assert said[1] == "export PEEKLOCK_HTTP_PORT=8888"


def test_a_secret_key_is_left_to_be_filled_in() -> None:
    said = steps(AuthorizationRule("mine", "secret"))
    assert "SharedAccessKeyName=mine;SharedAccessKey=<its key>" in said[0]
    assert "secret" not in "".join(said)


@pytest.mark.parametrize("is_on_path", [False, True])
def test_the_command_is_the_one_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_path: bool
) -> None:
    folder = tmp_path / "of mine" / "bin"
    folder.mkdir(parents=True)
    (folder / "peeklock").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder) if is_on_path else "/nowhere")
    monkeypatch.chdir(tmp_path)
    expected = "peeklock" if is_on_path else "'of mine/bin/peeklock'"
    assert steps()[2] == f"{expected} receive first"
    (folder / "peeklock").unlink()
    assert steps()[2] == f"'{folder / 'python'}' -m peeklock receive first"
