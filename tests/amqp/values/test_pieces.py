"""Values in pieces are the same values."""

from __future__ import annotations

from uuid import UUID

import pytest

from peeklock.amqp.events import TransfersReceived
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.pieces import Pieces, encode_pieces
from peeklock.amqp.values.types import Symbol
from tests.amqp.engine_pair import Pair, events_of

LARGE = b"l" * 5_000


def test_values_in_pieces_are_read_as_any_other() -> None:
    value = {"a": [{"m": LARGE}, {"m": b"small"}, []], "b": {Symbol("s"): UUID(int=7)}, "c": None}
    pieces = encode_pieces(value)
    assert decode(b"".join(pieces))[0] == value
    assert any(piece is LARGE for piece in pieces)


def test_what_is_large_is_not_copied() -> None:
    value = {"messages": [{"message": Pieces([b"head", LARGE])} for _ in range(3)]}
    pieces = encode_pieces(value)
    assert sum(piece is LARGE for piece in pieces) == 3
    read = {"messages": [{"message": b"head" + LARGE}] * 3}
    assert decode(b"".join(pieces))[0] == read


@pytest.mark.parametrize("sizes", [[3, 0, 70_000, 1], [200_000, 5], [512], [504] * 700])
def test_a_message_in_parts_comes_whole(sizes: list[int]) -> None:
    """Whatever the cut is: frames end where they are full, and parts where they end."""
    pair = Pair()
    session = pair.client.begin_session()
    pair.exchange()
    receiver, sender = pair.receiving(session)
    receiver.grant(1)
    pair.exchange()
    parts = [bytes([at % 251]) * size for at, size in enumerate(sizes)]
    assert sender.send_parts(b"tag", list(parts))
    assert not sender.send_parts(b"tag", list(parts))  # no credit
    pair.exchange()
    [event] = events_of(pair.client_events, TransfersReceived)
    assert [each.payload for each in event.deliveries] == [b"".join(parts)]
    assert sender.queued == sender.queued_size == 0
