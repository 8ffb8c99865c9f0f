"""What the broker does for nobody in particular, while everybody wants something of it."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure import servicebus as official
from azure.servicebus.exceptions import OperationTimeoutError

from peeklock.client import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from peeklock.client.exceptions import ServiceBusServerBusyError
from peeklock.client.receiver import ServiceBusReceiver
from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker

MB = 1 << 20


def file_bytes(broker: AbusedBroker, store: str = "store") -> int:
    return sum(path.stat().st_size for path in (Path(broker.process.data) / store).iterdir())


def commits(broker: AbusedBroker) -> tuple[int, dict[float, int]]:
    """The bytes of all commits, and how many there were up to each size."""
    total = 0
    sizes: dict[float, int] = {}
    for (name, labels), value in broker.metrics().items():
        if name == "peeklock_store_commit_bytes_sum":
            total += int(value)
        elif name == "peeklock_store_commit_bytes_bucket":
            sizes[float(dict(labels)["le"])] = int(value)
    return total, sizes


async def steady_load(
    client: ServiceBusClient, queue: str, senders: int, size: int, until_s: float
) -> int:
    """Senders that each wait for their answer, and a reader who takes all; answers the count."""
    sent = 0

    async def send(number: int) -> None:
        nonlocal sent
        async with client.get_queue_sender(queue) as sender:
            while time.monotonic() < until_s:
                one = ServiceBusMessage(b"x" * size, message_id=f"{number}-{sent}-{time.time_ns()}")
                await sender.send_messages(one)
                sent += 1

    reading = asyncio.create_task(_read(client, queue))
    await asyncio.gather(*(send(number) for number in range(senders)))
    reading.cancel()
    return sent


async def _read(client: ServiceBusClient, queue: str) -> None:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    receiver: ServiceBusReceiver
    async with client.get_queue_receiver(queue, receive_mode=mode, prefetch_count=500) as receiver:
        while True:
            await receiver.receive_messages(max_message_count=500, max_wait_time=1)


def budget(broker: AbusedBroker, figure: str) -> float:
    """What the broker tells of the mark for memory."""
    return broker.metrics()[f"peeklock_budget_{figure}", (("budget", "backlog_memory_bytes"),)]


def run(broker: AbusedBroker, work: Callable[[ServiceBusClient], Awaitable[int]]) -> int:
    async def whole() -> int:
        async with ServiceBusClient.from_connection_string(
            broker.connection_string, retry_total=0
        ) as client:
            return await work(client)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("engine", "seconds", "size"),
    # Of segments some hundred MB are spare or half used: to say anything takes more than those.
    [("lmdb", 2.0, 60_000), pytest.param("segments", 20.0, 200_000, marks=pytest.mark.torture)],
)
def test_the_disk_in_use_is_bounded_under_steady_load(
    start_broker: StartBroker, engine: str, seconds: float, size: int
) -> None:
    """Sixty clients waiting on a slow disk left no round for a trim: the file grew without end."""
    retention = ("--journal-retention-bytes", str(4 * MB), "--commit-delay-ms", "5")
    broker = start_broker(queues={"q": {}}, options=(*retention, "--store", engine))
    sizes: list[int] = []

    async def work(client: ServiceBusClient) -> int:
        sent = 0
        for _ in range(3):
            until_s = time.monotonic() + seconds
            sent += await steady_load(client, "q", 60, size, until_s)
            sizes.append(file_bytes(broker))
        return sent

    sent = run(broker, work)
    written = sent * size
    # Retention, 8 MB between two trims, the tail that a checkpoint waits for, pages to be reused.
    bound = 48 * MB
    if engine == "segments":
        bound = 2 * bound + 256 * MB  # files are used again as a whole, and some are spare
    assert written > 1.25 * bound, "not enough was sent to say anything"
    assert sizes[-1] < bound, (sizes, written)


def test_a_backlog_is_refused_at_the_mark_for_memory_and_goes_on_when_there_is_room(
    start_broker: StartBroker,
) -> None:
    """Memory had no limit: a backlog that killed the process killed it again at each opening."""
    broker = start_broker(queues={"q": {}}, options=("--memory-max", str(MB // 2)))

    async def work(client: ServiceBusClient) -> int:
        sent = await until_busy(client, "q")
        assert budget(broker, "used") <= 1.5 * budget(broker, "limit")
        received = 0
        async with client.get_queue_receiver("q", prefetch_count=1_000) as receiver:
            while received < sent:
                messages = await receiver.receive_messages(1_000, max_wait_time=5)
                await asyncio.gather(*(receiver.complete_message(each) for each in messages))
                received += len(messages)
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage(b"again"))
        return sent

    sent = run(broker, work)
    assert 3_000 <= sent <= 5_000, "140 bytes each"
    assert budget(broker, "refused_total") >= 1


async def until_busy(client: ServiceBusClient, queue: str) -> int:
    """Send until the broker is busy; answers how many messages it took."""
    sent = 0
    async with client.get_queue_sender(queue) as sender:
        while sent < 30_000:
            batch = [ServiceBusMessage(b"x") for _ in range(500)]
            try:
                await sender.send_messages(batch)
            except ServiceBusServerBusyError:
                break
            sent += 500
    return sent


class Hang:
    """Which files hang: their syncs wait while a part of their path is named here."""

    def __init__(self, named: Path) -> None:
        self._named = named
        self.set("")

    def set(self, text: str) -> None:
        self._named.write_text(text)


@pytest.fixture
def hang(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Hang:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs LD_PRELOAD and a C compiler")
    library = tmp_path_factory.mktemp("layer") / "hang.so"
    source = Path(__file__).with_name("hang.c")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("HANG", str(tmp_path / "hang"))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return Hang(tmp_path / "hang")


def schedule_within(broker: AbusedBroker, seconds: float) -> str:
    """Schedule with the official client, and give what it says when that takes too long."""
    message = official.ServiceBusMessage(b"scheduled")
    with (
        official.ServiceBusClient.from_connection_string(
            broker.connection_string, retry_total=0
        ) as client,
        client.get_queue_sender("q") as sender,
        pytest.raises(OperationTimeoutError) as raised,
    ):
        sender.schedule_messages(message, datetime.now(UTC), timeout=seconds)
    return str(raised.value)


def test_a_disk_that_hangs_stops_only_its_own_store(start_broker: StartBroker, hang: Hang) -> None:
    """A commit on the loop stopped everybody as long as its disk hung."""
    broker = start_broker(queues={"q": {}}, options=("--stores", "2"))

    async def work(client: ServiceBusClient) -> int:
        async with client.get_queue_sender("q") as sender:
            for _ in range(50):  # commits are quick
                await sender.send_messages(ServiceBusMessage(b"x"))
            hang.set("/store-2/")
            waits = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"late")))
            # The broker's own word, a second before the client gives up.
            told = await asyncio.to_thread(schedule_within, broker, 4.0)
            assert "did not complete within the allotted timeout of 00:00:0" in told
            is_waiting = not waits.done()
            hang.set("")
            await waits
            return is_waiting

    with broker.pressed():
        assert run(broker, work), "its own store hangs"


def test_states_of_sessions_are_written_again_in_small_steps_and_not_often(
    start_broker: StartBroker,
) -> None:
    """Each checkpoint wrote all of them in one chunk: 300 MB for 3,000 states of 100 KB."""
    broker = start_broker(queues={"s": {"RequiresSession": True}})
    count, size, times = 120, 100_000, 3

    async def set_states(client: ServiceBusClient, number: int) -> None:
        async with client.get_queue_receiver("s", session_id=f"s{number}") as receiver:
            for _ in range(times):
                await receiver.session.set_state(b"x" * size)

    async def work(client: ServiceBusClient) -> int:
        for begin in range(0, count, 20):
            await asyncio.gather(*(set_states(client, begin + each) for each in range(20)))
        return 0

    run(broker, work)
    total, sizes = commits(broker)
    set_bytes = count * size * times
    assert set_bytes <= total <= 2 * set_bytes + 4 * MB, "checkpoints write less than the journal"
    assert total > 1.1 * set_bytes, "there was one"
    assert sizes[4 * MB] == sizes[float("inf")], "no commit is larger than 4 MB"
