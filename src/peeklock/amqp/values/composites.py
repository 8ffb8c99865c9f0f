"""The composite types of AMQP, read and written by their tables.

A list may leave out its last fields, and a descriptor may be a number or a symbol. What we write
has every field, null where unset, behind the short descriptor `00 53 xx`, because pyamqp reads the
code at a fixed place. Attributes hold plain Python values: numbers as int, symbols as str, absent
fields as the default of the specification, or None where there is none.
"""

from typing import Any, Final

from peeklock.amqp.errors import AmqpError, DecodeError
from peeklock.amqp.frames.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
)
from peeklock.amqp.frames.sasl_frames import (
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
)
from peeklock.amqp.frames.states import (
    ACCEPTED as ACCEPTED_FORM,
)
from peeklock.amqp.frames.states import (
    DECLARE,
    DECLARED,
    DISCHARGE,
    MODIFIED,
    RECEIVED,
    REJECTED,
    TRANSACTIONAL_STATE,
    Accepted,
    Modified,
    Rejected,
    Released,
)
from peeklock.amqp.frames.states import (
    RELEASED as RELEASED_FORM,
)
from peeklock.amqp.frames.termini import (
    COORDINATOR,
    SOURCE,
    TARGET,
)
from peeklock.amqp.messages.message_forms import HEADER, PROPERTIES
from peeklock.amqp.values.codec import ElementBudget, decode
from peeklock.amqp.values.constructors import SYMBOL8, SYMBOL32
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.forms import ANY, Field, Form, field, form
from peeklock.amqp.values.types import Array, Char, Described, Symbol, Ulong

ERROR: Final = form(
    AmqpError,
    "error",
    0x1D,
    field("condition", Symbol, required=True),
    field("description", str),
    field("info", dict),
)

FORMS: Final[tuple[Form, ...]] = (
    *(OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE, ERROR),
    *(RECEIVED, ACCEPTED_FORM, REJECTED, RELEASED_FORM, MODIFIED),
    *(SOURCE, TARGET, COORDINATOR),
    *(DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL_STATE),
    *(SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME),
    *(HEADER, PROPERTIES),
)
_BY_CODE: Final[dict[int, Form]] = {each.code: each for each in FORMS}
_BY_SYMBOL: Final[dict[str, Form]] = {each.symbol: each for each in FORMS}
_BY_CLASS: Final[dict[Any, Form]] = {each.value_class: each for each in FORMS}


def decode_composite(
    buffer: bytes, position: int = 0, end: int | None = None, budget: ElementBudget | None = None
) -> tuple[Any, int]:
    """Read one composite as its value class and tell where the next value begins."""
    value, position = decode(buffer, position, end, budget)
    found = composite_of(value)
    if isinstance(found, Described):
        raise DecodeError(f"no composite type has the descriptor {found.descriptor!r}")
    if type(found) not in _BY_CLASS:
        raise DecodeError("a plain value where a composite should be")
    return found, position


def encode_composite(value: Any) -> bytes:
    """Write one composite, or an AmqpError, with every field."""
    if type(value) not in _BY_CLASS:
        raise TypeError(f"{type(value).__name__} is not a composite")
    return encode(described_of(value))


def composite_of(value: Any) -> Any:
    """Turn a described list that is one of ours into its value class; the rest stays as it is."""
    if not isinstance(value, Described):
        return value
    found = form_of(value.descriptor)
    if found is None:
        return value
    if not isinstance(value.value, list):
        raise DecodeError(f"{found.name} is not a list")
    return _composite(found, value.value)


def described_of(value: Any) -> Any:
    """Turn a composite into the described list that the codec writes; the rest stays as it is."""
    found = _BY_CLASS.get(type(value))
    if found is None:
        return value
    fields = [_wire_value(row, getattr(value, row.attribute)) for row in found.fields]
    return Described(Ulong(found.code), fields)


def form_of(descriptor: Any) -> Form | None:
    """Find the table that a descriptor names, by number or by symbol."""
    if isinstance(descriptor, Ulong):
        return _BY_CODE.get(descriptor)
    if isinstance(descriptor, Symbol):
        return _BY_SYMBOL.get(descriptor)
    return None


def _composite(found: Form, values: list[Any]) -> Any:
    if len(values) > len(found.fields):
        raise DecodeError(f"{found.name} has {len(values)} fields, {len(found.fields)} are known")
    arguments: dict[str, Any] = {}
    given = len(values)
    for index, row in enumerate(found.fields):
        value = values[index] if index < given else None
        if value is not None:
            arguments[row.attribute] = _field_value(found, row, value)
        elif row.required:
            raise DecodeError(f"{found.name} comes without its {row.name}")
    return found.value_class(**arguments)


def _field_value(found: Form, row: Field, value: Any) -> Any:
    """Check one field against its row and give what the attribute holds."""
    if row.multiple:
        # One symbol may stand for an array of one [1.4]; some peers write a list instead.
        if isinstance(value, Array):
            symbols = value.items
        else:
            symbols = value if isinstance(value, list) else [value]
        return [str(_checked(found, row, symbol)) for symbol in symbols]
    return _checked(found, row, value)


def _checked(found: Form, row: Field, value: Any) -> Any:
    kind = row.kind
    if kind is ANY:
        return composite_of(value)
    if isinstance(kind, tuple):
        value = composite_of(value)
        if isinstance(value, kind):
            return value
    elif kind is str or kind is Symbol:
        # A string for a symbol, or the reverse, is a common slip of peers and harms nobody.
        if isinstance(value, str) and not isinstance(value, Char):
            return str(value)
    elif type(value) is kind:
        return int(value) if isinstance(value, int) and kind is not bool else value
    raise DecodeError(f"{found.name}.{row.name} has the wrong type: {type(value).__name__}")


def _wire_value(row: Field, value: Any) -> Any:
    """Return an attribute the type that its row asks for."""
    if value is None:
        if row.required:
            raise ValueError(f"{row.name} must be set")
        return None
    if row.multiple:
        symbols = [Symbol(symbol) for symbol in value]
        wide = any(len(symbol) > 255 for symbol in symbols)
        return Array(SYMBOL32 if wide else SYMBOL8, symbols)
    if row.kind is ANY or isinstance(row.kind, tuple):
        return described_of(value)
    return value if row.kind is dict else row.kind(value)


def encode_rejected(error: AmqpError | None) -> bytes:
    """Write the outcome rejected with its reason."""
    return encode_composite(Rejected(error=error))


def encode_modified(
    *,
    delivery_failed: bool,
    undeliverable_here: bool,
    message_annotations: dict[Any, Any] | None = None,
) -> bytes:
    """Write the outcome modified."""
    modified = Modified(
        delivery_failed=delivery_failed,
        undeliverable_here=undeliverable_here,
        message_annotations=message_annotations,
    )
    return encode_composite(modified)


# The outcomes that go out with nearly every settlement, encoded once.
ACCEPTED: Final = encode_composite(Accepted())
RELEASED: Final = encode_composite(Released())
# Rejected without an error is how a dead-lettering is confirmed.
REJECTED_PLAIN: Final = encode_rejected(None)
