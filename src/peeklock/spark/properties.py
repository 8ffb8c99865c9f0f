"""Application properties as text: readable in a map, and without loss in JSON.

In JSON each value stands under the name of its AMQP type, `{"attempts": {"int": 3}}`, so that what
is written from it again has the type that it had.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from peeklock.amqp.values import types

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The most special types first: each is an int, a str or bytes too.
_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (types.Ubyte, "ubyte"),
    (types.Ushort, "ushort"),
    (types.Uint, "uint"),
    (types.Ulong, "ulong"),
    (types.Byte, "byte"),
    (types.Short, "short"),
    (types.Int, "int"),
    (types.Timestamp, "timestamp"),
    (int, "long"),
    (types.Float, "float"),
    (float, "double"),
    (types.Symbol, "symbol"),
    (types.Char, "char"),
    (str, "string"),
    (types.Decimal32, "decimal32"),
    (types.Decimal64, "decimal64"),
    (types.Decimal128, "decimal128"),
    (bytes, "binary"),
    (UUID, "uuid"),
)
_IN_BASE64: Final = frozenset(("decimal32", "decimal64", "decimal128", "binary"))
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_FLOATS: Final = frozenset(("float", "double"))
_TYPES: Final[dict[str, Callable[[Any], Any]]] = {name: kind for kind, name in _NAMES}


def as_text(value: Any) -> str | None:
    """Write a value for people and for SQL; null stays null."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, types.Timestamp):
        return instant_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (list, dict, types.Array, types.Described)):
        return json.dumps(_typed(value), ensure_ascii=False)
    return str(value)


def instant_text(instant: int) -> str:
    """Write an instant as ISO 8601, or as its number where the calendar ends."""
    try:
        moment = _EPOCH + timedelta(milliseconds=int(instant))
    except OverflowError:
        return str(int(instant))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_json(properties: dict[Any, Any]) -> str:
    """Write properties with their types."""
    if not properties:
        return "{}"
    return _encode({str(name): _typed(value) for name, value in properties.items()})


def from_json(text: str) -> dict[str, Any]:
    """Read back what `to_json` wrote."""
    return {name: _value(typed) for name, typed in json.loads(text).items()}


def _typed(value: Any) -> Any:
    if value is None:
        return None
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return {name: _plain(value, name)}
    if isinstance(value, list):
        return {"list": [_typed(one) for one in value]}
    if isinstance(value, dict):
        return {"map": [[_typed(key), _typed(one)] for key, one in value.items()]}
    if isinstance(value, types.Array):
        items = [_typed(one) for one in value.items]
        return {"array": [value.code, items, _typed(value.descriptor)]}
    if isinstance(value, types.Described):
        return {"described": [_typed(value.descriptor), _typed(value.value)]}
    raise TypeError(f"{type(value).__name__} is no AMQP type")


def _plain(value: Any, name: str) -> Any:
    if name in _IN_BASE64:
        return base64.b64encode(value).decode("ascii")
    if name in _FLOATS:
        # JSON has no infinities; the text has, and keeps every digit.
        return repr(float(value))
    if name == "boolean":
        return bool(value)
    if isinstance(value, int):
        return int(value)
    return str(value)


def _value(typed: Any) -> Any:
    if typed is None:
        return None
    ((name, plain),) = typed.items()
    if name == "list":
        return [_value(one) for one in plain]
    if name == "map":
        return {_value(key): _value(one) for key, one in plain}
    if name == "array":
        code, items, descriptor = plain
        return types.Array(code, [_value(one) for one in items], _value(descriptor))
    if name == "described":
        return types.Described(_value(plain[0]), _value(plain[1]))
    if name in _IN_BASE64:
        plain = base64.b64decode(plain)
    kind = _TYPES.get(name)
    if kind is None:
        raise ValueError(f"'{name}' is no AMQP type")
    return kind(plain)
