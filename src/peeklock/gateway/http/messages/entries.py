"""The entries of a batch: a JSON array is cut where its entries end, and each is read by itself.

To read a whole array is one call, during which no other thread has its turn either, and how long
that takes would be for its sender to say.
"""

import re
from collections.abc import Iterator
from typing import Final

from peeklock.gateway.http.messages.malformed import MalformedRequest

# What one message may have of values: it has a body, and properties.
VALUES_MAX: Final = 1_024
_DEPTH_MAX: Final = 64
# What is looked at in one go, in bytes; a sign between values costs as much as so many of them.
_COST_MAX: Final = 65_536
_SIGN_COST: Final = 128

_BOM: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n"
_QUOTE, _COMMA, _OPEN, _CLOSE, _BEGIN, _END = b'",[]{}'
# What stands up to the next sign, strings as a whole; and what stands in a string. Nothing that was
# matched is given back, so that no input takes longer than its length.
_FILLING: Final = re.compile(
    rb'[^"{}\[\],]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\],]*+)*+', re.DOTALL
)
_IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

_NO_ARRAY: Final = "The body of a batch must be a JSON array with a message at least."
_CUT_OFF: Final = "The body cannot be read as JSON: it ends within the array."


def entries_of(body: bytes) -> Iterator[bytes | None]:
    """Give the entries of an array one after the other, each as it stands there and not looked
    at; None each time that so much was done that others should have their turn."""
    at = _start_of(body)
    begin = at
    place = depth = values = cost = 0
    while True:
        if cost >= _COST_MAX:
            yield None
            cost = 0
        found = _end(_FILLING, body, at, at + _COST_MAX)
        cost += found - at + _SIGN_COST
        if found == at + _COST_MAX:
            at = found
            continue
        sign = body[found]
        at = found + 1
        if sign == _QUOTE:
            # A string that is longer than what is looked at in one go.
            at = _end(_IN_STRING, body, at, at + _COST_MAX)
            while body[at] != _QUOTE:
                yield None
                at = _end(_IN_STRING, body, at, at + _COST_MAX)
            at += 1
            cost = _COST_MAX
        elif depth == 0 and sign in (_COMMA, _CLOSE):
            entry = body[begin:found].strip(_BLANKS)
            if sign == _CLOSE and place == 0 and not entry:
                raise MalformedRequest(_NO_ARRAY)
            yield entry
            if sign == _CLOSE:
                break
            place += 1
            values = 0
            begin = at
        else:
            if sign in (_CLOSE, _END):
                depth -= 1
            else:
                depth += sign != _COMMA
                values += 1
            _check(place, depth, values)
    for rest in range(at, len(body), _COST_MAX):
        if body[rest : rest + _COST_MAX].strip(_BLANKS):
            raise MalformedRequest(
                "The body cannot be read as JSON: something stands behind the array."
            )
        yield None


def _start_of(body: bytes) -> int:
    at = len(_BOM) if body.startswith(_BOM) else 0
    if not body[at : at + _COST_MAX].lstrip(_BLANKS).startswith(b"["):
        raise MalformedRequest(_NO_ARRAY)
    return body.index(b"[") + 1


def _end(pattern: re.Pattern[bytes], body: bytes, at: int, limit: int) -> int:
    """Tell where the pattern ends, which always fits; the array cannot end there."""
    match = pattern.match(body, at, limit)
    end = at if match is None else match.end()
    if end >= len(body) or (end == at and body[end] == b"\\"[0]):
        raise MalformedRequest(_CUT_OFF)
    return end


def _check(place: int, depth: int, values: int) -> None:
    wrong = ""
    if depth < 0:
        wrong = "It cannot be read as JSON: a brace is closed that was not opened."
    elif depth > _DEPTH_MAX:
        wrong = "It is nested too deeply."
    elif values > VALUES_MAX:
        wrong = f"It has more than {VALUES_MAX} values."
    if wrong:
        raise MalformedRequest(f"The message at place {place} of the batch: {wrong}")
