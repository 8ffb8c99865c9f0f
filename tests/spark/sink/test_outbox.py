"""Whatever a broker answers, each parcel is taken once and those of a session are in order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.client.exceptions import (
    MessageSizeExceededError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from peeklock.spark.sink import outbox as outbox_module
from peeklock.spark.sink.outbox import STAGE, Outbox
from peeklock.spark.sink.parcels import Parcel

# What may become of a transfer: it is taken; refused for a while; the connection is lost before
# the broker has it, or after. And what may become of an attach.
TAKEN, BUSY, LOST_BEFORE, LOST_AFTER, AWAY = range(5)


class Rough:
    """A broker that does what a script says, and takes everything when the script has ended.

    It stands in for moments that a real one cannot be made to have on demand.
    """

    def __init__(self, script: list[int]) -> None:
        self.script = list(script)
        # What is there, by stage; without stages under the empty name.
        self.taken: dict[str, list[bytes]] = {}
        self.ids: set[bytes] = set()
        self.most_under_way = 0

    def next(self) -> int:
        return self.script.pop(0) if self.script else TAKEN

    async def open_sender(
        self, address: str, *, properties: dict[Any, Any] | None = None
    ) -> "RoughLink":
        await asyncio.sleep(0)
        if self.script and self.script[0] == AWAY:
            self.script.pop(0)
            raise ServiceBusCommunicationError(f"nobody is at {address}")
        return RoughLink(self, str((properties or {}).get(STAGE, "")))


class RoughLink:
    """A link to it. Answers come later, and in order."""

    max_message_size = 1_000

    def __init__(self, broker: Rough, stage: str) -> None:
        self._broker = broker
        self._stage = stage
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._is_gone = False

    def submit(self, payload: bytes, *, is_batch: bool = False) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._is_gone:
            future.set_exception(ServiceBusConnectionError("the link is gone"))
            return future
        self._waiting.append((payload, future))
        self._broker.most_under_way = max(self._broker.most_under_way, len(self._waiting))
        loop.call_soon(self._answer)
        return future

    def _answer(self) -> None:
        if self._is_gone or not self._waiting:
            return
        payload, future = self._waiting.pop(0)
        what = self._broker.next()
        if what in (TAKEN, LOST_AFTER, AWAY):
            self._take(payload)
        if what in (LOST_BEFORE, LOST_AFTER):
            self._waiting.insert(0, (payload, future))
            self._lose()
        elif what == BUSY:
            future.set_exception(ServiceBusServerBusyError("come again later"))
        elif not future.done():
            future.set_result(None)

    def _take(self, payload: bytes) -> None:
        broker = self._broker
        if not self._stage and payload in broker.ids:
            return  # It remembers ids where there are no stages.
        broker.ids.add(payload)
        broker.taken.setdefault(self._stage, []).append(payload)

    def _lose(self) -> None:
        self._is_gone = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ServiceBusConnectionError("the cable is cut"))
        self._waiting.clear()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._lose()


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


def sent(
    broker: Rough, parcels: list[Parcel], *, staged: bool, deadline_s: float = 60.0
) -> list[bytes]:
    """Send parcels, and give what is published, or there, in the end."""
    names = iter(range(1_000_000))
    stage_name: Callable[[], str] | None = (lambda: f"s{next(names)}") if staged else None

    async def work() -> list[str]:
        box = Outbox(broker, "q", stage_name=stage_name, deadline_s=deadline_s, sleep=no_pause)
        assert await box.size_max() == 1_000
        try:
            for parcel in parcels:
                await box.put(parcel)
            await box.finish()
        except BaseException:
            await box.give_up()
            raise
        return box.stages

    stages = asyncio.run(work())
    if not staged:
        return broker.taken.get("", [])
    return [payload for stage in stages for payload in broker.taken.get(stage, [])]


def parcels_of(sessions: list[str | None]) -> list[Parcel]:
    return [
        Parcel(b"%d" % number, False, 1, frozenset() if name is None else frozenset({name}))
        for number, name in enumerate(sessions)
    ]


scripts = st.lists(
    st.sampled_from([TAKEN, TAKEN, BUSY, LOST_BEFORE, LOST_AFTER, AWAY]), max_size=60
)


@settings(max_examples=300)
@given(scripts, st.lists(st.sampled_from(["a", "b", None]), max_size=40), st.booleans())
def test_each_parcel_is_there_once_and_sessions_are_in_order(
    script: list[int], sessions: list[str | None], staged: bool
) -> None:
    parcels = parcels_of(sessions)
    found = [int(payload) for payload in sent(Rough(script), parcels, staged=staged)]
    assert sorted(found) == list(range(len(parcels)))
    for name in ("a", "b"):
        of_session = [number for number in found if sessions[number] == name]
        assert of_session == sorted(of_session)


@pytest.mark.parametrize("segment", [1, 3])
def test_segments_end_and_only_the_last_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, segment: int
) -> None:
    monkeypatch.setattr(outbox_module, "SEGMENT_BYTES", segment)
    broker = Rough([TAKEN] * 5 + [LOST_AFTER] + [TAKEN] * 20)
    found = sent(broker, parcels_of([None] * 9), staged=True)
    assert sorted(int(payload) for payload in found) == list(range(9))
    everything = sum(len(taken) for taken in broker.taken.values())
    assert everything <= 9 + segment, "no more than a segment was sent twice"


def test_many_are_under_way_but_one_of_a_session() -> None:
    free, bound = Rough([]), Rough([])
    sent(free, parcels_of([None] * 100), staged=True)
    sent(bound, parcels_of(["a"] * 100), staged=True)
    assert free.most_under_way == outbox_module.IN_FLIGHT_MAX
    assert bound.most_under_way == 1


def test_what_stays_wrong_is_raised_at_once() -> None:
    class Refusing(Rough):
        def next(self) -> int:
            raise AssertionError("it is not asked")

        async def open_sender(
            self, address: str, *, properties: dict[Any, Any] | None = None
        ) -> RoughLink:
            raise MessageSizeExceededError("never")

    with pytest.raises(MessageSizeExceededError):
        sent(Refusing([]), parcels_of([None]), staged=False)


@pytest.mark.parametrize("what", [BUSY, LOST_BEFORE])
def test_patience_is_bounded(what: int) -> None:
    with pytest.raises(ServiceBusError):
        sent(Rough([what] * 1_000_000), parcels_of([None]), staged=True, deadline_s=0.05)
