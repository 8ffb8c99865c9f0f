"""Measures the store alone: appends by group size, cold bodies, trim, and reopening a backlog.

python -m bench.store [--directory DIR] [--backlog 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from peeklock.entity.message import Message, Traits
from peeklock.entity.records import CheckpointBegun, Enqueued, Record, Removed
from peeklock.store.codec.records import decode_chunk, decode_messages, encode_chunk
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.retention import Retention
from peeklock.store.store import BLOCK, PartitionId
from peeklock.version import is_compiled

CONTENT = os.urandom(1024)
ENVELOPE = bytes(60)
QUEUE = PartitionId("default", "bench")
NOW = 1_700_000_000_000


def main() -> None:
    """Print every figure on a line of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where the stores are made")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"compiled: {'yes' if is_compiled() else 'no'}")
    measure_codec()
    for mode in ("thread", "inline"):
        for group in (1, 16, 128, 1024):
            with_store(options.directory, partial(measure_appends, group=group, mode=mode))
    with_store(options.directory, partial(measure_sharing, partitions=64))
    with_store(options.directory, partial(measure_backlog, count=options.backlog, group=1024))
    with_store(options.directory, partial(measure_backlog, count=options.backlog // 50, group=1))


def with_store(parent: Path | None, measure: Callable[[Path], None]) -> None:
    """Give a measurement a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="bench-store-", dir=parent))
    try:
        measure(directory)
    finally:
        shutil.rmtree(directory)


def messages(count: int) -> list[Message]:
    """Make messages of 1 KB."""
    return [Message(ENVELOPE, CONTENT, Traits(message_id=f"{n:032x}")) for n in range(count)]


def measure_codec() -> None:
    """Microseconds per message of the record codec alone."""
    for group in (1, 16, 128, 1024):
        rounds = 16384 // group
        records: list[Record] = [Enqueued(NOW, 1, messages(group))]
        chunk = encode_chunk(1, records)
        positions = list(range(1, 1 + group))
        encode = best(partial(encode_chunk, 1, records), rounds) / group
        replay = best(partial(decode_chunk, chunk, False), rounds) / group
        bodies = best(partial(decode_messages, chunk, positions), rounds) / group
        print(
            f"codec, groups of {group:4}: encode {encode:.2f} us, replay {replay:.2f} us, "
            f"bodies {bodies:.2f} us per message"
        )


def best(action: Callable[[], object], rounds: int) -> float:
    """Microseconds of one call, in the best of five tries."""
    tries = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(rounds):
            action()
        tries.append((time.perf_counter() - start) / rounds * 1e6)
    return min(tries)


def measure_appends(directory: Path, group: int, mode: Literal["thread", "inline"]) -> None:
    """Appends one after another, each a durable commit."""

    async def run() -> None:
        store = LmdbStore(directory, commit=mode)
        epoch = (await store.open(QUEUE)).epoch
        run_of = messages(group)
        position = 1
        latencies: list[float] = []
        cpu = time.process_time()
        start = time.perf_counter()
        while time.perf_counter() - start < 1.5:
            began = time.perf_counter()
            await store.append(QUEUE, epoch, position, [Enqueued(NOW, position, run_of)])
            latencies.append(time.perf_counter() - began)
            position += group
        elapsed = time.perf_counter() - start
        cpu = time.process_time() - cpu
        latencies.sort()
        count = position - 1
        print(
            f"append, {mode}, groups of {group:4}: {count / elapsed:9,.0f} msgs/s, "
            f"{cpu / count * 1e6:6.2f} us CPU per message, p50 {quantile(latencies, 0.5):.2f} ms, "
            f"p99 {quantile(latencies, 0.99):.2f} ms, "
            f"{file_size(directory) / count:,.0f} bytes per message"
        )
        await store.close()

    asyncio.run(run())


def file_size(directory: Path) -> int:
    """How big a store's file is."""
    return (directory / "data.mdb").stat().st_size


def quantile(ordered: list[float], share: float) -> float:
    """The value below which that share lies, in milliseconds."""
    return ordered[int(len(ordered) * share)] * 1e3


def measure_sharing(directory: Path, partitions: int) -> None:
    """Many partitions with one message at a time: commits are shared."""

    async def run() -> None:
        store = LmdbStore(directory)
        message = messages(1)
        deadline = time.perf_counter() + 1.5

        async def feed(number: int) -> int:
            partition = PartitionId("default", f"queue-{number}")
            epoch = (await store.open(partition)).epoch
            position = 1
            while time.perf_counter() < deadline:
                await store.append(partition, epoch, position, [Enqueued(NOW, position, message)])
                position += 1
            return position - 1

        start = time.perf_counter()
        count = sum(await asyncio.gather(*(feed(number) for number in range(partitions))))
        elapsed = time.perf_counter() - start
        print(f"append, {partitions} partitions, one message each: {count / elapsed:,.0f} msgs/s")
        await store.close()

    asyncio.run(run())


def measure_backlog(directory: Path, count: int, group: int) -> None:
    """Fill, reopen, read all bodies, trim."""

    async def fill() -> None:
        store = LmdbStore(directory)
        epoch = (await store.open(QUEUE)).epoch
        run_of = messages(group)
        start = time.perf_counter()
        for batch in range(1, count + 1, 8 * group):
            appends = [
                store.append(QUEUE, epoch, position, [Enqueued(NOW, position, run_of)])
                for position in range(batch, batch + 8 * group, group)
            ]
            await asyncio.gather(*appends)
        print(f"backlog of {count:,} in groups of {group}: filled {since(start, count)}")
        await store.close()

    async def reopen() -> None:
        start = time.perf_counter()
        store = LmdbStore(directory, retention=Retention(age_ms=0))
        opening = await store.open(QUEUE)
        read = 0
        async for replay in opening.replays:
            for record in replay.records:
                if isinstance(record, Enqueued):
                    read += len(record.messages)
        print(f"  reopened {since(start, read)}")
        start = time.perf_counter()
        for first in range(1, read + 1, 256):
            await store.payloads(QUEUE, range(first, min(first + 256, read + 1)))
        print(f"  bodies, 256 at a time {since(start, read)}")
        start = time.perf_counter()
        for step in range(2000):
            await store.payloads(QUEUE, [1 + step * 7919 % read])
        print(f"  bodies, one at a time anywhere {since(start, 2000)}")
        end = read + 1
        await store.append(QUEUE, opening.epoch, end, [CheckpointBegun(NOW, end)], replay_from=end)
        start = time.perf_counter()
        trimmed = await store.trim(QUEUE, end, range(0, read // BLOCK, 2), now=NOW)
        print(f"  trimmed every other block {since(start, trimmed)}")
        start = time.perf_counter()
        await store.trim(QUEUE, end, [], now=NOW)
        print(f"  trimmed the rest {since(start, trimmed)}")
        start = time.perf_counter()
        await store.append(QUEUE, opening.epoch, end + 1, [Removed(NOW, 0, 0, [1])])
        print(f"  first append after it {(time.perf_counter() - start) * 1e3:.2f} ms")
        await store.close()

    asyncio.run(fill())
    asyncio.run(reopen())


def since(start: float, count: int) -> str:
    """Tell how long it took, in all and for each."""
    elapsed = time.perf_counter() - start
    return f"{count:,} in {elapsed:.2f} s ({elapsed / max(count, 1) * 1e6:.2f} us each)"


if __name__ == "__main__":
    main()
