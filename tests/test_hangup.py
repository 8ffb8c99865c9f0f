"""SIGHUP, as a service manager means it and as a terminal that goes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from peeklock.gateway.http.reload import NotReloaded, Reloaded
from peeklock.hangup import Hangup
from tests.broker.broker_harness import until


def run(test: Callable[[], Awaitable[None]]) -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        asyncio.run(asyncio.wait_for(_coroutine(test), 10))
    finally:
        signal.signal(signal.SIGHUP, before)


async def _coroutine(test: Callable[[], Awaitable[None]]) -> None:
    await test()


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def test_a_service_reads_its_configuration_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        stop = asyncio.Event()
        calls: list[str] = []

        async def reload() -> Reloaded:
            calls.append("reload")
            if len(calls) == 2:
                raise NotReloaded("Config.json: it is no JSON")
            return Reloaded(["queue 'q' is new"], ["the namespace 'x' is new"])

        hangup = Hangup(stop, has_terminal=False)
        # Before there is anything, nothing is reloaded, and nobody is killed.
        hang_up()
        await until(lambda: "not started yet" in caplog.text)
        hangup.reload = reload
        hang_up()
        await until(lambda: len(calls) == 1)
        await until(lambda: "queue 'q' is new" in caplog.text)
        assert "reload-needs-restart" in caplog.text
        hang_up()
        await until(lambda: "it is no JSON" in caplog.text)
        assert not stop.is_set()

    run(scenario)


def test_a_terminal_that_goes_ends_it_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        stop = asyncio.Event()
        Hangup(stop, has_terminal=True)
        hang_up()
        await stop.wait()
        assert "peeklock reload" in caplog.text

    run(scenario)


def test_who_was_told_to_outlive_its_terminal_does() -> None:
    """As nohup tells it."""

    async def scenario() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop = asyncio.Event()
        Hangup(stop, has_terminal=True)
        hang_up()
        await asyncio.sleep(0)
        assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    run(scenario)
