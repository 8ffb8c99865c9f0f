"""The value types of the room: commands, records, replies and refusals are written by one rule."""

import ast
from pathlib import Path

import pytest

import peeklock.entity
from peeklock.entity import refusals

ROOM = Path(peeklock.entity.__file__).parent


def value_types() -> list[ast.ClassDef]:
    """Every dataclass of the room, read from its source: the compiled form forgets field types."""
    trees = [ast.parse(path.read_text()) for path in sorted(ROOM.glob("*.py"))]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return [each for each in classes if "dataclass" in ast.dump(ast.List(each.decorator_list))]


def init_of(word: ast.ClassDef) -> ast.FunctionDef:
    found = [node for node in word.body if isinstance(node, ast.FunctionDef)]
    return next(function for function in found if function.name == "__init__")


@pytest.mark.parametrize("word", value_types(), ids=lambda word: word.name)
def test_a_written_init_puts_each_argument_into_the_field_of_its_name(word: ast.ClassDef) -> None:
    fields = [ast.unparse(node.target) for node in word.body if isinstance(node, ast.AnnAssign)]
    lines = [ast.unparse(line) for line in init_of(word).body]
    assert lines == ([f"self.{name} = {name}" for name in fields] or ["pass"])


def test_every_refusal_has_its_own_kind() -> None:
    assert len(set(refusals.KINDS)) == len(refusals.KINDS)
