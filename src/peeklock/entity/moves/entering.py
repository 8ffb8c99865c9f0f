"""How messages come in: sent, scheduled, published to subscriptions, taken over from elsewhere.

What is refused is refused before anything changes, so that a batch or a transaction stands or
falls as a whole.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.commands import (
    MAIN,
    TRANSFER,
    CancelScheduled,
    Reserve,
    Schedule,
    SendBatch,
    SendMany,
    TakeOver,
)
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER, Message
from peeklock.entity.moves.time_to_live import end_of_life, shorter
from peeklock.entity.records import (
    CANCELLED,
    DUE,
    Activated,
    Enqueued,
    Removed,
    Reserved,
    Scheduled,
)
from peeklock.entity.refusals import (
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NO_MATCHING_SUBSCRIPTION,
    QUOTA_EXCEEDED,
    SESSION_REQUIRED,
    Refusal,
)
from peeklock.entity.replies import Numbered, Origin, Refused, SendsAccepted
from peeklock.entity.state import State
from peeklock.entity.topics.copying import Copying
from peeklock.entity.transfers.records import TakenOver, Transferring

SESSION_REQUIRED_TEXT: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that "
    "have session support enabled can only receive messages that have the SessionId set to a "
    "valid value."
)


@final
class Entering:
    """Takes messages into the state of a partition."""

    __slots__ = ("_copying", "_state")

    def __init__(self, state: State, copying: Copying) -> None:
        self._state: State = state
        self._copying: Copying = copying

    # Commands.

    def send_many(self, command: SendMany, now: int) -> None:
        """Each message on its own: what cannot be taken is refused by its tag."""
        state = self._state
        messages = command.messages
        refused: dict[str, list[int]] | None = None
        refusals: dict[str, Refusal] = {}
        for at in range(self._enqueue_run(messages, now), len(messages)):
            message = messages[at]
            refusal = self.why_not(message, now)
            if refusal is None:
                self.enter(message, now)
                continue
            if refused is None:
                refused = {}
            refused.setdefault(refusal.kind, []).append(command.tags[at])
            refusals[refusal.kind] = refusal
        if refused is None:
            state.replies.append(SendsAccepted(command.origin, command.tags))
            return
        missing = {tag for tags in refused.values() for tag in tags}
        stored = [tag for tag in command.tags if tag not in missing]
        if stored:
            state.replies.append(SendsAccepted(command.origin, stored))
        for kind, tags in refused.items():
            state.replies.append(Refused(command.origin, tags, refusals[kind]))

    def send_batch(self, command: SendBatch, now: int) -> None:
        """All or none (R-T5)."""
        if self.refuse_any(command.origin, [command.tag], command.messages, now):
            return
        for message in command.messages:
            self.enter(message, now)
        self._state.replies.append(SendsAccepted(command.origin, [command.tag]))

    def schedule(self, command: Schedule, now: int) -> None:
        """All or none; answers the numbers in order."""
        if self.refuse_any(command.origin, [command.tag], command.messages, now):
            return
        numbers: list[int] = []
        for at, message in enumerate(command.messages):
            reserved = 0 if command.reserved is None else command.reserved[at]
            number = self.enter(message, now, reserved) or reserved
            # What was not kept gets a number that will never be another's.
            numbers.append(number or self._give_away(1, now))
        self._state.replies.append(Numbered(command.origin, command.tag, numbers))

    def reserve(self, command: Reserve, now: int) -> None:
        """Give numbers away before they are used."""
        first = self._give_away(command.count, now)
        numbers = list(range(first, first + command.count))
        self._state.replies.append(Numbered(command.origin, command.tag, numbers))

    def _give_away(self, count: int, now: int) -> int:
        state = self._state
        first = state.next_sequence
        state.next_sequence = first + count
        state.records.append(Reserved(now, state.next_sequence))
        return first

    def cancel(self, command: CancelScheduled, now: int) -> None:
        """Take scheduled messages back, all or none."""
        state = self._state
        refusal = self.why_not_cancel(command.sequences)
        if refusal is not None:
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        self.carry_out_cancel(command.sequences, now)
        state.replies.append(Numbered(command.origin, command.tag, []))

    def why_not_cancel(self, sequences: list[int]) -> Refusal | None:
        """Return why these cannot be cancelled, or None."""
        scheduled = self._state.lane(MAIN).scheduled
        for sequence in sequences:
            if sequence not in scheduled:
                text = f"No scheduled message has the sequence number {sequence}."
                return Refusal(MESSAGE_NOT_FOUND, text)
        return None

    def carry_out_cancel(self, sequences: list[int], now: int) -> None:
        """Cancel what is known to be scheduled."""
        numbers = list(dict.fromkeys(sequences))
        if numbers:
            lane = self._state.lane(MAIN)
            for sequence in numbers:
                entry = lane.unschedule(sequence)
                assert entry is not None, "whoever cancels has asked why not"
                self._state.forget(entry)
            self._state.records.append(Removed(now, MAIN, CANCELLED, numbers))

    def take_over(self, command: TakeOver, now: int) -> None:
        """Messages from another partition; repeats are ignored, so that a crash doubles nothing."""
        state = self._state
        taken = state.taken.get(command.source)
        if taken is None:
            taken = {}
        fresh: list[int] = []
        messages: list[Message] = []
        for number, message in zip(command.numbers, command.messages, strict=True):
            if number not in taken:
                fresh.append(number)
                messages.append(message)
        if self.refuse_any(command.origin, [command.tag], messages, now):
            return
        forget = command.forget
        if command.forget_below:
            assert not command.numbers, "a repeat must find what was taken before"
            forget = forget + [number for number in taken if number < command.forget_below]
        for number in forget:
            taken.pop(number, None)
        for number in fresh:
            taken[number] = True
        if taken:
            state.taken[command.source] = taken
        else:
            state.taken.pop(command.source, None)
        for message in messages:
            self.enter(message, now)
        if fresh or forget:
            state.records.append(TakenOver(now, command.source, fresh, forget))
        state.replies.append(SendsAccepted(command.origin, [command.tag]))

    # One message.

    def why_not(self, message: Message, now: int, before: int = 0) -> Refusal | None:
        """Return why a message cannot be taken, or None; so many bytes will be taken before it."""
        closed = self._state.why_closed_to_senders()
        if closed is not None:
            return closed
        blueprint = self._state.blueprint
        if message.size > blueprint.message_size_max:
            size_max = blueprint.message_size_max
            text = f"The received message exceeds the limit ({size_max} bytes) of this entity."
            return Refusal(MESSAGE_TOO_BIG, text)
        if blueprint.requires_session and message.session_id is None:
            return Refusal(SESSION_REQUIRED, SESSION_REQUIRED_TEXT)
        refusal = self.why_no_room(before + message.size)
        if refusal is not None:
            return refusal
        if blueprint.filter_before_publishing and not self._copying.takes(message, now):
            text = f"No subscription of '{blueprint.path}' would take this message."
            return Refusal(NO_MATCHING_SUBSCRIPTION, text)
        return None

    def why_no_room(self, size: int) -> Refusal | None:
        """Return why so many bytes more would be too many, or None."""
        blueprint = self._state.blueprint
        if blueprint.size_max == 0 or self._state.bodies.size + size <= blueprint.size_max:
            return None
        text = f"The entity '{blueprint.path}' has reached its size of {blueprint.size_max}."
        return Refusal(QUOTA_EXCEEDED, text)

    def enter(self, message: Message, now: int, reserved: int = 0) -> int:
        """Take a message that can be taken; return its number, or 0 where nothing was kept."""
        state = self._state
        seen = state.seen_of(message)
        if seen and not state.seen.is_new(seen, now):
            # The sender is told that all is well: it is, the message is here already.
            state.duplicates.append(message.message_id)
            return 0
        if message.scheduled_at > now:
            return self._schedule(message, now, reserved)
        if state.blueprint.router is not None:
            if seen:
                # An action may change the id and nobody may want the message: its copies do not
                # tell for sure that it was here.
                state.remembered.append(seen)
            return self._copying.publish(message, now)
        return self._enqueue(message, now)

    def _enqueue_run(self, messages: list[Message], now: int) -> int:
        """Take the first messages in one loop, as long as nothing about them or their queue needs a
        closer look; return how many. The others are looked at one by one."""
        state = self._state
        blueprint = state.blueprint
        if not blueprint.is_plain:
            return 0
        size_max = blueprint.message_size_max
        budget_left = state.budget.left
        first = sequence = state.next_sequence
        position = state.next_position
        total = 0
        taken: list[Message] = []
        entries: list[Entry] = []
        for message in messages:
            size = message.size
            if size > size_max or (message.traits is not None and _needs_a_look(message, now)):
                break
            kept: Message | None = message
            if budget_left >= size:
                budget_left -= size
            else:
                kept = None
            entries.append(Entry(sequence, position, now, NEVER, size, kept))
            taken.append(message)
            total += size
            sequence += 1
            position += 1
        if taken:
            lane = state.lane(MAIN)
            lane.put_new(entries)
            state.kept_bytes += state.budget.left - budget_left
            state.budget.left = budget_left
            state.bodies.add_run(state.next_position, len(taken), total)
            state.next_sequence = sequence
            state.next_position = position
            state.touch(lane)
            run = state.open_enqueued
            if run is not None and run.first_sequence + len(run.messages) == first:
                run.messages.extend(taken)
            else:
                state.open_enqueued = Enqueued(now, first, taken)
                state.open_scheduled = None
                state.runs.append(state.open_enqueued)
        return len(taken)

    def _enqueue(self, message: Message, now: int) -> int:
        state = self._state
        sequence = state.next_sequence
        state.next_sequence = sequence + 1
        life_ms = shorter(message.time_to_live_ms, state.blueprint.time_to_live_ms)
        message.expire_at(end_of_life(now, life_ms))
        run = state.open_enqueued
        if run is not None and run.first_sequence + len(run.messages) == sequence:
            run.messages.append(message)
        else:
            run = Enqueued(now, sequence, [message])
            state.open_enqueued = run
            state.open_scheduled = None
            state.runs.append(run)
        entry = self._entry(sequence, message, now, message.expires_at)
        state.keep_body(entry, message)
        state.put(state.line(state.lane(MAIN), message.session_id), entry)
        return sequence

    def _entry(self, sequence: int, message: Message, now: int, expires_at: int) -> Entry:
        """Return a new entry whose body is the next to be written."""
        state = self._state
        position = state.next_position
        state.next_position = position + 1
        state.bodies.add(position, message.size)
        entry = Entry(sequence, position, now, expires_at, message.size, None)
        entry.session_id = message.session_id
        if message.has_past:
            entry.detailed().remember(message)
        return entry

    def _schedule(self, message: Message, now: int, reserved: int) -> int:
        state = self._state
        sequence = reserved
        if sequence == 0:
            sequence = state.next_sequence
            state.next_sequence = sequence + 1
        run = state.open_scheduled
        if run is not None and run.first_sequence + len(run.messages) == sequence:
            run.messages.append(message)
        else:
            run = Scheduled(now, sequence, [message])
            state.open_scheduled = run
            state.open_enqueued = None
            state.runs.append(run)
        entry = self._entry(sequence, message, now, NEVER)
        details = entry.detailed()
        details.scheduled_at = message.scheduled_at
        details.time_to_live_ms = message.time_to_live_ms
        lane = state.lane(MAIN)
        lane.schedule(entry, message.scheduled_at)
        state.watch(lane)
        return sequence

    def transfer(self, message: Message, destination: str, now: int) -> None:
        """Keep a message until it is forwarded to another entity."""
        state = self._state
        sequence = state.next_sequence
        state.next_sequence = sequence + 1
        state.runs.append(Transferring(now, sequence, message, destination))
        state.open_enqueued = None
        state.open_scheduled = None
        entry = self._entry(sequence, message, now, NEVER)
        entry.detailed().destination = destination
        state.put(state.lane(TRANSFER), entry)

    # Schedules that fall due.

    def activate(self, now: int) -> None:
        """Scheduled messages whose instant has come enter the line under new numbers, a stint of
        them."""
        state = self._state
        lane = state.lane(MAIN)
        if state.blueprint.router is not None:
            self._publish_due(lane, now)
            return
        first_sequence = state.next_sequence
        stint = state.stint
        due: list[Entry] = []
        olds: list[int] = []
        while not stint.is_over:
            entry = lane.next_due(now)
            if entry is None:
                break
            lane.take_due()
            stint.spend(1)
            due.append(entry)
            olds.append(entry.sequence)
            entry.sequence = state.next_sequence
            state.next_sequence += 1
            details = entry.detailed()
            # The service shows the scheduled instant as the time of entry.
            entry.enqueued_at = details.scheduled_at
            life_ms = shorter(details.time_to_live_ms, state.blueprint.time_to_live_ms)
            entry.expires_at = end_of_life(details.scheduled_at, life_ms)
            state.put(state.line(lane, entry.session_id), entry)
        if due:
            expirations = [entry.expires_at for entry in due]
            state.records.append(Activated(now, first_sequence, olds, expirations))

    def _publish_due(self, lane: Lane, now: int) -> None:
        """A topic's rules look at a message when it falls due; its body was fetched before, or the
        message waits for the next stint."""
        state = self._state
        stint = state.stint
        numbers: list[int] = []
        while not stint.is_over:
            entry = lane.next_due(now)
            message = None if entry is None else entry.message
            if entry is None or message is None or self._copying.is_full:
                break
            lane.take_due()
            stint.spend(1, entry.size)
            self._copying.publish(message, now, entry.detailed().scheduled_at)
            numbers.append(entry.sequence)
            state.forget(entry)
        if numbers:
            state.records.append(Removed(now, MAIN, DUE, numbers))

    # Refusing.

    def refuse_any(
        self, origin: Origin, tags: list[int], messages: list[Message], now: int
    ) -> bool:
        """Refuse all of them where one cannot be taken; return whether that is so."""
        size = 0
        for message in messages:
            refusal = self.why_not(message, now, size)
            if refusal is not None:
                self._state.replies.append(Refused(origin, tags, refusal))
                return True
            size += message.size
        return False


def _needs_a_look(message: Message, now: int) -> bool:
    """Return whether there is something about a message that its queue must act on."""
    return (
        message.time_to_live_ms >= 0
        or message.scheduled_at > now
        or message.session_id is not None
        or message.has_past
    )
