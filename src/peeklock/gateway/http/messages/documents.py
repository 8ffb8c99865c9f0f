"""JSON as clients send it, read strictly, and AMQP's values as JSON."""

import json
import math
from base64 import b64encode
from typing import Any, Final, NoReturn

from peeklock.amqp.values.types import Array, Described
from peeklock.entity.rules.values import DurationValue, InstantValue
from peeklock.gateway.amqp.management.rule_values import TICKS_PER_MS, rule_value
from peeklock.gateway.http.messages.instants import http_date, timespan
from peeklock.gateway.http.messages.malformed import MalformedRequest


def read_json(text: str | bytes, what: str) -> Any:
    """Read a document; whatever is not one is Malformed, and `what` says where it stood."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise MalformedRequest(f"{what} is nested too deeply.") from None
    except ValueError as error:
        raise MalformedRequest(f"{what} cannot be read as JSON: {error}.") from error


def header_json(document: Any) -> str:
    """Write a document so that it can stand in a header: in ASCII, and nothing that is not seen."""
    return json.dumps(document).replace("\x7f", "\\u007f")


def json_form(value: Any) -> Any:
    """Give a decoded AMQP value as JSON can hold it: binary in base64, instants as RFC 1123."""
    plain = rule_value(value)
    if plain is None or isinstance(plain, (bool, str, int)):
        return plain
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else str(plain)
    if isinstance(plain, (bytes, bytearray)):
        return b64encode(plain).decode("ascii")
    if isinstance(plain, InstantValue):
        instant = plain.ticks // TICKS_PER_MS
        return http_date(instant) or instant
    if isinstance(plain, DurationValue):
        return timespan(plain.ticks)
    if isinstance(plain, Described):
        return json_form(plain.value)
    if isinstance(plain, Array):
        return [json_form(item) for item in plain.items]
    if isinstance(plain, (list, tuple)):
        return [json_form(item) for item in plain]
    if isinstance(plain, dict):
        return {_name(key): json_form(item) for key, item in plain.items()}
    return str(plain)  # decimals and uuids


def _name(key: Any) -> str:
    form = json_form(key)
    return form if isinstance(form, str) else json.dumps(form)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is given twice in one object")
    return members


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_once)
