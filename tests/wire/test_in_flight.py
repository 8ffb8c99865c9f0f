"""Thousands of messages at once: the tests that keep a processor busy, one after the other."""

from itertools import chain

from tests.wire.clients import (
    Bus,
    assert_nothing_comes,
    by_partition,
    peek_all,
    place,
    receive,
    send_many,
)
from tests.wire.entities import PARTITIONED

# Over partitions it is seen with fewer, because it takes so long.
IN_FLIGHT = 2_000 if PARTITIONED else 5_000


def test_thousands_of_messages_in_flight_on_one_receiver(bus: Bus, queue: str) -> None:
    """R-F4, R-S2: 5,000 messages held by one link, each locked, each settled by itself."""
    send_many(bus, queue, IN_FLIGHT)

    with bus.receiver(queue, prefetch_count=IN_FLIGHT) as receiver, bus.receiver(queue) as other:
        messages = receive(receiver, IN_FLIGHT, within_s=60)
        sent = by_partition(messages, lambda message: int(message.message_id or -1))
        assert all(ids == sorted(ids) for ids in sent.values())
        assert sorted(chain(*sent.values())) == list(range(IN_FLIGHT))
        assert len({message.lock_token for message in messages}) == IN_FLIGHT
        assert_nothing_comes(other)
        # From both ends and across the middle, so that the answers are not one neat range.
        for message in [*messages[::-2], *messages[::2]]:
            receiver.complete_message(message)
        assert peek_all(other) == []


def test_the_credit_of_a_large_cache_is_topped_up(bus: Bus, queue: str) -> None:
    """R-F4: a cache of 100 carries a thousand messages, as it is emptied and filled again."""
    send_many(bus, queue, 1000)

    with bus.receiver(queue, prefetch_count=100) as receiver:
        messages = receive(receiver, 1000, within_s=60)

    assert [place(message) for message in messages] == list(range(1, 1001))
