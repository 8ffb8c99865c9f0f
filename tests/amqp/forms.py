"""Any composite of any table, for Hypothesis."""

from typing import Any

from hypothesis import strategies as st

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.frames.states import Accepted, Modified, Received, Released
from peeklock.amqp.frames.termini import Coordinator, Source, Target
from peeklock.amqp.values.forms import ANY, Field, Form
from peeklock.amqp.values.types import Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort
from tests.amqp.any_values import ascii_texts, keys, scalars, signed, texts, unsigned

states: st.SearchStrategy[Any] = st.one_of(
    st.just(Accepted()),
    st.just(Released()),
    st.builds(Modified, delivery_failed=st.booleans(), undeliverable_here=st.booleans()),
    st.builds(Received, section_number=unsigned(32), section_offset=unsigned(64)),
)
_KINDS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    Ubyte: unsigned(8),
    Ushort: unsigned(16),
    Uint: unsigned(32),
    Ulong: unsigned(64),
    Timestamp: signed(64),
    str: texts,
    Symbol: ascii_texts,
    bytes: st.binary(max_size=40),
    dict: st.dictionaries(keys, scalars.filter(lambda value: value == value), max_size=3),
    ANY: st.one_of(states, texts, unsigned(64).map(Ulong), st.uuids()),
    (AmqpError,): st.builds(AmqpError, ascii_texts, st.none() | texts),
    (Source,): st.builds(Source, address=texts, outcomes=st.none() | st.lists(ascii_texts)),
    (Target, Coordinator): st.builds(Target, address=texts) | st.just(Coordinator()),
}


def field_values(row: Field) -> st.SearchStrategy[Any]:
    """Gives what an attribute of this row may hold when it is set."""
    return st.lists(ascii_texts, max_size=3) if row.multiple else _KINDS[row.kind]


@st.composite
def composites(draw: st.DrawFn, form: Form) -> Any:
    """Gives a value of one table in which any field that may be absent sometimes is."""
    given: dict[str, Any] = {}
    for row in form.fields:
        if row.required or draw(st.booleans()):
            given[row.attribute] = draw(field_values(row))
    return form.value_class(**given)
