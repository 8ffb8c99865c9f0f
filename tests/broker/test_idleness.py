"""Idleness: who is neither used nor visited for long enough may be deleted."""

from __future__ import annotations

from peeklock.broker.entities import AttachedLinks
from peeklock.broker.idleness import Idleness
from peeklock.clock import ManualClock
from peeklock.entity.definition import FOREVER_MS
from peeklock.entity.message import NEVER

FIVE_MINUTES = 300_000


def test_being_made_is_the_first_use() -> None:
    idleness = Idleness(1_000)
    assert idleness.deadline(FIVE_MINUTES) == 301_000
    assert not idleness.is_idle(300_999, 0, FIVE_MINUTES)
    assert idleness.is_idle(301_000, 0, FIVE_MINUTES)


def test_every_use_starts_the_wait_anew() -> None:
    idleness = Idleness(1_000)
    idleness.used(200_000)
    idleness.used(150_000)  # a late word about an earlier use changes nothing
    assert not idleness.is_idle(301_000, 0, FIVE_MINUTES)
    assert idleness.is_idle(500_000, 0, FIVE_MINUTES)


def test_nothing_is_idle_that_has_links() -> None:
    idleness = Idleness(1_000)
    assert not idleness.is_idle(900_000, 2, FIVE_MINUTES)
    assert idleness.deadline(FIVE_MINUTES) == 1_200_000
    assert not idleness.is_idle(1_199_999, 0, FIVE_MINUTES)
    assert idleness.is_idle(1_200_000, 0, FIVE_MINUTES)


def test_who_may_stay_for_ever_is_never_idle() -> None:
    idleness = Idleness(1_000)
    assert idleness.deadline(FOREVER_MS) == NEVER
    assert not idleness.is_idle(1 << 60, 0, FOREVER_MS)


def test_a_clock_that_is_set_forward_makes_nobody_idle() -> None:
    """Being idle is a duration: an hour that never passed deletes nothing."""
    clock = ManualClock()
    attached_links = AttachedLinks(clock)
    clock.skip(3_600_000)
    assert not attached_links.is_idle(FIVE_MINUTES)
    clock.advance(FIVE_MINUTES - 1)
    assert not attached_links.is_idle(FIVE_MINUTES)
    attached_links.used()
    assert attached_links.accessed_at == clock.now()  # what is shown is an instant
    clock.skip(3_600_000)
    clock.advance(FIVE_MINUTES - 1)
    assert not attached_links.is_idle(FIVE_MINUTES)
    clock.advance(1)
    assert attached_links.is_idle(FIVE_MINUTES)
