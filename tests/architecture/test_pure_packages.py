"""Pure packages: no third party, no clock, no socket. import-linter checks who sees whom."""

import re
import sys
import tomllib

import pytest

from tests.architecture.tree import ROOT, imports, name, parse, python_files

PURE_PACKAGES = ("amqp", "entity", "auth")
# The one third party that a pure package may see, and the two modules that see it (decision 15).
PARSER = "lark"
PARSER_MODULES = {"src/peeklock/entity/rules/builder.py", "src/peeklock/entity/rules/grammar.py"}
PIPELINE_ROOMS = ("src/peeklock/spark/", "src/pyspark_servicebus")
DATABASE_ROOM = ("src/peeklock/store/postgres/",)
# Spark takes its settings from there, and tasks know no other place for a secret.
ENVIRONMENT_MODULES = {
    "src/peeklock/node_description.py",
    "src/peeklock/spark/jvm.py",
    "src/peeklock/spark/options.py",
}
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


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_a_pure_package_imports_nothing_that_acts(package: str) -> None:
    allowed = (sys.stdlib_module_names | {"peeklock"}) - FORBIDDEN
    strange = [
        f"{name(path)} imports {module}"
        for path in python_files(f"src/peeklock/{package}")
        for module in imports(parse(path))
        if module.partition(".")[0] not in allowed
        and not (module == PARSER and name(path) in PARSER_MODULES)
    ]
    assert strange == []


def test_only_the_settings_and_the_command_line_read_the_environment() -> None:
    readers = {
        name(path)
        for path in python_files("src")
        if any(word in path.read_text() for word in ("os.environ", "os.getenv"))
    }
    assert readers == ENVIRONMENT_MODULES


def test_every_third_party_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = _names(project["dependencies"])
    extras = project["optional-dependencies"]
    pipeline = _names([*extras["spark"], *extras["pipeline"]]) - {"peeklock"}
    database = _names(extras["postgres"])
    known = sys.stdlib_module_names | {"peeklock"} | declared
    imported: dict[str, set[str]] = {}
    for path in python_files("src"):
        for module in imports(parse(path)):
            imported.setdefault(module.partition(".")[0], set()).add(name(path))
    strange = {module: files for module, files in imported.items() if module not in known}
    # What Spark and PostgreSQL need is declared for who asks for it, and imported nowhere else.
    rooms = dict.fromkeys(pipeline, PIPELINE_ROOMS) | dict.fromkeys(database, DATABASE_ROOM)
    elsewhere = {
        module: files
        for module, files in strange.items()
        if module not in rooms or not all(file.startswith(rooms[module]) for file in files)
    }
    # pytest is who loads its plugin, so that it is there.
    assert elsewhere == {"pytest": {"src/peeklock/testing/plugin.py"}}
    assert declared | pipeline | database <= imported.keys(), (
        "what nobody imports is not a dependency"
    )


def _names(requirements: list[str]) -> set[str]:
    """The modules of requirements, which are called as these are but for one."""
    names = {re.split(r"[<>=\[ ]", line)[0].replace("-", "_") for line in requirements}
    return {"jwt" if name == "PyJWT" else name for name in names}
