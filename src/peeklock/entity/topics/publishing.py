"""Which lanes of a topic take a message, and what each gets: the rules' answer as copies."""

from __future__ import annotations

from typing import final

from peeklock.entity.blueprint import Copy, LanePolicy
from peeklock.entity.message import Message
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.rule import ONLY_PLAIN, ChangedCopy, Outcomes, PlainCopy
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.topics.wording import Wording


@final
class Publishing:
    """Routes the messages of one topic; made anew with each blueprint, whose lanes it knows.

    The rules are shared and may be ahead of the blueprint for a moment: a lane that the partition
    does not have yet, or no longer has, takes nothing.
    """

    __slots__ = ("_everybody", "_lanes", "_plain", "_rules", "_version", "_wording")

    def __init__(self, rules: TopicRules, lanes: dict[int, LanePolicy], wording: Wording) -> None:
        self._rules: TopicRules = rules
        self._lanes: dict[int, LanePolicy] = lanes
        self._wording: Wording = wording
        # A copy that shares the published body says nothing but its lane: one object for all.
        self._plain: dict[int, Copy] = {lane: Copy(lane) for lane in lanes}
        # What every message gets, where no rule looks at it; known for one version of the rules.
        self._everybody: list[Copy] | None = None
        self._version: int = -1

    def route(self, message: Message, now: int) -> list[Copy]:
        """Say what each lane gets, in the order of the lanes. The answer is not to be changed: it
        may be the same list for all messages."""
        if self._version != self._rules.version:
            self._version = self._rules.version
            always = self._rules.always
            plain_copies = self._plain
            self._everybody = None
            if always is not None:
                self._everybody = [plain_copies[key] for key in always if key in plain_copies]
        if self._everybody is not None:
            return self._everybody
        copies: list[Copy] = []
        plain = self._plain
        last = -1
        is_ordered = True
        for lane, outcomes in self._rules.match(self._wording.reader(message, now)):
            copy = plain.get(lane)
            if copy is None:
                continue
            if lane < last:
                is_ordered = False
            last = lane
            if outcomes is ONLY_PLAIN:
                copies.append(copy)
            else:
                self._add(copies, copy, outcomes, message)
        if not is_ordered:
            copies.sort(key=_lane)
        return copies

    def _add(self, copies: list[Copy], plain: Copy, outcomes: Outcomes, message: Message) -> None:
        for outcome in outcomes:
            if isinstance(outcome, PlainCopy):
                copies.append(plain)
            elif isinstance(outcome, ChangedCopy):
                self._add_changed(copies, plain.lane, outcome, message)
            else:
                self._add_failure(copies, plain.lane, outcome.rule, outcome.text)

    def _add_changed(
        self, copies: list[Copy], lane: int, outcome: ChangedCopy, message: Message
    ) -> None:
        try:
            copies.append(Copy(lane, self._wording.changed(message, outcome.changes)))
        except FilterError as wrong:
            # The action made a value that no message can carry.
            self._add_failure(copies, lane, outcome.rule, wrong.text)

    def _add_failure(self, copies: list[Copy], lane: int, rule: str, text: str) -> None:
        if self._lanes[lane].dead_letter_on_filter_error:
            copies.append(Copy(lane, None, f"{rule}: {text}"))


def _lane(copy: Copy) -> int:
    return copy.lane
