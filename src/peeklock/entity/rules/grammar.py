"""The rule language: its grammar, and how a text becomes a tree or an error that says where.

The grammar is that of the service's reference (protocol 12.1). Conditions and values share one set
of rules, because a bracket may open either and LALR cannot look ahead; the builder then refuses a
condition where a value belongs. This module imports the parser: filters and actions import it only
when there is a text to read, so that a broker without rules does not pay for it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from peeklock.entity.rules.errors import RuleError

TEXT_LENGTH_MAX: Final = 1_024
"""How many characters a filter or an action may have. It also bounds the steps of an evaluation:
a part takes at least one character and is evaluated at most once."""

CONDITION: Final = "any_of"
STATEMENTS: Final = "statements"

_GRAMMAR: Final = r"""
    statements: statement (";"? statement)* ";"?
    ?statement: SET property "=" sum          -> set
              | REMOVE property               -> remove

    ?any_of: all_of (_OR all_of)*
    ?all_of: negation (_AND negation)*
    ?negation: _NOT negation                  -> not_
             | comparison
    ?comparison: sum
        | sum comparator sum                  -> compare
        | sum _IS NULL                        -> is_null
        | sum _IS _NOT NULL                   -> is_not_null
        | sum _IN list                        -> in_
        | sum _NOT _IN list                   -> not_in
        | sum _LIKE sum [_ESCAPE sum]         -> like
        | sum _NOT _LIKE sum [_ESCAPE sum]    -> not_like
        | _EXISTS "(" sum ")"                 -> exists
    !comparator: "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    list: "(" sum ("," sum)* ")"

    ?sum: product
        | sum additive product                -> arithmetic
    ?product: signed
            | product multiplicative signed   -> arithmetic
    ?signed: primary
           | additive signed                  -> sign
    !additive: "+" | "-"
    !multiplicative: "*" | "/" | "%"
    ?primary: "(" any_of ")"
            | constant
            | property
            | PARAMETER                       -> parameter
            | NAME "(" [any_of ("," any_of)*] ")" -> function

    constant: TEXT | INTEGER | DOUBLE | TRUE | FALSE | NULL
    property: [NAME "."] name
    ?name: NAME | BRACKETED | QUOTED | SET | REMOVE

    NAME: /[^\W\d_]\w*/
    BRACKETED: /\[([^\]]|\]\])+\]/
    QUOTED: /"([^"]|"")+"/
    PARAMETER: /@\w+/
    TEXT: /'([^']|'')*'/
    DOUBLE: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    INTEGER: /[0-9]+/
    %declare _AND _OR _NOT _IS _IN _LIKE _ESCAPE _EXISTS SET REMOVE TRUE FALSE NULL
    %ignore /\s+/
"""

# The words that are no names, with the terminals they are. SET and REMOVE begin statements and may
# be names elsewhere.
_KEYWORDS: Final = {
    "AND": "_AND",
    "OR": "_OR",
    "NOT": "_NOT",
    "IS": "_IS",
    "IN": "_IN",
    "LIKE": "_LIKE",
    "ESCAPE": "_ESCAPE",
    "EXISTS": "_EXISTS",
    "SET": "SET",
    "REMOVE": "REMOVE",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
}

# What may come next is found by trying everything, which closes all open parts each time: a text
# with a thousand of them would hold up everybody for 30 ms.
_TRIED_PARTS_MAX: Final = 64

# What an unfinished beginning lacks, by its first character.
_UNFINISHED: Final = {
    "'": "the text that begins here has no closing '",
    '"': 'the name that begins here is empty or has no closing "',
    "[": "the name that begins here is empty or has no closing ]",
    "@": "a parameter has a name, such as @limit",
}


def parse(text: str, start: str) -> Tree[Token]:
    """Read a text as what `start` names, or raise a RuleError that says where it is not that."""
    if len(text) > TEXT_LENGTH_MAX:
        raise RuleError(f"{len(text):,} characters are more than {TEXT_LENGTH_MAX:,}")
    try:
        return _parser().parse(text, start)
    except UnexpectedCharacters as wrong:
        words = _UNFINISHED.get(wrong.char, f"'{wrong.char}' has no meaning here")
        raise RuleError(words, wrong.line, wrong.column) from None
    except UnexpectedToken as wrong:
        expected = _expected(_next_terminals(wrong))
        if wrong.token.type == "$END":
            line, column = _end_of(text)
            raise RuleError(f"it ends where {expected} is expected", line, column) from None
        words = f"expected {expected}, found '{wrong.token}'"
        raise RuleError(words, wrong.line, wrong.column) from None


def _next_terminals(wrong: UnexpectedToken) -> set[str]:
    """Find what may stand where something else does; of a text with many open parts, roughly."""
    if len(wrong.interactive_parser.parser_state.state_stack) > _TRIED_PARTS_MAX:
        return set(wrong.expected)
    return set(wrong.accepts or wrong.expected)


@cache
def _parser() -> Lark:
    """Make the parser; that takes some milliseconds and happens once."""
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        start=[CONDITION, STATEMENTS],
        maybe_placeholders=False,
        propagate_positions=True,
        lexer_callbacks={"NAME": _keyword_or_name},
    )


def _keyword_or_name(token: Token) -> Token:
    # Only ASCII: some letters outside of it have an ASCII capital.
    if token.isascii():
        terminal = _KEYWORDS.get(token.upper())
        if terminal is not None:
            token.type = terminal
    return token


def _expected(terminals: set[str]) -> str:
    """Say in words what may come next."""
    words: list[str] = []
    if "_EXISTS" in terminals:
        words.append("a condition")
    elif "TEXT" in terminals:
        words.append("a value")
    elif "NAME" in terminals:
        words.append("a property")
    elif "SET" in terminals:
        words += ["SET", "REMOVE"]
    if "LESSTHAN" in terminals:
        words.append("a comparison")
    elif "EQUAL" in terminals:
        words.append("'='")
    elif "_LIKE" in terminals:
        words += ["IN", "LIKE"]
    if "_AND" in terminals:
        words += ["AND", "OR"]
    if "NULL" in terminals and "TEXT" not in terminals:
        words.append("NULL")
    if "RPAR" in terminals:
        words.append("')'")
    if "$END" in terminals or not terminals:
        words.append("the end")
    if not words:
        return "'('"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _end_of(text: str) -> tuple[int, int]:
    shown = text.rstrip()
    return shown.count("\n") + 1, len(shown) - (shown.rfind("\n") + 1) + 1
