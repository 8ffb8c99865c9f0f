"""Pure rooms: no third party, no clock, no socket. import-linter checks who sees whom."""

import sys

import pytest

from tests.architecture.tree import imports, name, parse, python_files

PURE_ROOMS = ("amqp", "entity", "auth")
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
    ]
    assert strange == []


def test_only_the_settings_and_the_command_line_read_the_environment() -> None:
    readers = [
        name(path)
        for path in python_files("src")
        if any(word in path.read_text() for word in ("os.environ", "os.getenv"))
    ]
    assert readers == []
