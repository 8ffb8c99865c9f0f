"""The facts about copies of a topic's messages: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.tables.record_rows import BY_HAND, SEEN, JournalRows, RecordRow


@final
@dataclass(slots=True, init=False)
class Published:
    """A message entered several lanes of a topic: copy i has sequence `first_sequence + i`, is in
    `lanes[i]` and expires at `expirations[i]` (0: never). The body is kept once."""

    at: Final[int]
    first_sequence: Final[int]
    message: Final[Message]
    lanes: Final[list[int]]
    expirations: Final[list[int]]
    enqueue_sequence: Final[int]  # the publish's first number, the same for all its copies

    def __init__(
        self,
        at: int,
        first_sequence: int,
        message: Message,
        lanes: list[int],
        expirations: list[int],
        enqueue_sequence: int,
    ) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.message = message
        self.lanes = lanes
        self.expirations = expirations
        self.enqueue_sequence = enqueue_sequence


@final
@dataclass(slots=True, init=False)
class Buried:
    """Which copies of a message are dead letters, and why: the copy at `places[i]` of those that
    share a body, in `lanes[i]`, by the reason and the description at `whys[i]` of the notes.

    Messages of a batch that go the same way share one, and it is packed once.
    """

    places: Final[list[int]]
    lanes: Final[list[int]]
    whys: Final[list[int]]
    reasons: Final[list[str]]
    descriptions: Final[list[str]]

    def __init__(
        self,
        places: list[int],
        lanes: list[int],
        whys: list[int],
        reasons: list[str],
        descriptions: list[str],
    ) -> None:
        self.places = places
        self.lanes = lanes
        self.whys = whys
        self.reasons = reasons
        self.descriptions = descriptions


@final
@dataclass(slots=True, init=False)
class CopiesBuried:
    """Copies of a published message are dead letters from the beginning: one record for all of
    them, beside the one that published them. A copy has the number `first_sequence` and its
    place."""

    at: Final[int]
    first_sequence: Final[int]
    buried: Final[Buried]

    def __init__(self, at: int, first_sequence: int, buried: Buried) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.buried = buried


@final
@dataclass(slots=True, init=False)
class LaneDropped:
    """A subscription is gone, with all its messages, dead letters and sessions."""

    at: Final[int]
    lane: Final[int]

    def __init__(self, at: int, lane: int) -> None:
        self.at = at
        self.lane = lane


TopicRecord: TypeAlias = Published | CopiesBuried | LaneDropped

TOPIC_RECORDS: Final = (
    RecordRow(Published, 14, BY_HAND, SEEN),
    RecordRow(CopiesBuried, 26, BY_HAND, SEEN),
    RecordRow(
        LaneDropped,
        21,
        "at=q lane=I 0=B",
        JournalRows("purge", sequences="", reason="SubscriptionDeleted"),
    ),
)
