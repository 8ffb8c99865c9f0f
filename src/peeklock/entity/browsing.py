"""Reaching messages by number or age instead of by turn: peek, deferred, batch delete, counts."""

from __future__ import annotations

from typing import Any, final

from peeklock.entity.commands import (
    DEAD,
    MAIN,
    PEEK_LOCK,
    Count,
    DeleteMany,
    Peek,
    ReceiveDeferred,
)
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED
from peeklock.entity.delivering import Delivering, look_at
from peeklock.entity.lane import Entry
from peeklock.entity.records import DEFERRED, PURGED, SCHEDULED, Removed
from peeklock.entity.refusals import ENTITY_DISABLED, MESSAGE_NOT_FOUND, Refusal
from peeklock.entity.replies import (
    STATE_ACTIVE,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Counted,
    Delivery,
    Found,
    Numbered,
    Refused,
)
from peeklock.entity.state import State


@final
class Browsing:
    """Looks at and fetches messages out of turn."""

    __slots__ = ("_delivering", "_state")

    def __init__(self, state: State, delivering: Delivering) -> None:
        self._state: State = state
        self._delivering: Delivering = delivering

    def peek(self, command: Peek) -> None:
        """Messages in the order of their numbers, within the limits, at least one if any."""
        if self._refuse_disabled(command.origin, command.tag):
            return
        lane = self._state.lanes[command.lane]
        found: list[Delivery] = []
        size = 0
        for entry in lane.browse(command.from_sequence, command.count_max):
            size += entry.size
            if found and size > command.bytes_max:
                break
            found.append(look_at(entry, _seen_as(entry)))
        self._state.replies.append(Found(command.origin, command.tag, found))

    def receive_deferred(self, command: ReceiveDeferred, now: int) -> None:
        """Deferred messages by number, all or none."""
        if self._refuse_disabled(command.origin, command.tag):
            return
        state = self._state
        lane = state.lanes[command.lane]
        entries: list[Entry] = []
        for sequence in dict.fromkeys(command.sequences):
            entry = lane.deferred.get(sequence)
            if entry is None:
                text = f"No deferred message has the sequence number {sequence}."
                refusal = Refusal(MESSAGE_NOT_FOUND, text)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
            entries.append(entry)
        until = now + state.definition.lock_duration_ms
        found: list[Delivery] = []
        for entry in entries:
            del lane.deferred[entry.sequence]
            if command.mode == PEEK_LOCK:
                found.append(self._delivering.lock(lane, entry, command.origin, until, True))
            else:
                found.append(self._delivering.remove(lane, entry, STATE_DEFERRED))
            lane.handed_out.append(entry.sequence)
        state.replies.append(Found(command.origin, command.tag, found))

    def delete_many(self, command: DeleteMany, now: int) -> None:
        """The oldest ready messages that entered before an instant are deleted."""
        if self._refuse_disabled(command.origin, command.tag):
            return
        state = self._state
        lane = state.lanes[command.lane]
        deleted: list[int] = []
        for entry in lane.oldest(command.enqueued_before, command.count_max):
            deleted.append(entry.sequence)
            state.forget(lane.drop_ready(entry))
        lane.skip_gone()
        if deleted:
            state.records.append(Removed(now, lane.number, PURGED, deleted))
        state.replies.append(Numbered(command.origin, command.tag, [len(deleted)]))

    def count(self, command: Count) -> None:
        """How many messages are in which state."""
        main = self._state.lanes[MAIN]
        dead = self._state.lanes[DEAD]
        locked = len(main.locked)
        self._state.replies.append(
            Counted(
                command.origin,
                command.tag,
                active=main.ready_count + locked,
                dead_letter=dead.ready_count + len(dead.locked) + len(dead.deferred),
                scheduled=len(main.scheduled),
                deferred=len(main.deferred),
                locked=locked,
                bytes=self._state.bodies.size,
            )
        )

    def _refuse_disabled(self, origin: Any, tag: int) -> bool:
        definition = self._state.definition
        if definition.status not in (DISABLED, RECEIVE_DISABLED):
            return False
        text = f"Messaging entity '{definition.path}' is currently disabled."
        self._state.replies.append(Refused(origin, [tag], Refusal(ENTITY_DISABLED, text)))
        return True


def _seen_as(entry: Entry) -> int:
    if entry.place == DEFERRED:
        return STATE_DEFERRED
    if entry.place == SCHEDULED:
        return STATE_SCHEDULED
    return STATE_ACTIVE
