"""The deliveries of one link among those of its session: found by what is its own."""

from random import Random

import pytest

from peeklock.amqp.frames.headers import SERIAL_MASK
from peeklock.amqp.sessions.delivery import OutgoingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.sent_runs import NOTED_MIN, SentRuns
from tests.amqp.sessions.test_session import sender_link


class _Session:
    """The ids of a session with some links; each delivery's context is its link's number."""

    def __init__(self, links: list[Link], first: int) -> None:
        self.links = links
        self.sent = [SentRuns() for _ in links]
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.next = first

    def send(self, which: int, count: int) -> list[int]:
        ids = [(self.next + ahead) & SERIAL_MASK for ahead in range(count)]
        for each in ids:
            self.unsettled[each] = OutgoingDelivery(each, b"", self.links[which], which)
        self.sent[which].add(self.links[which], self.next, count, self.unsettled)
        self.next = (self.next + count) & SERIAL_MASK
        return ids

    def living(self, which: int) -> list[int]:
        return [d.id for d in self.sent[which].living(self.links[which], self.unsettled)]


def _links(count: int) -> list[Link]:
    return [sender_link()[1] for _ in range(count)]


@pytest.mark.parametrize("first", [1, SERIAL_MASK - 20_000, SERIAL_MASK])
def test_it_finds_what_is_unsettled_whatever_was_settled(first: int) -> None:
    random_source = Random(first)
    session = _Session(_links(3), first)
    alive: list[list[int]] = [[], [], []]
    for _ in range(2_000):
        which = random_source.randrange(3)
        alive[which] += session.send(which, random_source.randrange(1, 40))
        for each in (0, 1, 2):
            # The third leaves some behind, the first always its oldest.
            keep = [1, 0, 9][each]
            settled, alive[each] = alive[each][keep:], alive[each][:keep]
            if random_source.random() < 0.2:
                alive[each] += settled
                continue
            for gone in settled:
                del session.unsettled[gone]
    for each in (0, 1, 2):
        assert session.living(each) == alive[each]


def test_what_is_noted_is_bounded_by_what_is_unsettled() -> None:
    session = _Session(_links(2), 7)
    old = session.send(0, 3)
    for _ in range(500):
        ids = session.send(0, 100) + session.send(1, 100)
        for each in ids:
            del session.unsettled[each]
        assert session.sent[0].noted <= NOTED_MIN + 200
        assert session.sent[1].noted <= NOTED_MIN + 200
    assert session.living(0) == old
    assert session.living(1) == []


def test_an_id_that_became_another_links_is_not_taken_for_ones_own() -> None:
    links = _links(2)
    session = _Session(links, 1)
    first, second = session.send(0, 1) + session.send(0, 1)
    session.unsettled[second] = OutgoingDelivery(second, b"", links[1], None)
    assert session.living(0) == [first]
