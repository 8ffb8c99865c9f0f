"""Whatever a message holds, the answer is one that HTTP can carry; whatever a head holds is read or
refused."""

from __future__ import annotations

from typing import Any

import h11
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.messages.message import DATA_BODY, VALUE_BODY, encode_message
from peeklock.amqp.messages.message import AmqpMessage as WholeMessage
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.types import Symbol, Timestamp
from peeklock.entity.deliveries import STATE_ACTIVE, Delivery
from peeklock.entity.message import NEVER, Message
from peeklock.gateway.amqp.messages.translate import outgoing
from peeklock.gateway.http.messages.incoming import read_batch, read_message
from peeklock.gateway.http.messages.malformed import MalformedRequest
from peeklock.gateway.http.messages.outgoing import received
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.identifiers import MessageIds
from tests.broker.seeded_random import SeededRandom

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.binary(max_size=20)
    | st.uuids()
    | st.builds(Timestamp, st.integers(-(1 << 63), (1 << 63) - 1))
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = TEXTS | st.sampled_from(["Location", "x-a", "X-A", "Content-Type", "a b", "Connection"])
ASCII = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=20)
IDS = MessageIds(SeededRandom(1).number)


def delivered(content: bytes) -> Delivery:
    message = Message(b"", content)
    return Delivery(1, 2, 3_000, 0, 1_000, NEVER, 0, message, None, STATE_ACTIVE)


def written(delivery: Delivery) -> bytes:
    """The answer as it goes out; h11 refuses what is not HTTP."""
    answer = received(200, delivery, "http://localhost/q/messages/1/2")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.next_event()
    headers = [*answer.headers, ("content-type", answer.content_type)]
    return connection.send(h11.Response(status_code=200, headers=headers)) or b""


@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    TEXTS,
    ASCII | st.text(st.characters(max_codepoint=127), max_size=10),
    VALUES,
)
def test_every_message_can_be_answered_with(
    properties: dict[str, Any], subject: str, content_type: str, body: Any
) -> None:
    for kind, held in ((VALUE_BODY, body), (DATA_BODY, [b"x"])):
        whole = WholeMessage(
            properties=Properties(
                message_id=subject,
                subject=subject,
                content_type=Symbol(content_type),
                content_encoding=Symbol(content_type),
            ),
            application_properties=properties,
            body_kind=kind,
            body=held,
        )
        head = written(delivered(encode_message(whole)))
        names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line]
        assert len(names) == len(set(names))
        assert head.count(b"\r\n\r\n") == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"BrokerProperties", b"UserProperties", b"X", b"Y", b"Content-Type"]),
            st.binary(max_size=40)
            | st.sampled_from([b"{}", b'{"Label": "x"}', b'"', b'""', b'"\\u00"', b"1e5", b"-0"]),
        ),
        max_size=4,
    ),
    st.binary(max_size=40),
    st.booleans(),
)
def test_every_head_is_read_or_refused(
    named: list[tuple[bytes, bytes]], body: bytes, wants_keys: bool
) -> None:
    headers = {name.decode().lower(): raw.decode("latin-1") for name, raw in named}
    request = HttpRequest("POST", "/q/messages", headers, body, named=named)
    try:
        message = read_message(request, 1_000, IDS, wants_keys)
    except MalformedRequest:
        return
    outgoing(delivered(message.content))
    written(delivered(message.content))


@given(st.binary(max_size=60) | TEXTS.map(str.encode))
def test_every_batch_is_read_or_refused(body: bytes) -> None:
    try:
        read_batch(HttpRequest("POST", "/q/messages", {}, body), 1_000, IDS, True)
    except MalformedRequest:
        return
    raise AssertionError("no chance makes a batch")
