"""Log lines that unauthenticated peers can cause: a few of each kind, and how many more."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from peeklock.gateway import logbook
from peeklock.gateway.logbook import Sparing

NAME = "peeklock.tests.sparing"


def run(
    caplog: pytest.LogCaptureFixture, test: Callable[[Sparing, list[float]], None]
) -> list[str]:
    caplog.set_level(logging.INFO, NAME)
    now = [100.0]

    async def whole() -> None:
        log = Sparing(logging.getLogger(NAME), lines_max=2, interval_s=5.0, now=lambda: now[0])
        test(log, now)

    asyncio.run(whole())
    return [record.getMessage() for record in caplog.records]


def test_a_line_is_an_event_with_its_facts() -> None:
    assert logbook.line("gone", peer="a:1", text="no\nroom", count=3, other=None) == (
        'gone peer=a:1 text="no\\nroom" count=3'
    )


def test_a_flood_is_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    def flood(log: Sparing, now: list[float]) -> None:
        for number in range(10):
            log.write(logging.INFO, "refused", number=number)
        log.write(logging.WARNING, "another", number=0)
        now[0] += 5.0
        log.write(logging.INFO, "refused", number=10)

    assert run(caplog, flood) == [
        "refused number=0",
        "refused number=1",
        "another number=0",
        "refused more=8",
        "refused number=10",
    ]


def test_a_flood_that_ends_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)

    async def whole() -> None:
        log = Sparing(logging.getLogger(NAME), lines_max=1, interval_s=0.01, now=lambda: 5.0)
        for number in range(5):
            log.write(logging.INFO, "refused", number=number)
        told = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, told.set)
        await told.wait()

    asyncio.run(whole())
    assert [record.getMessage() for record in caplog.records] == [
        "refused number=0",
        "refused more=4",
    ]


def test_kinds_are_counted_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    def flood(log: Sparing, now: list[float]) -> None:
        for _ in range(3):
            log.write(logging.INFO, "refused", kind="busy")
        log.write(logging.INFO, "refused", kind="unauthorized")
        now[0] += 5.0
        log.write(logging.INFO, "refused", kind="busy")

    assert run(caplog, flood) == [
        "refused kind=busy",
        "refused kind=busy",
        "refused kind=unauthorized",
        "refused kind=busy more=1",
        "refused kind=busy",
    ]


def test_without_a_loop_the_next_line_tells_the_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    now = [0.0]
    log = Sparing(logging.getLogger(NAME), lines_max=1, interval_s=5.0, now=lambda: now[0])
    for _ in range(3):
        log.write(logging.INFO, "refused")
    now[0] = 6.0
    log.write(logging.INFO, "refused")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["refused", "refused more=2", "refused"]


def test_what_is_not_logged_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    def flood(log: Sparing, _now: list[float]) -> None:
        for _ in range(10):
            log.write(logging.DEBUG, "refused")

    assert run(caplog, flood) == []
