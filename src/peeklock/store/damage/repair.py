"""A damaged store made fit for use: copied first, then written anew without what is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from peeklock.store.catalog import FORMAT as CATALOG_FORMAT
from peeklock.store.catalog import decode_description
from peeklock.store.damage.inspection import PartitionFindings, StoreFindings
from peeklock.store.damage.pages import DATA, Pages, refuse_lost
from peeklock.store.entries import CHUNK_KEY, DROPPED, ENTRY_KEY, PARTITION
from peeklock.store.environment import Environment
from peeklock.store.lmdb.store import FORMAT as STORE_FORMAT
from peeklock.store.segments.files import PREFIX
from peeklock.store.segments.index_copy import COPY
from peeklock.store.segments.moving import SEGMENTED
from peeklock.store.store import Corrupt

CATALOG: Final = "catalog"

# What one commit writes, at most, beside one chunk.
_COMMIT_BYTES: Final = 32 << 20


def inspect_catalog(data: Path) -> tuple[dict[bytes, bytes], list[str], list[str]]:
    """Look at the catalog: its whole entries, their texts, and what is damaged."""
    pages = Pages(data)
    whole: dict[bytes, bytes] = {}
    texts: list[str] = []
    problems: list[str] = []
    if pages.missing_bytes:
        problems.append(f"the file is {pages.missing_bytes} bytes shorter than it was")
    for key, value in pages.entries(b"values"):
        try:
            described = decode_description(key, bytes(value))
        except (Corrupt, ValueError):
            # As much of it as can be read helps to tell whose it was.
            shown = bytes(value[4:84]).decode(errors="replace")
            problems.append(f"a description does not fit its checksum; it begins with {shown!r}")
            continue
        whole[key] = bytes(value)
        texts.append(json.dumps(described))
    refuse_lost(pages, "values")
    for _ in pages.entries(b"meta"):
        pass
    return whole, texts, problems + pages.problems


def copy_aside(directory: Path) -> Path:
    """Copy a directory beside itself; return where it is."""
    for number in range(1, 1000):
        copy = directory.with_name(f"{directory.name}.before-repair-{number}")
        if not copy.exists():
            shutil.copytree(directory, copy)
            return copy
    raise FileExistsError(f"there are too many copies of {directory}")


def rewrite_store(findings: StoreFindings) -> None:
    """Write a store anew, with what is lost given up.

    What lay in segments lies in the engine's file afterwards, until somebody opens the store.
    """
    entries = {
        key: value
        for key, value in findings.entries.items()
        if key[:1] in (PARTITION, DROPPED, b"e")
    }
    if findings.is_segmented:
        entries[SEGMENTED] = b"1"
    for found in findings.partitions:
        key = PARTITION + ENTRY_KEY.pack(found.number)
        if not found.is_hopeless:
            entries[key] = _settled_entry(found)
        elif not found.entry.name:
            # It stays damaged, so that nobody makes an empty partition in its place.
            entries.setdefault(key, b"")
    _rewrite(findings.directory, STORE_FORMAT, entries, _chunks(findings.partitions))
    for prefix in (PREFIX, COPY):
        for path in findings.directory.glob(f"{prefix}*"):
            path.unlink()


def rewrite_catalog(directory: Path, whole: dict[bytes, bytes]) -> None:
    """Write a catalog anew, without what is damaged."""
    _rewrite(directory, CATALOG_FORMAT, {}, iter(sorted(whole.items())))


def list_of(findings: StoreFindings) -> Iterator[dict[str, Any]]:
    """Return everything that is uncertain after a repair, number by number."""
    store = findings.directory.name
    for problem in findings.problems:
        yield {"store": store, "given_up": "pages", "text": problem}
    for found in findings.partitions:
        place = {"store": store, "partition": found.name}
        if found.is_hopeless:
            yield {**place, "not_repaired": "; ".join(found.problems)}
            continue
        for first, end in found.holes:
            yield {**place, "given_up": "records", "from_position": first, "to_position": end - 1}
        for number in found.may_come_again:
            yield {**place, "may": "come again", "number": number}
        for low, high in found.may_be_missing:
            if low == high:
                yield {**place, "may": "be missing", "number": low}
            else:
                yield {**place, "may": "be missing", "from_number": low, "to_number": high}
        for number in found.damaged_bodies:
            yield {**place, "body": "damaged", "number": number}


def write_list(directory: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Write a list beside a directory, a line of JSON for each; return where it is."""
    for number in range(1, 1000):
        path = directory.with_name(f"{directory.name}.repair-{number}.jsonl")
        if not path.exists():
            with path.open("w") as file:
                for line in lines:
                    file.write(json.dumps(line) + "\n")
            return path
    raise FileExistsError(f"there are too many lists of {directory}")


def _settled_entry(found: PartitionFindings) -> bytes:
    entry = found.entry
    entry.end = found.end
    entry.extent.size = sum(len(chunk) for _, chunk in _chunks([found]))
    return entry.encoded()


def _chunks(partitions: Iterable[PartitionFindings]) -> Iterator[tuple[bytes, bytes | memoryview]]:
    for found in partitions:
        for stretch in found.stretches:
            chunk: bytes | memoryview | None = stretch.raw
            if not found.is_hopeless and stretch.is_needed(found.entry.replay_from):
                chunk = stretch.healed(found.at, found.next_sequence)
            if chunk is not None:
                yield CHUNK_KEY.pack(found.number, stretch.first), chunk


def _rewrite(
    directory: Path,
    form: str,
    entries: dict[bytes, bytes],
    values: Iterator[tuple[bytes, bytes | memoryview]],
) -> None:
    fresh = directory.with_name(f"{directory.name}.repairing")
    shutil.rmtree(fresh, ignore_errors=True)
    environment = Environment(fresh, form)
    try:
        engine = environment.lmdb
        with engine.begin(db=environment.meta, write=True) as transaction:
            for key, value in entries.items():
                transaction.put(key, value)
        is_more = True
        while is_more:
            size = 0
            with engine.begin(db=environment.values, write=True) as transaction:
                is_more = False
                for key, chunk in values:
                    transaction.put(key, bytes(chunk), append=True)
                    size += len(chunk)
                    if size > _COMMIT_BYTES:
                        is_more = True
                        break
    finally:
        environment.close()
    # The old one stays until the new one is complete: a crash before this has changed nothing.
    os.replace(fresh / DATA, directory / DATA)
    (directory / "lock.mdb").unlink(missing_ok=True)
    shutil.rmtree(fresh)
