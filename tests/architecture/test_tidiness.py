"""Sizes, names and markers: what no linter of ours checks."""

import ast
import re

from tests.architecture.tree import (
    ROOT,
    functions,
    name,
    parse,
    python_files,
    text_files,
)

FILE_LINES_MAX = 600
# Counted without signature and docstring: a long list of parameters is not a long thought.
FUNCTION_LINES_MAX = 60
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core"}
# Only these may wait for the wall clock: a real broker runs beside them.
WAITING = {"wire", "pressure"}
# Put together here, so that this file does not find itself.
MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
IGNORE = re.compile(r"#\s*type:\s*ignore")
IGNORE_WITH_REASON = re.compile(r"# type: ignore\[[a-z, -]+\]\s+(#|-)\s*\w+")


def test_no_file_is_too_long_to_hold_in_the_head() -> None:
    sizes = {name(p): len(p.read_text().splitlines()) for p in python_files()}
    assert {file: lines for file, lines in sizes.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_too_long_to_see_at_once() -> None:
    long = {}
    for path in python_files():
        for function in functions(parse(path)):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > FUNCTION_LINES_MAX:
                long[f"{name(path)}: {function.name}"] = lines
    assert long == {}


def test_no_module_is_a_drawer() -> None:
    parts = {name(path): {path.stem, path.parent.name} for path in python_files()}
    assert [file for file, names in parts.items() if names & DRAWERS] == []


def test_nothing_is_left_for_later() -> None:
    marked = [
        f"{name(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert marked == []


def test_types_are_ignored_only_with_a_code_and_a_reason() -> None:
    bare = [
        f"{name(path)}:{number}"
        for path in python_files("src", "tests")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if IGNORE.search(line) and not IGNORE_WITH_REASON.search(line) and "re.compile" not in line
    ]
    assert bare == []


def test_no_test_waits_for_the_wall_clock() -> None:
    waiting = []
    for path in python_files("tests"):
        if not WAITING.isdisjoint(path.relative_to(ROOT).parts):
            continue
        for node in ast.walk(parse(path)):
            # Zero is no time: it gives the other coroutines their turn.
            is_sleep = isinstance(node, ast.Call) and _last_name(node.func) == "sleep"
            if is_sleep and ast.unparse(node) != "asyncio.sleep(0)":
                waiting.append(f"{name(path)}:{getattr(node, 'lineno', 0)}")
    assert waiting == []


def test_every_folder_of_tests_is_a_package() -> None:
    # Two test files of one name are told apart by their packages.
    folders = {path.parent for path in python_files("tests")}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
