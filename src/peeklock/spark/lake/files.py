"""What a task of the lake does: rows into Parquet files, one set of them for each partition.

Files are written beside where they belong and under names that nobody else has, so that attempts of
one task do not meet. Whether they count is the driver's to say.
"""

import json
import posixpath
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

DATE: Final = "date"
HOUR: Final = "hour"
_MADE: Final = {DATE: pa.date32(), HOUR: pa.int32()}
# Hive's word for a partition without a value, which readers of all kinds know.
_NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"
_COMPRESSION: Final = "zstd"


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a lake are divided into files."""

    path: str
    partition_by: tuple[str, ...]
    # Empty where the rows have no such instant: `date` and `hour` are columns like others then.
    time_column: str
    file_bytes: int
    # Directories of a Delta table are for people: the log has the values.
    is_delta: bool

    @property
    def made(self) -> tuple[str, ...]:
        """The columns that the rows do not have: they are made of the time column."""
        made = (DATE, HOUR) if self.time_column else ()
        return tuple(name for name in made if name in self.partition_by)

    def directory(self, values: tuple[Any, ...]) -> str:
        """Name the directory of a partition, from the lake's own on."""
        return "/".join(
            f"{name}={self._segment(value)}"
            for name, value in zip(self.partition_by, values, strict=True)
        )

    def _segment(self, value: Any) -> str:
        if value is None:
            return _NOTHING
        if not self.is_delta:
            return quote(str(value), safe="")
        # Nothing that has to be quoted, because the log quotes paths once more.
        return "".join(one if one.isalnum() or one in "-_." else "-" for one in str(value))


@final
@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file that was written: where, for which partition, and what is in it."""

    name: str
    values: tuple[Any, ...]
    rows: int
    size: int
    first_sequence: int | None
    last_sequence: int | None

    @property
    def statistics(self) -> str:
        """What a Delta log says of it, so that readers can pass it by."""
        told: dict[str, Any] = {"numRecords": self.rows}
        if self.first_sequence is not None:
            told |= {
                "minValues": {"sequence_number": self.first_sequence},
                "maxValues": {"sequence_number": self.last_sequence},
            }
        return json.dumps(told)


def opened(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path and the path within it; without a scheme it is local."""
    if "://" not in path:
        return fs.LocalFileSystem(), path
    system, inner = fs.FileSystem.from_uri(path)
    return system, inner


def written_schema(schema: pa.Schema, layout: Layout) -> pa.Schema:
    """Return the columns of the lake: those of the rows, and the ones that it is divided by."""
    return pa.schema([*schema, *(pa.field(name, _MADE[name]) for name in layout.made)])


@final
class Files:
    """The files that one task writes."""

    def __init__(self, layout: Layout) -> None:
        self._layout: Final = layout
        self._system, self._root = opened(layout.path)
        self._open: Final[dict[tuple[Any, ...], _Rolling]] = {}
        self._done: Final[list[LakeFile]] = []
        self.schema: pa.Schema | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows into the files of their partitions."""
        batch = in_utc(batch)
        if self.schema is None:
            self.schema = written_schema(batch.schema, self._layout)
        for values, rows in divided(batch, self._layout):
            rolling = self._open.get(values)
            if rolling is None:
                rolling = self._open[values] = self._begin(values, rows.schema)
            rolling.write(rows)
            if rolling.size >= self._layout.file_bytes:
                self._end(values)

    def finish(self) -> list[LakeFile]:
        """Complete all files and tell of them."""
        for values in list(self._open):
            self._end(values)
        return self._done

    def give_up(self) -> None:
        """Delete what was written."""
        for rolling in self._open.values():
            rolling.close()
        names = [rolling.name for rolling in self._open.values()]
        delete(self._layout.path, names + [file.name for file in self._done])

    def _begin(self, values: tuple[Any, ...], schema: pa.Schema) -> "_Rolling":
        directory = self._layout.directory(values)
        # No reader takes a file with such a name; a Delta table knows its files from its log.
        made = uuid.uuid4().hex
        name = posixpath.join(
            directory, f"{made}.parquet" if self._layout.is_delta else f".{made}.part"
        )
        self._system.create_dir(posixpath.join(self._root, directory), recursive=True)
        return _Rolling(self._system, self._root, name, schema)

    def _end(self, values: tuple[Any, ...]) -> None:
        rolling = self._open.pop(values)
        rolling.close()
        size = self._system.get_file_info(posixpath.join(self._root, rolling.name)).size
        first, last = rolling.sequences
        self._done.append(LakeFile(rolling.name, values, rolling.rows, size, first, last))


@final
class _Rolling:
    """One file that is being written."""

    def __init__(self, system: fs.FileSystem, root: str, name: str, schema: pa.Schema) -> None:
        self.name: Final = name
        self.rows = 0
        self._stream: Final = system.open_output_stream(posixpath.join(root, name))
        self._writer: Final = pq.ParquetWriter(self._stream, schema, compression=_COMPRESSION)
        self._first: int | None = None
        self._last: int | None = None

    @property
    def size(self) -> int:
        """How many bytes have been written."""
        return int(self._stream.tell())

    @property
    def sequences(self) -> tuple[int | None, int | None]:
        """The lowest and the highest sequence number."""
        return self._first, self._last

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(rows)
        self.rows += len(rows)
        if "sequence_number" in rows.schema.names:
            span = pc.min_max(rows.column("sequence_number")).as_py()
            known = [one for one in (self._first, self._last, *span.values()) if one is not None]
            self._first, self._last = (min(known), max(known)) if known else (None, None)

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()
        self._stream.close()


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Show instants in UTC, as lakes have them; Spark shows them in the zone of its session."""
    for at, shown in enumerate(batch.schema):
        if pa.types.is_timestamp(shown.type) and shown.type.tz not in (None, "UTC"):
            kind = pa.timestamp(shown.type.unit, tz="UTC")
            batch = batch.set_column(at, shown.with_type(kind), batch.column(at).cast(kind))
    return batch


def divided(
    batch: pa.RecordBatch, layout: Layout
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Divide rows by partition; a partition's columns are not in its files."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    if layout.made:
        columns |= _moments(batch.column(layout.time_column), layout.made)
    kept = [name for name in columns if name not in layout.partition_by]
    rows = pa.RecordBatch.from_arrays([columns[name] for name in kept], names=kept)
    if not layout.partition_by:
        yield (), rows
        return
    keys = pa.table([columns[name] for name in layout.partition_by], names=layout.partition_by)
    groups = keys.group_by(list(layout.partition_by), use_threads=False).aggregate([])
    for group in groups.to_pylist():
        mask = None
        for name in layout.partition_by:
            value = pa.scalar(group[name], columns[name].type)
            same = pc.is_null(columns[name]) if group[name] is None else None
            if same is None:
                same = pc.fill_null(pc.equal(columns[name], value), False)
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(group[name] for name in layout.partition_by), rows.filter(mask)


def _moments(instants: Any, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Return the day and the hour of instants, both of UTC."""
    plain = pc.cast(pc.cast(instants, pa.int64()), pa.timestamp("us"))
    found = {DATE: pc.floor_temporal(plain, unit="day"), HOUR: pc.hour(plain)}
    return {name: pc.cast(found[name], _MADE[name]) for name in wanted}


def delete(path: str, names: list[str]) -> None:
    """Delete files of a lake; what is not there is no problem."""
    system, root = opened(path)
    places = [posixpath.join(root, name) for name in names]
    for info in system.get_file_info(places):
        if info.type == fs.FileType.File:
            system.delete_file(info.path)


@final
@dataclass(frozen=True, slots=True)
class Contribution:
    """What one task has written, as the driver is told."""

    writer: str
    batch: int
    partition: int
    files: list[LakeFile] = field(default_factory=list)
    # The columns as Arrow writes them down, empty where there were no rows.
    schema: bytes = b""
