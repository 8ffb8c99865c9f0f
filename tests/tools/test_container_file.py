"""The container file: read as an engine reads it, as far as that goes without one."""

import fnmatch
import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peeklock.cli import main
from peeklock.configuration.content import ConfigurationError
from peeklock.configuration.start import configuration_for
from peeklock.settings import AMQP_PORT, HTTP_PORT, Settings
from tests.architecture.tree import ROOT

WORDS = {
    *("FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}
EMULATOR_CONFIG = "/ServiceBus_Emulator/ConfigFiles/Config.json"
KEPT_CONFIG = ROOT / "examples" / "container" / "Config.json"


def instructions() -> list[tuple[str, str]]:
    """The instructions with their arguments, lines that go on joined."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def of(word: str) -> list[str]:
    return [rest for each, rest in instructions() if each == word]


def environment() -> dict[str, str]:
    """What the last stage sets."""
    return dict(pair.split("=", 1) for rest in of("ENV") for pair in shlex.split(rest))


def started(monkeypatch: pytest.MonkeyPatch, **more: str) -> Settings:
    """What the container would serve, with the file that is in it."""
    asked: list[Settings] = []
    monkeypatch.setattr(main, "_serve", asked.append)
    command = [*json.loads(of("ENTRYPOINT")[0]), *json.loads(of("CMD")[0])]
    assert command[0] == "peeklock"
    env = environment() | {"PEEKLOCK_CONFIG": str(KEPT_CONFIG)} | more
    done = CliRunner().invoke(main.app, command[1:], env=env)
    assert done.exit_code == 0, done.output
    return asked[0]


def test_it_has_stages_and_known_instructions_and_ends_as_nobody_special() -> None:
    read = instructions()
    assert {word for word, _ in read} <= WORDS
    assert read[0] == ("FROM", "python:3.11 AS build")
    stages = [rest.partition(" AS ")[2] for rest in of("FROM")]
    copied = [flag for rest in of("COPY") for flag in re.findall(r"--from=(\w+)", rest)]
    assert set(copied) <= set(stages)
    assert of("USER") == ["peeklock"]
    assert "useradd --create-home peeklock" in " ".join(of("RUN"))


def test_what_it_copies_is_there_and_goes_into_the_context() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    for rest in of("COPY"):
        *sources, _target = [word for word in rest.split() if not word.startswith("--")]
        for source in sources if "--from" not in rest else ():
            assert (ROOT / source).exists(), source
            assert any(
                fnmatch.fnmatch(source, rule) or source.startswith(f"{rule}/") for rule in kept
            ), f"{source} is left out by .dockerignore"


def test_it_listens_like_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ports, the same place for the file, the same key."""
    assert of("EXPOSE") == [f"{AMQP_PORT} {HTTP_PORT}"]
    assert environment()["PEEKLOCK_CONFIG"] == EMULATOR_CONFIG
    assert f"{KEPT_CONFIG.relative_to(ROOT)} {EMULATOR_CONFIG}" in of("COPY")
    settings = started(monkeypatch)
    assert (settings.host, settings.amqp_port, settings.http_port) == ("0.0.0.0", 5672, 5300)
    assert settings.data == Path("/data")
    assert f":{settings.http_port}/ready" in of("HEALTHCHECK")[0]
    (namespace,) = configuration_for(settings).namespaces
    assert (namespace.name, namespace.rules[0].primary_key) == ("sbemulatorns", "SAS_KEY_VALUE")


def test_it_can_be_under_test_unless_somebody_has_keys_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = started(monkeypatch, PEEKLOCK_TESTING="1")
    assert configuration_for(settings).namespaces
    rule = {"Name": "own", "PrimaryKey": "secret", "Rights": ["Manage"]}
    own = {"UserConfig": {"Namespaces": [{"Name": "ns", "AuthorizationRules": [rule]}]}}
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(own))
    settings = started(monkeypatch, PEEKLOCK_TESTING="1", PEEKLOCK_CONFIG=str(config))
    with pytest.raises(ConfigurationError, match="--testing would let everybody"):
        configuration_for(settings)
