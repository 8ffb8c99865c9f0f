"""Flipped bits in the file: found out by checksums, never delivered as a message."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from peeklock.store.embedded import EmbeddedStore
from peeklock.store.store import Corrupt
from tests.store.builders import enqueued, message_of, shown
from tests.store.homes import BILLS, ORDERS, replayed


async def fill(store: EmbeddedStore) -> None:
    """Big chunks and small ones, in two partitions."""
    await store.open(ORDERS)
    await store.open(BILLS)
    for position in range(1, 401, 40):
        await store.append(ORDERS, 1, position, [enqueued(5, position, 40, 700)])
    for position in range(1, 101):
        await store.append(BILLS, 1, position, [enqueued(5, position, 1, 700)])
    await store.close()


def test_a_flipped_bit_in_a_body_is_found(tmp_path: Path) -> None:
    """The message is refused, its neighbours and other partitions are not touched."""
    asyncio.run(fill(EmbeddedStore(tmp_path)))
    damage(tmp_path, message_of(123, 700).content)

    async def scenario(store: EmbeddedStore) -> None:
        with pytest.raises(Corrupt, match="position 123"):
            await replayed(store, ORDERS)
        with pytest.raises(Corrupt, match="position 123"):
            await store.payloads(ORDERS, [122, 123])
        around = [122, 124, 400]
        found = await store.payloads(ORDERS, around)
        assert [shown(m) for m in found] == [shown(message_of(p, 700)) for p in around]
        await store.close()

    asyncio.run(scenario(EmbeddedStore(tmp_path)))


def damage(directory: Path, content: bytes) -> None:
    data = directory / "data.mdb"
    raw = bytearray(data.read_bytes())
    at = raw.find(content)
    assert at > 0
    while at > 0:
        raw[at + 500] ^= 0x10
        at = raw.find(content, at + 1)
    data.write_bytes(raw)


# Each flip gets a process of its own: the engine may give up on a damaged tree by ending it.
EXAMINER = """
import asyncio, json, os, pathlib, sys
from peeklock.store.embedded import EmbeddedStore
from peeklock.store.store import StoreError
from tests.store.builders import message_of, shown
from tests.store.homes import BILLS, ORDERS, replayed

def examine(directory):
    try:
        return asyncio.run(read(EmbeddedStore(directory)))
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
    asyncio.run(fill(EmbeddedStore(tmp_path)))
    size = (tmp_path / "data.mdb").stat().st_size
    chance = random.Random(7)
    bits = [chance.randrange(8 * 8192, 8 * size) for _ in range(90)]
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
