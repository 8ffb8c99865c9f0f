"""Stages: messages are stored first and seen later, all of a batch together and once (R-D1).

A writer that may fail and start over stages what it has under a name of its own making; nobody sees
that. When all of a batch is there it is published: the messages enter the line under new numbers,
as if they were sent at that instant. The writer's batch is remembered with it, in the same write,
so that a repeat publishes nothing. The stages that a batch was first published with are its own;
where the batch was done again under other names, those are dropped.

What is too much for one write is published in steps. The first one remembers the stages, and then
nothing can stop the others: a repeat goes on with them, and so does an opening.
"""

from __future__ import annotations

from typing import Final, assert_never, final

from peeklock.entity.commands import (
    MAIN,
    Command,
    DropStages,
    FindPublished,
    PublishStages,
    Stage,
    StageCommand,
    TellStages,
)
from peeklock.entity.entries import Entry
from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.moves.duplicate_detection import id_of
from peeklock.entity.moves.entering import Entering
from peeklock.entity.moves.time_to_live import end_of_life, shorter
from peeklock.entity.refusals import NOT_ALLOWED, Refusal
from peeklock.entity.replies import (
    NOBODY,
    BatchPublished,
    Named,
    Numbered,
    Refused,
    SendsAccepted,
    StagesTold,
)
from peeklock.entity.stages.name_walks import Drop, StageSearch
from peeklock.entity.stages.partition_stages import (
    STAGE_GRACE_MS,
    STAGE_TIMEOUT_MS,
    StageLine,
    StageWriter,
    leave_stage,
    staged_entry,
)
from peeklock.entity.stages.records import (
    STAGE_GIVEN_UP,
    STAGE_REPEATED,
    STAGE_STALE,
    Staged,
    StageDropped,
    StagesDropped,
    StagesPublished,
)
from peeklock.entity.state import State
from peeklock.entity.topics.copying import Copying

STEP_COUNT_MAX: Final = 1_000
"""So many messages are published in one write, at most."""

STEP_BYTES_MAX: Final = 1024 * 1024
"""So many bytes of a topic's messages are: its rules read them, and they are written again."""

NUMBERED_MAX: Final = 512
"""So many messages of dropped stages are written down by their numbers; of more than that, each
stage by its name."""

NAMES: Final = 16
"""So many names of stages are looked at in one step of a stint."""

RESUME_EVERY_MS: Final = 60_000
"""A batch that was published in part is looked at so often: its next step may have been refused,
by a store without space or an entity that was disabled, and who asked may not come back."""


@final
class StageBatch:
    """What is to be published: a writer's batch and its stages."""

    __slots__ = ("number", "stages", "writer")

    def __init__(self, writer: str, number: int, stages: list[str]) -> None:
        self.writer: str = writer
        self.number: int = number
        self.stages: list[str] = stages


@final
class Staging:
    """Stages, publishes and drops on the state of a partition."""

    __slots__ = (
        "_copying",
        "_drops",
        "_entering",
        "_leftovers",
        "_searches",
        "_state",
        "bytes_max",
        "count_max",
    )

    def __init__(self, state: State, entering: Entering, copying: Copying) -> None:
        self._state: State = state
        self._copying: Copying = copying
        self._entering: Entering = entering
        self.count_max: int = STEP_COUNT_MAX
        self.bytes_max: int = STEP_BYTES_MAX
        # Next steps, which others may come before.
        self._leftovers: list[PublishStages] = []
        self._drops: list[Drop] = []
        self._searches: list[StageSearch] = []

    def decide(self, command: StageCommand, now: int) -> bool:
        """Carry out what is asked about stages; False where it has to wait, and what comes after it
        has to wait for this."""
        if isinstance(command, Stage):
            self.stage(command, now)
        elif isinstance(command, PublishStages):
            return self.publish(command, now)
        elif isinstance(command, DropStages):
            self.drop(command, now)
        elif isinstance(command, FindPublished):
            self.find_published(command)
        elif isinstance(command, TellStages):
            self.tell(command)
        else:
            assert_never(command)
        return True

    # Staging.

    def stage(self, command: Stage, now: int) -> None:
        """Store messages under the stage's name; what cannot be taken is refused by its tag."""
        if command.stage in self._state.stages.held():
            text = f"The stage '{command.stage}' is being published and takes no more messages."
            refusal = Refusal(NOT_ALLOWED, text)
            self._state.replies.append(Refused(command.origin, command.tags, refusal))
            return
        if command.is_whole:
            self._stage_whole(command, now)
            return
        taken: list[Message] = []
        stored: list[int] = []
        size = 0
        for tag, message in zip(command.tags, command.messages, strict=True):
            declined = self._entering.why_not(message, now, size)
            if declined is None:
                taken.append(message)
                stored.append(tag)
                size += message.size
            else:
                self._state.replies.append(Refused(command.origin, [tag], declined))
        self._take(taken, command.stage, now)
        if stored:
            self._state.replies.append(SendsAccepted(command.origin, stored))

    def _stage_whole(self, command: Stage, now: int) -> None:
        if self._entering.refuse_any(command.origin, command.tags, command.messages, now):
            return
        self._take(command.messages, command.stage, now)
        self._state.replies.append(SendsAccepted(command.origin, command.tags))

    def _take(self, messages: list[Message], name: str, now: int) -> None:
        if not messages:
            return
        state = self._state
        line = state.stages.touch(name, now)
        state.open_enqueued = None
        state.open_scheduled = None
        state.runs.append(Staged(now, state.next_sequence, messages, name))
        for message in messages:
            seen = state.seen_of(message)
            entry = staged_entry(state.next_sequence, state.next_position, now, message, seen)
            state.next_sequence += 1
            state.next_position += 1
            state.bodies.add(entry.position, entry.size)
            state.keep_body(entry, message)
            line.entries.append(entry)
        state.stages.count += len(messages)

    # Publishing.

    def publish(self, command: PublishStages, now: int) -> bool:
        """Publish a batch, or the next step of it; return when nothing is left. False where this
        has to wait, and what comes after it has to wait for this."""
        state = self._state
        refusal = state.why_closed_to_senders()
        if refusal is not None:
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return True
        writer = state.stages.writers.get(command.writer)
        batch = self._batch_of(command)
        if batch is None:
            # It was published before: whatever is there of it was done in vain.
            if command.is_own:
                self._drop(command.stages, STAGE_REPEATED, now)
            own = writer.stages if writer is not None and writer.batch == command.batch else []
            self._answer(command, command.published, own)
            return True
        if batch.number == command.batch and writer is not None and writer.batch == batch.number:
            own_names = set(batch.stages)
            others = [name for name in command.stages if name not in own_names]
            self._drop(others, STAGE_REPEATED, now)
        parts = self._next_step(batch)
        # The bodies must be there, and the rules must have seen all of them; they are written
        # again, so a decision publishes one step's bytes, however many ask for it.
        if state.blueprint.router is not None:
            stint = state.stint
            if (
                stint.bytes_max - stint.bytes_left >= self.bytes_max
                or _without_body(parts)
                or not self._copying.prepare(_bodies(parts), now)
            ):
                state.stages.resume_at = now + RESUME_EVERY_MS
                return False
            stint.spend(0, sum([line.entries[at].size for line, n in parts for at in range(n)]))
        count = self._carry_out(batch, parts, now)
        if batch.number != command.batch:
            self._leftovers.append(command)  # an earlier batch had to be finished first
        elif self._is_left(batch):
            self._leftovers.append(
                PublishStages(
                    command.origin,
                    command.tag,
                    command.writer,
                    command.batch,
                    command.stages,
                    command.published + count,
                    command.is_own,
                )
            )
        else:
            self._answer(command, command.published + count, batch.stages)
        return True

    def _answer(self, command: PublishStages, count: int, stages: list[str]) -> None:
        reply = BatchPublished(command.origin, command.tag, count, stages)
        self._state.replies.append(reply)

    def _batch_of(self, command: PublishStages) -> StageBatch | None:
        """What is to be published because of this wish; None where it was published before."""
        writer = self._state.stages.writers.get(command.writer)
        if writer is not None and not writer.is_done and writer.batch <= command.batch:
            return StageBatch(writer.name, writer.batch, writer.stages)
        if writer is not None and command.batch <= writer.batch:
            return None
        return StageBatch(command.writer, command.batch, list(dict.fromkeys(command.stages)))

    def _next_step(self, batch: StageBatch) -> list[tuple[StageLine, int]]:
        """Return the stages of the next step, in order, and how many messages of each."""
        parts: list[tuple[StageLine, int]] = []
        count_left = self.count_max
        is_topic = self._state.blueprint.router is not None
        bytes_left = self.bytes_max
        for name in batch.stages:
            line = self._state.stages.lines.get(name)
            if line is None:
                continue
            count = min(len(line.entries), count_left)
            if is_topic:
                for at in range(count):
                    bytes_left -= line.entries[at].size
                    if bytes_left < 0 and (at or parts):
                        count = at
                        break
            if count:
                parts.append((line, count))
            if count < len(line.entries):
                break
            count_left -= count
        return parts

    def _is_left(self, batch: StageBatch) -> bool:
        lines = self._state.stages.lines
        return any(name in lines for name in batch.stages)

    def _carry_out(self, batch: StageBatch, parts: list[tuple[StageLine, int]], now: int) -> int:
        """Publish one step and write it down; return how many messages it was."""
        state = self._state
        entries: list[Entry] = []
        for line, count in parts:
            entries += line.entries[:count]
            del line.entries[:count]
            state.stages.count -= count
            state.stages.forget_if_empty(line)
        fresh: list[Entry] = []
        gone: list[int] = []
        for entry in entries:
            if self._is_duplicate(entry, now):
                gone.append(entry.sequence)
                state.forget(entry)
            else:
                fresh.append(entry)
        is_topic = state.blueprint.router is not None
        lined = [entry for entry in fresh if not is_topic or _scheduled_at(entry) > now]
        first = state.next_sequence
        olds = [entry.sequence for entry in lined]
        expirations = [self._line_up(entry, now) for entry in lined]
        if is_topic:
            for entry in fresh:
                message = entry.message
                if message is not None:  # those that are scheduled have left theirs
                    self._copying.publish(message, now)
                    gone.append(entry.sequence)
                    state.forget(entry)
        is_done = not self._is_left(batch)
        # Of a partitioned entity, one partition knows for all of them which stages they are.
        stages = batch.stages if not is_done or state.blueprint.is_partitioned else []
        # The names are written with the first step and the last: a step in between goes on.
        goes_on = not is_done and state.stages.is_under_way(batch.writer, batch.number)
        state.stages.remember(StageWriter(batch.writer, batch.number, stages, is_done, now))
        state.stages.resume_at = now + RESUME_EVERY_MS
        state.records.append(
            StagesPublished(
                now,
                batch.writer,
                batch.number,
                [] if goes_on else stages,
                is_done,
                first,
                olds,
                expirations,
                gone,
            )
        )
        return len(entries)

    def _is_duplicate(self, entry: Entry, now: int) -> bool:
        """Return whether its id was seen within the window; it is remembered then."""
        details = entry.details
        if details is None or details.seen == "":
            return False
        state = self._state
        if state.seen.window_ms == 0:
            return False
        if not state.seen.is_new(details.seen, now):
            state.duplicates.append(id_of(details.seen, state.blueprint.is_partitioned))
            return True
        state.remembered.append(details.seen)
        return False

    def _line_up(self, staged: Entry, now: int) -> int:
        """Return a message enters the main lane, or waits there for its instant; return its end."""
        state = self._state
        details = staged.details
        life_ms = NO_DURATION if details is None else details.time_to_live_ms
        scheduled_at = _scheduled_at(staged)
        # A new entry: a checkpoint that walks over the stages must not take it for a staged one.
        entry = staged.moved()
        leave_stage(entry, state.next_sequence, now)
        state.next_sequence += 1
        lane = state.lane(MAIN)
        if state.moved is not None:
            state.moved.append((MAIN, entry))
        if scheduled_at > now:
            if state.budget.left < 0:
                state.release_body(entry)  # it was brought for the rules, which do not read it yet
            lane.schedule(entry, scheduled_at)
            state.watch(lane)
            return NEVER
        entry.expires_at = end_of_life(now, shorter(life_ms, state.blueprint.time_to_live_ms))
        state.put(state.line(lane, entry.session_id), entry)
        return entry.expires_at

    # Dropping.

    def drop(self, command: DropStages, now: int) -> None:
        """Give stages up; those of a batch that is published in part are beyond that."""
        keep = set(command.keep)
        if command.prefix is None:
            names = [name for name in command.stages if name not in keep]
            self._dropped(command, self._drop(names, STAGE_GIVEN_UP, now))
            return
        drop = self._drop_of(command)
        stint = self._state.stint
        looks = min(len(drop.names), NAMES * max(1, stint.steps_left))
        found: list[str] = []
        for _ in range(looks):
            name = drop.names.pop()
            if name.startswith(command.prefix) and name not in keep:
                found.append(name)
                if len(found) >= stint.steps_left:
                    break
        stint.spend(looks // NAMES + len(found))
        drop.count += self._drop(found, STAGE_GIVEN_UP, now)
        if drop.names:
            self._drops.append(drop)
        else:
            self._dropped(command, drop.count)

    def _drop_of(self, command: DropStages) -> Drop:
        """What is under way by this command; at first, all stages there are."""
        for at, drop in enumerate(self._drops):
            if drop.command is command:
                del self._drops[at]
                return drop
        return Drop(command, list(self._state.stages.lines))

    def _dropped(self, command: DropStages, count: int) -> None:
        self._state.replies.append(Numbered(command.origin, command.tag, [count]))

    def find_published(self, command: FindPublished) -> None:
        """Which of these stages belong to what some writer published last."""
        search = self._search_of(command)
        writers = self._state.stages.writers
        stint = self._state.stint
        looks = NAMES * max(1, stint.steps_left)
        while search.writers and looks > 0:
            writer = writers.get(search.writers.pop())
            stages = [] if writer is None else writer.stages
            search.look_at(stages)
            looks -= 1 + len(stages)
        stint.spend(max(1, stint.steps_left) - looks // NAMES)
        if search.writers:
            self._searches.append(search)
        else:
            names = sorted(search.found)
            self._state.replies.append(Named(command.origin, command.tag, names))

    def _search_of(self, command: FindPublished) -> StageSearch:
        """What is under way by this command; at first, all writers there are."""
        for at, search in enumerate(self._searches):
            if search.command is command:
                del self._searches[at]
                return search
        return StageSearch(command, list(self._state.stages.writers))

    def tell(self, command: TellStages) -> None:
        """What is staged here, and what the writers published last."""
        stages = self._state.stages
        batches = [(each.name, each.batch, each.stages) for each in stages.writers.values()]
        reply = StagesTold(command.origin, command.tag, list(stages.lines), batches)
        self._state.replies.append(reply)

    def _drop(self, names: list[str], why: int, now: int) -> int:
        state = self._state
        held = state.stages.held()
        count = 0
        dropped: list[int] = []
        for name in names:
            if name in held:
                continue
            line = state.stages.lines.pop(name, None)
            if line is not None:
                count += len(line.entries)
                if len(dropped) + len(line.entries) <= NUMBERED_MAX:
                    dropped += [entry.sequence for entry in line.entries]
                else:
                    state.records.append(StageDropped(now, why, name, state.next_sequence))
                state.dropped.add_stage(line)
        if dropped:
            state.records.append(StagesDropped(now, why, dropped))
        state.stages.count -= count
        return count

    # Time.

    def tick(self, now: int) -> None:
        """Drop what nobody came back to, and go on with what was published in part."""
        stages = self._state.stages
        if stages.grace_until == NEVER:
            stages.grace_until = now + STAGE_GRACE_MS
        if stages.grace_until <= now:
            self._drop_stale(now)
        if stages.resume_at <= now:
            self.resume(now)

    def is_any_stale(self, now: int) -> bool:
        """Return whether there is more to drop than one stint has dropped."""
        stages = self._state.stages
        if stages.grace_until == NEVER or stages.grace_until > now:
            return False
        line = next(iter(stages.lines.values()), None)
        return line is not None and line.touched_at + STAGE_TIMEOUT_MS <= now

    def resume(self, now: int) -> None:
        """Go on with what was published in part: after an opening, after a change of the entity,
        and where the next step was refused."""
        stages = self._state.stages
        unfinished = stages.unfinished()
        if not unfinished:
            return
        stages.resume_at = now + RESUME_EVERY_MS
        if self._state.why_closed_to_senders() is None:
            under_way = {command.writer for command in self._leftovers}
            for writer in unfinished:
                if writer.name not in under_way:
                    name, batch = writer.name, writer.batch
                    again = PublishStages(NOBODY, 0, name, batch, writer.stages, 0, False)
                    self._leftovers.append(again)

    def _drop_stale(self, now: int) -> None:
        stages = self._state.stages
        stint = self._state.stint
        stale: list[str] = []
        for line in stages.lines.values():
            if line.touched_at + STAGE_TIMEOUT_MS > now or len(stale) >= max(1, stint.steps_left):
                break
            stale.append(line.name)
        stint.spend(len(stale))
        self._drop(stale, STAGE_STALE, now)
        for name in stale:
            if name in stages.lines:
                stages.touch(name, now)  # it is being published, and not to be looked at again

    # For the owner of the partition.

    def bodies_wanted(self, command: PublishStages) -> list[Entry]:
        """Return the messages whose bodies must be in memory before a topic publishes them."""
        batch = self._batch_of(command)
        if batch is None or self._state.why_closed_to_senders() is not None:
            return []
        return _without_body(self._next_step(batch))

    def take_leftovers(self) -> list[Command]:
        """Return the next steps of what is published, dropped or looked for in several."""
        leftovers: list[Command] = []
        for drop in self._drops:
            leftovers.append(drop.command)
        for search in self._searches:
            leftovers.append(search.command)
        if self._leftovers:
            leftovers += self._leftovers
            self._leftovers = []
        return leftovers


def _scheduled_at(entry: Entry) -> int:
    return NEVER if entry.details is None else entry.details.scheduled_at


def _bodies(parts: list[tuple[StageLine, int]]) -> list[Message]:
    entries = [entry for line, count in parts for entry in line.entries[:count]]
    return [entry.message for entry in entries if entry.message is not None]


def _without_body(parts: list[tuple[StageLine, int]]) -> list[Entry]:
    return [entry for line, count in parts for entry in line.entries[:count] if not entry.message]
