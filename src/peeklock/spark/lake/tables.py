"""What the driver of the lake does: it makes the files of a batch count, all of them and once."""

import json
import posixpath
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
from pyarrow import fs

from peeklock.spark.lake.files import Contribution, LakeFile, Layout, delete, opened

if TYPE_CHECKING:
    from deltalake import DeltaTable

MANIFEST: Final = "_manifest"


class LakeProblem(Exception):
    """The lake cannot be written as it was asked for; the text is for the user."""


@final
@dataclass(frozen=True, slots=True)
class LakeBatch:
    """The files of all tasks of one batch."""

    writer: str
    number: int
    files: list[LakeFile]
    schema: pa.Schema | None

    @property
    def told(self) -> dict[str, Any]:
        """One line about it: how much, and from which number to which."""
        firsts = [file.first_sequence for file in self.files if file.first_sequence is not None]
        lasts = [file.last_sequence for file in self.files if file.last_sequence is not None]
        return {
            "writer": self.writer,
            "batch": self.number,
            "rows": sum(file.rows for file in self.files),
            "bytes": sum(file.size for file in self.files),
            "files": len(self.files),
            "first_sequence_number": min(firsts, default=None),
            "last_sequence_number": max(lasts, default=None),
        }


def gathered(contributions: Sequence[Contribution]) -> LakeBatch | None:
    """Put together what the tasks of a batch have done; None where nobody tells of anything."""
    if not contributions:
        return None
    ordered = sorted(contributions, key=lambda one: one.partition)
    schemas = [pa.ipc.read_schema(pa.py_buffer(one.schema)) for one in ordered if one.schema]
    files = [file for one in ordered for file in one.files]
    return LakeBatch(ordered[0].writer, ordered[0].batch, files, schemas[0] if schemas else None)


# --- Delta


def commit_delta(layout: Layout, batch: LakeBatch) -> bool:
    """Add the files to the table in one commit; return whether they were not there before.

    The commit carries the writer's batch number, and the table remembers it: a batch that comes
    again is not added, and its files are deleted.
    """
    if not batch.files or batch.schema is None:
        return False
    table = _table(layout, batch.schema)
    if (known := table.transaction_version(batch.writer)) is not None and known >= batch.number:
        delete(layout.path, [file.name for file in batch.files])
        return False
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    now = time.time_ns() // 1_000_000
    actions = [
        AddAction(
            file.name,
            file.size,
            _values(layout, file),
            now,
            data_change=True,
            stats=file.statistics,
        )
        for file in batch.files
    ]
    told = {f"peeklock.{key}": str(value) for key, value in batch.told.items()}
    table.create_write_transaction(
        list(actions),
        mode="append",
        schema=_delta_schema(batch.schema),
        partition_by=list(layout.partition_by),
        commit_properties=CommitProperties(
            custom_metadata=told, app_transactions=[Transaction(batch.writer, batch.number)]
        ),
    )
    return True


def remove_orphans(path: str, *, older_than_hours: int = 24) -> list[str]:
    """Delete the files of a Delta table that killed tasks have left behind, and return their names.

    Parameters:
        path: where the table is.
        older_than_hours: younger files are kept, because a task that runs now may have written
            them.

    Raises deltalake's TableNotFoundError where there is no table.
    """
    table = _deltalake().DeltaTable(path)
    names: list[str] = table.vacuum(
        retention_hours=older_than_hours,
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
    )
    return names


def _table(layout: Layout, schema: pa.Schema) -> "DeltaTable":
    delta = _deltalake()
    # Made by whoever comes first; without files, so that it does not matter who that is.
    if not delta.DeltaTable.is_deltatable(layout.path):
        delta.DeltaTable.create(
            layout.path,
            _delta_schema(schema),
            mode="ignore",
            partition_by=list(layout.partition_by),
        )
    table: DeltaTable = delta.DeltaTable(layout.path)
    _check_columns(layout, table, schema)
    return table


def _check_columns(layout: Layout, table: "DeltaTable", schema: pa.Schema) -> None:
    """Refuse rows that readers of the table could not make sense of; fewer columns are nulls."""
    known = {one.name: one.type for one in table.schema().fields}
    for one in _delta_schema(schema).fields:
        if one.name not in known:
            raise LakeProblem(f"the table {layout.path} has no column '{one.name}'")
        if known[one.name] != one.type:
            raise LakeProblem(
                f"column '{one.name}' is {one.type}, and in the table {layout.path} it is "
                f"{known[one.name]}"
            )
    divided_by = tuple(table.metadata().partition_columns)
    if divided_by != layout.partition_by:
        raise LakeProblem(
            f"the table {layout.path} is divided by {', '.join(divided_by) or 'nothing'}, not by "
            f"{', '.join(layout.partition_by) or 'nothing'}"
        )


def _delta_schema(schema: pa.Schema) -> Any:
    return _deltalake().Schema.from_arrow(schema)


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise LakeProblem(
            "Delta tables need the package deltalake: pip install '.[pipeline]' in a clone of "
            "Peeklock brings it"
        ) from None
    return deltalake


def _values(layout: Layout, file: LakeFile) -> dict[str, str | None]:
    return {
        name: None if value is None else str(value)
        for name, value in zip(layout.partition_by, file.values, strict=True)
    }


# --- Parquet


def commit_parquet(layout: Layout, batch: LakeBatch) -> None:
    """Give the files their names, which are the same whenever the batch is written again.

    The manifest is written first: should this end in between, the next try knows from it which
    names the batch may have left behind.
    """
    system, root = opened(layout.path)
    manifest = posixpath.join(root, MANIFEST, f"{batch.writer}-{batch.number:012}.json")
    names = _final_names(batch)
    kept = set(names.values())
    stale = [name for name in _names_of(system, manifest) if name not in kept]
    told = batch.told | {
        "names": list(names.values()),
        # Of tries before this one, which may end before it has deleted them.
        "stale": stale,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    _write_json(system, manifest, told)
    for written, final_name in names.items():
        system.move(posixpath.join(root, written), posixpath.join(root, final_name))
    delete(layout.path, stale)


def _final_names(batch: LakeBatch) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, file in enumerate(batch.files):
        directory = posixpath.dirname(file.name)
        name = f"{batch.writer[:8]}-{batch.number:012}-{number:05}.parquet"
        names[file.name] = posixpath.join(directory, name)
    return names


def _names_of(system: fs.FileSystem, manifest: str) -> list[str]:
    if system.get_file_info(manifest).type != fs.FileType.File:
        return []
    with system.open_input_stream(manifest) as stream:
        told = json.loads(stream.read())
    names: list[str] = told["names"] + told.get("stale", [])
    return names


def _write_json(system: fs.FileSystem, place: str, content: dict[str, Any]) -> None:
    system.create_dir(posixpath.dirname(place), recursive=True)
    beside = f"{place}.new"
    with system.open_output_stream(beside) as stream:
        stream.write(json.dumps(content).encode() + b"\n")
    system.move(beside, place)
