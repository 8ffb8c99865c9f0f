"""How a topic's message reaches its subscriptions: rules, one record, a copy in each lane.

A publish is one record, and so rests as a whole; what comes before and after it may be done in
stints. Before, the rules say which lanes take each message of a batch: that changes nothing, and
is begun again if the rules change meanwhile. Afterwards the copies are put into their lanes, in
the order of their numbers. Until all are there, the topic goes on; only what depends on an earlier
copy being in its lane waits: a change of the lanes, the beginning of a checkpoint. After a crash
the records give all copies at once.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from peeklock.entity.blueprint import Blueprint, Copy
from peeklock.entity.commands import (
    Command,
    Commit,
    PublishStages,
    Schedule,
    SendBatch,
    SendMany,
    TakeOver,
)
from peeklock.entity.deliveries import Details
from peeklock.entity.entries import Entry
from peeklock.entity.message import NEVER, Message
from peeklock.entity.moves.time_to_live import end_of_life, shorter
from peeklock.entity.state import State
from peeklock.entity.topics.records import Buried, CopiesBuried, Published

SESSION_MISSING: Final = "Session id is null."
SESSION_MISSING_TEXT: Final = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)
FILTER_FAILED: Final = "FilterException"

COPIES_MAX: Final = 65_536
"""While so many copies are still to be made, a topic takes no further messages."""


@final
class CopyTargets:
    """Where the copies that share a body go, when each expires, and which are dead letters."""

    __slots__ = ("buried", "dead", "expirations", "lanes")

    def __init__(self) -> None:
        self.lanes: list[int] = []
        self.expirations: list[int] = []
        # By their place: reason and description. None where there are none.
        self.dead: dict[int, tuple[str, str]] | None = None
        # The same, as it is written down.
        self.buried: Buried | None = None


@final
class Copies:
    """The copies of one body, of which the first `made` are in their lanes."""

    __slots__ = ("address", "at", "details", "first", "made", "message", "position")

    def __init__(
        self,
        address: CopyTargets,
        message: Message,
        first: int,
        position: int,
        at: int,
        number: int,
    ) -> None:
        self.address: CopyTargets = address
        self.message: Message = message
        self.first: int = first
        self.position: int = position
        self.at: int = at
        self.made: int = 0
        self.details: Details = copy_details(message, at, number)

    def entry(self, place: int) -> Entry:
        """Return the copy at this place of the address."""
        expires_at = self.address.expirations[place]
        size = self.message.size
        entry = Entry(self.first + place, self.position, self.at, expires_at, size, None)
        entry.session_id = self.message.session_id
        entry.details = self.details
        return entry


def copy_details(message: Message, at: int, number: int) -> Details:
    """Return what all copies of a message have in common. They share it, because who changes the
    details of an entry gives it details of its own."""
    details = Details()
    details.remember(message)
    details.enqueue_sequence = number
    details.scheduled_at = at if at == message.scheduled_at else NEVER
    return details


@final
class PublishDraft:
    """A message that is about to be published: what the rules said of it."""

    __slots__ = ("address", "at", "changed", "message")

    def __init__(
        self, message: Message, at: int, address: CopyTargets, changed: list[Copy]
    ) -> None:
        self.message: Message = message
        self.at: int = at
        self.address: CopyTargets = address  # of the copies that share its body
        self.changed: list[Copy] = changed  # those that an action gave a body of their own


@final
class Copying:
    """Publishes to the lanes of a topic."""

    __slots__ = (
        "_address",
        "_address_of",
        "_asked",
        "_drafts",
        "_first",
        "_mean",
        "_pending",
        "_state",
        "_version",
        "_was_due",
        "left",
    )

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._pending: deque[Copies] = deque()
        self.left: int = 0  # how many copies are still to be made
        # How many copies a message has had of late, sixteen times as many; -1: nobody knows yet.
        self._mean: int = -1
        self._was_due: bool = False  # whether the last message was one that fell due
        # The messages of one command that the rules were asked about: the first of them, how many
        # there are, what was said (by id), and by which rules.
        self._first: Message | None = None
        self._asked: int = 0
        self._drafts: dict[int, PublishDraft] = {}
        self._version: int = -1
        # The last address, and what it was made of: most messages of a run have the same.
        self._address: CopyTargets = CopyTargets()
        self._address_of: tuple[list[Copy], Blueprint, int, int, bool] | None = None

    @property
    def is_full(self) -> bool:
        """Whether messages that come now have to wait."""
        return self.left >= COPIES_MAX

    @property
    def expected(self) -> int:
        """How many copies a message will have, about: as many as those before it, and at least one
        for each subscription that takes everything."""
        blueprint = self._state.blueprint
        least = 0 if blueprint.rules is None else blueprint.rules.plain_count
        return min(len(blueprint.lanes), max(least, (self._mean + 15) >> 4))

    @property
    def owes_due(self) -> bool:
        """Whether scheduled messages come before sent ones as soon as there is room for either:
        they take turns, so that neither keeps the other out."""
        return self.is_full and not self._was_due

    # Before the record.

    def prepare(self, messages: list[Message], now: int) -> bool:
        """Ask the rules about the messages of one command, a stint of them; return whether all were
        asked. A few are not asked here, because they can be when they are published.

        Whoever is told that not all were asked comes again before anybody else does: what the
        rules said is kept for one command only."""
        stint = self._state.stint
        rules = self._state.blueprint.rules
        if not messages:
            return True
        if self._first is not messages[0]:
            self._forget()
            cost = 0 if rules is None else rules.cost_max
            if len(messages) * cost <= stint.steps_left:
                return True
            self._first = messages[0]
        version = 0 if rules is None else rules.version
        if version != self._version:
            self._forget()
            self._first = messages[0]
            self._version = version
        while self._asked < len(messages):
            if stint.is_over:
                return False
            message = messages[self._asked]
            self._asked += 1
            if message.scheduled_at <= now:
                self._drafts[id(message)] = self._draft(message, now)
        return True

    def _forget(self) -> None:
        self._first = None
        self._asked = 0
        self._drafts = {}

    def takes(self, message: Message, now: int) -> bool:
        """Return whether any lane wants the message."""
        draft = self._drafts.get(id(message))
        if draft is None or draft.message is not message:
            router = self._state.blueprint.router
            assert router is not None, "only a topic publishes"
            return len(router(message, now)) > 0
        return len(draft.address.lanes) + len(draft.changed) > 0

    def _draft(self, message: Message, at: int) -> PublishDraft:
        blueprint = self._state.blueprint
        router = blueprint.router
        assert router is not None, "only a topic publishes"
        copies = router(message, at)
        stint = self._state.stint
        stint.spend(0 if blueprint.rules is None else blueprint.rules.cost)
        life_ms = shorter(message.time_to_live_ms, blueprint.time_to_live_ms)
        has_session = message.session_id is not None
        known = self._address_of
        if (
            known is not None
            and known[0] is copies
            and known[1] is blueprint
            and known[2] == at
            and known[3] == life_ms
            and known[4] == has_session
        ):
            return PublishDraft(message, at, self._address, [])
        stint.spend(len(copies) >> 3)
        changed = [copy for copy in copies if copy.message is not None]
        shared = [copy for copy in copies if copy.message is None] if changed else copies
        address = self._addressed(shared, life_ms, has_session, at)
        if address.dead is not None:
            stint.spend(len(address.dead) >> 1)  # each has a failure of its own to be told of
        if not changed:
            self._address_of = (copies, blueprint, at, life_ms, has_session)
        return PublishDraft(message, at, address, changed)

    def _addressed(
        self, copies: list[Copy], life_ms: int, has_session: bool, at: int
    ) -> CopyTargets:
        state = self._state
        address = CopyTargets()
        for place, copy in enumerate(copies):
            lane = copy.lane
            address.lanes.append(lane)
            policy = state.policy(lane)
            address.expirations.append(end_of_life(at, shorter(life_ms, policy.time_to_live_ms)))
            why: tuple[str, str] | None = None
            if copy.failure:
                why = (FILTER_FAILED, copy.failure)
            elif policy.requires_session and not has_session:
                why = (SESSION_MISSING, SESSION_MISSING_TEXT)
            if why is not None:
                if address.dead is None:
                    address.dead = {}
                address.dead[place] = why
        last = self._address
        # Lists that are the same are packed once.
        if address.lanes == last.lanes:
            address.lanes = last.lanes
        if address.expirations == last.expirations:
            address.expirations = last.expirations
        if address.dead is not None:
            if address.lanes is last.lanes and address.dead == last.dead:
                address.dead = last.dead
                address.buried = last.buried
            else:
                address.buried = _buried(address.dead, address.lanes)
        self._address = address
        return address

    # The record.

    def publish(self, message: Message, now: int, scheduled_at: int = NEVER) -> int:
        """Return a copy to each lane that wants one; the body is written once for all of them.

        Answers the first number, or 0 where nobody wants it.
        """
        first = self._state.next_sequence
        self._was_due = scheduled_at != NEVER
        draft = self._drafts.pop(id(message), None)
        if draft is None or draft.message is not message:
            draft = self._draft(message, scheduled_at or now)
        # The number at the first enqueue stays what it was elsewhere.
        number = message.enqueue_sequence or first
        if draft.address.lanes:
            self._write(message, draft.address, number, draft.at, now)
        for copy in draft.changed:
            changed = copy.message
            if changed is not None:
                changed.inherit(message)
                life_ms = shorter(changed.time_to_live_ms, self._state.blueprint.time_to_live_ms)
                has_session = changed.session_id is not None
                self._address_of = None
                plain = Copy(copy.lane, None, copy.failure)
                address = self._addressed([plain], life_ms, has_session, draft.at)
                self._write(changed, address, number, draft.at, now)
        self.go_on()
        count = self._state.next_sequence - first
        self._mean = count << 4 if self._mean < 0 else self._mean + count - (self._mean >> 4)
        return first if count else 0

    def _write(
        self, message: Message, address: CopyTargets, number: int, at: int, now: int
    ) -> None:
        state = self._state
        first = state.next_sequence
        position = state.next_position
        lanes = address.lanes
        state.next_sequence = first + len(lanes)
        state.next_position = position + 1
        state.open_enqueued = None
        state.open_scheduled = None
        state.bodies.add_copies(position, message.size, len(lanes))
        state.runs.append(Published(at, first, message, lanes, address.expirations, number))
        if address.buried is not None:
            state.records.append(CopiesBuried(now, first, address.buried))
        self._pending.append(Copies(address, message, first, position, at, number))
        self.left += len(lanes)

    # After the record.

    def go_on(self) -> None:
        """Put copies into their lanes, a stint of them, in the order of their numbers."""
        stint = self._state.stint
        pending = self._pending
        while pending and not stint.is_over:
            copies = pending[0]
            count = len(copies.address.lanes)
            end = min(count, copies.made + stint.steps_left)
            stint.spend(end - copies.made)
            self.left -= end - copies.made
            for place in range(copies.made, end):
                self._place(copies, place)
            copies.made = end
            if end == count:
                pending.popleft()

    def _place(self, copies: Copies, place: int) -> None:
        state = self._state
        address = copies.address
        entry = copies.entry(place)
        lane = state.lane(address.lanes[place])
        if address.dead is not None and place in address.dead:
            dead = state.lane(lane.number | 1)
            bury(entry, address.dead[place])
            if entry.details is not None:
                state.bodies.detail_bytes += entry.details.weigh()
            dead.put(entry)
            state.touch(dead)
            return
        state.keep_body(entry, copies.message)
        state.put(state.line(lane, entry.session_id), entry)

    def outstanding(self) -> list[tuple[int, Entry]]:
        """Return the copies that are not in their lanes yet, each with the number of its lane."""
        found: list[tuple[int, Entry]] = []
        for copies in self._pending:
            address = copies.address
            for place in range(copies.made, len(address.lanes)):
                entry = copies.entry(place)
                lane = address.lanes[place]
                if address.dead is not None and place in address.dead:
                    bury(entry, address.dead[place])
                    lane |= 1
                found.append((lane, entry))
        return found


def _buried(dead: dict[int, tuple[str, str]], lanes: list[int]) -> Buried:
    notes: dict[tuple[str, str], int] = {}
    whys = [notes.setdefault(why, len(notes)) for why in dead.values()]
    places = list(dead)
    reasons = [reason for reason, _ in notes]
    descriptions = [description for _, description in notes]
    return Buried(places, [lanes[place] for place in places], whys, reasons, descriptions)


def bury(entry: Entry, why: tuple[str, str]) -> None:
    """A copy that its lane cannot have is a dead letter from the beginning."""
    details = entry.detailed()
    details.reason, details.description = why


def messages_of(command: Command) -> list[Message] | None:
    """Return the messages that a command brings, or None where it is of another kind."""
    if isinstance(command, (SendMany, SendBatch, Schedule, TakeOver)):
        return command.messages
    if isinstance(command, PublishStages):
        return []  # those are known when its turn has come
    if not isinstance(command, Commit):
        return None
    messages: list[Message] = []
    for work in command.work:
        if isinstance(work, (SendMany, SendBatch, Schedule)):
            messages += work.messages
    return messages
