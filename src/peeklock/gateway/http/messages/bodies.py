"""The body of any message as bytes and a content type.

What is data, a text or a binary comes out as it is. Everything else that AMQP knows (numbers,
lists, maps, sequences) has no bytes of its own and comes out as JSON.
"""

import json
from typing import Any, Final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.sections import DATA, SEQUENCE, VALUE, section_at
from peeklock.amqp.values.codec import decode
from peeklock.gateway.http.messages.documents import json_form

BYTES_TYPE: Final = "application/octet-stream"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
JSON_TYPE: Final = "application/json"


def body_of(bare: bytes, body_at: int) -> tuple[bytes, str]:
    """Give the body and what it is; data and binaries may be anything, which their sender knows."""
    at = body_at
    end = len(bare)
    data: list[bytes] = []
    items: list[Any] = []
    is_sequence = False
    while at < end:
        code, value_at, after = section_at(bare, at, end)
        if code == DATA:
            head = 2 if bare[value_at] == 0xA0 else 5
            data.append(bare[value_at + head : after])
        elif code == SEQUENCE:
            is_sequence = True
            items += _decoded(bare, value_at, after, [])
        elif code == VALUE:
            return _of_value(_decoded(bare, value_at, after, bare[value_at:after]))
        at = after
    if is_sequence:
        return json.dumps(json_form(items)).encode(), JSON_TYPE
    return b"".join(data), BYTES_TYPE


def _of_value(value: Any) -> tuple[bytes, str]:
    if value is None:
        return b"", BYTES_TYPE
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), TEXT_TYPE
    # Decimals are bytes too, but numbers.
    if type(value) is bytes:
        return value, BYTES_TYPE
    return json.dumps(json_form(value)).encode(), JSON_TYPE


def _decoded(bare: bytes, at: int, end: int, instead: Any) -> Any:
    """Decode; a sender may have written anything, and nobody has looked at it before."""
    try:
        return decode(bare, at, end)[0]
    except DecodeError:
        return instead
