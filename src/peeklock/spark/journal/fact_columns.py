"""Chunks of the journal become rows: one for each message and fact, as columns of Python values.

The same code reads the records that the broker reads. Bodies that were relocated to the tail and
checkpoints tell nothing new and give no rows. What a record does not know stays null: facts about
a message have its number, and its id only where it came in; jobs join them by entity, partition
and number.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.properties import id_text
from peeklock.entity import records as kept
from peeklock.entity.commands import MAIN, TRANSFER
from peeklock.entity.message import Message
from peeklock.entity.records import RECORD_ROWS, Record, width
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages import records as stages
from peeklock.entity.tables.record_rows import SEEN, UNSEEN, JournalRows
from peeklock.entity.topics import records as copies
from peeklock.entity.topics.records import Published
from peeklock.entity.transfers.records import TakenOver, Transferring
from peeklock.entity.upkeep import journal_facts
from peeklock.store.codec.records import decode_chunk

NAMES: Final = (
    "at",
    "entity",
    "sub_entity",
    "partition_id",
    "position",
    "op",
    "sequence_number",
    "message_id",
    "session_id",
    "delivery_count",
    "bytes",
    "consumer",
    "reason",
    "description",
    "destination",
    "body",
)

EVERYTHING: Final = 1 << 62

# Takes everything and keeps nothing.
_NOWHERE: Final[deque[Any]] = deque(maxlen=0)

# Some facts do not say in which lane their message is.
_NO_LANE: Final = -1

# What the journal shows of each kind of record.
_SHOWN: Final[dict[Any, JournalRows]] = {row.record: row.journal for row in RECORD_ROWS}

# The properties of a message, when their descriptor is written in the short form, as by everybody.
_PROPERTIES: Final = b"\x00\x53\x73"
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0
_STR8: Final = 0xA1
_STR32: Final = 0xB1
# How many bytes an id of another type takes, by its constructor: numbers and UUIDs.
_ID_BYTES: Final = {0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17}
_BINARY8: Final = 0xA0


@final
class FactColumns:
    """Makes rows of the chunks of one partition's journal, column by column.

    `add` takes chunks as `JournalClient` gives them, `take` returns the rows gathered so far as a
    list for each column and begins anew. Needs nothing but what the broker needs.
    """

    def __init__(
        self,
        entity: str,
        partition_id: int,
        lanes: Mapping[int, str],
        *,
        names: Sequence[str] = NAMES,
        include_body: bool = False,
    ) -> None:
        """The parameters are those of `FactDecoder`, with the names of columns for their schema."""
        self._entity = entity
        self._partition_id = partition_id
        self._lanes = lanes
        self._names = tuple(names)
        wanted = set(names)
        self._wants_id = "message_id" in wanted
        self._wants_body = include_body and "body" in wanted
        self._wants_message = not {"session_id", "bytes"}.isdisjoint(wanted)
        self._begin()

    def _begin(self) -> None:
        self.count = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in self._names}
        self._at = self._column("at")
        self._sub_entity = self._column("sub_entity")
        self._position = self._column("position")
        self._op = self._column("op")
        self._sequence = self._column("sequence_number")
        self._message_id = self._column("message_id")
        self._session_id = self._column("session_id")
        self._delivery_count = self._column("delivery_count")
        self._bytes = self._column("bytes")
        self._consumer = self._column("consumer")
        self._reason = self._column("reason")
        self._description = self._column("description")
        self._destination = self._column("destination")
        self._body = self._column("body")

    def _column(self, name: str) -> "list[Any] | deque[Any]":
        """Return where the values of a column go; those that nobody wants are kept nowhere."""
        return self._columns.get(name, _NOWHERE)

    def add(self, chunk: bytes, after: int = 0, until: int = EVERYTHING) -> None:
        """Take in the facts of a chunk, from position `after` on and before `until`."""
        # An id may be in nothing but the bytes of the message.
        position, records = decode_chunk(chunk, self._wants_body or self._wants_id)
        for record in records:
            end = position + width(record)
            if after <= position and end <= until:
                self._add(record, position)
            elif position < until and end > after and end > position + 1:
                low, high = max(0, after - position), min(end, until) - position
                self._add_messages(record, position + low, low, high)
            position = end

    def take(self) -> dict[str, list[Any]]:
        """Return what was gathered, by column, and begin anew."""
        columns = self._columns
        for name, value in (("entity", self._entity), ("partition_id", self._partition_id)):
            if name in columns:
                columns[name] = [value] * self.count
        self._begin()
        return columns

    # One record each.

    def _add(self, record: Record, position: int) -> None:
        if isinstance(record, (kept.Enqueued, kept.Scheduled, stages.Staged)):
            self._add_messages(record, position, 0, len(record.messages))
            return
        shown = _SHOWN[type(record)]
        if shown is SEEN:
            self._add_by_hand(record, position)
        elif shown is not UNSEEN:
            self._add_shown(record, position, shown)

    def _add_shown(self, record: Any, position: int, shown: JournalRows) -> None:
        """Make the rows that the table of records says."""
        op, reason = shown.op, shown.reason
        if shown.ops:
            op, reason = shown.ops[getattr(record, shown.by)]
        self._rows(
            record.at,
            position,
            op,
            getattr(record, "lane", MAIN),
            getattr(record, shown.sequences) if shown.sequences else (None,),
            counts=getattr(record, shown.counts) if shown.counts else None,
            session_ids=(getattr(record, shown.session),) if shown.session else None,
            consumer=getattr(record, shown.consumer) if shown.consumer else None,
            reason=reason,
            description=getattr(record, shown.description) if shown.description else None,
        )

    def _delivered(self, record: journal_facts.HandedTo, position: int) -> None:
        lane, sequences = record.lane, record.sequences
        counts: Sequence[int] | None = record.counts or (0,) * len(sequences)
        if counts and counts[0] == journal_facts.UNKNOWN_COUNT:
            counts = None
        who = record.consumer
        self._rows(record.at, position, "deliver", lane, sequences, counts=counts, consumer=who)

    def _add_by_hand(self, record: Record, position: int) -> None:
        at = record.at
        if isinstance(record, journal_facts.HandedTo):
            self._delivered(record, position)
        elif isinstance(record, Published):
            self._published(record, position)
        elif isinstance(record, kept.DeadLettered):
            self._dead_lettered(record, position)
        elif isinstance(record, stages.StagesPublished):
            first, before = record.first_sequence, record.sequences
            batch = f"{record.writer}/{record.batch}"
            self._renumbered(at, position, "publish", first, before, reason=batch)
        elif isinstance(record, kept.Activated):
            self._renumbered(at, position, "activate", record.first_sequence, record.sequences)
        elif isinstance(record, copies.CopiesBuried):
            self._buried(record, position)
        elif isinstance(record, Transferring):
            numbers, about = [record.first_sequence], self._about([record.message])
            where = record.destination
            self._rows(at, position, "transfer", TRANSFER, numbers, **about, destination=where)
        elif isinstance(record, kept.Requeued):
            numbers, about = [record.entry.sequence], self._about([record.message])
            counts = [record.entry.delivery_count]
            self._rows(at, position, "requeue", record.lane, numbers, counts=counts, **about)
        elif isinstance(record, kept.DuplicatesDropped):
            unknown = (None,) * len(record.message_ids)
            self._rows(at, position, "duplicate", MAIN, unknown, message_ids=record.message_ids)
        elif isinstance(record, TakenOver):
            source = record.source
            self._rows(at, position, "take_over", MAIN, record.numbers, description=source)
        elif isinstance(record, kept.Changed):
            changed = ",".join(record.changes)
            self._rows(at, position, "change", _NO_LANE, [record.sequence], description=changed)
        elif isinstance(record, SessionStateSet):
            size = None if record.state is None else len(record.state)
            self._rows(
                at,
                position,
                "session_state",
                record.lane,
                (None,),
                session_ids=(record.session_id,),
                sizes=(size,),
            )
        else:
            raise TypeError(f"the journal has a {type(record).__name__}, which is not known here")

    def _published(self, record: Published, position: int) -> None:
        """One row for each copy: they share a position and a body, and nothing else."""
        count = len(record.lanes)
        about = {name: column * count for name, column in self._about([record.message]).items()}
        numbers = range(record.first_sequence, record.first_sequence + count)
        lanes = [self._lanes.get(lane) for lane in record.lanes]
        self._rows(record.at, position, "send", MAIN, numbers, sub_entities=lanes, **about)

    def _dead_lettered(self, record: kept.DeadLettered, position: int) -> None:
        self._rows(
            record.at,
            position,
            "deadletter",
            record.lane,
            record.sequences,
            counts=record.counts,
            reason=record.reason,
            description=record.description,
            destination=self._lanes.get(record.lane | 1),
        )

    def _buried(self, record: copies.CopiesBuried, position: int) -> None:
        """Copies that were dead letters from the beginning, by what they died of."""
        buried = record.buried
        for why, reason in enumerate(buried.reasons):
            mine = [at for at, each in enumerate(buried.whys) if each == why]
            lanes = [self._lanes.get(buried.lanes[at]) for at in mine]
            self._rows(
                record.at,
                position,
                "deadletter",
                MAIN,
                [record.first_sequence + buried.places[at] for at in mine],
                sub_entities=lanes,
                counts=[0] * len(mine),
                reason=reason,
                description=buried.descriptions[why],
                destinations=[self._lanes.get(buried.lanes[at] | 1) for at in mine],
            )

    # Rows.

    def _add_messages(self, record: Record, position: int, low: int, high: int) -> None:
        """The messages of a run from one place in it to another; those that were relocated to
        the tail are not news."""
        if isinstance(record, kept.Relocated):
            return
        assert isinstance(record, (kept.Enqueued, kept.Scheduled, stages.Staged))
        op = "send" if isinstance(record, kept.Enqueued) else "schedule"
        stage = None
        if isinstance(record, stages.Staged):
            op, stage = "stage", record.stage
        first = record.first_sequence
        self._rows(
            record.at,
            position,
            op,
            MAIN,
            range(first + low, first + high),
            positions=range(position, position + high - low),
            reason=stage,
            **self._about(record.messages[low:high]),
        )

    def _about(self, messages: list[Message]) -> dict[str, Any]:
        """Return what messages say of themselves, as far as somebody wants to know."""
        columns: dict[str, Any] = {}
        if self._wants_message:
            columns["session_ids"] = [message.session_id for message in messages]
            columns["sizes"] = [message.size for message in messages]
        if self._wants_id:
            columns["message_ids"] = [
                message.message_id or message_id_of(message.content) for message in messages
            ]
        if self._wants_body:
            columns["bodies"] = [message.content for message in messages]
        return columns

    def _renumbered(
        self,
        at: int,
        position: int,
        op: str,
        first: int,
        before: list[int],
        reason: str | None = None,
    ) -> None:
        """Messages got new numbers; the old ones are in the description."""
        numbers = range(first, first + len(before))
        were = [str(number) for number in before]
        self._rows(at, position, op, MAIN, numbers, descriptions=were, reason=reason)

    def _rows(
        self,
        at: int,
        position: int,
        op: str,
        lane: int,
        sequences: Sequence[int | None],
        *,
        positions: Sequence[int] | None = None,
        sub_entities: Sequence[str | None] | None = None,
        message_ids: Sequence[str | None] | None = None,
        session_ids: Sequence[str | None] | None = None,
        counts: Sequence[int] | None = None,
        sizes: Sequence[int | None] | None = None,
        descriptions: Sequence[str] | None = None,
        bodies: Sequence[bytes] | None = None,
        consumer: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        destination: str | None = None,
        destinations: Sequence[str | None] | None = None,
    ) -> None:
        """Add rows that are alike but for the columns of which there are many values."""
        count = len(sequences)
        none = (None,) * count
        self.count += count
        self._at.extend((at * 1000,) * count)
        self._op.extend((op,) * count)
        self._sequence.extend(sequences)
        self._position.extend(positions or (position,) * count)
        self._sub_entity.extend(sub_entities or (self._lanes.get(lane),) * count)
        self._message_id.extend(message_ids or none)
        self._session_id.extend(session_ids or none)
        self._delivery_count.extend(counts or none)
        self._bytes.extend(sizes or none)
        self._consumer.extend((consumer,) * count if consumer else none)
        self._reason.extend((reason,) * count if reason else none)
        self._description.extend(descriptions or (description,) * count)
        self._destination.extend(destinations or (destination,) * count)
        self._body.extend(bodies or none)


def message_id_of(content: bytes) -> str | None:
    """Return the id in the properties of a message; most entities have no need to read it out."""
    if content[:3] != _PROPERTIES or len(content) < 7:
        return None
    if content[3] == _LIST8:
        count, at = content[5], 6
    elif content[3] == _LIST32 and len(content) > 12:
        count, at = int.from_bytes(content[8:12], "big"), 12
    else:
        return None
    if not count:
        return None
    kind = content[at]
    if kind == _STR8:
        return _text(content[at + 2 : at + 2 + content[at + 1]])
    if kind == _STR32:
        size = int.from_bytes(content[at + 1 : at + 5], "big")
        return _text(content[at + 5 : at + 5 + size])
    size = 2 + content[at + 1] if kind == _BINARY8 else _ID_BYTES.get(kind, 0)
    if not size:
        return None
    try:
        return id_text(content[at : at + size], "message-id")
    except DecodeError:
        return None


def _text(raw: bytes) -> str | None:
    # Clients may write anything; a text that is none is shown as well as it can be.
    return raw.decode("utf-8", "replace") or None
