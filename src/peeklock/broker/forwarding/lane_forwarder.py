"""The forwarder of one lane: takes messages out of it, sends them on, and settles them here.

A message stays in its lane, locked, until its destination has said that it rests there; only then
it is completed here. A crash in between repeats the sending, which the destination ignores, so
that nothing is lost and nothing doubled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, final

from peeklock.broker.forwarding.dead_letters import TOO_MANY_HOPS, dead_letter_of
from peeklock.broker.forwarding.forget_notices import Find, ForgetNotices
from peeklock.broker.forwarding.former_destinations import UNKNOWN, FormerDestinations, LaneOwner
from peeklock.broker.forwarding.route import BACKOFF_MS_MAX, BACKOFF_MS_MIN, HeldMessage, Route
from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.commands import (
    COMPLETE,
    FORWARD,
    TRANSFER,
    CloseReceiver,
    Grant,
    OpenReceiver,
    Peek,
    SettleMany,
)
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.refusals import (
    INTERNAL,
    LOCK_LOST,
    Refusal,
)
from peeklock.entity.replies import Delivered, Found, ReceiverClosed, Refused, Reply, Settled
from peeklock.entity.settlement import PLAIN_COMPLETE, PLAIN_RELEASE, Settlement
from peeklock.entity.topics.wording import Wording

# What is in hand at once: enough that a store's write carries a run, little beside the memory.
WINDOW_MAX: Final = 256
WINDOW_BYTES_MAX: Final = 1 << 20

# Transfers that wait for one destination leave room for those to others, up to this.
WAITING_MAX: Final = 1024
WAITING_BYTES_MAX: Final = 8 << 20

# Dead letters that cannot go on are set aside without their bodies, and tried again a few at once.
STUCK_MAX: Final = 4096
RETRY_MAX: Final = 64

# Above every number; and the tag of what is asked besides settlements, which have numbers as tags.
BEYOND: Final = 1 << 62
NO_TAG: Final = 0

HOPS_MAX: Final = 4
# A dead letter may be there because its hops are used up: it has as many of its own, and no more,
# so that entities that send each other their dead letters come to rest.
DEAD_LETTER_HOPS_MAX: Final = 2 * HOPS_MAX
# What the journal calls whoever forwards messages; the name is on disk and stays.
CONSUMER: Final = "$carrier"

# Destinations of a transfer lane that are remembered although nothing goes there now.
IDLE_ROUTES_MAX: Final = 64

_log: Final = logging.getLogger("peeklock.broker")


@final
class LaneForwarder:
    """Empties one lane into its destination, from when it opens until its receiver is lost."""

    __slots__ = (
        "_active",
        "_active_size",
        "_arrived",
        "_backoff_ms",
        "_before",
        "_clock",
        "_closed",
        "_dead_letters",
        "_delivered",
        "_find",
        "_former",
        "_fresh",
        "_held",
        "_is_recovered",
        "_limit",
        "_lowest",
        "_notices",
        "_on_lost",
        "_owner",
        "_path",
        "_refusal_told",
        "_retired",
        "_retrying",
        "_routes",
        "_size_delivered",
        "_size_limit",
        "_stuck",
        "_timer",
        "_timers",
        "_unsettled",
        "_wording",
        "destination",
        "has_begun",
        "has_settled",
        "lane",
    )

    def __init__(
        self,
        lane: int,
        path: str,
        destination: str,
        owner: LaneOwner,
        notices: ForgetNotices,
        find: Find,
        wording: Wording,
        clock: Clock,
        timers: Timers,
        on_lost: Callable[[LaneForwarder], None],
        before: int = UNKNOWN,
    ) -> None:
        self.lane: int = lane
        self.destination: str = destination  # empty where each message names its own
        self.has_settled: bool = False  # the lane has stored what was asked of it
        self._path: str = path  # of the entity that the lane belongs to
        self._owner: LaneOwner = owner
        self._notices: ForgetNotices = notices
        self._find: Find = find
        self._wording: Wording = wording
        self._clock: Clock = clock
        self._timers: Timers = timers
        self._on_lost: Callable[[LaneForwarder], None] = on_lost
        self._before: int = before  # what is known of destinations before this one
        self._former: FormerDestinations | None = None
        self.has_begun: bool = False  # it has a place among the lane's receivers
        self._routes: dict[str, Route] = {}
        # The lowest number that lived in the lane when this began; 0 while that is not known.
        self._lowest: int = 0
        self._held: dict[int, HeldMessage] = {}  # everything that is locked for this, by number
        self._active: int = 0  # of these, what is not stuck
        self._active_size: int = 0
        self._delivered: int = 0
        self._limit: int = 0
        self._size_delivered: int = 0
        self._size_limit: int = 0
        # What the answers of a round ask for; done at its end.
        self._fresh: list[HeldMessage] = []
        self._arrived: list[HeldMessage] = []
        self._dead_letters: list[HeldMessage] = []
        # Settlements that were refused for a reason that passes (the entity is disabled).
        self._unsettled: list[HeldMessage] = []
        self._stuck: deque[HeldMessage] = deque()
        self._retrying: set[int] = set()
        self._is_recovered: bool = False  # a message that was stuck has arrived
        self._refusal_told: str = ""
        self._backoff_ms: int = BACKOFF_MS_MIN
        self._timer: Timer | None = None
        self._retired: bool = False
        self._closed: bool = False

    # From outside.

    def start(self) -> None:
        """Take a place among the lane's receivers; before that, ask for what lives there, and have
        it written down where it goes."""
        self._owner.submit(Peek(self, NO_TAG, self.lane, 0, 1, 1))
        if not self.destination:
            self._begin({})
            return
        self._former = FormerDestinations(
            self.lane,
            self.destination,
            self._notices.source,
            self._owner,
            self._find,
            self._clock,
            self._timers,
            self._begin,
            self._lose,
        )
        self._former.start(self._before)

    def _begin(self, taken: dict[str, list[int]]) -> None:
        """Take a place; these numbers are at destinations that the lane had before."""
        self._former = None
        for path, numbers in taken.items():
            self._notices.sent(path, numbers)
        self.has_begun = True
        self._owner.submit(OpenReceiver(self, self.lane, FORWARD, CONSUMER))
        self._grant()

    def retire(self) -> None:
        """Take nothing more; what has not left goes back, what may have left is brought to an
        end."""
        self._retired = True
        self._call_off()
        self._owner.submit(CloseReceiver(self, False))
        back = self._fresh
        self._fresh = []
        for route in self._routes.values():
            back += route.withdraw()
        stuck = [held for held in self._held.values() if held.is_stuck]
        self._stuck.clear()
        for held in stuck:
            self._fetch_back(held)
        self._settle(back + stuck, PLAIN_RELEASE)

    def nudge(self) -> None:
        """Something changed: what waits here is tried now."""
        if self._timer is not None:
            self._timer.cancel()
            self._backoff_ms = BACKOFF_MS_MIN
            self._on_timer()

    def close(self, is_removed: bool) -> None:
        """Do nothing any more. What a removed lane has under way will not come again."""
        if is_removed:
            for route in self._routes.values():
                self._notices.gone(route.path, route.in_doubt())
            for held in self._held.values():
                if held.settlement is PLAIN_COMPLETE:
                    self._notices.gone(held.path, [held.sequence])
        self._close()

    @property
    def has_some_away(self) -> bool:
        """Whether a destination may have something that is still here."""
        away = any(route.in_doubt() for route in self._routes.values())
        away = away or self._notices.is_in_doubt
        return away or any(held.settlement is PLAIN_COMPLETE for held in self._held.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be brought to an end."""
        return not self._held

    # As an origin of the lane.

    def replied(self, reply: Reply) -> None:
        """The lane handed messages out, or settled them."""
        if self._closed:
            return
        if isinstance(reply, Delivered):
            self._size_delivered += reply.size
            self._take(reply.deliveries)
        elif isinstance(reply, Settled):
            self._settled(reply)
        elif isinstance(reply, Refused):
            self._not_settled(reply)
        elif isinstance(reply, Found):
            self._know_lowest(reply)
        elif isinstance(reply, ReceiverClosed):
            self._lose()

    def flush(self) -> None:
        """All answers of a round are there."""
        self.go_on()

    # As the sender of its routes.

    def arrived(self, held: list[HeldMessage]) -> None:
        """These rest at their destination: they are to be completed here."""
        for each in held:
            each.message = None
            if each.sequence in self._retrying:
                self._retrying.discard(each.sequence)
                self._is_recovered = True
        self._arrived += held
        self._refusal_told = ""

    def cannot_arrive(self, held: list[HeldMessage], refusal: Refusal) -> None:
        """The destination will not take these: they become dead letters, if they are none yet."""
        if self._retired:
            self._settle(held, PLAIN_RELEASE)  # they need not go there any more
            return
        if refusal.kind != self._refusal_told:
            self._refusal_told = refusal.kind
            _log.warning(
                "forwarding-refused source=%s destination=%s refusal=%s",
                self._notices.source,
                held[0].path,
                refusal.kind,
            )
        if self._is_dead_letter:
            for each in held:
                self._set_aside(each)
                self._stuck.append(each)
                self._retrying.discard(each.sequence)
            self._later()
            return
        settlement = dead_letter_of(refusal)
        for each in held:
            self._dead_letter(each, settlement)

    def go_on(self) -> None:
        """Do what the answers of a round ask for, in runs."""
        if self._closed:
            return
        while self._fresh:
            self._send_fresh()
        if self._arrived:
            arrived = self._arrived
            self._arrived = []
            self._settle(arrived, PLAIN_COMPLETE)
        if self._dead_letters:
            self._settle_dead_letters()
        if self._is_recovered:
            self._is_recovered = False
            self._backoff_ms = BACKOFF_MS_MIN
            self._retry_stuck()
        self._grant()

    # Taking.

    @property
    def _is_dead_letter(self) -> bool:
        return self.lane & 1 == 1

    def _know_lowest(self, reply: Found) -> None:
        # One whose body is damaged lived there as well: those above it may be in doubt.
        found = reply.deliveries[0].sequence if reply.deliveries else reply.first_lost
        self._lowest = found or BEYOND
        if self.destination and not self._retired:
            self._route(self.destination)

    def _take(self, deliveries: list[Delivery]) -> None:
        self._delivered += len(deliveries)
        self._notices.seen([delivery.sequence for delivery in deliveries])
        for delivery in deliveries:
            known = self._held.get(delivery.sequence)
            if known is None:
                self._take_one(delivery)
                continue
            # The lane dropped our lock and gave a new one, as a change of the entity may do. What
            # was sent under the old one is settled with the new one.
            known.lock_number = delivery.number

    def _take_one(self, delivery: Delivery) -> None:
        details = delivery.details
        path = self.destination
        if not path and details is not None:
            path = details.destination
        path = self._notices.destination_of(delivery.sequence, path)
        held = HeldMessage(delivery.sequence, delivery.number, path)
        self._held[held.sequence] = held
        self._active += 1
        if self._retired:
            self._settle([held], PLAIN_RELEASE)
            return
        hops = 0 if details is None else details.hops
        if hops >= (DEAD_LETTER_HOPS_MAX if self._is_dead_letter else HOPS_MAX):
            self._use_up(held)
            return
        try:
            message = self._wording.forwarded(delivery, self._path if self._is_dead_letter else "")
        except Exception:  # noqa: BLE001 - one unreadable message must not hold up the others
            _log.exception("forwarding-failed source=%s", self._notices.source)
            text = "The message could not be read to be forwarded."
            self.cannot_arrive([held], Refusal(INTERNAL, text))
            return
        held.message = message
        held.size = message.size
        self._active_size += held.size
        self._fresh.append(held)

    def _use_up(self, held: HeldMessage) -> None:
        """The message has travelled enough."""
        if self._is_dead_letter:
            # It stays where it is, and trying again would not help.
            self._set_aside(held)
        else:
            self._dead_letter(held, TOO_MANY_HOPS)
        _log.warning(
            "forwarding-ended source=%s destination=%s hops=%d",
            self._notices.source,
            held.path,
            HOPS_MAX,
        )

    def _grant(self) -> None:
        """Ask for as much as there is room for, in steps that are worth a command."""
        is_enough = self._limit - self._delivered > WINDOW_MAX // 2
        size_left = self._size_limit - self._size_delivered
        if self._retired or not self.has_begun or (is_enough and size_left > WINDOW_BYTES_MAX // 2):
            return
        active = self._active
        size = self._active_size
        if self.lane == TRANSFER:
            for route in self._routes.values():
                active -= min(route.waiting, WAITING_MAX)
                size -= min(route.waiting_size, WAITING_BYTES_MAX)
        if size >= WINDOW_BYTES_MAX or len(self._held) - self._active >= STUCK_MAX:
            return
        limit = max(self._limit, self._delivered + WINDOW_MAX - active)
        size_limit = max(self._size_limit, self._size_delivered + WINDOW_BYTES_MAX - size)
        is_worth_it = size_limit - self._size_limit >= WINDOW_BYTES_MAX // 4
        if limit > self._limit or is_worth_it:
            self._limit = limit
            self._size_limit = size_limit
            self._owner.submit(Grant(self, limit, False, False, size_limit))

    # Sending.

    def _send_fresh(self) -> None:
        fresh = self._fresh
        self._fresh = []
        by_path: dict[str, list[HeldMessage]] = {}
        for held in fresh:
            by_path.setdefault(held.path, []).append(held)
        for path, run in by_path.items():
            self._route(path).send(run)

    def _route(self, path: str) -> Route:
        route = self._routes.get(path)
        if route is None:
            if len(self._routes) >= IDLE_ROUTES_MAX:
                self._routes = {
                    name: each for name, each in self._routes.items() if not each.is_idle
                }
            route = Route(path, self._notices.source, self, self._find, self._clock, self._timers)
            self._routes[path] = route
            if self._lowest:
                self._notices.none_below(path, self._lowest)
        return route

    # Settling.

    def _dead_letter(self, held: HeldMessage, settlement: Settlement) -> None:
        held.settlement = settlement
        held.message = None
        self._dead_letters.append(held)

    def _settle_dead_letters(self) -> None:
        """Dead-letter what cannot go on, together where the reasons are the same."""
        dead_letters = self._dead_letters
        self._dead_letters = []
        run: list[HeldMessage] = []
        for held in dead_letters:
            if run and run[-1].settlement != held.settlement:
                self._settle(run, run[-1].settlement)
                run = []
            run.append(held)
        self._settle(run, run[-1].settlement)

    def _settle(self, held: list[HeldMessage], settlement: Settlement | None) -> None:
        if not held:
            return
        assert settlement is not None, "what is settled again was settled before"
        tags: list[int] = []
        tokens: list[LockToken] = []
        for each in held:
            each.settlement = settlement
            each.settled_with = each.lock_number
            tags.append(each.sequence)
            tokens.append(LockToken(each.sequence, each.lock_number))
        self._owner.submit(SettleMany(self, tags, settlement, tokens, CONSUMER))

    def _settled(self, reply: Settled) -> None:
        self.has_settled = True
        gone: dict[str, list[int]] = {}
        for number in reply.tags:
            held = self._held.get(number)
            if held is not None:
                self._drop(held)
                if reply.outcome == COMPLETE:
                    gone.setdefault(held.path, []).append(number)
        for path, numbers in gone.items():
            self._notices.gone(path, numbers)

    def _not_settled(self, reply: Refused) -> None:
        for number in reply.tags:
            held = self._held.get(number)
            if held is None:
                continue
            if reply.refusal.kind != LOCK_LOST:
                self._unsettled.append(held)
            elif held.lock_number != held.settled_with:
                self._settle([held], held.settlement)
            else:
                self._drop(held)
                if held.settlement is PLAIN_COMPLETE:
                    self._notices.doubt(held.path, number)
        if self._unsettled:
            self._later()

    def _drop(self, held: HeldMessage) -> None:
        del self._held[held.sequence]
        if not held.is_stuck:
            self._active -= 1
            self._active_size -= held.size

    # What cannot go on and is a dead letter already.

    def _set_aside(self, held: HeldMessage) -> None:
        self._active -= 1
        self._active_size -= held.size
        held.is_stuck = True
        held.message = None
        held.size = 0

    def _fetch_back(self, held: HeldMessage) -> None:
        held.is_stuck = False
        self._active += 1

    def _retry_stuck(self) -> None:
        """Give some back to the lane, which hands them out again with their bodies."""
        back: list[HeldMessage] = []
        while self._stuck and len(back) < RETRY_MAX:
            held = self._stuck.popleft()
            self._fetch_back(held)
            self._retrying.add(held.sequence)
            back.append(held)
        self._settle(back, PLAIN_RELEASE)

    def _later(self) -> None:
        if self._timer is None:
            self._timer = self._timers.set(self._clock.now() + self._backoff_ms, self._on_timer)
            self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)

    def _on_timer(self) -> None:
        self._timer = None
        unsettled = self._unsettled
        self._unsettled = []
        for held in unsettled:
            self._settle([held], held.settlement)
        self._retry_stuck()
        if self._stuck:
            self._later()
        self.go_on()

    # Ending.

    def _lose(self) -> None:
        """The receiver is closed and its locks are lost: all that is unsettled comes again."""
        for held in self._held.values():
            if held.settlement is PLAIN_COMPLETE:
                self._notices.doubt(held.path, held.sequence)
        for route in self._routes.values():
            self._notices.sent(route.path, route.in_doubt())
        self._close()
        self._on_lost(self)

    def _call_off(self) -> None:
        """Whatever destinations before this one have, nobody wants to know."""
        if self._former is not None:
            self._former.close()
            self._former = None

    def _close(self) -> None:
        self._closed = True
        for route in self._routes.values():
            route.close()
        self._held.clear()
        self._stuck.clear()
        self._call_off()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
