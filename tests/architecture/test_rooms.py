"""Pure rooms: no third party, no clock, no socket. import-linter checks who sees whom."""

import re
import sys
import tomllib

import pytest

from tests.architecture.tree import ROOT, imports, name, parse, python_files

PURE_ROOMS = ("amqp", "entity", "auth")
# The one third party that a pure room may see, and the two modules that see it (decision 15).
PARSER = "lark"
PARSER_MODULES = {"src/peeklock/entity/rules/builder.py", "src/peeklock/entity/rules/grammar.py"}
FORBIDDEN = {
    "asyncio",
    "logging",
    "os",
    "random",
    "secrets",
    "select",
    "socket",
    "ssl",
    "threading",
    "time",
}


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_imports_nothing_that_acts(room: str) -> None:
    allowed = (sys.stdlib_module_names | {"peeklock"}) - FORBIDDEN
    strange = [
        f"{name(path)} imports {module}"
        for path in python_files(f"src/peeklock/{room}")
        for module in imports(parse(path))
        if module.partition(".")[0] not in allowed
        and not (module == PARSER and name(path) in PARSER_MODULES)
    ]
    assert strange == []


def test_only_the_settings_and_the_command_line_read_the_environment() -> None:
    readers = [
        name(path)
        for path in python_files("src")
        if any(word in path.read_text() for word in ("os.environ", "os.getenv"))
    ]
    assert readers == []


def test_every_third_party_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=\[ ]", line)[0] for line in project["dependencies"]}
    known = sys.stdlib_module_names | {"peeklock"} | declared
    imported = {
        module.partition(".")[0]: name(path)
        for path in python_files("src")
        for module in imports(parse(path))
    }
    assert {module: file for module, file in imported.items() if module not in known} == {}
    assert declared <= imported.keys(), "what nobody imports is not a dependency"
