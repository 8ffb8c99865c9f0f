"""The node behind a link on which a client receives: credit becomes grants, deliveries transfers.

The partition counts what it hands out and takes absolute limits, so that nothing races with what
is under way. The node asks for no more bytes than its link may have ahead of a slow reader, what
waits in the machine included, and for nothing while the connection cannot be written to. What its
link has not sent when it ends goes back to the queue.

A receiver of a message session is the same node: its link is attached when the session is its own,
and everything after that goes the same way.
"""

from typing import Final, final

from peeklock.amqp.sessions.delivery import OutgoingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.broker.entities import AttachedLink
from peeklock.budgets import Budget
from peeklock.entity.commands import (
    PEEK_LOCK,
    AcceptSession,
    CloseReceiver,
    Grant,
    OpenReceiver,
    Requeue,
    SettleMany,
)
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.refusals import LOCK_LOST, SESSION_LOCK_LOST, Refusal
from peeklock.entity.replies import (
    NOBODY,
    Delivered,
    Drained,
    Origin,
    Ready,
    ReceiverClosed,
    Refused,
    Reply,
    SessionAccepted,
    Settled,
)
from peeklock.entity.settlement import PLAIN_RELEASE
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.messages.translate import outgoing_run
from peeklock.gateway.amqp.namespace_context import Entity, rejected
from peeklock.gateway.amqp.nodes.outcomes import ANSWERS, OutcomeReader, ReadOutcome
from peeklock.gateway.amqp.nodes.session_attach import (
    SessionRequest,
    granted_properties,
    granted_source,
)
from peeklock.gateway.amqp.nodes.transactions import Work
from peeklock.step import LARGE_BYTES, STEP

# What one command puts back at most, beside one message's own size.
_REQUEUE_BYTES: Final = 1024 * 1024


@final
class ReceivingNode:
    """Hands the messages of one lane to one link and carries out what the client says of them."""

    __slots__ = (
        "_consumer",
        "_entity_link",
        "_granted",
        "_is_counted",
        "_is_draining",
        "_is_gone",
        "_is_waiting",
        "_lane",
        "_mode",
        "_outcomes",
        "_size_granted",
        "_size_taken",
        "_taken",
        "entity",
        "link",
        "output",
        "path",
        "session_id",
    )

    def __init__(
        self,
        output: ConnectionOutput,
        link: Link,
        entity: Entity,
        path: str,
        entity_link: AttachedLink,
        *,
        lane: int,
        mode: int,
    ) -> None:
        self.output: Final = output
        self.link: Final = link
        self.path: Final = path
        self.entity: Final = entity
        self._entity_link: Final = entity_link
        self._lane: Final = lane
        self._mode: Final = mode
        self._consumer: Final = output.consumer(link.name)
        self._outcomes: Final = OutcomeReader()
        # Both as the partition counts: what it has handed out, and how far it may go.
        self._taken = 0
        self._granted = 0
        self._size_taken = 0
        self._size_granted = 0
        # A drain is under way: until it has come back the partition's count cannot be known.
        self._is_draining = False
        # Among the links that share what the connection may have ahead.
        self._is_counted = False
        self._is_gone = False
        # A session was asked for and neither given nor refused: the attach is not answered.
        self._is_waiting = False
        # The session that is received from; None for a plain receiver.
        self.session_id: str | None = None

    def open(self) -> None:
        """Attach, and take a place at the queue."""
        self.link.accept()
        self._count()
        self.entity.submit(OpenReceiver(self, self._lane, self._mode, self._consumer))
        # Credit may have come with the attach.
        self.flowed()

    def open_session(self, request: SessionRequest, now: int) -> None:
        """Ask for a session; the link is attached when it is given, or refused."""
        self._is_waiting = True
        wait_until = now + request.wait_ms
        self.entity.submit(
            AcceptSession(
                self, 0, self._lane, self._mode, request.session_id, wait_until, self._consumer
            )
        )

    def flowed(self) -> None:
        """The client's credit changed, or the way out is free again: ask accordingly."""
        if self._is_draining or self._is_gone or self._is_waiting:
            return
        link = self.link
        wanted = self._taken + link.credit
        share = self.output.share
        free = 0 if self.output.is_writing_held else share - link.queued_size
        budget: Budget | None = self.output.unsent_budget.budget
        if self.output.may_have_one:
            # Others hold all there is for all. Who holds nothing still gets a message at a time.
            budget = None
            free = min(free, self.output.namespace_context.limits.delivery_bytes_min)
        if free <= 0 or (budget is not None and budget.is_exhausted):
            free = 0
            # What waits to be written is enough; it goes on when some of that has left.
            if link.credit or link.drain:
                if link.queued_size >= share:
                    link.wants_room = True
                elif self.output.is_writing_held:
                    self.output.wanting[self] = True
                else:
                    self.output.unsent_budget.line[self] = True
            if wanted >= self._granted:
                return
        count = self.output.namespace_context.limits.deliveries_max
        # What was granted stays granted, unless the client wants less now.
        limit = max(min(wanted, self._taken + count), min(wanted, self._granted))
        size_limit = max(self._size_granted, self._size_taken + free)
        if link.drain and free > 0:
            self._is_draining = True
        elif (
            budget is not None
            and (
                # Only part of the credit is asked for: go on when half of that part is used up.
                limit == self._granted
                or (limit < wanted and self._granted - self._taken > count // 2)
            )
            and (limit <= self._taken or self._size_granted - self._size_taken > share // 2)
        ):
            return
        self._granted = limit
        self._size_granted = size_limit
        self.entity.submit(Grant(self, limit, self._is_draining, False, size_limit, budget))

    def settlements(self, state: bytes, settled: bool, deliveries: list[OutgoingDelivery]) -> None:
        """Carry out what the client says became of messages; it waits for an answer unless it has
        settled them itself."""
        read = self._outcomes.read(state)
        tags = [delivery.id for delivery in deliveries]
        if isinstance(read, ReadOutcome):
            if read.txn_id:
                self._enlist(read, settled, deliveries)
            elif read.is_final or settled:
                tokens: list[LockToken] = [delivery.context for delivery in deliveries]
                origin: Origin = NOBODY if settled else self
                self.entity.submit(
                    SettleMany(origin, tags, read.settlement, tokens, self._consumer)
                )
        elif not settled:
            self._refuse(tags, read)

    def _enlist(self, read: ReadOutcome, settled: bool, deliveries: list[OutgoingDelivery]) -> None:
        """Let a transaction carry settlements out; they are answered as if it had."""
        if not read.is_final:
            return
        tags = [delivery.id for delivery in deliveries]
        tokens: list[LockToken] = [delivery.context for delivery in deliveries]
        command = SettleMany(NOBODY, tags, read.settlement, tokens, self._consumer)
        work = Work(self.entity, self.link, command=command, ids=tags)
        transactions = self.output.transactions
        transaction = transactions.find(read.txn_id)
        if isinstance(transaction, Refusal):
            refusal: Refusal | None = transaction
        else:
            refusal = transactions.enlist(
                transaction, work, self.output.namespace_context.clock.now()
            )
            if refusal is None and not settled:
                answer = transaction.answer(ANSWERS[read.settlement.outcome])
                self.link.settle_for_now(tags, answer)
        if refusal is not None and not settled:
            self._refuse(tags, refusal)

    def replied(self, reply: Reply) -> None:
        """Pass on what the queue has for this receiver."""
        if isinstance(reply, Delivered):
            self._deliver(reply)
        elif isinstance(reply, Settled):
            self.link.settle(reply.tags, ANSWERS[reply.outcome])
        elif isinstance(reply, Refused):
            if self._is_waiting:
                self._closed_by_queue(reply.refusal)
            else:
                self._refuse(reply.tags, reply.refusal)
        elif isinstance(reply, Drained):
            self._drained(reply.has_more)
        elif isinstance(reply, Ready):
            self._ran_short()
        elif isinstance(reply, SessionAccepted):
            self._accepted(reply)
        elif isinstance(reply, ReceiverClosed):
            self._closed_by_queue(reply.refusal)
        else:
            raise AssertionError(f"a receiver is not answered with {reply!r}")

    def flush(self) -> None:
        """Let the deliveries and answers go."""
        self.output.flush()

    def gone(self, *, is_broken: bool) -> None:
        """The link is no more: return what it has not sent, and leave the queue."""
        unsent = self.link.unsent
        if unsent:
            self.link.unsent = []
            self._give_back([delivery.context for delivery in unsent])
        if self._is_counted:
            self._is_counted = False
            self.output.receivers -= 1
        self.output.wanting.pop(self, None)
        self.output.unsent_budget.line.pop(self, None)
        if not self._is_gone:
            self._is_gone = True
            self.entity.submit(CloseReceiver(self, is_broken))

    def _count(self) -> None:
        self._is_counted = True
        self.output.receivers += 1

    def _accepted(self, reply: SessionAccepted) -> None:
        """The session is ours: attach the link that has waited for it."""
        if self._is_gone:
            # The partition hears of the closing after this and frees the session by it.
            return
        self._is_waiting = False
        self.session_id = reply.session_id
        is_attached = self.link.accept(
            source=granted_source(self.link, reply.session_id),
            properties=granted_properties(reply.locked_until),
        )
        if is_attached:
            self._count()
            # Credit may have come while the session was waited for.
            self.flowed()
        else:
            self.gone(is_broken=False)

    def _deliver(self, reply: Delivered) -> None:
        link = self.link
        locking = reply.mode == PEEK_LOCK
        deliveries = reply.deliveries
        self._taken += len(deliveries)
        self._size_taken += reply.size
        tags: list[bytes] = []
        heads: list[bytes] = []
        bodies: list[bytes] = []
        size = outgoing_run(deliveries, tags, heads, bodies)
        if locking:
            # Each stays with the link as its token until it is settled, and needs no body for
            # that. What is removed already keeps it until it is sent.
            for delivery in deliveries:
                delivery.message = None
        if size > LARGE_BYTES:
            STEP.works_on(size, max([len(body) for body in bodies]))
        self._send(tags, heads, bodies, deliveries, locking)
        if link.credit and (
            self._granted - self._taken < link.credit
            or self._size_granted - self._size_taken <= self.output.share // 2
        ):
            self.flowed()

    def _send(
        self,
        tags: list[bytes],
        heads: list[bytes],
        bodies: list[bytes],
        deliveries: list[Delivery],
        locking: bool,
    ) -> None:
        """Hand messages to the link; those that it does not take go back."""
        link = self.link
        sent = link.send_run(tags, heads, bodies, not locking, deliveries)
        while sent < len(tags) and self.output.push():
            # The output may have been full, and the transport has taken it.
            rest = (tags[sent:], heads[sent:], bodies[sent:])
            sent += link.send_run(*rest, not locking, deliveries[sent:])
        unwanted: list[Delivery] = []
        for at in range(sent, len(tags)):
            delivery = deliveries[at]
            if link.send(tags[at], heads[at], bodies[at], not locking, delivery) < 0:
                unwanted.append(delivery)
        self._give_back(unwanted)

    def _ran_short(self) -> None:
        """There is something, but the budget of all readers was exhausted: ask anew, when it is
        not. The end of a drain says so by itself."""
        if not self._is_draining:
            self._granted = self._taken
            self._size_granted = self._size_taken
            self.flowed()

    def _drained(self, has_more: bool) -> None:
        self._is_draining = False
        is_empty = self._taken < self._granted and not has_more
        self._taken = max(self._taken, self._granted)
        if is_empty or self.link.credit == 0:
            self.link.drained()
        # Credit that was not asked for yet, or that came while the drain was under way.
        self.flowed()

    def _closed_by_queue(self, refusal: Refusal) -> None:
        # The queue has forgotten this receiver already and need not be told.
        self._is_gone = True
        self._entity_link.dismiss(refusal)

    def _refuse(self, tags: list[int], refusal: Refusal) -> None:
        declined = self.output.namespace_context.refusal_writer.decline(
            refusal,
            entity=self.path,
            operation="settle",
            peer=self.output.peer_name,
            count=len(tags),
            kind=self.entity.kind,
        )
        if refusal.kind in (LOCK_LOST, SESSION_LOCK_LOST):
            self.link.settle(tags, rejected(declined))
            return
        # The lock is as it was: whoever is told this may settle the message in another way.
        self.link.settle_for_now(tags, rejected(declined))
        self.output.transactions.keep(self.link, tags)

    def _give_back(self, deliveries: list[Delivery]) -> None:
        """Return messages that were never sent; no delivery is counted."""
        if not deliveries:
            return
        if self._mode == PEEK_LOCK:
            tokens: list[LockToken] = list(deliveries)
            self.entity.submit(SettleMany(NOBODY, [0] * len(tokens), PLAIN_RELEASE, tokens))
            return
        # In pieces, so that nobody waits long for one large write; nothing comes in between.
        if self._granted:
            self._granted = 0
            self.entity.submit(Grant(self, 0, False, False, 0))
        part: list[Delivery] = []
        size = 0
        for delivery in deliveries:
            message = delivery.message
            assert message is not None, "what is removed keeps its body until it is sent"
            part.append(delivery)
            size += message.size
            if size >= _REQUEUE_BYTES:
                self.entity.submit(Requeue(self._lane, part))
                part = []
                size = 0
        if part:
            self.entity.submit(Requeue(self._lane, part))
