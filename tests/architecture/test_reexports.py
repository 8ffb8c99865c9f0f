"""A name is imported from the module that defines it: whoever reads an import knows the file."""

import ast
from pathlib import Path

from tests.architecture.tree import name, parse, python_files

# Packages and modules whose names users import, whatever is behind them.
PUBLIC = {
    "peeklock.client",
    "peeklock.client.administration",
    "peeklock.client.blocking",
    "peeklock.spark",
    "peeklock.spark.facts",
    "peeklock.spark.journal_client",
    "peeklock.spark.lake",
    "peeklock.spark.source",
    "peeklock.testing",
    "pyspark_servicebus",
    "pyspark_servicebus_lake",
}
# All that a partition can be asked, a command line with its rarer commands, and what stands in for
# names that an older PySpark does not have.
GATHERING = {
    "peeklock.cli.entities.rule_commands",
    "peeklock.entity.commands",
    "peeklock.spark.tasks",
    "peeklock.spark.versions",
}


def test_names_are_imported_from_where_they_are_defined() -> None:
    modules = {_module(path): parse(path) for path in python_files("src")}
    defined = {module: _defined(tree) for module, tree in modules.items()}
    detours = []
    for path in python_files():
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ImportFrom) or node.module not in modules:
                continue
            module = node.module
            if module in PUBLIC | GATHERING:
                continue
            for each in node.names:
                if each.name not in defined[module] and f"{module}.{each.name}" not in modules:
                    detours.append(f"{name(path)}: {module}.{each.name}")
    assert detours == []
    assert len(modules) > 100, "were the modules found?"


def _module(path: Path) -> str:
    parts = name(path).removeprefix("src/").removesuffix(".py")
    return parts.replace("/", ".").removesuffix(".__init__")


def _defined(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found
