"""The reader of claims on a real broker, without Spark around it (R-D1)."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from peeklock.client.exceptions import ClaimFenced, MessagingEntityNotFoundError, ServiceBusError
from peeklock.spark.source.claim_planner import DataLoss
from peeklock.spark.versions import ReadAllAvailable, ReadMaxRows
from tests.spark.source.reading import claim_keeper, claim_reader, read_all
from tests.spark.spark_broker import DEAD_LETTERS, Bus
from tests.wire.broker_process import BrokerProcess

KEEPERS = pytest.mark.parametrize("kept", ["broker", "deferral"])


@KEEPERS
def test_a_batch_is_claimed_read_twice_and_settled(bus: Bus, kept: str) -> None:
    queue = bus.queue()
    bus.send(queue, [f"b-{n}" for n in range(20)])
    reader = claim_reader(bus, queue, ledger=kept, maxMessagesPerTrigger=12)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(12))
    first = read_all(reader, start, end)
    # Another process, after a crash: it has nothing but what Spark wrote down.
    again = pickle.loads(pickle.dumps(reader))
    second = read_all(again, start, end)
    assert [row["body"] for row in first] == [f"b-{n}".encode() for n in range(12)]
    assert first == second
    assert {row["state"] for row in first} == {"claimed" if kept == "broker" else "deferred"}
    after = again.latestOffset(end, ReadMaxRows(12))
    assert len(read_all(again, end, after)) == 8
    assert again.latestOffset(after) == after
    assert bus.peek(queue) == []


@KEEPERS
def test_all_that_is_available_is_one_batch(bus: Bus, kept: str) -> None:
    queue = bus.queue()
    bus.send(queue, [f"b-{n}" for n in range(20)])
    reader = claim_reader(bus, queue, ledger=kept, maxMessagesPerTrigger=7, maxBytesPerTrigger=200)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(read_all(reader, start, end)) == 20
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert bus.peek(queue) == []


@KEEPERS
def test_orphans_of_a_crash_are_the_next_batch(bus: Bus, kept: str) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"])
    lost = claim_reader(bus, queue, ledger=kept, maxMessagesPerTrigger=2)
    start = lost.initialOffset()
    claimed = lost.latestOffset(start)
    reader = claim_reader(bus, queue, ledger=kept)
    assert reader.latestOffset(start) == claimed
    bus.send(queue, ["d"])
    after = reader.latestOffset(claimed)
    assert [row["body"] for row in read_all(reader, claimed, after)] == [b"c", b"d"]
    assert reader.latestOffset(after) == after
    assert bus.peek(queue) == []


@KEEPERS
def test_available_now_reads_no_further(bus: Bus, kept: str) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"])
    reader = claim_reader(bus, queue, ledger=kept, maxMessagesPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    bus.send(queue, ["late"])
    start = reader.initialOffset()
    one = reader.latestOffset(start)
    two = reader.latestOffset(one)
    assert reader.latestOffset(two) == two
    assert bus.bodies(queue) == ["late"]
    assert bus.drain(queue)[0]["DeliveryCount"] == 0


def test_auto_asks_the_broker(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a"])
    reader = claim_reader(bus, queue)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start))
    assert partition.ledger == "broker"


def test_two_attempts_of_a_task_at_once_read_the_same(bus: Bus) -> None:
    """Speculation."""
    queue = bus.queue()
    bus.send(queue, [f"b-{n}" for n in range(300)])
    reader = claim_reader(bus, queue)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start))

    def read(_attempt: int) -> list[bytes]:
        return [row["body"] for one in reader.read(partition) for row in one.to_pylist()]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(read, range(4)))
    assert results == [[f"b-{n}".encode() for n in range(300)]] * 4


def test_time_to_live_waits_while_a_message_is_claimed(bus: Bus) -> None:
    """Expiry between plan and read."""
    queue, other = (bus.queue(DeadLetteringOnMessageExpiration=True) for _ in range(2))
    bus.send(queue, ["a", "b"], ttl_ms=400)
    reader = claim_reader(bus, queue)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    bus.send(other, ["c"], ttl_ms=400)
    while not bus.peek(other + DEAD_LETTERS):
        pass  # What nobody claimed is not over yet, either.
    assert len(read_all(reader, start, end)) == 2
    assert reader.latestOffset(end) == end
    assert bus.peek(queue) == bus.peek(queue + DEAD_LETTERS) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_dead_lettering_between_plan_and_read_is_a_loss_or_not(bus: Bus, fails: str) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"])
    reader = claim_reader(bus, queue, failOnDataLoss=fails)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start))
    claim_keeper(bus, queue).settle([2], "suspended")
    if fails == "true":
        with pytest.raises(DataLoss, match=r"1 messages of .* gone \(2\)"):
            list(reader.read(partition))
    else:
        (batch,) = reader.read(partition)
        assert batch.column("sequence_number").to_pylist() == [1, 3]


def test_a_second_reader_of_the_same_name_fences_the_first(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a"])
    first = claim_reader(bus, queue)
    end = first.latestOffset(first.initialOffset())
    claim_reader(bus, queue).latestOffset(first.initialOffset())
    for ask in (first.latestOffset, first.commit):
        with pytest.raises(ClaimFenced, match=r"another query reads .* one consumerId"):
            ask(end)


def test_ten_thousand_scattered_numbers(bus: Bus) -> None:
    queue = bus.queue()
    for _ in range(3):
        bus.send(queue, ["x"] * 5_000)
    other = claim_keeper(bus, queue, "other")
    other.enter()
    taken = [one.number for _ in range(2) for one in other.claim(10_000, 0, 1, None)]
    assert len(taken) == 15_000
    other.settle(taken[::3], "completed")
    other.settle(other_thirds := [n for n in taken if (n - 1) % 3], "released")
    reader = claim_reader(bus, queue, maxMessagesPerTrigger=10_000)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert len(end["c"]) < 20_000
    assert [row["sequence_number"] for row in read_all(reader, start, end)] == other_thirds
    assert reader.latestOffset(end) == end
    assert bus.peek(queue) == []


def test_bodies_do_not_travel_when_nobody_asks_for_them(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["x" * 100])
    reader = claim_reader(bus, queue, includeBody="false")
    start = reader.initialOffset()
    (row,) = read_all(reader, start, reader.latestOffset(start))
    assert (row["body"], row["message_id"]) == (None, "m-0")


def test_slices_are_by_bytes(bus: Bus) -> None:
    queue = bus.queue()
    for _ in range(10):
        bus.send(queue, ["x" * 100_000] * 2)
    reader = claim_reader(bus, queue, bytesPerPartition="512k", maxBytesPerTrigger="1500k")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert len(reader.partitions(start, end)) == 3
    assert len(read_all(reader, start, end)) == 15


def test_a_broker_that_is_away_is_waited_for(own_broker: Callable[..., BrokerProcess]) -> None:
    process = own_broker()
    bus = Bus(process)
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    reader = claim_reader(bus, queue, maxMessagesPerTrigger=1)
    start = reader.initialOffset()
    one = reader.latestOffset(start)
    process.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.latestOffset, one)
        process.start()  # which takes a while
        two = waiting.result(30)
    assert [row["body"] for row in read_all(reader, one, two)] == [b"b"]


def test_patience_ends(own_broker: Callable[..., BrokerProcess]) -> None:
    process = own_broker()
    bus = Bus(process)
    reader = claim_reader(bus, bus.queue(), retryDeadline="1s")
    process.kill()
    began = time.monotonic()
    with pytest.raises(ServiceBusError):
        reader.latestOffset(reader.initialOffset())
    assert time.monotonic() - began < 10


def test_an_entity_that_is_not_there_fails_at_once(bus: Bus) -> None:
    reader = claim_reader(bus, "not-there")
    began = time.monotonic()
    with pytest.raises(MessagingEntityNotFoundError):
        reader.latestOffset(reader.initialOffset())
    assert time.monotonic() - began < 5


def test_partitions_of_an_entity(bus: Bus) -> None:
    queue = bus.queue(EnablePartitioning=True)
    for first in range(0, 200, 20):
        bus.send(queue, [f"b-{n}" for n in range(first, first + 20)])
    reader = claim_reader(bus, queue, minPartitions=4, maxMessagesPerTrigger=120)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    rows = []
    while (end := reader.latestOffset(start)) != start:
        rows += read_all(reader, start, end)
        start = end
    assert sorted(row["body"].decode() for row in rows) == sorted(f"b-{n}" for n in range(200))
    assert len({row["partition_id"] for row in rows}) > 4
    assert bus.peek(queue) == []


def test_dead_letters_are_claimed_too(bus: Bus) -> None:
    queue = bus.queue(MaxDeliveryCount=1)
    bus.send(queue, ["a", "b"])
    bus.fail(queue, 2)
    reader = claim_reader(bus, queue, subQueue="deadLetter")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    rows = read_all(reader, start, end)
    assert [row["body"] for row in rows] == [b"a", b"b"]
    assert {row["dead_letter_reason"] for row in rows} == {"MaxDeliveryCountExceeded"}
    assert reader.latestOffset(end) == end
    assert bus.peek(queue + DEAD_LETTERS) == []
