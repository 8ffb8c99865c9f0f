"""The compiled copy is made again when something changes that C is made of, and only then."""

import re
import sys
import tomllib
from pathlib import Path

from setup import ROOT, hot_modules
from tests.architecture.tree import imports, parse
from tools.compile import compiled_sources, digest_of, imported_by


def test_what_decides_on_the_c_files() -> None:
    sources = compiled_sources()
    assert set(hot_modules()) <= set(sources)
    # Its types are read, though it stays Python.
    assert ROOT / "src" / "peeklock" / "clock.py" in sources
    cold = {"cli", "spark", "client"}
    package = ROOT / "src" / "peeklock"
    parts = {path.relative_to(package).parts[0] for path in sources if package in path.parents}
    assert parts.isdisjoint(cold)


def test_every_form_of_import_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "one.py"
    module.write_text(
        "def f():\n    from peeklock import clock\n    import peeklock.durations as d\n"
    )
    assert {path.stem for path in imported_by(module)} == {"clock", "durations", "__init__"}


def test_the_digest_changes_with_the_contents() -> None:
    one, two = ROOT / "setup.py", ROOT / "pyproject.toml"
    assert len({digest_of([one]), digest_of([two]), digest_of([one, two])}) == 3
    assert digest_of([one, two]) == digest_of([one, two])


def test_a_build_environment_has_the_types_of_all_that_is_read() -> None:
    """`pip install .` fell back to plain Python, because a package was missing there."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    there = {re.split(r"[<>=\[]", line)[0].replace("-", "_") for line in build}
    modules = {
        module.partition(".")[0]
        for path in compiled_sources()
        if path.parent != ROOT
        for module in imports(parse(path))
    }
    assert modules - sys.stdlib_module_names - {"peeklock"} - there == set()
