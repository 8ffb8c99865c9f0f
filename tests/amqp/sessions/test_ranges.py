"""Wide dispositions and detaches: what they cost depends on what they touch; steps are counted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from peeklock.amqp.events import Event, SettlementsReceived
from peeklock.amqp.frames.fast import build_disposition
from peeklock.amqp.frames.headers import SERIAL_MASK
from peeklock.amqp.sessions.delivery import OutgoingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.sessions.settlements import MISSED_MAX, RECEIVED
from peeklock.amqp.sessions.wide_ranges import WideRanges
from peeklock.amqp.values.composites import ACCEPTED, RELEASED
from tests.amqp.engine_pair import Pair, events_of, frame

COUNT = 5_000
FAR = (1 << 31) - 1


class Counting(dict[int, OutgoingDelivery]):
    """Counts the looks into it."""

    steps = 0

    def get(self, key: int, otherwise: Any = None) -> Any:
        self.steps += 1
        return super().get(key, otherwise)

    def __reversed__(self) -> Iterator[int]:
        for key in super().__reversed__():
            self.steps += 1
            yield key

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.steps += 1
            yield key

    def items(self) -> Any:
        self.steps += len(self)
        return super().items()

    def values(self) -> Any:
        self.steps += len(self)
        return super().values()


def counted(session: Session) -> Counting:
    unsettled = Counting(session.outgoing.unsettled)
    session.outgoing.unsettled = session.settling.unsettled = unsettled
    session.settling.wide = WideRanges(unsettled)
    return unsettled


def full(count: int = COUNT) -> tuple[Pair, Link, Counting, list[int]]:
    """A server's link with so much unsettled, and the ids."""
    pair = Pair()
    receiver, sender = pair.receiving(pair.client.begin_session())
    receiver.grant(count + 100)
    pair.exchange()
    unsettled = counted(sender.session)
    ids = [sender.send(b"%016d" % number, b"h", b"b", False, number) for number in range(count)]
    pair.exchange()
    pair.clear()
    unsettled.steps = 0
    return pair, sender, unsettled, ids


def told(pair: Pair, first: int, last: int, state: bytes, settled: bool = False) -> list[Any]:
    performative = build_disposition(True, first, last & SERIAL_MASK, settled, state)
    return touched(pair.server.receive(frame(performative), 0))


def touched(events: list[Event]) -> list[Any]:
    settlements = events_of(events, SettlementsReceived)
    return [delivery.context for event in settlements for delivery in event.deliveries]


def test_a_far_range_walks_nothing() -> None:
    pair, _, unsettled, ids = full()
    assert told(pair, ids[-1] + 1, ids[-1] + FAR, ACCEPTED) == []
    unsettled.steps = 0
    for _ in range(100):
        assert told(pair, ids[-1] + 1, ids[-1] + FAR, ACCEPTED) == []
    assert unsettled.steps <= 100 * (MISSED_MAX + 3)


def test_a_gap_is_walked_once() -> None:
    pair, sender, unsettled, ids = full()
    sender.settle(ids[100:-100], ACCEPTED)
    pair.exchange()
    for _ in range(2):
        assert told(pair, ids[100], ids[-101], ACCEPTED) == []
    unsettled.steps = 0
    for shift in range(100):
        assert told(pair, ids[100 + shift], ids[-101], ACCEPTED) == []
    assert unsettled.steps <= 100 * (MISSED_MAX + 3)
    assert told(pair, ids[0], ids[-1] + FAR // 2, ACCEPTED) == [
        *range(100),
        *range(COUNT - 100, COUNT),
    ]


def test_what_was_said_is_not_walked_again() -> None:
    pair, _, unsettled, ids = full()
    assert told(pair, ids[0], ids[-1] + FAR // 2, ACCEPTED) == list(range(COUNT))
    told(pair, ids[0], ids[-1], RELEASED)
    unsettled.steps = 0
    for _ in range(100):
        told(pair, ids[0], ids[-1], RELEASED)
    assert unsettled.steps <= 100 * (MISSED_MAX + 3)


def test_received_is_no_outcome_and_costs_nothing() -> None:
    pair, _, unsettled, ids = full(10)
    for descriptor in RECEIVED:
        assert told(pair, ids[0], ids[-1], descriptor + b"\x45") == []
    assert unsettled.steps == 0
    assert told(pair, ids[0], ids[-1], ACCEPTED) == list(range(10))


def test_a_settled_range_is_told_once_however_wide() -> None:
    pair, sender, _, ids = full()
    sender.settle(ids[1:-1:2], ACCEPTED)
    expected = [0, *range(2, COUNT, 2), COUNT - 1]
    assert told(pair, ids[0] - 1_000, ids[-1] + 1_000, ACCEPTED, settled=True) == expected
    assert sender.unsettled() == []


def test_wide_ranges_find_what_was_sent_later_and_past_the_wrap() -> None:
    pair = Pair()
    receiver, sender = pair.receiving(pair.client.begin_session())
    receiver.grant(20_000)
    pair.exchange()
    outgoing = sender.session.outgoing
    outgoing.next_delivery_id = outgoing.oldest_id = SERIAL_MASK - 500
    random_source = random.Random(7)
    living: dict[int, int] = {}
    number = 0
    for _ in range(30):
        for _ in range(random_source.randrange(150)):
            sent_id = sender.send(b"%016d" % number, b"h", b"b", False, number)
            living[sent_id] = number
            number += 1
        gone = [each for each in living if random_source.random() < 0.4]
        sender.settle(gone, ACCEPTED)
        for each in gone:
            del living[each]
        pair.server.take_output()
        first = (SERIAL_MASK - 700 + random_source.randrange(1_500)) & SERIAL_MASK
        count = random_source.randrange(2, 3_000)
        within = [n for i, n in living.items() if (i - first) & SERIAL_MASK < count]
        assert sorted(told(pair, first, first + count - 1, ACCEPTED, settled=True)) == within
        living = {i: n for i, n in living.items() if n not in within}


def test_a_detach_touches_its_own_deliveries_only() -> None:
    pair, sender, unsettled, _ = full()
    client_session = pair.client.sessions[0]
    unsettled.steps = 0
    for _ in range(50):
        receiver, other = pair.receiving(client_session, "other")
        receiver.grant(1)
        pair.exchange()
        other.send(b"0123456789abcdef", b"h", b"b", False, "other")
        pair.exchange()
        receiver.detach()
        pair.exchange()
    assert unsettled.steps < COUNT
    assert len(sender.unsettled()) == COUNT


def kept(pair: Pair, sender: Link, ids: list[int]) -> Counting:
    """Lets a link settle for the time being what it sent; gives what is kept, steps counted."""
    settling = sender.session.settling
    counting = settling.kept = Counting()
    settling.wide_kept = WideRanges(counting, in_order=False)
    sender.settle_for_now(ids, ACCEPTED)
    pair.exchange()
    counting.steps = 0
    return counting


def test_what_transactions_keep_is_not_walked_for_others() -> None:
    pair, sender, _, ids = full()
    keeping = kept(pair, sender, ids[:-100])
    for delivery_id in ids[-100:]:
        assert told(pair, delivery_id, delivery_id, ACCEPTED) != []
    assert keeping.steps <= 100
    for _ in range(100):
        told(pair, ids[-1] + 1, ids[-1] + FAR, ACCEPTED)
    assert keeping.steps <= 100 + len(keeping) + 100 * 3


def test_wide_ranges_find_what_is_kept_in_any_order() -> None:
    pair, sender, _, ids = full()
    kept(pair, sender, ids[2_000:3_000])
    assert told(pair, ids[2_000], ids[2_099], RELEASED) == list(range(2_000, 2_100))
    sender.settle_for_now(ids[1_000:1_100], ACCEPTED)
    sender.settle_for_now(ids[2_000:2_100], ACCEPTED)  # what was said went to a transaction
    sender.forget(ids[2_100:2_200])
    pair.exchange()
    expected = [*range(1_000, 1_100), *range(2_000, 2_100), *range(2_200, 2_300)]
    found = told(pair, ids[1_000], ids[2_299], RELEASED, settled=True)
    assert sorted(found) == sorted({*range(1_000, 2_000), *expected})
    assert told(pair, ids[1_000], ids[2_299], RELEASED, settled=True) == []
    assert sorted(sender.session.settling.kept) == ids[2_300:3_000]


def test_a_detach_leaves_alone_what_other_links_await() -> None:
    pair = Pair()
    session = pair.client.begin_session()
    receiver, sender = pair.receiving(session)
    receiver.grant(1_000)
    pair.exchange()
    ids = [sender.send(b"%016d" % n, b"h", b"b", False, n) for n in range(1_000)]
    pair.exchange()
    awaited: Any = Counting()
    session.settling.awaited = awaited
    receiver.settle(ids, ACCEPTED, settled=False)
    pair.exchange()
    for number in range(10):
        other, _ = pair.receiving(session, f"other{number}")
        other.detach()
        pair.exchange()
    assert awaited.steps < 1_000
    assert len(awaited) == 1_000
    receiver.detach()
    assert len(awaited) == 0
