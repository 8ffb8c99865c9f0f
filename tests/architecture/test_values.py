"""Value types: a written __init__ takes exactly the fields, in their order, and only compiled
modules have one that does nothing else."""

import ast
from collections.abc import Iterator

from tests.architecture.tree import compiled_files, name, parse, python_files

# Objects of which there is one for each message that is in hand: the others need no __slots__.
PER_MESSAGE = {
    "BatchedMessage",
    "Buffered",
    "ClientSettlement",
    "PendingSettlement",
    "RawMessage",
    "Renewal",
    "ServiceBusMessage",
    "ServiceBusReceivedMessage",
}


def written_values() -> Iterator[tuple[str, list[str], list[str] | None]]:
    """Each dataclass that writes its own __init__: where it is, its fields, its parameters."""
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef) and any(map(_is_dataclass, node.decorator_list)):
                parameters = _parameters(node)
                if parameters is not None or any(map(_writes_init, node.decorator_list)):
                    yield f"{name(path)}: {node.name}", _fields(node), parameters


def test_parameters_are_the_fields() -> None:
    checked = list(written_values())
    wrong = {where: (fields, given) for where, fields, given in checked if fields != given}
    assert wrong == {}
    assert len(checked) > 10, "there are many value types; were they found?"


def test_plain_modules_leave_to_dataclasses_what_they_can_write() -> None:
    compiled = set(compiled_files())
    written, slotted = [], []
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if path in compiled or not isinstance(node, ast.ClassDef):
                continue
            if any(map(_writes_init, node.decorator_list)) and _only_assigns(node):
                written.append(f"{name(path)}: {node.name}")
            if _lists_slots(node) and node.name not in PER_MESSAGE:
                slotted.append(f"{name(path)}: {node.name}")
    assert (written, slotted) == ([], [])


def test_fields_of_compiled_values_have_types_that_are_there_at_import() -> None:
    """mypyc writes the annotations of a dataclass down when its module is imported; the type of a
    module that comes later is a null pointer then, and the process ends."""
    late = []
    for path in compiled_files():
        tree = parse(path)
        names = set(_checked_only(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(map(_is_dataclass, node.decorator_list)):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and _outermost(field.annotation) & names:
                        late.append(f"{name(path)}: {node.name}.{ast.unparse(field)}")
    assert late == []


def _checked_only(tree: ast.Module) -> Iterator[str]:
    """What is imported for type checkers alone."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for each in node.body:
                if isinstance(each, ast.ImportFrom):
                    yield from (alias.asname or alias.name for alias in each.names)


def _outermost(annotation: ast.expr) -> set[str]:
    """The names of a field's own type: of a list of something the list alone."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Final":
        return _outermost(annotation.slice)
    if isinstance(annotation, ast.BinOp):
        return _outermost(annotation.left) | _outermost(annotation.right)
    return {annotation.id} if isinstance(annotation, ast.Name) else set()


def test_value_types_are_final_and_slotted() -> None:
    loose = []
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            for decorator in filter(_is_dataclass, node.decorator_list):
                is_final = any(
                    isinstance(d, ast.Name) and d.id == "final" for d in node.decorator_list
                )
                if not (is_final and _has(decorator, "slots", value=True)):
                    loose.append(f"{name(path)}: {node.name}")
    assert loose == []


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "dataclass"


def _writes_init(decorator: ast.expr) -> bool:
    return _is_dataclass(decorator) and _has(decorator, "init", value=False)


def _only_assigns(node: ast.ClassDef) -> bool:
    """Tell whether a written __init__ does no more than to keep its parameters."""
    init = next(each for each in node.body if getattr(each, "name", "") == "__init__")
    return isinstance(init, ast.FunctionDef) and all(
        isinstance(line, ast.Assign)
        and isinstance(line.targets[0], ast.Attribute)
        and ast.unparse(line.value) == line.targets[0].attr
        for line in init.body
    )


def _lists_slots(node: ast.ClassDef) -> bool:
    return any(
        isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__"
        for line in node.body
    )


def _has(decorator: ast.expr, keyword: str, *, value: bool) -> bool:
    return isinstance(decorator, ast.Call) and any(
        given.arg == keyword
        and isinstance(given.value, ast.Constant)
        and given.value.value is value
        for given in decorator.keywords
    )


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        line.target.id
        for line in node.body
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and "ClassVar" not in ast.unparse(line.annotation)
    ]


def _parameters(node: ast.ClassDef) -> list[str] | None:
    for line in node.body:
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            arguments = [*line.args.posonlyargs, *line.args.args, *line.args.kwonlyargs]
            return [argument.arg for argument in arguments[1:]]
    return None
