"""Implicit batching (R-F2), and failures that nobody waits for (R-T7)."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peeklock.client.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from peeklock.client.message import ServiceBusMessage
from peeklock.client.reporting import Outcome, Reporting
from peeklock.client.sending.batching import WINDOW, CompleteBatching, SendBatching
from peeklock.client.sending.buffer import (
    PENDING_BYTES_MAX,
    PENDING_MESSAGES_MAX,
    Buffered,
    SendBuffer,
)
from tests.amqp.batches import batch_messages

HOUR_S = 3600.0
SOON_S = 0.001


class Line:
    """Takes what is sent, and answers when it is told to, or at once."""

    def __init__(self, *, answers: bool = True) -> None:
        self.sent: list[list[bytes]] = []
        self.refuses: Callable[[list[bytes]], ServiceBusError | None] = lambda _: None
        self.waiting: list[asyncio.Future[None]] = []
        self._answers = answers

    async def send(self, payload: bytes, is_batch: bool) -> None:
        messages = batch_messages(payload) if is_batch else [payload]
        self.sent.append(messages)
        if not self._answers:
            waiting = asyncio.get_running_loop().create_future()
            self.waiting.append(waiting)
            await waiting
        if error := self.refuses(messages):
            raise error

    @property
    def counts(self) -> list[int]:
        return [len(messages) for messages in self.sent]


def batching(
    line: Line,
    interval_s: float,
    *,
    size_max: int = 1000,
    reporting: Reporting | None = None,
    buffer: SendBuffer | None = None,
) -> SendBatching:
    return SendBatching(
        line.send,
        lambda: size_max,
        interval_s,
        reporting or Reporting(),
        buffer or SendBuffer(PENDING_MESSAGES_MAX, PENDING_BYTES_MAX),
    )


def buffered(target: SendBatching, *bodies: str, key: str | None = None) -> list[Buffered]:
    return [target.put(body, ServiceBusMessage(body).encoded(), key) for body in bodies]


def put(target: SendBatching, *bodies: str, key: str | None = None) -> list[Outcome]:
    return [each.outcome for each in buffered(target, *bodies, key=key)]


async def turns(count: int = 9) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_what_is_given_together_leaves_together() -> None:
    """R-F2."""

    async def test() -> None:
        line = Line()
        await asyncio.gather(*put(batching(line, SOON_S), "a", "b", "c"))
        assert line.counts == [3]

    run(test)


def test_an_interval_of_zero_is_off() -> None:
    """R-F2."""

    async def test() -> None:
        line = Line()
        await asyncio.gather(*put(batching(line, 0), "a", "b", "c"))
        assert line.counts == [1, 1, 1]

    run(test)


def test_a_batch_that_is_full_does_not_wait() -> None:
    async def test() -> None:
        line = Line()
        target = batching(line, HOUR_S, size_max=100)
        put(target, *("x" * 30 for _ in range(5)))
        await turns()
        # Two fit. The fifth leaves when the others are answered.
        assert line.counts == [2, 2, 1]

    run(test)


def test_on_a_busy_line_the_next_batch_fills_and_leaves_with_the_answer() -> None:
    """R-F2: without waiting for the interval."""

    async def test() -> None:
        line = Line(answers=False)
        target = batching(line, HOUR_S)
        put(target, "a")
        target.push()
        await turns()
        outcomes = put(target, "b", "c", "d")
        await turns()
        assert line.counts == [1]
        line.waiting.pop().set_result(None)
        await turns()
        assert line.counts == [1, 3]
        line.waiting.pop().set_result(None)
        await asyncio.gather(*outcomes)

    run(test)


def test_only_so_many_full_batches_are_under_way() -> None:
    async def test() -> None:
        line = Line(answers=False)
        target = batching(line, HOUR_S, size_max=50)
        outcomes = put(target, *("x" * 30 for _ in range(WINDOW + 3)))
        await turns()
        assert len(line.sent) == WINDOW
        while not all(outcome.done() for outcome in outcomes):
            for waiting in line.waiting:
                waiting.cancel() if waiting.done() else waiting.set_result(None)
            line.waiting.clear()
            await turns()
        assert sum(line.counts) == WINDOW + 3

    run(test)


def test_what_is_due_leaves_with_the_first_answer_not_with_the_last() -> None:
    async def test() -> None:
        line = Line(answers=False)
        target = batching(line, SOON_S, size_max=50)
        put(target, *("x" * 30 for _ in range(WINDOW)))
        [last] = put(target, "due")
        loop = asyncio.get_running_loop()
        passed = loop.create_future()
        loop.call_later(10 * SOON_S, passed.set_result, None)
        await passed
        assert len(line.sent) == WINDOW
        line.waiting[0].set_result(None)
        await turns()
        assert len(line.sent) == WINDOW + 1
        line.waiting[-1].set_result(None)
        await last
        for waiting in line.waiting[1:-1]:
            waiting.set_result(None)
        await target.flush()

    run(test)


def test_a_message_larger_than_a_batch_goes_by_itself_and_in_order() -> None:
    async def test() -> None:
        line = Line()
        target = batching(line, HOUR_S, size_max=100)
        put(target, "first", "x" * 200, "last")
        await target.flush()
        assert [b"first" in line.sent[0][0], b"xx" in line.sent[1][0]] == [True, True]
        assert line.counts == [1, 1, 1]

    run(test)


def test_one_that_is_refused_does_not_fail_the_others() -> None:
    """A refused batch is sent again message by message."""

    def refuses(messages: list[bytes]) -> ServiceBusError | None:
        bad = any(b"bad" in message for message in messages)
        return ServiceBusError("no", condition="amqp:not-allowed") if bad else None

    async def test() -> None:
        line = Line()
        line.refuses = refuses
        outcomes = put(batching(line, SOON_S), "good", "bad", "fine")
        results = await asyncio.gather(*outcomes, return_exceptions=True)
        assert [str(result) for result in results] == ["None", "no", "None"]
        assert line.counts == [3, 1, 1, 1]

    run(test)


@pytest.mark.parametrize(
    "error", [ServiceBusConnectionError("gone"), MessagingEntityNotFoundError("none")]
)
def test_what_is_wrong_for_all_is_not_tried_one_by_one(error: ServiceBusError) -> None:
    async def test() -> None:
        line = Line()
        line.refuses = lambda _: error
        results = await asyncio.gather(
            *put(batching(line, SOON_S), "a", "b"), return_exceptions=True
        )
        assert results == [error, error]
        assert line.counts == [2]

    run(test)


def test_an_entity_that_refuses_mixed_keys_gets_one_key_per_batch() -> None:
    def refuses(messages: list[bytes]) -> ServiceBusError | None:
        mixed = len({message[-1] for message in messages}) > 1
        return ServiceBusError("keys", condition="amqp:not-allowed") if mixed else None

    async def test() -> None:
        line = Line()
        line.refuses = refuses
        target = batching(line, HOUR_S)
        for _ in range(2):
            line.sent.clear()
            for key in ("1", "2", "1", "2"):
                put(target, key, key=key)
            await target.flush()
        assert line.counts == [2, 2]

    run(test)


def fails(_: list[bytes]) -> ServiceBusError:
    return ServiceBusError("no room")


def test_failures_beyond_those_that_are_kept_are_raised_too() -> None:
    async def test() -> None:
        reporting = Reporting()
        outcomes = [Outcome(loop=asyncio.get_running_loop()) for _ in range(200)]
        for number, outcome in enumerate(outcomes):
            reporting.fail(outcome, None, ServiceBusError(f"number {number}"))
        for outcome in outcomes[:100]:
            with pytest.raises(ServiceBusError):
                await outcome
        with pytest.raises(ServiceBusError, match="number 100") as caught:
            reporting.raise_first()
        assert caught.value.__notes__ == ["and 99 more that nobody waited for"]
        reporting.raise_first()

    run(test)


def test_a_failure_that_nobody_awaits_is_raised_by_flush_and_told_to_the_loop() -> None:
    """R-T7."""

    async def test() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        line = Line()
        line.refuses = fails
        reporting = Reporting()
        target = batching(line, HOUR_S, reporting=reporting)
        put(target, "a", "b", "c")
        await target.flush()
        gc.collect()
        assert len(told) == 3
        assert "never retrieved" in told[0]["message"]
        with pytest.raises(ServiceBusError, match="no room") as caught:
            reporting.raise_first()
        assert caught.value.__notes__ == ["and 2 more that nobody waited for"]
        # Told once.
        reporting.raise_first()

    run(test)


def test_a_failure_that_nobody_awaits_is_told_to_the_callback() -> None:
    """R-T7: and then to nobody else."""

    async def test() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        failed: list[tuple[Any, str]] = []
        reporting = Reporting(lambda message, error: failed.append((message, str(error))))
        line = Line()
        line.refuses = fails
        target = batching(line, 0, reporting=reporting)
        put(target, "a", "b")
        await target.flush()
        reporting.raise_first()
        assert failed == [("a", "no room"), ("b", "no room")]
        gc.collect()
        assert told == []

    run(test)


def test_a_failure_that_somebody_awaits_is_theirs_alone() -> None:
    async def test() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        failed: list[Any] = []
        line = Line()
        line.refuses = fails
        for reporting in (Reporting(lambda message, _: failed.append(message)), Reporting()):
            [outcome] = put(batching(line, SOON_S, reporting=reporting), "a")
            with pytest.raises(ServiceBusError, match="no room"):
                await outcome
            reporting.raise_first()
        assert failed == told == []

    run(test)


def test_a_callback_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def callback(_message: Any, _error: Exception) -> None:
            raise RuntimeError("broken callback")

        line = Line()
        line.refuses = fails
        target = batching(line, 0, reporting=Reporting(callback))
        outcomes = put(target, "a", "b")
        await target.flush()
        assert all(outcome.done() for outcome in outcomes)

    run(test)
    assert "broken callback" in caplog.text


def test_completes_travel_together_and_fail_alone() -> None:
    """R-F2."""

    async def test() -> None:
        writes: list[list[str]] = []

        def complete(messages: list[str]) -> list[asyncio.Future[None]]:
            if messages:
                writes.append(messages)
            return [answer(message) for message in messages]

        def answer(message: str) -> asyncio.Future[None]:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if message == "late":
                future.set_exception(MessageLockLostError("lost"))
            else:
                future.set_result(None)
            return future

        target = CompleteBatching(complete, SOON_S, 3, Reporting())
        results = await asyncio.gather(
            *(target.put(message) for message in ("a", "late", "b", "c")), return_exceptions=True
        )
        assert writes == [["a", "late", "b"], ["c"]]
        assert [str(result) for result in results] == ["None", "lost", "None", "None"]

        off = CompleteBatching(complete, 0, 3, Reporting())
        writes.clear()
        off.put("a")
        off.put("b")
        await off.flush()
        assert writes == [["a"], ["b"]]

    run(test)
