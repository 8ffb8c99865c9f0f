"""`peeklock store check` and `repair` on the data of a stopped broker."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from peeklock.cli.damage import DAMAGED
from peeklock.cli.main import app
from peeklock.store.catalog import EmbeddedCatalog
from peeklock.store.damage.pages import DATA, why_too_short
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.store import Corrupt, PartitionId
from tests.store.builders import enqueued, message_of
from tests.store.stores import replayed

QUEUE = PartitionId("ns", "q#7")
PLACE = json.dumps({"stores": ["store"], "incarnation": 7})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def fill() -> None:
        catalog = EmbeddedCatalog(tmp_path / "catalog")
        await catalog.save("", "store", "store", "{}")
        await catalog.save("ns", "queue", "q", PLACE)
        await catalog.save("ns", "queue", "other", json.dumps({"stores": ["store"]}))
        await catalog.close()
        store = LmdbStore(tmp_path / "store")
        await store.open(QUEUE)
        await store.append(QUEUE, 1, 0, [enqueued(5, 1, 3, 700)])
        await store.append(QUEUE, 1, 3, [enqueued(6, 4, 2, 700)])
        await store.close()

    asyncio.run(fill())
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", *arguments], env={"COLUMNS": "250", "NO_COLOR": "1"})


def flip(file: Path, wanted: bytes, behind: int) -> None:
    raw = bytearray(file.read_bytes())
    at = raw.find(wanted)
    assert at >= 0
    while at >= 0:
        raw[at + behind] ^= 1
        at = raw.find(wanted, at + 1)
    file.write_bytes(raw)


def test_nothing_is_said_of_what_is_whole(data: Path) -> None:
    done = run("check", "--data", str(data))
    assert (done.exit_code, done.stdout) == (0, "Nothing is damaged.\n")
    done = run("check", "--data", str(data), "-o", "json")
    assert json.loads(done.stdout) == {"damage": []}
    done = run("repair", "--data", str(data))
    assert (done.exit_code, done.stdout) == (0, "Nothing has to be repaired.\n")
    assert sorted(path.name for path in data.iterdir()) == ["catalog", "store"]


def test_a_damaged_body_is_told_and_needs_no_repair(data: Path) -> None:
    flip(data / "store" / DATA, message_of(2, 700).content, 5)
    done = run("check", "--data", str(data), "-o", "json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["damage"] == [
        {
            "store": "store",
            "partition": "ns|q#7|0",
            "damage": "the body of message 2",
            "consequence": "goes to the dead letters when it is delivered",
        }
    ]
    assert run("repair", "--data", str(data)).stdout == "Nothing has to be repaired.\n"


def test_a_damaged_record_is_told_and_given_up(data: Path) -> None:
    flip(data / "store" / DATA, message_of(2, 700).content, -10)
    done = run("check", "--data", str(data))
    assert done.exit_code == 3
    assert "position 1 cannot be read" in done.stdout
    assert "stays closed until it is repaired" in done.stdout
    assert "1 messages may come again; numbers that may be missing: 2" in done.stdout
    before = (data / "store" / DATA).read_bytes()
    done = run("repair", "--data", str(data), "-o", "json")
    assert done.exit_code == 0
    (repaired,) = json.loads(done.stdout)["repaired"]
    assert (Path(repaired["copy"]) / DATA).read_bytes() == before
    lines = [json.loads(line) for line in Path(repaired["list"]).read_text().splitlines()]
    place = {"store": "store", "partition": "ns|q#7|0"}
    assert lines == [
        {**place, "given_up": "records", "from_position": 1, "to_position": 1},
        {**place, "may": "come again", "number": 1},
        {**place, "may": "be missing", "number": 2},
    ]
    assert run("check", "--data", str(data)).exit_code == 0

    async def reopened() -> list[str]:
        store = LmdbStore(data / "store")
        _, _, records = await replayed(store, QUEUE)
        await store.close()
        return [type(record).__name__ for record in records]

    assert asyncio.run(reopened()) == ["Enqueued", "Lost", "Enqueued", "Enqueued"]


def test_a_name_that_is_lost_is_found_in_the_catalog(data: Path) -> None:
    flip(data / "store" / DATA, QUEUE.key.encode(), 1)
    done = run("check", "--data", str(data))
    assert "what is known of partition 1 does not fit its checksum" in done.stdout
    run("repair", "--data", str(data))
    assert run("check", "--data", str(data)).exit_code == 0
    store = LmdbStore(data / "store")
    _, first, records = asyncio.run(replayed(store, QUEUE))
    assert (first, len(records)) == (0, 2)
    asyncio.run(store.close())


def test_what_nobody_knows_the_name_of_is_kept(data: Path) -> None:
    for behind in (0, 1, 3, 4):
        flip(data / "store" / DATA, QUEUE.key.encode()[5:], behind - 5)
    done = run("repair", "--data", str(data))
    assert done.exit_code == 1
    assert "the catalog knows no name that is missing here" in done.stderr
    done = run("check", "--data", str(data))
    assert done.exit_code == 3
    assert "does not fit its checksum" in done.stdout


def test_a_damaged_description_is_told_and_given_up(data: Path) -> None:
    catalog = data / "catalog"
    flip(catalog / DATA, b'"other"', 2)
    opened = EmbeddedCatalog(catalog)
    with pytest.raises(Corrupt, match="peeklock store check"):
        asyncio.run(opened.load())
    asyncio.run(opened.close())
    done = run("check", "--data", str(data))
    assert done.exit_code == 3
    assert "the broker does not start until it is repaired" in done.stdout
    assert run("repair", "--data", str(data)).exit_code == 0
    opened = EmbeddedCatalog(catalog)
    assert [path for _, _, path, _ in asyncio.run(opened.load())] == ["store", "q"]
    asyncio.run(opened.close())


def test_a_file_that_is_too_short_is_told_and_given_up(data: Path) -> None:
    file = data / "store" / DATA
    while why_too_short(file) is None:
        os.truncate(file, file.stat().st_size - 4096)
    assert "shorter than it was" in run("check", "--data", str(data)).stdout
    done = run("repair", "--data", str(data))
    # What is known of the partition was at the end of the file: it may be any that is missing.
    assert "the catalog knows no name that is missing here" in done.stderr
    assert list(data.glob("store.before-repair-1/*"))
    store = LmdbStore(data / "store")
    with pytest.raises(Corrupt, match="is not found, and what is known of partition 1"):
        asyncio.run(replayed(store, QUEUE))
    asyncio.run(store.close())


def test_a_store_of_which_nothing_can_be_read_is_left_as_it_is(data: Path) -> None:
    file = data / "store" / DATA
    file.write_bytes(b"nothing of use" * 1000)
    assert "its first pages are lost" in run("check", "--data", str(data)).stdout
    done = run("repair", "--data", str(data))
    assert done.exit_code == 1
    assert "cannot be repaired, restore a copy" in done.stderr
    assert file.read_bytes() == b"nothing of use" * 1000


@pytest.mark.parametrize("place", ["store", "catalog"])
@pytest.mark.parametrize(("at", "bits"), [(10, 0xFF), (11, 1)])
def test_what_is_lost_from_its_root_is_left_as_it_is(
    data: Path, place: str, at: int, bits: int
) -> None:
    """One byte of the page that names the trees: an empty store was written, and nothing said."""
    file = data / place / DATA
    raw = bytearray(file.read_bytes())
    for page in range(2, len(raw) // 4096):
        if b"meta" in raw[page * 4096 : (page + 1) * 4096]:
            raw[page * 4096 + at] ^= bits
    file.write_bytes(raw)
    done = run("check", "--data", str(data))
    assert done.exit_code == 3
    assert "the tree of 'values' cannot be found" in done.stdout
    assert "concerns all of it" in done.stdout
    done = run("repair", "--data", str(data))
    assert done.exit_code == 1
    assert f"restore a copy: {place}: the tree of 'values' cannot be found" in done.stderr
    assert file.read_bytes() == raw
    assert not list(data.glob("*repair*"))


def test_a_broker_that_runs_is_left_alone(data: Path) -> None:
    store = LmdbStore(data / "store")
    for command in ("check", "repair"):
        done = run(command, "--data", str(data))
        assert done.exit_code == 1
        assert f"is in use by process {os.getpid()}" in done.stderr
    asyncio.run(store.close())
    done = run("check", "--data", str(data / "nowhere"))
    assert "is no data directory of a broker" in done.stderr


def test_a_partition_that_no_description_names_is_told(data: Path) -> None:
    """After a repair of the catalog nobody reached it, and nobody was told."""

    async def forget() -> None:
        catalog = EmbeddedCatalog(data / "catalog")
        await catalog.remove("ns", "queue", "q")
        await catalog.close()

    asyncio.run(forget())
    done = run("check", "--data", str(data), "-o", "json")
    assert done.exit_code == DAMAGED
    (row,) = json.loads(done.stdout)["damage"]
    assert row["partition"] == QUEUE.key
    assert row["damage"] == "no description names it, and its 5 messages"
    assert "restore a copy of the catalog" in row["consequence"]


def test_what_a_deleted_entity_leaves_is_no_damage(data: Path) -> None:
    async def delete() -> None:
        catalog = EmbeddedCatalog(data / "catalog")
        await catalog.remove("ns", "queue", "q")
        await catalog.save("ns", "dropped", "q#7", "store")
        await catalog.close()

    asyncio.run(delete())
    done = run("check", "--data", str(data))
    assert (done.exit_code, done.stdout) == (0, "Nothing is damaged.\n")


def test_what_was_made_when_there_was_one_store_is_known(data: Path) -> None:
    async def age() -> None:
        catalog = EmbeddedCatalog(data / "catalog")
        await catalog.save("ns", "queue", "q", json.dumps({"incarnation": 7}))
        await catalog.close()

    asyncio.run(age())
    assert run("check", "--data", str(data)).exit_code == 0
