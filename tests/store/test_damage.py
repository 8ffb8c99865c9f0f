"""Flipped bits in the file: found out by checksums, never delivered as a message."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from peeklock.store.codec.records import encode_chunk
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.store import Corrupt, Damaged, PartitionId
from tests.store.builders import enqueued, message_of, shown
from tests.store.stores import BILLS, ORDERS, replayed


async def fill(store: LmdbStore) -> None:
    """Big chunks and small ones, in two partitions."""
    await store.open(ORDERS)
    await store.open(BILLS)
    for position in range(1, 401, 40):
        await store.append(ORDERS, 1, position, [enqueued(5, position, 40, 700)])
    for position in range(1, 101):
        await store.append(BILLS, 1, position, [enqueued(5, position, 1, 700)])
    await store.close()


def test_a_flipped_bit_in_a_body_is_found(tmp_path: Path) -> None:
    """The message is refused; replay, its neighbours and other partitions are not touched."""
    asyncio.run(fill(LmdbStore(tmp_path)))
    damage(tmp_path, message_of(123, 700).content)

    async def scenario(store: LmdbStore) -> None:
        await replayed(store, ORDERS)
        with pytest.raises(Damaged, match="position 123") as caught:
            await store.payloads(ORDERS, [122, 123])
        assert caught.value.positions == {123}
        around = [122, 124, 400]
        found = await store.payloads(ORDERS, around)
        assert [shown(m) for m in found] == [shown(message_of(p, 700)) for p in around]
        await store.close()

    asyncio.run(scenario(LmdbStore(tmp_path)))


def test_a_flipped_bit_in_a_table_costs_no_body_that_fits_its_own_checksum(tmp_path: Path) -> None:
    """Replay cannot do without the table; whoever has been replayed before can."""
    asyncio.run(fill(LmdbStore(tmp_path)))
    data = tmp_path / "data.mdb"
    raw = bytearray(data.read_bytes())
    head = encode_chunk(121, [enqueued(5, 121, 40, 700)])[:60]
    assert raw.count(head) == 1
    raw[raw.find(head) + 28 + 4] ^= 1  # the checksum of the first message's head
    data.write_bytes(raw)

    async def scenario(store: LmdbStore) -> None:
        with pytest.raises(Corrupt, match="position 121"):
            await replayed(store, ORDERS)
        found = await store.payloads(ORDERS, [121, 160])
        assert [shown(m) for m in found] == [shown(message_of(p, 700)) for p in (121, 160)]
        await replayed(store, BILLS)
        await store.close()

    asyncio.run(scenario(LmdbStore(tmp_path)))


def damage(directory: Path, content: bytes) -> None:
    data = directory / "data.mdb"
    raw = bytearray(data.read_bytes())
    at = raw.find(content)
    assert at > 0
    while at > 0:
        raw[at + 500] ^= 0x10
        at = raw.find(content, at + 1)
    data.write_bytes(raw)


def test_a_damaged_name_closes_what_may_be_meant_and_nothing_else(tmp_path: Path) -> None:
    asyncio.run(fill(LmdbStore(tmp_path)))
    data = tmp_path / "data.mdb"
    raw = data.read_bytes()
    assert ORDERS.key.encode() in raw
    data.write_bytes(raw.replace(ORDERS.key.encode(), ORDERS.key.encode().replace(b"d", b"e")))

    async def scenario(store: LmdbStore) -> None:
        for partition in (ORDERS, PartitionId("default", "new")):
            with pytest.raises(Corrupt, match="is not found, and what is known of partition 1"):
                await store.open(partition)
        await replayed(store, BILLS)
        await store.append(BILLS, 2, 101, [enqueued(5, 101, 1, 700)])
        await store.close()

    asyncio.run(scenario(LmdbStore(tmp_path)))


@pytest.mark.parametrize("left", [0.99, 0.5, 0.03])
def test_a_file_that_is_too_short_is_refused_with_a_sentence(tmp_path: Path, left: float) -> None:
    """The engine would end the process."""
    asyncio.run(fill(LmdbStore(tmp_path)))
    data = tmp_path / "data.mdb"
    os.truncate(data, int(data.stat().st_size * left))
    with pytest.raises(Corrupt, match=r"bytes shorter than it was: page .* `peeklock store check`"):
        LmdbStore(tmp_path)
    with pytest.raises(Corrupt, match="bytes shorter than it was"):
        LmdbStore(tmp_path, make=False)


def test_a_file_of_which_nothing_is_left_is_no_new_store(tmp_path: Path) -> None:
    asyncio.run(fill(LmdbStore(tmp_path)))
    for size in (8191, 100, 0):
        os.truncate(tmp_path / "data.mdb", size)
        with pytest.raises(Corrupt, match=r"shorter|no store that can be read|is empty"):
            LmdbStore(tmp_path, make=False)


def test_pages_that_were_never_needed_may_be_missing(tmp_path: Path) -> None:
    """The engine counts pages that it gave back before it had written them."""
    asyncio.run(fill(LmdbStore(tmp_path)))
    data = tmp_path / "data.mdb"
    raw = bytearray(data.read_bytes())
    for meta in (0, 4096):
        at = meta + 16 + 24 + 96  # its last page
        raw[at : at + 8] = (int.from_bytes(raw[at : at + 8], "little") + 2).to_bytes(8, "little")
    data.write_bytes(raw)

    async def scenario(store: LmdbStore) -> None:
        await replayed(store, ORDERS)
        await store.append(ORDERS, 2, 401, [enqueued(5, 401, 100, 700)])
        await store.close()

    asyncio.run(scenario(LmdbStore(tmp_path)))


# Each flip gets a process of its own: the engine may give up on a damaged tree by ending it.
EXAMINER = """
import asyncio, json, os, pathlib, sys
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.store import StoreError
from tests.store.builders import message_of, shown
from tests.store.stores import BILLS, ORDERS, replayed

def examine(directory):
    try:
        return asyncio.run(read(LmdbStore(directory)))
    except StoreError as error:
        return "found"

async def read(store):
    result = "whole"
    for partition, count in ((ORDERS, 400), (BILLS, 100)):
        try:
            _, first, records = await replayed(store, partition)
            positions = range(1, 1 + sum(len(record.messages) for record in records))
            if (first, len(positions)) != (1, count):
                return f"{partition.path} lost {first} {len(positions)}"
            for position, message in zip(positions, await store.payloads(partition, positions)):
                if shown(message) != shown(message_of(position, 700)):
                    return f"{partition.path} lies at {position}"
        except StoreError:
            result = "found"
    await store.close()
    return result

directory = pathlib.Path(sys.argv[1])
data = directory / "data.mdb"
whole = data.read_bytes()
for bit in json.loads(sys.argv[2]):
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    data.write_bytes(damaged)
    child = os.fork()
    if not child:
        sys.stderr.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        print(bit, examine(directory), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(bit, "ended", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_flipped_bits_anywhere_never_give_wrong_messages(tmp_path: Path) -> None:
    """Tested on the tree, too: there the engine may end the process, but it never lies."""
    asyncio.run(fill(LmdbStore(tmp_path)))
    size = (tmp_path / "data.mdb").stat().st_size
    random_source = random.Random(7)
    bits = [random_source.randrange(8 * 8192, 8 * size) for _ in range(90)]
    command = [sys.executable, "-c", EXAMINER, str(tmp_path), json.dumps(bits)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert len(verdicts) == len(set(bits))
    lies = {
        bit: v for bit, v in verdicts.items() if v.split()[0] not in ("whole", "found", "ended")
    }
    assert not lies
    assert sum(verdict == "found" for verdict in verdicts.values()) > 30
