"""JSON as people write it: with comments and trailing commas, but no key twice."""

import json
import re
from typing import Any, Final, NoReturn

# One alternative per thing that must be seen whole. A string comes first, so that what looks like
# a comment inside it stays what it is. One without an end is taken as well, and refused later:
# otherwise each of its quotes would be tried again to the end of the text.
_TOKENS: Final = re.compile(
    r"""
    (?P<string>"(?:[^"\\\n]|\\.)*"?)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<open_comment>/\*)
    """,
    re.VERBOSE | re.DOTALL,
)
# A comma between a value and a closing bracket; strings are stepped over as above.
_TRAILING_COMMA: Final = re.compile(
    r"""
    (?P<string>"(?:[^"\\\n]|\\.)*"?)
    | (?<=[^\s\[{,:])(?P<space>\s*),(?=\s*[}\]])
    """,
    re.VERBOSE,
)


def loads(text: str) -> Any:
    """Read lenient JSON; what is wrong is a ValueError that names the line and the column."""
    return json.loads(
        _without_trailing_commas(_without_comments(text)),
        object_pairs_hook=_no_key_twice,
        parse_constant=_refuse_constant,
    )


def _without_comments(text: str) -> str:
    return _TOKENS.sub(_blank_comment, text)


def _blank_comment(match: re.Match[str]) -> str:
    if match["open_comment"] is not None:
        line = match.string.count("\n", 0, match.start()) + 1
        raise ValueError(f"the comment that begins in line {line} has no end")
    if match["comment"] is None:
        return match[0]
    # Spaces instead of nothing: an error further on keeps its line and column.
    return re.sub(r"[^\n]", " ", match[0])


def _without_trailing_commas(text: str) -> str:
    return _TRAILING_COMMA.sub(lambda match: match["string"] or f"{match['space']} ", text)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key '{key}' stands twice in one object")
        values[key] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
