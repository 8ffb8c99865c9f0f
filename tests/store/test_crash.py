"""SIGKILL in the middle of commits: what was answered is there, and nothing is half there."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peeklock.entity.records import Enqueued
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId, Store
from tests.store.builders import message_of, shown
from tests.store.stores import replayed

PARTITIONS = 3

# Opens the partitions, appends runs of messages to all of them, tells each append that returned,
# and now and then writes a checkpoint and trims what lies before the last but one.
WRITER = """
import asyncio, pathlib, random, sys
from peeklock.entity.records import CheckpointBegun
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.retention import Retention
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId
from tests.store.builders import enqueued
from tests.store.stores import replayed

ENGINES = {
    "embedded": lambda directory: LmdbStore(directory, retention=Retention(age_ms=1)),
    "segments": lambda directory: SegmentStore(
        directory, retention=Retention(age_ms=1), segment_bytes=64 << 10, lag_s=0.02
    ),
}

async def feed(store, number, chance, keep, often):
    partition = PartitionId("default", "queue", number)
    opening = await store.open(partition)
    end = 1
    async for replay in opening.replays:
        end = replay.first_position + sum(
            len(getattr(record, "messages", "x")) for record in replay.records
        )
    while True:
        count = chance.randrange(1, 40)
        await store.append(partition, opening.epoch, end, [enqueued(5, end, count, 700)])
        end += count
        print(number, end, flush=True)
        if chance.random() < often:
            begun = [CheckpointBegun(5, end)]
            await store.append(partition, opening.epoch, end, begun, replay_from=end)
            end += 1
            print(number, end, flush=True)
            await store.trim(partition, end - 50, keep, now=10)

async def main():
    kind = sys.argv[3]
    store = ENGINES[kind](pathlib.Path(sys.argv[1]))
    seed = int(sys.argv[2])
    # Segments are to be used again, so that nothing holds them for long.
    keep, often = ([], 0.2) if kind == "segments" else ([0], 0.05)
    feeds = [feed(store, n, random.Random(seed + n), keep, often) for n in range(3)]
    await asyncio.gather(*feeds)

asyncio.run(main())
"""


FEW = range(3)
MANY = [pytest.param(seed, marks=pytest.mark.torture) for seed in range(3, 100)]


def engine(kind: str, directory: Path) -> Store:
    """Open what the writer has left."""
    if kind == "embedded":
        return LmdbStore(directory)
    return SegmentStore(directory, segment_bytes=64 << 10)


@pytest.mark.parametrize("kind", ["embedded", "segments"])
@pytest.mark.parametrize("seed", [*FEW, *MANY])
def test_what_was_answered_survives_a_kill(tmp_path: Path, seed: int, kind: str) -> None:
    """R-T1: killed at a random moment, twice on the same data."""
    random_source = random.Random(seed)
    answered = dict.fromkeys(range(PARTITIONS), 1)
    for life in range(2):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(10 * seed + life), kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(random_source.randrange(20, 200)):
                tell(writer.stdout.readline(), answered)
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                tell(line, answered)
        asyncio.run(examine(engine(kind, tmp_path), answered))


def tell(line: str, answered: dict[int, int]) -> None:
    # The last line may have been cut by the kill.
    if line.endswith("\n"):
        number, end = line.split()
        answered[int(number)] = int(end)


async def examine(store: Store, answered: dict[int, int]) -> None:
    for number, end in answered.items():
        partition = PartitionId("default", "queue", number)
        _, first, records = await replayed(store, partition)
        position = max(first, 1)
        positions: list[int] = []
        for record in records:
            if isinstance(record, Enqueued):
                assert record.first_sequence == position
                positions += range(position, position + len(record.messages))
                position += len(record.messages)
            else:
                position += 1
        assert position >= end, "an append that was answered is gone"
        bodies = await store.payloads(partition, positions)
        for found, message in zip(positions, bodies, strict=True):
            assert shown(message) == shown(message_of(found, 700))
    await store.close()
