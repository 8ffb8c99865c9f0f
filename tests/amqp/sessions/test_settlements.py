"""Settlements for the time being: told as settled, and still open to another outcome."""

from __future__ import annotations

import pytest

from peeklock.amqp.events import (
    AnswersReceived,
    SettlementsReceived,
    StrayReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.states import Accepted, TransactionalState
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED, REJECTED_PLAIN, RELEASED, encode_composite
from tests.amqp.engine_pair import Pair, events_of


def sent(pair: Pair, count: int) -> tuple[Link, Link, list[int]]:
    """The client's end of a link, the server's, and what the server has sent on it."""
    receiver, sender = pair.receiving(pair.client.begin_session())
    receiver.grant(count)
    pair.exchange()
    for number in range(count):
        sender.send(b"t%d" % number, b"h", b"b", False, number)
    pair.exchange()
    (arrived,) = events_of(pair.client_events, TransfersReceived)
    return receiver, sender, [delivery.id for delivery in arrived.deliveries]


def told(pair: Pair) -> list[int]:
    """The numbers of the messages that the client has told an outcome of since the last look."""
    events = events_of(pair.server_events, SettlementsReceived)
    pair.clear()
    return [delivery.context for event in events for delivery in event.deliveries]


def test_a_delivery_takes_another_outcome_until_it_is_forgotten() -> None:
    pair = Pair()
    receiver, sender, ids = sent(pair, 3)
    receiver.settle(ids, ACCEPTED, settled=False)
    pair.exchange()
    assert told(pair) == [0, 1, 2]
    sender.settle_for_now(ids, ACCEPTED)
    pair.exchange()
    (answer,) = events_of(pair.client_events, AnswersReceived)
    assert answer.ids == ids
    assert sender.unsettled() == []
    sender.forget(ids[2:])
    receiver.settle(ids, RELEASED, settled=False)
    pair.exchange()
    assert told(pair) == [0, 1]
    # One is settled for good, the other once more for the time being.
    sender.settle(ids[:1], RELEASED)
    sender.settle_for_now(ids[1:2], RELEASED)
    pair.exchange()
    receiver.settle(ids, ACCEPTED, settled=False)
    pair.exchange()
    assert told(pair) == [1]


def test_answers_find_what_is_awaited_one_by_one_and_in_ranges() -> None:
    pair = Pair()
    receiver, sender, ids = sent(pair, 9)
    receiver.settle(ids[:8], ACCEPTED, settled=False)
    pair.exchange()
    for answered in (ids[5:6], ids[:2], ids[2:5] + ids[6:]):
        pair.clear()
        # The last range is wider than what is awaited, and has one that nobody waits for.
        sender.settle(answered, ACCEPTED)
        pair.exchange()
        events = events_of(pair.client_events, AnswersReceived)
        found = [delivery_id for event in events for delivery_id in event.ids]
        assert found == [delivery_id for delivery_id in answered if delivery_id != ids[8]]


def test_an_outcome_that_comes_settled_ends_it() -> None:
    pair = Pair()
    receiver, sender, ids = sent(pair, 2)
    sender.settle_for_now(ids, ACCEPTED)
    for expected in ([0, 1], []):
        receiver.settle(ids, RELEASED, settled=True)
        pair.exchange()
        assert told(pair) == expected


@pytest.mark.parametrize("end", ["link", "session"])
def test_what_is_kept_goes_with_its_link(end: str) -> None:
    pair = Pair()
    _, sender, ids = sent(pair, 2)
    sender.settle_for_now(ids, ACCEPTED)
    settling = sender.session.settling
    assert sorted(settling.kept) == ids
    if end == "link":
        sender.detach()
    else:
        sender.session.end()
    pair.exchange()
    assert not settling.kept
    # A link that is gone takes every call and does nothing.
    sender.settle_for_now(ids, ACCEPTED)
    sender.forget(ids)
    assert not settling.kept


@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_transactional_outcome_for_unknown_deliveries_is_told(known: int) -> None:
    """Plain outcomes that name them beside others are common and mean nothing."""
    pair = Pair()
    receiver, sender, ids = sent(pair, 2)
    sender.settle(ids[known:], ACCEPTED)
    for state in (ACCEPTED, RELEASED, b""):
        receiver.settle(ids, state, settled=state == RELEASED and not known)
    pair.exchange()
    strays = events_of(pair.server_events, StrayReceived)
    assert [stray.outcome for stray in strays] == ([] if known else [ACCEPTED])
    pair.clear()
    within = encode_composite(TransactionalState(txn_id=b"t", outcome=Accepted()))
    receiver.settle(ids, within, settled=False)
    pair.exchange()
    strays = events_of(pair.server_events, StrayReceived)
    assert [stray.outcome for stray in strays] == ([] if known == 2 else [within])
    assert told(pair) == list(range(known))


def test_who_settles_what_is_settled_gets_an_answer() -> None:
    pair = Pair()
    receiver, sender, ids = sent(pair, 3)
    sender.settle(ids, ACCEPTED)
    pair.exchange()
    pair.clear()
    receiver.settle(ids[1:], RELEASED, settled=False)
    pair.exchange()
    (stray,) = events_of(pair.server_events, StrayReceived)
    assert (stray.first, stray.count, stray.is_awaited) == (ids[1], 2, True)
    stray.session.settling.answer(stray.first, stray.count, REJECTED_PLAIN)
    pair.exchange()
    answers = events_of(pair.client_events, AnswersReceived)
    assert [(each.state, each.ids) for each in answers] == [(REJECTED_PLAIN, ids[1:])]
    # Of a session that is over nothing is said.
    stray.session.end()
    stray.session.settling.answer(stray.first, stray.count, REJECTED_PLAIN)
    pair.exchange()


def test_what_was_never_sent_has_no_answer() -> None:
    pair = Pair()
    receiver, sender, ids = sent(pair, 3)
    sender.settle(ids, ACCEPTED)
    pair.exchange()
    pair.clear()
    behind, ahead = ids[-1] + 1, (ids[0] - 1) & 0xFFFFFFFF
    for unknown in ([behind], [ids[-1], behind], [ahead]):
        receiver.settle(unknown, ACCEPTED, settled=False)
        pair.exchange()
    assert events_of(pair.server_events, StrayReceived) == []
