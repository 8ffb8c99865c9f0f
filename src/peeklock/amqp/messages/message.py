"""Messages as values, for those who read and write whole ones: $management, $cbs, tests, clients.

The hot path never comes here. It uses `sections`, `annotations` and `properties`, which read what
they need from a message's bytes and hand the rest on untouched.
"""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_at,
    split,
)
from peeklock.amqp.values.codec import ElementBudget, budget_for, decode
from peeklock.amqp.values.composites import composite_of, described_of
from peeklock.amqp.values.encoder import encode_into
from peeklock.amqp.values.types import Described, Ulong

# What kind of body a message has; the numbers are the sections' own.
NO_BODY: Final = 0
DATA_BODY: Final = DATA
SEQUENCE_BODY: Final = SEQUENCE
VALUE_BODY: Final = VALUE


@final
@dataclass(slots=True, init=False)
class AmqpMessage:
    """A whole message, decoded: None for a section that is not there.

    The body of DATA is a list of bytes and that of SEQUENCE a list of lists, one for each section;
    the body of VALUE is the value itself.
    """

    header: Final[Header | None]
    delivery_annotations: Final[dict[Any, Any] | None]
    message_annotations: Final[dict[Any, Any] | None]
    properties: Final[Properties | None]
    application_properties: Final[dict[Any, Any] | None]
    body_kind: Final[int]
    body: Final[Any]
    footer: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        header: Header | None = None,
        delivery_annotations: dict[Any, Any] | None = None,
        message_annotations: dict[Any, Any] | None = None,
        properties: Properties | None = None,
        application_properties: dict[Any, Any] | None = None,
        body_kind: int = VALUE_BODY,
        body: Any = None,
        footer: dict[Any, Any] | None = None,
    ) -> None:
        self.header = header
        self.delivery_annotations = delivery_annotations
        self.message_annotations = message_annotations
        self.properties = properties
        self.application_properties = application_properties
        self.body_kind = body_kind
        self.body = body
        self.footer = footer


def decode_message(payload: bytes, budget: ElementBudget | None = None) -> AmqpMessage:
    """Decode every section of a message."""
    split(payload)  # It refuses what may not be there twice.
    purse = budget or budget_for(len(payload))
    found: dict[int, Any] = {}
    several: list[Any] = []
    at = 0
    end = len(payload)
    while at < end:
        code, value_at, after = section_at(payload, at, end)
        value, _ = decode(payload, value_at, after, purse)
        if code in (DATA, SEQUENCE):
            several.append(value)
            value = several
        found[code] = value
        at = after
    kinds = [kind for kind in (DATA, SEQUENCE, VALUE) if kind in found]
    kind = kinds[0] if kinds else NO_BODY
    return AmqpMessage(
        header=_composite(HEADER, found),
        delivery_annotations=found.get(DELIVERY_ANNOTATIONS),
        message_annotations=found.get(MESSAGE_ANNOTATIONS),
        properties=_composite(PROPERTIES, found),
        application_properties=found.get(APPLICATION_PROPERTIES),
        body_kind=kind,
        body=found.get(kind),
        footer=found.get(FOOTER),
    )


def encode_message(message: AmqpMessage) -> bytes:
    """Write every section of a message that it has, in the order of the specification."""
    out = bytearray()
    if message.header is not None:
        encode_into(out, described_of(message.header))
    _write_section(out, DELIVERY_ANNOTATIONS, message.delivery_annotations)
    _write_section(out, MESSAGE_ANNOTATIONS, message.message_annotations)
    if message.properties is not None:
        encode_into(out, described_of(message.properties))
    _write_section(out, APPLICATION_PROPERTIES, message.application_properties)
    if message.body_kind == VALUE_BODY:
        encode_into(out, Described(Ulong(VALUE), message.body))
    elif message.body_kind != NO_BODY:
        for part in message.body:
            encode_into(out, Described(Ulong(message.body_kind), part))
    _write_section(out, FOOTER, message.footer)
    return bytes(out)


def _composite(code: int, found: dict[int, Any]) -> Any:
    value = found.get(code)
    return None if value is None else composite_of(Described(Ulong(code), value))


def _write_section(out: bytearray, code: int, value: dict[Any, Any] | None) -> None:
    if value is not None:
        encode_into(out, Described(Ulong(code), value))
