"""Application properties as headers: texts in double quotes, numbers and booleans bare, instants
as RFC 1123 in double quotes (protocol 10)."""

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from peeklock.amqp.values.types import Int, Timestamp, Ulong
from peeklock.gateway.amqp.management.rule_values import rule_value
from peeklock.gateway.http.messages.documents import header_json, json_form, read_json
from peeklock.gateway.http.messages.instants import read_http_date
from peeklock.gateway.http.messages.malformed import MalformedRequest

# The service's limits: of all properties together, and of one value.
PROPERTIES_BYTES_MAX: Final = 64 * 1024
VALUE_BYTES_MAX: Final = 32 * 1024

BROKER_PROPERTIES: Final = "brokerproperties"
# Properties whose names cannot be those of headers come in this one, as a JSON object.
USER_PROPERTIES: Final = "UserProperties"
_USER_PROPERTIES: Final = USER_PROPERTIES.lower()

# Headers with a meaning of their own: they are no properties of a message, and no property of a
# message may pretend to be one of them.
_STANDARD: Final = frozenset(
    [
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "age",
        "allow",
        "alt-svc",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "dnt",
        "etag",
        "expect",
        "expires",
        "forwarded",
        "from",
        "host",
        "keep-alive",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "range",
        "referer",
        "retry-after",
        "server",
        "servicebusauthorization",
        "servicebussupplementaryauthorization",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "userproperties",
        "vary",
        "via",
        "warning",
        "www-authenticate",
    ]
)
_STANDARD_BEGINNINGS: Final = ("access-control-", "content-", "if-", "proxy-", "sec-")

_WORDS: Final = {"true": True, "false": False, "null": None}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INTEGER: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_REAL: Final = re.compile(r"-?\d{1,400}(\.\d{1,400}([eE][+-]?\d{1,4})?|[eE][+-]?\d{1,4})", re.ASCII)


def read_custom(named: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Read the headers that are properties of the message, under their names as they came."""
    properties: dict[str, Any] = {}
    size = 0
    for raw_name, raw in named:
        name = raw_name.decode("ascii")
        folded = name.lower()
        if is_standard(folded):
            if folded != _USER_PROPERTIES:
                continue
            found = read_custom_object(read_json(header_text(raw), f"The header {name}"))
        else:
            if len(raw) > VALUE_BYTES_MAX:
                raise MalformedRequest(
                    f"The header '{name}' has more than {VALUE_BYTES_MAX} bytes."
                )
            found = {name: _read_value(header_text(raw))}
        for each, value in found.items():
            if each in properties:
                raise MalformedRequest(f"The property '{each}' is given twice.")
            properties[each] = value
        size += len(raw_name) + len(raw)
    if size > PROPERTIES_BYTES_MAX:
        raise MalformedRequest(
            f"The message has more than {PROPERTIES_BYTES_MAX} bytes of properties."
        )
    return properties


def read_custom_object(document: Any) -> dict[str, Any]:
    """Read properties from the object of JSON that batches, and odd names, come in."""
    if not isinstance(document, dict):
        raise MalformedRequest("UserProperties must be a JSON object.")
    return {name: _read_member(name, value) for name, value in document.items()}


def write_custom(properties: dict[str, Any]) -> list[tuple[str, str]]:
    """Write properties as headers; those that cannot be headers go into one of them together."""
    headers: list[tuple[str, str]] = []
    others: dict[str, Any] = {}
    seen: set[str] = set()
    for name, value in properties.items():
        folded = name.lower()
        # Two names that differ in nothing but case would be one header.
        if _TOKEN.fullmatch(name) and not is_standard(folded) and folded not in seen:
            seen.add(folded)
            headers.append((name, _written(value)))
        else:
            others[name] = json_form(value)
    if others:
        headers.append((USER_PROPERTIES, header_json(others)))
    return headers


def is_standard(folded_name: str) -> bool:
    """Tell whether a header has a meaning of its own."""
    return folded_name in _STANDARD or folded_name.startswith(_STANDARD_BEGINNINGS)


def header_text(raw: bytes) -> str:
    """Read the value of a header: UTF-8, or what HTTP once said it was."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _wire_number(number: int) -> Any:
    """Give a whole number the first type that it fits into; None where there is none."""
    if -(1 << 31) <= number < 1 << 31:
        return Int(number)
    if -(1 << 63) <= number < 1 << 63:
        return number
    return Ulong(number) if 0 <= number < 1 << 64 else None


def _read_member(name: str, value: Any) -> Any:
    if isinstance(value, str):
        # Characters here, which are no more than the bytes that the whole body is bounded by.
        if len(value) > VALUE_BYTES_MAX:
            raise MalformedRequest(
                f"The property '{name}' has more than {VALUE_BYTES_MAX} characters."
            )
        return value
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        number = _wire_number(value)
        if number is not None:
            return number
        raise MalformedRequest(f"The property '{name}' is a number of more than 64 bits.")
    raise MalformedRequest(f"The property '{name}' must be a string, a number, a boolean or null.")


def _read_value(text: str) -> Any:
    if len(text) > 1 and text[0] == '"' and text[-1] == '"':
        return _read_quoted(text)
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        number = _wire_number(int(text))
        return text if number is None else number
    if _REAL.fullmatch(text):
        real = float(text)
        return real if math.isfinite(real) else text
    return text


def _read_quoted(text: str) -> Any:
    inner = text[1:-1]
    if "\\" in inner:
        # Written here or by somebody who escapes; otherwise the backslashes are meant as they are.
        try:
            read = json.loads(text)
        except ValueError:
            return inner
        inner = read if isinstance(read, str) else inner
    instant = read_http_date(inner)
    return inner if instant is None else Timestamp(instant)


def _written(value: Any) -> str:
    plain = rule_value(value)
    if isinstance(plain, Decimal) and plain.is_finite():
        return str(plain)
    # Escaped, so that no text ends its header or has letters that a header cannot.
    return header_json(json_form(plain))
