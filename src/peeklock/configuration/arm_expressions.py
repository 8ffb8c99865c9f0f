"""The expressions of deployment templates: `[concat(parameters('ns'), '/orders')]`.

A template may compute nearly anything, about resources that are not here. The four functions that
names are made of are understood; each other one is a problem that says its name.
"""

import json
import re
from typing import Any, Final, final

_TOKENS: Final = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^']|'')*')
    | (?P<number>-?\d+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_.]*(?=\s*\())
    | (?P<member>\.[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>[(),\[\]])
    )""",
    re.VERBOSE,
)
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{(\d+)\}|[{}]")
_FUNCTIONS: Final = ("concat", "format", "parameters", "variables")


class ExpressionProblem(ValueError):
    """An expression that cannot be evaluated; the text says why."""


@final
class Scope:
    """What expressions refer to: the parameters and the variables of one template."""

    def __init__(
        self, parameters: dict[str, Any], variables: dict[str, Any], given: dict[str, Any]
    ) -> None:
        self._parameters = parameters
        self._variables = variables
        self._given = given
        # Parameters and variables that are being evaluated, to see one that needs itself.
        self._open: list[str] = []

    def evaluate(self, value: Any) -> Any:
        """Return a value with all expressions in it evaluated."""
        if isinstance(value, dict):
            return {key: self.evaluate(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.evaluate(item) for item in value]
        if not isinstance(value, str) or not (value.startswith("[") and value.endswith("]")):
            return value
        # Two brackets are a text that begins with one.
        return value[1:] if value.startswith("[[") else _Reader(value[1:-1], self).whole()

    def parameter(self, name: str) -> Any:
        """Return a parameter: what was chosen, or else its default."""
        declared = _find(self._parameters, name)
        if declared is None:
            raise ExpressionProblem(f"there is no parameter '{name}'")
        chosen = _find(self._given, name)
        if chosen is not None:
            return _typed(name, chosen, declared)
        if not isinstance(declared, dict) or declared.get("defaultValue") is None:
            raise ExpressionProblem(f"the parameter '{name}' has no default and was not given")
        try:
            return self._inside(f"parameter '{name}'", declared["defaultValue"])
        except ExpressionProblem as problem:
            raise ExpressionProblem(
                f"the parameter '{name}' was not given, and {problem}"
            ) from None

    def variable(self, name: str) -> Any:
        """Return a variable."""
        value = _find(self._variables, name)
        if value is None:
            raise ExpressionProblem(f"there is no variable '{name}'")
        return self._inside(f"variable '{name}'", value)

    def _inside(self, what: str, value: Any) -> Any:
        if what in self._open:
            raise ExpressionProblem(f"the {what} refers to itself")
        self._open.append(what)
        try:
            return self.evaluate(value)
        finally:
            self._open.pop()


@final
class _Reader:
    """Reads one expression from left to right and evaluates it on the way."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._scope = scope
        self._tokens = self._cut(text)

    def whole(self) -> Any:
        value = self._value()
        if self._tokens:
            raise self._wrong(f"'{self._tokens[0][1]}' is unexpected")
        return value

    def _cut(self, text: str) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKENS.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._wrong(f"'{text[at:].strip()}' cannot be read")
            tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return tokens

    def _value(self) -> Any:
        kind, token = self._next()
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return int(token)
        if kind != "name":
            raise self._wrong(f"'{token}' is unexpected")
        return self._members(self._call(token))

    def _call(self, name: str) -> Any:
        arguments = []
        self._expect("(")
        if not self._is_next(")"):
            arguments.append(self._value_of(name))
            while self._is_next(","):
                self._next()
                arguments.append(self._value_of(name))
        self._expect(")")
        return self._apply(name, arguments)

    def _value_of(self, name: str) -> Any:
        # Said before what is inside it: the outer function is the one that a person looks for.
        if name.lower() not in _FUNCTIONS:
            raise self._unknown(name)
        return self._value()

    def _apply(self, name: str, arguments: list[Any]) -> Any:
        function = name.lower()
        if function == "concat":
            return _concat(arguments)
        if function == "format" and arguments and isinstance(arguments[0], str):
            return _format(arguments[0], arguments[1:])
        if function not in _FUNCTIONS:
            raise self._unknown(name)
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise self._wrong(f"{name}() takes a text")
        if function == "parameters":
            return self._scope.parameter(arguments[0])
        return self._scope.variable(arguments[0])

    def _members(self, value: Any) -> Any:
        """Follow `.name` and `[index]` behind a call."""
        while self._tokens and (self._tokens[0][0] == "member" or self._is_next("[")):
            kind, token = self._next()
            key = token[1:] if kind == "member" else self._value()
            if kind != "member":
                self._expect("]")
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise self._wrong(f"there is nothing at '{key}'") from None
        return value

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._wrong("it ends too early")
        return self._tokens.pop(0)

    def _is_next(self, sign: str) -> bool:
        return bool(self._tokens) and self._tokens[0] == ("sign", sign)

    def _expect(self, sign: str) -> None:
        _, token = self._next()
        if token != sign:
            raise self._wrong(f"'{sign}' is missing before '{token}'")

    def _unknown(self, name: str) -> ExpressionProblem:
        known = ", ".join(_FUNCTIONS)
        return self._wrong(f"the function {name}() is not known here; {known} are")

    def _wrong(self, problem: str) -> ExpressionProblem:
        return ExpressionProblem(f"the expression [{self._text}] cannot be evaluated: {problem}")


def _find(values: dict[str, Any], name: str) -> Any:
    """Look a name up as templates do, in any case."""
    for known, value in values.items():
        if known.lower() == name.lower():
            return value
    return None


def _typed(name: str, chosen: Any, declared: Any) -> Any:
    """Turn what stood on the command line into what the template declares."""
    kind = str(declared.get("type", "string")).lower() if isinstance(declared, dict) else "string"
    if not isinstance(chosen, str) or kind in ("string", "securestring"):
        return chosen
    try:
        value = json.loads(chosen)
    except ValueError:
        value = None
    wanted = {"int": int, "bool": bool, "array": list, "object": dict, "secureobject": dict}
    if type(value) is not wanted.get(kind):
        raise ExpressionProblem(f"the parameter '{name}' must be of the type {kind}")
    return value


def _concat(arguments: list[Any]) -> Any:
    if arguments and all(isinstance(argument, list) for argument in arguments):
        return [item for argument in arguments for item in argument]
    return "".join(_text(argument) for argument in arguments)


def _format(form: str, arguments: list[Any]) -> str:
    def fill(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] is None:
            raise ExpressionProblem(f"the form '{form}' has more than plain places such as {{0}}")
        if int(match[1]) >= len(arguments):
            raise ExpressionProblem(f"the form '{form}' has a place {match[0]} without a value")
        return _text(arguments[int(match[1])])

    return _PLACEHOLDER.sub(fill, form)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ExpressionProblem("only texts, numbers and booleans can be put together")
