"""Somebody sets the machine's clock while the broker runs, or before it starts again."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import MessageLockLostError
from tests.pressure.conftest import StartBroker
from tests.wire.own_client import run_with, send, take, take_one

COMPILER: Final = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="needs LD_PRELOAD and a C compiler"
)

LOCK_S: Final = 5.0
# While the gap is closed the broker's seconds are a tenth longer; and the machine is busy.
SLOWER: Final = 1 / 0.9
LATE_S: Final = 1.0
HOUR: Final = timedelta(hours=1)
# Short enough for tokens, which end by the clock on the wall.
MINUTES: Final = timedelta(minutes=10)
QUEUES: Final = {"q": {"LockDuration": "PT5S"}, "s": {}}


class Wall:
    """The clock on the wall of the brokers that are started from here on."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        self.set(timedelta(0))

    def set(self, ahead: timedelta) -> None:
        nanoseconds = ahead // timedelta(microseconds=1) * 1_000
        if not self._offset.exists():
            self._offset.write_bytes(bytes(8))
        with self._offset.open("r+b") as file:  # in place: the broker has it mapped
            file.write(struct.pack("=q", nanoseconds))


@pytest.fixture
def wall(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Wall:
    library = tmp_path_factory.mktemp("layer") / "wall.so"
    source = Path(__file__).with_name("wall.c")
    command = [COMPILER or "cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    wall = Wall(tmp_path / "offset")
    monkeypatch.setenv("WALL_OFFSET", str(tmp_path / "offset"))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return wall


def test_a_clock_set_back_holds_up_nothing(start_broker: StartBroker, wall: Wall) -> None:
    """Locks end, schedules come and heartbeats beat, all of it at most a tenth slower."""
    broker = start_broker(queues=QUEUES)

    async def scenario(client: ServiceBusClient) -> None:
        await send(client, "q", "a")
        async with client.get_queue_receiver("q") as receiver:
            await take_one(receiver)
            begun = time.monotonic()
            wall.set(-HOUR)
            due = datetime.now(UTC) + timedelta(seconds=2)
            async with client.get_queue_sender("s") as sender:
                await sender.schedule_messages(ServiceBusMessage("later"), due)
            with broker.raw() as peer:
                peer.open(idle_time_out=1_000)
                for _ in range(3):
                    assert await asyncio.to_thread(peer.next, 2) == (0, None, b"")
            async with client.get_queue_receiver("s") as other:
                await take_one(other)
                assert time.monotonic() - begun < 2 * SLOWER + LATE_S
            again = await take_one(receiver)
            passed_s = time.monotonic() - begun
            assert LOCK_S - 0.1 < passed_s < LOCK_S * SLOWER + LATE_S
            assert again.delivery_count == 1
            assert again.enqueued_time_utc is not None

    run_with(broker.connection_string, scenario)
    assert (
        "clock-set-back by_ms=3600" in broker.log() or "clock-set-back by_ms=3599" in broker.log()
    )


def test_a_clock_set_forward_ends_no_lock(start_broker: StartBroker, wall: Wall) -> None:
    """What is due by the new time comes at once; a lock lasts as long as it was given for."""
    broker = start_broker(queues=QUEUES)

    async def scenario(client: ServiceBusClient) -> None:
        await send(client, "q", "kept", "lost")
        async with client.get_queue_sender("s") as sender:
            due = datetime.now(UTC) + MINUTES / 2
            await sender.schedule_messages(ServiceBusMessage("later"), due)
        async with (
            client.get_queue_receiver("q") as receiver,
            client.get_queue_receiver("s") as other,
        ):
            kept, lost = await take(receiver, 2)
            begun = time.monotonic()
            wall.set(MINUTES)
            await take_one(other)
            assert time.monotonic() - begun < 1 + LATE_S
            await asyncio.sleep(2.5)
            await receiver.complete_message(kept)
            again = await take_one(receiver)
            assert LOCK_S - 0.1 < time.monotonic() - begun < LOCK_S + LATE_S
            assert str(again) == "lost"
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(lost)

    run_with(broker.connection_string, scenario)
    assert "clock-set-forward by_ms=" in broker.log()


def test_after_a_restart_no_instant_is_below_the_journal_s_last(
    start_broker: StartBroker, wall: Wall
) -> None:
    wall.set(MINUTES)
    broker = start_broker(queues=QUEUES)
    run_with(broker.connection_string, lambda client: send(client, "s", "before"))
    broker.process.stop()
    wall.set(timedelta(0))
    broker.process.start()

    async def scenario(client: ServiceBusClient) -> None:
        await send(client, "s", "after")
        async with client.get_queue_receiver("s") as receiver:
            before, after = [each.enqueued_time_utc for each in await take(receiver, 2)]
        assert before is not None
        assert after is not None
        assert before <= after < before + timedelta(minutes=1)

    run_with(broker.connection_string, scenario)
