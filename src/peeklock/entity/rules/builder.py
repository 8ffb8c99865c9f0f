"""Turns the parser's tree into operands, predicates and statements that evaluate themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, final

from lark import Token, Tree

from peeklock.entity.rules.errors import FilterError, RuleError
from peeklock.entity.rules.grammar import CONDITION, STATEMENTS, parse
from peeklock.entity.rules.operand import (
    NAMED,
    SYSTEM,
    USER,
    Arithmetic,
    Constant,
    NewId,
    Operand,
    Property,
    Signed,
)
from peeklock.entity.rules.operators import (
    ADD,
    DIVIDE,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MODULO,
    MULTIPLY,
    NOT_EQUAL,
    SUBTRACT,
)
from peeklock.entity.rules.predicate import (
    AllOf,
    AnyOf,
    Assertion,
    Comparison,
    Exists,
    IsNull,
    Like,
    Membership,
    Not,
    Predicate,
    PropertyComparison,
    TextMembership,
    pattern_of,
)
from peeklock.entity.rules.statement import Statement
from peeklock.entity.rules.values import Value, fold, system_name

# Deeper than anybody writes, and far from where evaluation would exhaust the stack.
NESTING_MAX: Final = 64
STATEMENTS_MAX: Final = 32

_INT64_MAX: Final = (1 << 63) - 1

_COMPARISONS: Final = {
    "=": EQUAL,
    "<>": NOT_EQUAL,
    "!=": NOT_EQUAL,
    "<": LESS,
    "<=": LESS_OR_EQUAL,
    ">": GREATER,
    ">=": GREATER_OR_EQUAL,
}
# The same relation seen from the other side.
_MIRRORED: Final = {
    EQUAL: EQUAL,
    NOT_EQUAL: NOT_EQUAL,
    LESS: GREATER,
    LESS_OR_EQUAL: GREATER_OR_EQUAL,
    GREATER: LESS,
    GREATER_OR_EQUAL: LESS_OR_EQUAL,
}
_CALCULATIONS: Final = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE, "%": MODULO}
_CONDITIONS: Final = frozenset(
    (
        "any_of",
        "all_of",
        "not_",
        "compare",
        "is_null",
        "is_not_null",
        "in_",
        "not_in",
        "like",
        "not_like",
        "exists",
    )
)


def build_predicate(text: str, parameters: Mapping[str, Value]) -> tuple[Predicate, bool]:
    """Read the condition of a filter; also tell whether it is the same for all messages."""
    builder = _Builder(parameters)
    predicate = builder.predicate(parse(text, CONDITION), 0)
    return predicate, not builder.asks_message


def build_statements(text: str, parameters: Mapping[str, Value]) -> list[Statement]:
    """Read the statements of an action."""
    builder = _Builder(parameters)
    trees = parse(text, STATEMENTS).children
    if len(trees) > STATEMENTS_MAX:
        raise RuleError(f"{len(trees)} statements are more than {STATEMENTS_MAX}")
    return [builder.statement(_tree(tree)) for tree in trees]


@final
class _Builder:
    """One reading of a text."""

    __slots__ = ("_parameters", "asks_message")

    def __init__(self, parameters: Mapping[str, Value]) -> None:
        self._parameters: dict[str, Value] = {
            fold(name.removeprefix("@")): parameters[name] for name in parameters
        }
        self.asks_message: bool = False

    def statement(self, tree: Tree[Token]) -> Statement:
        """Build SET or REMOVE."""
        target = self._property(_tree(tree.children[1]))
        if tree.data == "remove":
            return Statement(target.scope, target.name, None)
        return Statement(target.scope, target.name, self.operand(_tree(tree.children[2]), 0))

    def predicate(self, tree: Tree[Token], depth: int) -> Predicate:
        """Build what is true, false or unknown."""
        _check_depth(tree, depth)
        below = depth + 1
        kind = tree.data
        if kind == "any_of":
            return AnyOf([self.predicate(_tree(part), below) for part in tree.children])
        if kind == "all_of":
            return AllOf([self.predicate(_tree(part), below) for part in tree.children])
        if kind == "not_":
            return Not(self.predicate(_tree(tree.children[0]), below))
        if kind == "compare":
            return self._comparison(tree, below)
        if kind in ("in_", "not_in"):
            membership = self._membership(tree, below)
            return Not(membership) if kind == "not_in" else membership
        if kind in ("like", "not_like"):
            like = self._like(tree, below)
            return Not(like) if kind == "not_like" else like
        if kind in ("is_null", "is_not_null"):
            is_null = IsNull(self._subject(tree, below, "IS NULL"))
            return Not(is_null) if kind == "is_not_null" else is_null
        if kind == "exists":
            return Exists(self._subject(tree, below, "EXISTS"))
        return self._assertion(tree, depth)

    def operand(self, tree: Tree[Token], depth: int) -> Operand:
        """Build what has a value."""
        _check_depth(tree, depth)
        below = depth + 1
        kind = tree.data
        if kind == "constant":
            return Constant(_constant(tree))
        if kind == "property":
            return self._property(tree)
        if kind == "parameter":
            return Constant(self._parameter(tree))
        if kind == "function":
            return self._function(tree, below)
        if kind == "sign":
            return self._signed(tree, below)
        if kind == "arithmetic":
            left, sign, right = [_tree(child) for child in tree.children]
            operator = _CALCULATIONS[_token(sign.children[0])]
            return Arithmetic(operator, self.operand(left, below), self.operand(right, below))
        assert kind in _CONDITIONS, f"the grammar has {kind}, the builder has not"
        raise _refusal(tree, "expected a value, found a condition")

    def _assertion(self, tree: Tree[Token], depth: int) -> Predicate:
        operand = self.operand(tree, depth)
        if isinstance(operand, Property):
            return Assertion(operand)
        if isinstance(operand, Constant) and (
            operand.constant is None or isinstance(operand.constant, bool)
        ):
            return Assertion(operand)
        raise _refusal(tree, "expected a condition, found a value that is neither true nor false")

    def _comparison(self, tree: Tree[Token], depth: int) -> Predicate:
        before, sign, after = [_tree(child) for child in tree.children]
        operator = _COMPARISONS[_token(sign.children[0])]
        left = self.operand(before, depth)
        right = self.operand(after, depth)
        if isinstance(left, Property) and isinstance(right, Constant):
            return _with_constant(operator, left, right)
        # Nothing equals NULL, whatever the property is: it is not even read then.
        is_null = isinstance(left, Constant) and left.constant is None
        if isinstance(left, Constant) and isinstance(right, Property) and not is_null:
            return _with_constant(_MIRRORED[operator], right, left)
        return Comparison(operator, left, right)

    def _membership(self, tree: Tree[Token], depth: int) -> Predicate:
        operand = self.operand(_tree(tree.children[0]), depth)
        trees = _tree(tree.children[1]).children
        items = [self.operand(_tree(item), depth) for item in trees]
        texts = [
            item.constant
            for item in items
            if isinstance(item, Constant) and isinstance(item.constant, str)
        ]
        if len(texts) == len(items):
            return TextMembership(operand, frozenset(texts))
        return Membership(operand, items)

    def _like(self, tree: Tree[Token], depth: int) -> Predicate:
        shape = _tree(tree.children[1])
        operand = self.operand(_tree(tree.children[0]), depth)
        pattern = self.operand(shape, depth)
        escape = self.operand(_tree(tree.children[2]), depth) if len(tree.children) > 2 else None
        ready = None
        if _is_given(pattern) and (escape is None or _is_given(escape)):
            try:
                ready = pattern_of(_given(pattern), None if escape is None else _given(escape))
            except FilterError as wrong:
                raise _refusal(shape, wrong.text) from wrong
        return Like(operand, pattern, escape, ready)

    def _subject(self, tree: Tree[Token], depth: int, word: str) -> Property:
        operand = self.operand(_tree(tree.children[0]), depth)
        if not isinstance(operand, Property):
            raise _refusal(tree, f"{word} asks for a property")
        return operand

    def _property(self, tree: Tree[Token]) -> Property:
        self.asks_message = True
        name = _name(_token(tree.children[-1]))
        if len(tree.children) == 1:
            return Property(USER, name)
        word = _token(tree.children[0])
        if fold(word) == "user":
            return Property(USER, name)
        if fold(word) != "sys":
            raise _refusal(tree, f"{word}.{name}: the scope is sys or user, not {word}")
        # A name that is none is an error only when a message is there to be asked (12.2).
        return Property(SYSTEM, system_name(name) or name)

    def _parameter(self, tree: Tree[Token]) -> Value:
        token = _token(tree.children[0])
        name = fold(token[1:])
        if name not in self._parameters:
            raise _refusal(tree, f"the parameter {token} has no value")
        return self._parameters[name]

    def _function(self, tree: Tree[Token], depth: int) -> Operand:
        self.asks_message = True
        word = _token(tree.children[0])
        arguments = tree.children[1:]
        name = fold(word)
        if name == "newid" and not arguments:
            return NewId()
        if name in ("property", "p") and len(arguments) == 1:
            return Property(NAMED, "", self.operand(_tree(arguments[0]), depth))
        count = len(arguments)
        raise _refusal(
            tree, f"{word} with {count} arguments is none of newid(), property(name), p(name)"
        )

    def _signed(self, tree: Tree[Token], depth: int) -> Operand:
        sign, operand = [_tree(child) for child in tree.children]
        negative = _token(sign.children[0]) == "-"
        if operand.data == "constant" and _token(operand.children[0]).type == "INTEGER":
            # Here and not as an operation: the least integer has no positive counterpart.
            return Constant(_integer(operand, negative))
        return Signed(negative, self.operand(operand, depth))


def _with_constant(operator: int, subject: Property, constant: Constant) -> Predicate:
    if subject.scope == NAMED or constant.constant is None:
        return Comparison(operator, subject, constant)
    return PropertyComparison(operator, subject.scope, subject.name, constant.constant)


def _constant(tree: Tree[Token]) -> Value:
    token = _token(tree.children[0])
    if token.type == "TEXT":
        return token[1:-1].replace("''", "'")
    if token.type == "INTEGER":
        return _integer(tree, negative=False)
    if token.type == "DOUBLE":
        number = float(token)
        if math.isinf(number):
            raise _refusal(tree, f"{token} is beyond a double")
        return number
    return None if token.type == "NULL" else token.type == "TRUE"


def _integer(tree: Tree[Token], negative: bool) -> int:
    digits = _token(tree.children[0])
    number = int(digits)
    if number > _INT64_MAX + (1 if negative else 0):
        raise _refusal(tree, f"{digits} is beyond 64 bits")
    return -number if negative else number


def _name(token: Token) -> str:
    if token.type == "BRACKETED":
        return token[1:-1].replace("]]", "]")
    if token.type == "QUOTED":
        return token[1:-1].replace('""', '"')
    return str(token)


def _is_given(operand: Operand) -> bool:
    return isinstance(operand, Constant) and operand.constant is not None


def _given(operand: Operand) -> Value:
    assert isinstance(operand, Constant), "asked before"
    return operand.constant


def _check_depth(tree: Tree[Token], depth: int) -> None:
    if depth > NESTING_MAX:
        raise _refusal(tree, f"nested more than {NESTING_MAX} deep")


def _tree(node: Tree[Token] | Token) -> Tree[Token]:
    assert isinstance(node, Tree), "the grammar has a rule here"
    return node


def _token(node: Tree[Token] | Token) -> Token:
    assert isinstance(node, Token), "the grammar has a terminal here"
    return node


def _refusal(tree: Tree[Token], words: str) -> RuleError:
    return RuleError(words, tree.meta.line, tree.meta.column)
