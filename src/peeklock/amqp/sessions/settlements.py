"""The outcomes of a session's deliveries: ours gathered into ranges, the peer's spread to links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from peeklock.amqp.errors import INVALID_FIELD
from peeklock.amqp.frames.fast import build_disposition, parse_disposition
from peeklock.amqp.frames.headers import SERIAL_HALF, SERIAL_MASK
from peeklock.amqp.sessions.delivery import OutgoingDelivery
from peeklock.amqp.sessions.link import RECEIVER, Link
from peeklock.amqp.sessions.wide_ranges import WideRanges
from peeklock.amqp.transitions import MAPPED

if TYPE_CHECKING:
    from peeklock.amqp.sessions.session import Session

# So many numbers of a range may name nothing before it is looked up in another way.
MISSED_MAX: Final = 64
# How `received` begins, in every encoding of its descriptor: it is no outcome [3.4.1].
RECEIVED: Final = (
    b"\x00\x53\x23",
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x23",
    b"\x00\xa3\x12amqp:received:list",
    b"\x00\xb3\x00\x00\x00\x12amqp:received:list",
)


@final
class SessionSettlements:
    """What was told and what is to be told about the deliveries of one session [2.6.12]."""

    __deletable__ = ("session",)
    __slots__ = ("awaited", "kept", "session", "told", "unsettled", "wide", "wide_kept")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.unsettled = session.outgoing.unsettled
        self.wide = WideRanges(session.outgoing.unsettled)
        # What goes out with the next output: (our role, settled, state) -> delivery ids.
        self.told: dict[tuple[int, bool, bytes], list[int]] = {}
        # What we received and told the outcome of, while the sender has not settled it.
        self.awaited: dict[int, Link] = {}
        # What we sent and told to be settled, although the owner may have to settle it anew.
        self.kept: dict[int, OutgoingDelivery] = {}
        self.wide_kept = WideRanges(self.kept, in_order=False)

    def settle(self, link: Link, delivery_ids: list[int], state: bytes, settled: bool) -> None:
        """Gather outcomes for the next output and forget what is settled."""
        key = (link.role, settled, state)
        told = self.told.get(key)
        if told is None:
            told = []
            self.told[key] = told
            self.session.mark_dirty()
        if link.role == RECEIVER:
            told.extend(delivery_ids)
            if not settled:
                for delivery_id in delivery_ids:
                    self.awaited[delivery_id] = link
                link.awaited.update(delivery_ids)
            return
        unsettled = self.unsettled
        for delivery_id in delivery_ids:
            # The peer may have settled it meanwhile; then it waits for nothing.
            if delivery_id in unsettled:
                told.append(delivery_id)
                if settled:
                    del unsettled[delivery_id]
            elif delivery_id in self.kept:
                told.append(delivery_id)
                if settled:
                    self.release([delivery_id])
        if self.session.outgoing.queue:
            self.session.outgoing.pump()

    def found(self, delivery_ids: list[int]) -> list[OutgoingDelivery]:
        """Return those of our deliveries that the peer can still tell an outcome of."""
        found = [self.unsettled.get(i) or self.kept.get(i) for i in delivery_ids]
        return [delivery for delivery in found if delivery is not None]

    def keep(self, deliveries: list[OutgoingDelivery]) -> None:
        """Hold deliveries ready for another outcome; the peer's window does not count them."""
        for delivery in deliveries:
            # What was said of it was answered: it is open for what is said next.
            delivery.told = False
            self.kept[delivery.id] = delivery
            self.wide_kept.moved(delivery.id)
            delivery.link.kept[delivery.id] = delivery

    def release(self, delivery_ids: list[int]) -> None:
        """Drop deliveries that were kept."""
        for delivery_id in delivery_ids:
            kept = self.kept.pop(delivery_id, None)
            if kept is not None:
                del kept.link.kept[delivery_id]

    def answer(self, first: int, count: int, state: bytes) -> None:
        """Tell a peer that waits for it what became of deliveries that are settled already."""
        if self.session.state == MAPPED:
            last = (first + count - 1) & SERIAL_MASK
            self.session.write(build_disposition(False, first, last, True, state))

    def _was_sent(self, first: int, count: int) -> bool:
        """Return whether every number of a range has been that of a delivery."""
        outgoing = self.session.outgoing
        sent = (outgoing.next_delivery_id - first) & SERIAL_MASK
        return count <= sent <= (outgoing.next_delivery_id - outgoing.first_id) & SERIAL_MASK

    def flush(self) -> None:
        """Write what was gathered, as few and as wide ranges as there are."""
        told = self.told
        self.told = {}
        for (role, settled, state), ids in told.items():
            if ids:
                ids.sort()
                self._write(role == RECEIVER, settled, state, ids)

    def _write(self, receiver: bool, settled: bool, state: bytes, ids: list[int]) -> None:
        session = self.session
        first, last = ids[0], ids[-1]
        if last - first == len(ids) - 1 and ids == list(range(first, last + 1)):
            session.write(build_disposition(receiver, first, last, settled, state))
            return
        last = first
        for delivery_id in ids:
            if delivery_id > last + 1:
                session.write(build_disposition(receiver, first, last, settled, state))
                first = delivery_id
            last = delivery_id
        session.write(build_disposition(receiver, first, last, settled, state))

    def forget(self, link: Link) -> None:
        """Drop what is awaited on a link that goes away."""
        for delivery_id in link.awaited:
            self.awaited.pop(delivery_id, None)
        link.awaited.clear()
        for delivery_id in link.kept:
            del self.kept[delivery_id]
        link.kept.clear()

    def clear(self) -> None:
        """Drop everything, because the session is over."""
        self.told.clear()
        self.awaited.clear()
        self.kept.clear()

    def on_disposition(self, data: bytes, position: int, end: int) -> None:
        """Take the outcome of a range of deliveries, ours or the peer's [2.7.6]."""
        told = parse_disposition(data, position, end)
        first = told.first
        count = ((told.last - first) & SERIAL_MASK) + 1
        if count > SERIAL_HALF:
            self.session.fail(INVALID_FIELD, f"a disposition from {first} back to {told.last}")
        elif told.role:
            self._on_outcome(first, count, told.state, told.settled)
        elif told.settled and self.awaited:
            self._on_answer(first, count, told.state)

    def _on_outcome(self, first: int, count: int, outcome: bytes, settled: bool) -> None:
        if not settled and (not outcome or outcome.startswith(RECEIVED)):
            return  # nothing is decided: it will be said again
        known = self._spread(first, count, outcome, settled)
        if self.kept:
            for delivery in self._kept_within(first, count):
                known += 1
                self._tell(delivery, outcome, settled)
        if known < count:
            # Whoever settles a range may name what is settled already; with nothing else in it,
            # and unsettled, it waits for an answer.
            is_awaited = known == 0 and not settled and self._was_sent(first, count)
            if is_awaited or (outcome and not _is_plain(outcome)):
                pass_events = self.session.connection.pass_events
                pass_events.stray(self.session, outcome, first, count, is_awaited)
        if settled and self.session.outgoing.queue:
            self.session.outgoing.pump()

    def _spread(self, first: int, count: int, outcome: bytes, settled: bool) -> int:
        """Tell the outcome to the deliveries of a range; return how many of them there are.

        The range is the peer's word: its numbers are walked while they name something.
        """
        unsettled = self.unsettled
        known = 0
        missed = 0
        ahead = 0
        told: list[OutgoingDelivery] | None = None
        link: Link | None = None
        while ahead < count:
            delivery = unsettled.get((first + ahead) & SERIAL_MASK)
            ahead += 1
            if delivery is None or delivery.told:
                # Also who says the same again has it walked only so far.
                missed += 1
                if missed > MISSED_MAX:
                    ahead -= 1
                    break
            if delivery is not None:
                known += 1
                if told is not None and delivery.link is link and not settled:
                    delivery.told = True
                    told.append(delivery)
                else:
                    link = delivery.link
                    told = self._tell(delivery, outcome, settled)
        if ahead < count:
            for delivery in self.wide.within((first + ahead) & SERIAL_MASK, count - ahead):
                known += 1
                self._tell(delivery, outcome, settled)
        return known

    def _kept_within(self, first: int, count: int) -> list[OutgoingDelivery]:
        if count > MISSED_MAX:
            return self.wide_kept.within(first, count)
        kept = [self.kept.get((first + ahead) & SERIAL_MASK) for ahead in range(count)]
        return [delivery for delivery in kept if delivery is not None]

    def _tell(
        self, delivery: OutgoingDelivery, outcome: bytes, settled: bool
    ) -> list[OutgoingDelivery]:
        """Add a delivery to those of its link with this outcome; return these."""
        link = delivery.link
        if not settled:
            delivery.told = True
        elif self.unsettled.pop(delivery.id, None) is None:
            self.release([delivery.id])
        settling = link.settling
        if settling is None or settling.settled != settled or settling.outcome != outcome:
            settling = self.session.connection.pass_events.settlements(link, outcome, settled)
        settling.deliveries.append(delivery)
        return settling.deliveries

    def _on_answer(self, first: int, count: int, state: bytes) -> None:
        awaited = self.awaited
        ids: list[int] = []
        if count <= len(awaited):
            for ahead in range(count):
                delivery_id = (first + ahead) & SERIAL_MASK
                if delivery_id in awaited:
                    ids.append(delivery_id)
        else:
            # The range is the peer's word: what is awaited is walked, never its numbers.
            for delivery_id in awaited:
                if (delivery_id - first) & SERIAL_MASK < count:
                    ids.append(delivery_id)
        for delivery_id in ids:
            link = awaited.pop(delivery_id)
            link.awaited.discard(delivery_id)
            answered = link.answered
            if answered is None or answered.state != state:
                answered = self.session.connection.pass_events.answers(link, state)
            answered.ids.append(delivery_id)


def _is_plain(state: bytes) -> bool:
    """Return whether a state is `received` or one of the four outcomes, in the usual encoding
    [3.4]."""
    return len(state) > 2 and state[1] == 0x53 and 0x23 <= state[2] <= 0x27
