"""What a partition can be asked about stages: messages that rest unseen until they are published.

The words are part of those in `commands`, from where the others import them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.replies import Origin
from peeklock.entity.tables.command_rows import INSIDE, KEY, WALK, CommandRow


@final
@dataclass(slots=True, init=False)
class Stage:
    """Messages that are stored under the name of a stage, and seen by nobody until it is published.

    Tag i belongs to message i, each its own wish; with `is_whole` they are stored all or none and
    the one tag answers for all of them.
    """

    origin: Final[Origin]
    tags: Final[list[int]]
    messages: Final[list[Message]]
    stage: Final[str]
    is_whole: Final[bool]

    def __init__(
        self,
        origin: Origin,
        tags: list[int],
        messages: list[Message],
        stage: str,
        is_whole: bool = False,
    ) -> None:
        self.origin = origin
        self.tags = tags
        self.messages = messages
        self.stage = stage
        self.is_whole = is_whole


@final
@dataclass(slots=True, init=False)
class PublishStages:
    """The messages of these stages are to be seen now, as a writer's batch: once, however often it
    is asked for (R-D1).

    The stages that a batch was first published with are its own. Where the same batch comes again
    with others, those are dropped. `published` is what earlier steps of the same wish have done.
    One that is not the writer's own wish drops nothing: it may come late, and the names of the
    stages may have been given again.
    """

    origin: Final[Origin]
    tag: Final[int]
    writer: Final[str]
    batch: Final[int]
    stages: Final[list[str]]
    published: Final[int]
    is_own: Final[bool]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        writer: str,
        batch: int,
        stages: list[str],
        published: int = 0,
        is_own: bool = True,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.writer = writer
        self.batch = batch
        self.stages = stages
        self.published = published
        self.is_own = is_own


@final
@dataclass(slots=True, init=False)
class DropStages:
    """These stages, or all whose names begin with a text, are given up with their messages; those
    to `keep` stay."""

    origin: Final[Origin]
    tag: Final[int]
    stages: Final[list[str]]
    prefix: Final[str | None]
    keep: Final[list[str]]

    def __init__(
        self, origin: Origin, tag: int, stages: list[str], prefix: str | None, keep: list[str]
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.stages = stages
        self.prefix = prefix
        self.keep = keep


@final
@dataclass(slots=True, init=False)
class FindPublished:
    """Which of these stages, or of those whose names begin with a text, belong to what a writer
    published last: other partitions may still have to publish them."""

    origin: Final[Origin]
    tag: Final[int]
    stages: Final[list[str]]
    prefix: Final[str | None]

    def __init__(self, origin: Origin, tag: int, stages: list[str], prefix: str | None) -> None:
        self.origin = origin
        self.tag = tag
        self.stages = stages
        self.prefix = prefix


@final
@dataclass(slots=True, init=False)
class TellStages:
    """Which stages have messages here, and what each writer published last."""

    origin: Final[Origin]
    tag: Final[int]

    def __init__(self, origin: Origin, tag: int) -> None:
        self.origin = origin
        self.tag = tag


StageCommand: TypeAlias = Stage | PublishStages | DropStages | FindPublished | TellStages

STAGE_COMMANDS: Final = (
    CommandRow(Stage, KEY),
    CommandRow(PublishStages, WALK),
    CommandRow(DropStages, WALK),
    CommandRow(FindPublished, INSIDE),
    CommandRow(TellStages, INSIDE),
)
