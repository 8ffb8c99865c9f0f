"""A word of the wire that broker and client both say is spelled once."""

import ast
from pathlib import Path

import peeklock
from peeklock.amqp import dialect

SOURCE = Path(peeklock.__file__).parent
ROOMS = ("amqp", "client", "gateway")
WORDS = {
    value.decode() if isinstance(value, bytes) else value
    for name, value in vars(dialect).items()
    if name.isupper()
}


def spelled(path: Path) -> set[str | int]:
    """Which words of the dialect a module spells."""
    constants = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    ]
    found = {value.decode("latin-1") if isinstance(value, bytes) else value for value in constants}
    return {value for value in found if isinstance(value, (str, int))} & WORDS


def test_words_of_the_dialect_are_spelled_once() -> None:
    modules = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    others = [path for path in modules if path.name != "dialect.py"]
    assert len(modules) - len(others) == 1
    # Numbers are too common to tell: ten thousand is one of them.
    twice = {
        path.relative_to(SOURCE).as_posix(): words
        for path in others
        if (words := {word for word in spelled(path) if isinstance(word, str)})
    }
    assert twice == {}
