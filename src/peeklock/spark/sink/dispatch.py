"""One task of the sink: its rows become messages, and those leave for the entities they are for."""

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from peeklock.client.blocking_loop import BlockingLoop
from peeklock.client.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from peeklock.spark.entity_client import EntityClient, connection
from peeklock.spark.options import Access
from peeklock.spark.sink.description import Unknown, describe
from peeklock.spark.sink.encoding import bodies, durations, messages_of, milliseconds
from peeklock.spark.sink.ids import ids_of
from peeklock.spark.sink.outbox import Outbox
from peeklock.spark.sink.pace import Pace
from peeklock.spark.sink.parcels import ParcelLimits, TooLarge, in_order_of_keys, parcels
from peeklock.spark.sink.sink_options import IDS, SEND_COLUMNS, STAGE, SinkOptions

PUBLISH: Final = "com.peeklock:publish-stages"
DROP: Final = "com.peeklock:drop-stages"

_log: Final = logging.getLogger("peeklock.spark")
# An array of Arrow's holds two gigabytes; a task should hold much less.
_PIECE_BYTES: Final = 32 << 20
# Where messages without a key have to find the same partition again: so many keys share them out.
_KEYS: Final = 64
# What says that the broker is another one, rather than that it knows no stages.
_NOT_ABOUT_STAGES: Final = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)


class BadRow(ValueError):
    """A row that cannot be sent; the text names it."""


class NoStages(Exception):
    """Stages were asked for, and the broker has none."""


class NoDuplicateDetection(Exception):
    """The entity must detect duplicates, and does not, or does not say so."""


@final
@dataclass(frozen=True, slots=True)
class Task:
    """Who writes: the same for each attempt of a task, but for the attempt."""

    writer: str
    batch: int
    partition: int

    @property
    def place(self) -> str:
        """The beginning of the ids of rows that have no other."""
        return f"{self.writer}/{self.batch}/{self.partition}"

    def new_stage(self) -> str:
        """Name a stage as nobody did before: an attempt that was given up may have left others."""
        return f"{self.place}/{uuid.uuid4().hex}"


@final
@dataclass(frozen=True, slots=True)
class Nature:
    """What an entity can do for a writer."""

    has_stages: bool
    # All messages of a batch must have one key where there are several partitions.
    is_one_key: bool
    # A repeat must find the partitions of the first try. A broker with stages sees to that.
    wants_keys: bool


@final
class Dispatch:
    """Sends what one task was given."""

    def __init__(self, options: SinkOptions, task: Task) -> None:
        self._options: Final = options
        self._task: Final = task
        self._loop: Final = BlockingLoop.of_this_process()
        self._connection: Final = connection(options.access)
        self._lanes: Final[dict[str, _Lane]] = {}
        self._rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch of rows; returns when all but the last of them are taken."""
        size = max(1, len(batch) * _PIECE_BYTES // max(_PIECE_BYTES, batch.nbytes))
        for start in range(0, len(batch), size):
            self._send(batch.slice(start, size))

    def finish(self) -> dict[str, list[str]]:
        """Wait until everything is taken; return the stages of each entity."""
        for lane in self._lanes.values():
            self._loop.run(lane.outbox.finish())
        return {entity: lane.outbox.stages for entity, lane in self._lanes.items()}

    def give_up(self) -> None:
        """Let the links go when the task has failed; the next one finds out anew what there is."""
        for entity, lane in self._lanes.items():
            _natures.pop(_nature_key(self._options, entity), None)
            # Why the task has failed matters more than how its links end.
            with contextlib.suppress(ServiceBusError):
                self._loop.run(lane.outbox.give_up())

    def _send(self, batch: pa.RecordBatch) -> None:
        columns = _columns(batch)
        chosen = [batch.column(name) for name in self._options.id_columns]
        place = self._task.place
        own = columns.get("message_id")
        columns["message_id"] = ids_of(own, chosen, place, self._rows, len(batch))
        self._rows += len(batch)
        for entity, part in self._by_entity(columns):
            self._send_to(self._lane(entity), entity, part)

    def _by_entity(self, columns: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Divide rows by where they go."""
        entities = columns.pop("entity", None)
        if self._options.entity:
            yield self._options.entity, columns
            return
        if entities.null_count:
            row = pc.index(pc.is_null(entities), True).as_py()
            raise BadRow(f"{_named(columns, row)} has no entity, and no option names one")
        for entity in pc.unique(entities).to_pylist():
            mask = pc.equal(entities, entity)
            yield entity, {name: column.filter(mask) for name, column in columns.items()}

    def _send_to(self, lane: "_Lane", entity: str, columns: dict[str, Any]) -> None:
        if lane.nature.wants_keys:
            columns = columns | {"partition_key": _with_keys(columns)}
        sessions = columns.get("session_id")
        grouped = [] if sessions is None else [sessions]
        if lane.nature.is_one_key and "partition_key" in columns:
            grouped.append(columns["partition_key"])
        keys = None
        if grouped:
            order = in_order_of_keys(grouped)
            columns = {name: column.take(order) for name, column in columns.items()}
            keys = pc.coalesce(*(column.take(order) for column in grouped)).to_pylist()
        texts = None if sessions is None else columns["session_id"].to_pylist()
        messages = messages_of(columns, time.time_ns() // 1_000_000)
        try:
            for parcel in parcels(messages, lane.room, texts, keys):
                self._loop.run(lane.outbox.put(parcel))
        except TooLarge as problem:
            named = _named(columns, problem.row)
            raise BadRow(f"{named} cannot be sent to '{entity}': it has {problem}") from problem

    def _lane(self, entity: str) -> "_Lane":
        lane = self._lanes.get(entity)
        if lane is None:
            lane = self._lanes[entity] = self._open(entity)
        return lane

    def _open(self, entity: str) -> "_Lane":
        options = self._options
        nature = nature_of(options, entity)
        pace = Pace(options.per_second) if options.per_second else None
        outbox = Outbox(
            self._connection.get(),
            entity,
            stage_name=self._task.new_stage if nature.has_stages else None,
            deadline_s=options.access.retry_deadline_ms / 1000,
            pace=pace,
        )
        size_max = self._loop.run(outbox.size_max())
        count_max = 1 << 30 if pace is None else pace.count_max
        return _Lane(nature, outbox, ParcelLimits(size_max, count_max, nature.is_one_key))


@final
@dataclass(frozen=True, slots=True)
class _Lane:
    """The way to one entity."""

    nature: Nature
    outbox: Outbox
    room: ParcelLimits


# --- what is known of entities, for all tasks of this process

_natures: Final[dict[tuple[Access, str, str, bool], Nature]] = {}


def nature_of(options: SinkOptions, entity: str) -> Nature:
    """Find out what an entity can do, once for each process."""
    key = _nature_key(options, entity)
    if key not in _natures:
        _natures[key] = _ask(options, entity)
    return _natures[key]


def _nature_key(options: SinkOptions, entity: str) -> tuple[Access, str, str, bool]:
    return options.access, entity, options.exactly_once, _has_keys(options)


def _has_keys(options: SinkOptions) -> bool:
    return not {"session_id", "partition_key"}.isdisjoint(options.columns)


def _ask(options: SinkOptions, entity: str) -> Nature:
    if options.exactly_once == IDS:
        return _by_ids(options, entity)
    try:
        # To drop no stage changes nothing, and only a broker that has stages says so.
        EntityClient.to(options.access, entity).manage(DROP, {"stages": []})
    except ServiceBusError as error:
        if error.is_retryable or isinstance(error, _NOT_ABOUT_STAGES):
            raise
        if options.exactly_once == STAGE:
            raise NoStages(f"exactlyOnce=stage: the broker has no stages ({error})") from error
        return _by_ids(options, entity)
    return Nature(True, is_one_key=_may_have_partitions(options, entity), wants_keys=False)


def _may_have_partitions(options: SinkOptions, entity: str) -> bool:
    """Return whether keys must be kept apart; where that cannot be known, they are."""
    if not _has_keys(options):
        return True  # There is no key to keep apart.
    try:
        return describe(options.access, entity).is_partitioned
    except Unknown as problem:
        _log.info("keys are kept apart, because '%s' is not described: %s", entity, problem)
        return True


def _by_ids(options: SinkOptions, entity: str) -> Nature:
    """Look whether the entity remembers ids, without which a repeat is sent twice."""
    try:
        described = describe(options.access, entity)
    except Unknown as problem:
        _complain(options, f"'{entity}' does not say whether it detects duplicates: {problem}")
        # It may be anything.
        return Nature(has_stages=False, is_one_key=True, wants_keys=True)
    if not described.remembers_ids:
        _complain(options, f"'{entity}' does not detect duplicates: a repeated task sends twice")
    several = described.is_partitioned
    return Nature(has_stages=False, is_one_key=several, wants_keys=several)


def _complain(options: SinkOptions, text: str) -> None:
    if options.duplicates == "fail":
        raise NoDuplicateDetection(f"requireDuplicateDetection=fail: {text}")
    if options.duplicates == "warn":
        _log.warning("%s", text)


# --- columns


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns that are sent, in the form in which they are written."""
    columns = {name: batch.column(name) for name in batch.schema.names if name in SEND_COLUMNS}
    columns["body"] = bodies(columns["body"])
    if "scheduled_enqueue_time" in columns:
        columns["scheduled_enqueue_time"] = milliseconds(columns["scheduled_enqueue_time"])
    if "time_to_live" in columns:
        columns["time_to_live"] = durations(columns["time_to_live"])
    return columns


def _with_keys(columns: dict[str, Any]) -> Any:
    """Return a key for each row: its own, its session's, or one that its id leads to.

    A batch that is written again must meet the partitions that have it already.
    """
    ids = columns["message_id"].to_pylist()
    made = pa.array([f"spark-{crc32(text.encode()) % _KEYS}" for text in ids], pa.string())
    given = [columns[name] for name in ("partition_key", "session_id") if name in columns]
    return pc.coalesce(*given, made)


def _named(columns: dict[str, Any], row: int) -> str:
    return f"the row with message id '{columns['message_id'][row].as_py()}'"
