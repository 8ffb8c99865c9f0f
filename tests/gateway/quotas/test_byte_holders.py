"""Who holds most is found without a look at everybody each time; looks are counted."""

from __future__ import annotations

import random

from peeklock.amqp.held_bytes import HeldBytes
from peeklock.budgets import Budget
from peeklock.gateway.quotas.byte_holders import REMEMBERED, ByteHolders

COUNT = 2_000


class Somebody:
    looks = 0

    def __init__(self, holders: ByteHolders, used: int) -> None:
        self._holders = holders
        self._held = HeldBytes()
        self._held.take(used)
        holders.enter(self)

    @property
    def held(self) -> HeldBytes:
        Somebody.looks += 1
        return self._held

    def drop_unfinished(self) -> None:
        self._held.give_back(self._held.used // 2)

    def cut_off(self) -> None:
        self._holders.leave(self)
        self._held.give_back(self._held.used)


def test_the_largest_go_one_after_the_other() -> None:
    holders = ByteHolders()
    assert holders.largest() is None
    sizes = list(range(1, 101))
    random.Random(3).shuffle(sizes)
    for size in [0, *sizes]:
        Somebody(holders, size)
    for size in range(100, 0, -1):
        largest = holders.largest()
        assert largest is not None
        assert largest.held.used == size
        largest.cut_off()
    assert holders.largest() is None


def test_who_gives_up_much_is_not_the_largest_any_more() -> None:
    holders = ByteHolders()
    for size in (10, 100, 90):
        Somebody(holders, size)
    found = []
    for _ in range(3):
        largest = holders.largest()
        assert largest is not None
        found.append(largest.held.used)
        largest.drop_unfinished()
    assert found == [100, 90, 50]


def test_everybody_is_looked_at_once_for_many_that_go() -> None:
    holders = ByteHolders()
    for number in range(COUNT):
        Somebody(holders, 1_000 + number)
    Somebody.looks = 0
    for _ in range(REMEMBERED):
        largest = holders.largest()
        assert largest is not None
        largest.cut_off()
    assert Somebody.looks <= COUNT + REMEMBERED * (REMEMBERED + 4)


def test_so_many_go_for_one_at_most() -> None:
    shared = Budget("shared", 1_000)
    shared.take_anyway(1_000)
    went = []
    held = HeldBytes(5_000, shared)

    def make_room() -> bool:
        went.append(1)
        return True  # and yet nothing is free

    held.make_room = make_room
    assert not held.take(1)
    assert len(went) <= 16
