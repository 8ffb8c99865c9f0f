"""The facts about stages: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.tables.record_rows import BY_HAND, SEEN, UNSEEN, JournalRows, RecordRow

if TYPE_CHECKING:
    from peeklock.entity.records import Kept

# Why stages were dropped.
STAGE_GIVEN_UP: Final = 0  # somebody asked for it
STAGE_STALE: Final = 1  # nobody came back to it
STAGE_REPEATED: Final = 2  # its batch was published before, with other stages


@final
@dataclass(slots=True, init=False)
class Staged:
    """Messages were stored under the name of a stage; message i has sequence
    `first_sequence + i` until it is published, and nobody sees it."""

    at: Final[int]
    first_sequence: Final[int]
    messages: Final[list[Message]]
    stage: Final[str]

    def __init__(self, at: int, first_sequence: int, messages: list[Message], stage: str) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.messages = messages
        self.stage = stage


@final
@dataclass(slots=True, init=False)
class StagesPublished:
    """A writer's batch was published, or a part of it: `sequences[i]` is now `first_sequence + i`
    in the main lane and expires at `expirations[i]` (0: never); one whose schedule is later than
    `at` is scheduled. What is `gone` was a duplicate, or entered the lanes of a topic by records
    of their own.

    `stages` are those of the batch, as long as somebody may need to know; with `is_done` nothing
    is left to publish. Without numbers it is a part of a checkpoint: the memory of a writer.
    """

    at: Final[int]
    writer: Final[str]
    batch: Final[int]
    stages: Final[list[str]]
    is_done: Final[bool]
    first_sequence: Final[int]
    sequences: Final[list[int]]
    expirations: Final[list[int]]
    gone: Final[list[int]]

    def __init__(
        self,
        at: int,
        writer: str,
        batch: int,
        stages: list[str],
        is_done: bool,
        first_sequence: int,
        sequences: list[int],
        expirations: list[int],
        gone: list[int],
    ) -> None:
        self.at = at
        self.writer = writer
        self.batch = batch
        self.stages = stages
        self.is_done = is_done
        self.first_sequence = first_sequence
        self.sequences = sequences
        self.expirations = expirations
        self.gone = gone


@final
@dataclass(slots=True, init=False)
class StagesDropped:
    """Staged messages are gone, unseen, and why."""

    at: Final[int]
    why: Final[int]
    sequences: Final[list[int]]

    def __init__(self, at: int, why: int, sequences: list[int]) -> None:
        self.at = at
        self.why = why
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class StageDropped:
    """A stage is gone, unseen, with all that it had below this number, and why: one word for very
    many messages."""

    at: Final[int]
    why: Final[int]
    stage: Final[str]
    next_sequence: Final[int]

    def __init__(self, at: int, why: int, stage: str, next_sequence: int) -> None:
        self.at = at
        self.why = why
        self.stage = stage
        self.next_sequence = next_sequence


@final
@dataclass(slots=True, init=False)
class StageKept:
    """A part of a stage in a checkpoint, and when messages last came to it. `seen` is what the
    duplicate detection will look for, one for each entry, or empty where there is none."""

    at: Final[int]
    stage: Final[str]
    touched_at: Final[int]
    entries: Final[list[Kept]]
    seen: Final[list[str]]

    def __init__(
        self, at: int, stage: str, touched_at: int, entries: list[Kept], seen: list[str]
    ) -> None:
        self.at = at
        self.stage = stage
        self.touched_at = touched_at
        self.entries = entries
        self.seen = seen


StageRecord: TypeAlias = Staged | StagesPublished | StagesDropped | StageDropped | StageKept

_DROPPED: Final = {
    STAGE_GIVEN_UP: ("purge", "StageDropped"),
    STAGE_STALE: ("purge", "StageExpired"),
    STAGE_REPEATED: ("purge", "StageRepeated"),
}
STAGE_RECORDS: Final = (
    RecordRow(Staged, 33, BY_HAND, SEEN),
    RecordRow(
        StagesPublished,
        34,
        "at=q first_sequence=Q batch=Q is_done=flag writer=name stages=texts "
        "sequences=sequences expirations=expirations gone=sequences",
        SEEN,
    ),
    RecordRow(StagesDropped, 35, "at=q why=B sequences=sequences", JournalRows(_DROPPED)),
    RecordRow(StageKept, 36, "at=q touched_at=q stage=name entries=entries seen=texts", UNSEEN),
    RecordRow(
        StageDropped,
        37,
        "at=q why=B next_sequence=Q stage=name",
        JournalRows(_DROPPED, sequences="", description="stage"),
    ),
)
