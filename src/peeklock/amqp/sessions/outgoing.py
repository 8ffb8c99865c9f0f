"""The sending half of a session: what was sent, what waits for the peer's window, the ids [2.5.6].

A message goes out at once while the peer's window is open and the output has room. Otherwise it
joins one queue for all links of the session, because delivery ids must follow each other without
gaps: rhea ends the connection at the first gap. What is in the queue when its link ends was never
sent, and its owner gets it back.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, final

from peeklock.amqp.frames.fast import build_transfer
from peeklock.amqp.frames.headers import HEAD_SIZE, SERIAL_MASK, frame_head, serial_distance
from peeklock.amqp.sessions.delivery import OutgoingDelivery

if TYPE_CHECKING:
    from peeklock.amqp.sessions.link import Link
    from peeklock.amqp.sessions.session import Session

# rhea keeps unsettled deliveries in a ring of 2,048 and announces it as its window. It is the
# distance from the oldest to the newest that counts, so that one old delivery can hold up the
# session. A smaller window is a plain flow window and says nothing of unsettled deliveries.
SPAN_MIN: Final = 2048

# A lock token as a tag: the frames of such deliveries differ in size, id and tag only.
TAG_SIZE: Final = 16
HEAD_PACK: Final = Struct(">IBBH").pack
ID_AND_TAG: Final = Struct(">IH16s").pack
FIXED_SIZE: Final = HEAD_SIZE + 4 + 2 + TAG_SIZE
_FRAMES_MAX: Final = 1024
_frames: Final[dict[tuple[int, bool], tuple[bytes, bytes]]] = {}


def transfer_frame(handle: int, settled: bool) -> tuple[bytes, bytes]:
    """Return what stands before the id and behind the tag in a transfer of a whole message."""
    found = _frames.get((handle, settled))
    if found is None:
        raw = build_transfer(
            handle, SERIAL_MASK, bytes(TAG_SIZE), 0, settled, False, batchable=True
        )
        id_at = raw.index(b"\x70\xff\xff\xff\xff") + 1
        found = (raw[:id_at], raw[id_at + 4 + 2 + TAG_SIZE :])
        if len(_frames) >= _FRAMES_MAX:
            _frames.clear()
        _frames[(handle, settled)] = found
    return found


@final
class Outgoing:
    """Deliveries from us to the peer on one session."""

    __deletable__ = ("session",)
    __slots__ = (
        "first_id",
        "next_delivery_id",
        "next_outgoing_id",
        "oldest_id",
        "queue",
        "session",
        "span_max",
        "unsettled",
        "window",
    )

    def __init__(self, session: Session, first_id: int) -> None:
        self.session = session
        self.first_id = first_id
        # Transfer frames and deliveries are counted apart: a delivery may take several frames.
        self.next_outgoing_id = first_id
        self.next_delivery_id = first_id
        # No unsettled delivery is older than this one.
        self.oldest_id = first_id
        self.window = 0
        self.span_max = SPAN_MIN
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.queue: deque[WaitingDelivery] = deque()

    def on_begin(self, incoming_window: int) -> None:
        """Take the window that the peer starts with."""
        self.window = incoming_window
        self.span_max = max(SPAN_MIN, incoming_window)

    def on_flow(self, next_incoming_id: int, incoming_window: int) -> None:
        """Take the peer's window; what is on its way to it counts against it [2.5.6]."""
        seen = self.first_id if next_incoming_id < 0 else next_incoming_id
        self.window = max(0, incoming_window + serial_distance(seen, self.next_outgoing_id))
        if self.queue:
            self.pump()

    def send(
        self,
        link: Link,
        tag: bytes,
        head: bytes,
        body: bytes,
        settled: bool,
        context: Any,
        message_format: int,
        state: bytes | None,
    ) -> int:
        """Send one message now or queues it; return its delivery id."""
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        if not settled:
            unsettled = OutgoingDelivery(delivery_id, tag, link, context)
            self.unsettled[delivery_id] = unsettled
            link.sent.add(link, delivery_id, 1, self.unsettled)
        if not self.queue and self._has_room(delivery_id, delivery_id):
            connection = self.session.connection
            if len(tag) == TAG_SIZE and message_format == 0 and delivery_id > 255 and state is None:
                before, after = transfer_frame(link.handle, settled)
                # One pack for the frame's head, the id and the tag, around what never changes.
                size = len(before) + len(after) + FIXED_SIZE + len(head) + len(body)
                start = HEAD_PACK(size, 2, 0, self.session.channel) + before
                start += ID_AND_TAG(delivery_id, 0xA010, tag) + after
            else:
                performative = build_transfer(
                    link.handle,
                    delivery_id,
                    tag,
                    message_format,
                    settled,
                    False,
                    state=state,
                    batchable=True,
                )
                size = HEAD_SIZE + len(performative) + len(head) + len(body)
                start = frame_head(size, self.session.channel) + performative
            output = connection.output
            if size <= connection.peer_frame_max and output.takes(size):
                output.use(size)
                self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL_MASK
                self.window -= 1
                output.parts += (start, head, body)
                return delivery_id
        delivery = self.unsettled.get(delivery_id) if not settled else None
        if delivery is None:
            delivery = OutgoingDelivery(delivery_id, tag, link, context)
        self._wait(WaitingDelivery(link, delivery, [head, body], settled, message_format, state))
        return delivery_id

    def send_parts(self, link: Link, tag: bytes, parts: list[bytes]) -> None:
        """Send one message whose bytes lie in many places, settled; it is never put together."""
        delivery = OutgoingDelivery(self.next_delivery_id, tag, link, None)
        self.next_delivery_id = (delivery.id + 1) & SERIAL_MASK
        self._wait(WaitingDelivery(link, delivery, parts, True, 0, None))

    def _wait(self, waiting: WaitingDelivery) -> None:
        self.queue.append(waiting)
        link = waiting.link
        link.queued += 1
        link.queued_size += waiting.size
        self.session.connection.output.queued_size += waiting.size
        if len(self.queue) == 1:
            self.pump()  # else it stands behind one that waits already

    def send_run(
        self,
        link: Link,
        tags: list[bytes],
        heads: list[bytes],
        bodies: list[bytes],
        settled: bool,
        contexts: list[Any],
    ) -> int:
        """Send as many of these messages as leave at once in a frame each; return how many.

        All tags have the length of a lock token. What remains goes the general way, one by one.
        """
        first = self.next_delivery_id
        count = min(len(tags), self.window)
        last = first + count - 1
        if self.queue or count == 0 or first <= 255 or last > SERIAL_MASK:
            return 0
        if not self._has_room(first, last):
            return 0
        session = self.session
        channel = session.channel
        frame_max = session.connection.peer_frame_max
        output = session.connection.output
        parts = output.parts
        room = output.room
        unsettled = self.unsettled
        before, after = transfer_frame(link.handle, settled)
        fixed = len(before) + len(after) + FIXED_SIZE
        sent = 0
        # Neighbours are often of one size: the beginning of the frame is the same then.
        size_before = -1
        start = b""
        for sent in range(count):
            head = heads[sent]
            body = bodies[sent]
            size = fixed + len(head) + len(body)
            if size != size_before:
                if size > frame_max:
                    break
                start = HEAD_PACK(size, 2, 0, channel) + before
                size_before = size
            if size > room and room != output.room_max:
                break
            room -= size
            delivery_id = first + sent
            tag = tags[sent]
            if not settled:
                delivery = OutgoingDelivery(delivery_id, tag, link, contexts[sent])
                unsettled[delivery_id] = delivery
            parts.append(start + ID_AND_TAG(delivery_id, 0xA010, tag) + after)
            parts.append(head)
            parts.append(body)
        else:
            sent = count
        output.room = max(0, room)
        self.next_delivery_id = (first + sent) & SERIAL_MASK
        self.next_outgoing_id = (self.next_outgoing_id + sent) & SERIAL_MASK
        self.window -= sent
        if sent > 0 and not settled:
            link.sent.add(link, first, sent, unsettled)
        return sent

    def queue_drained(self, link: Link) -> None:
        """Answers a drain behind the messages of the link that still wait."""
        self.queue.append(WaitingDelivery(link, None, [], True, 0, None))

    def pump(self) -> None:
        """Write what waits, as far as the peer's window and the output's room go."""
        if not self.queue:
            return
        self._pump()
        output = self.session.connection.output
        if self.queue and output.room < output.room_max:
            self.session.connection.wait_for_output(self.session)

    def _pump(self) -> None:
        queue = self.queue
        output = self.session.connection.output
        while queue:
            waiting = queue[0]
            delivery = waiting.delivery
            if delivery is None:
                self.session.write_link_flow(waiting.link, drain=True)
            else:
                if waiting.position == 0 and not self._has_room(delivery.id, delivery.id):
                    return
                if not self._write_frames(waiting, delivery):
                    return
                link = waiting.link
                link.queued -= 1
                link.queued_size -= waiting.size
                output.queued_size -= waiting.size
                if link.wants_room:
                    link.wants_room = False
                    output.relieved.append(link)
            queue.popleft()

    def _write_frames(self, waiting: WaitingDelivery, delivery: OutgoingDelivery) -> bool:
        """Write frames of one message while the window and the room last; return whether all of it
        is out."""
        size = waiting.size
        connection = self.session.connection
        if waiting.position == 0 and waiting.is_plain:
            before, after = transfer_frame(waiting.link.handle, waiting.settled)
            whole = len(before) + len(after) + FIXED_SIZE + size
            if whole <= connection.peer_frame_max:
                output = connection.output
                if self.window <= 0 or not output.takes(whole):
                    return False
                output.use(whole)
                self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL_MASK
                self.window -= 1
                start = HEAD_PACK(whole, 2, 0, self.session.channel) + before
                start += ID_AND_TAG(delivery.id, 0xA010, delivery.tag) + after
                output.parts.append(start)
                output.parts += waiting.parts
                return True
        while self.window > 0:
            first = waiting.position == 0
            performative = build_transfer(
                waiting.link.handle,
                delivery.id,
                delivery.tag if first else None,
                waiting.message_format if first else -1,
                waiting.settled,
                True,
                state=waiting.state if first else None,
                batchable=True,
            )
            room = connection.peer_frame_max - HEAD_SIZE - len(performative)
            end = waiting.position + room
            last = end >= size
            if last:
                end = size
                performative = build_transfer(
                    waiting.link.handle,
                    delivery.id,
                    delivery.tag if first else None,
                    waiting.message_format if first else -1,
                    waiting.settled,
                    False,
                    state=waiting.state if first else None,
                    batchable=True,
                )
            if not connection.output.takes(len(performative) + end - waiting.position):
                return False
            self._write_frame(performative, waiting.take(end))
            if last:
                return True
        return False

    def _write_frame(self, performative: bytes, payload: bytes) -> None:
        self.next_outgoing_id = (self.next_outgoing_id + 1) & SERIAL_MASK
        self.window -= 1
        size = HEAD_SIZE + len(performative) + len(payload)
        output = self.session.connection.output
        output.use(size)
        output.parts.append(frame_head(size, self.session.channel) + performative)
        output.parts.append(payload)

    def _has_room(self, first: int, last: int) -> bool:
        """Return whether new deliveries fit the peer's window and its memory of unsettled ones."""
        if self.window <= 0:
            return False
        oldest = self.oldest_id
        if (last - oldest) & SERIAL_MASK < self.span_max:
            return True
        unsettled = self.unsettled
        while oldest != first and oldest not in unsettled:
            oldest = (oldest + 1) & SERIAL_MASK
        self.oldest_id = oldest
        return (last - oldest) & SERIAL_MASK < self.span_max

    def forget(self, link: Link) -> LinkRemains:
        """Drop everything of a link that goes away, and return what the owner may want back."""
        unsettled = link.sent.living(link, self.unsettled)
        for delivery in unsettled:
            del self.unsettled[delivery.id]
        unsent: list[OutgoingDelivery] = []
        if link.queued:
            unsent = self._leave_queue(link)
            never_left = {delivery.id for delivery in unsent}
            unsettled = [d for d in unsettled if d.id not in never_left]
            link.queued = 0
            self.session.connection.output.queued_size -= link.queued_size
            link.queued_size = 0
            link.unsent = unsent
        if self.queue:
            self.pump()
        return LinkRemains(unsettled, unsent)

    def _leave_queue(self, link: Link) -> list[OutgoingDelivery]:
        """Take a link's messages out of the queue and close the gap in the ids."""
        started = self.queue[0]
        kept: deque[WaitingDelivery] = deque()
        unsent: list[OutgoingDelivery] = []
        if started.position > 0:
            self.queue.popleft()
            if started.link is not link:
                kept.append(started)
            elif started.delivery is not None:
                unsent.append(started.delivery)
                if self.window > 0:
                    # Half a message is out: the peer must not wait for the rest [2.7.5].
                    aborted = build_transfer(
                        link.handle, started.delivery.id, None, -1, True, False, aborted=True
                    )
                    self._write_frame(aborted, b"")
        moved: list[OutgoingDelivery] = []
        next_id = -1
        for waiting in self.queue:
            delivery = waiting.delivery
            if delivery is not None and next_id < 0:
                next_id = delivery.id
            if waiting.link is link:
                if delivery is not None:
                    unsent.append(delivery)
                continue
            kept.append(waiting)
            if delivery is not None:
                if self.unsettled.pop(delivery.id, None) is not None:
                    moved.append(delivery)
                delivery.id = next_id
                next_id = (next_id + 1) & SERIAL_MASK
        for delivery in moved:
            self.unsettled[delivery.id] = delivery
            delivery.link.sent.add(delivery.link, delivery.id, 1, self.unsettled)
            self.session.settling.wide.moved(delivery.id)
        if next_id >= 0:
            self.next_delivery_id = next_id
        self.queue = kept
        return unsent

    def drop(self) -> None:
        """End with its session: each link learns what was never sent on it."""
        for waiting in self.queue:
            link = waiting.link
            if waiting.delivery is not None:
                link.unsent.append(waiting.delivery)
            link.queued = 0
            self.session.connection.output.queued_size -= link.queued_size
            link.queued_size = 0
        self.queue.clear()
        self.session.connection.waiting.pop(self.session, None)


@final
class WaitingDelivery:
    """A message that waits for the window or the output, or (without a delivery) the answer to a
    drain. Its parts are apart, because joining them would copy the body."""

    __slots__ = (
        "delivery",
        "link",
        "message_format",
        "parts",
        "position",
        "settled",
        "size",
        "started",
        "state",
        "used",
    )

    def __init__(
        self,
        link: Link,
        delivery: OutgoingDelivery | None,
        parts: list[bytes],
        settled: bool,
        message_format: int,
        state: bytes | None,
    ) -> None:
        self.link = link
        self.delivery = delivery
        self.parts = parts
        self.size = sum([len(part) for part in parts])
        # How much is written; how many parts are, and how much of the one that is begun.
        self.position = 0
        self.used = 0
        self.started = 0
        self.settled = settled
        self.message_format = message_format
        self.state = state

    @property
    def is_plain(self) -> bool:
        """Whether its frame is like that of most deliveries, if it is a single one."""
        delivery = self.delivery
        return (
            delivery is not None
            and len(delivery.tag) == TAG_SIZE
            and self.message_format == 0
            and self.state is None
            and delivery.id > 255
        )

    def take(self, end: int) -> bytes:
        """Hand over what is still to be written, up to a place in all parts together."""
        needed = end - self.position
        self.position = end
        taken: list[bytes] = []
        while needed > 0:
            part = self.parts[self.used]
            left = len(part) - self.started
            if left > needed:
                taken.append(part[self.started : self.started + needed])
                self.started += needed
                break
            taken.append(part[self.started :] if self.started else part)
            needed -= left
            self.used += 1
            self.started = 0
        return taken[0] if len(taken) == 1 else b"".join(taken)


@final
class LinkRemains:
    """What a link leaves behind: sent but not settled, and never sent."""

    __slots__ = ("unsent", "unsettled")

    def __init__(self, unsettled: list[OutgoingDelivery], unsent: list[OutgoingDelivery]) -> None:
        self.unsettled = unsettled
        self.unsent = unsent
