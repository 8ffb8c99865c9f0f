"""The node behind a link on which a client sends: transfers become commands, replies outcomes."""

from typing import Final, final

from peeklock.amqp.dialect import BATCH_FORMAT, BATCH_SIZE_MAX
from peeklock.amqp.errors import DECODE_ERROR, AmqpError, DecodeError
from peeklock.amqp.events import RunReceived
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED, encode_rejected
from peeklock.amqp.values.types import Symbol, Ulong
from peeklock.entity.commands import Commit, SendBatch, SendMany, Stage
from peeklock.entity.message import Message
from peeklock.entity.refusals import INVALID_ARGUMENT, MESSAGE_TOO_BIG, NOT_ALLOWED, Refusal
from peeklock.entity.replies import Numbered, Refused, Reply, SendsAccepted
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.messages.translate import incoming, incoming_run, via_key_of
from peeklock.gateway.amqp.namespace_context import Entity, rejected
from peeklock.gateway.amqp.nodes.batches import BATCH_COUNT_MAX, BatchReading
from peeklock.gateway.amqp.nodes.transactions import Work, transfers
from peeklock.gateway.amqp.passes import Begun, Pass
from peeklock.step import LARGE_BYTES, STEP

# What the service grants a sender.
CREDIT: Final = 1_000
# So much may be used before a flow tops it up: small enough that a sender with all of it in flight
# is not kept waiting, large enough that the flows cost nothing.
_USED_BEFORE_TOP_UP: Final = 100

_BATCH_SIZE_MAX: Final = Symbol(BATCH_SIZE_MAX)
# A message that is somewhat too large is rejected and the link lives on; beyond this much more the
# machine gives the link up instead of gathering the rest of it.
_GATHERED_BEYOND_MAX: Final = 1024 * 1024


@final
class SendingNode:
    """Takes messages for a queue; each is answered when it is stored, or refused."""

    __slots__ = (
        "_begun",
        "_destination",
        "_entity",
        "_ids",
        "_in_flight",
        "_stage",
        "link",
        "output",
        "path",
    )

    def __init__(
        self,
        output: ConnectionOutput,
        link: Link,
        entity: Entity,
        path: str,
        destination: Entity | None = None,
        stage: str = "",
    ) -> None:
        self.output: Final = output
        self.link: Final = link
        self.path: Final = path
        self._entity: Final = entity
        # Where the messages are forwarded to after this entity has taken them.
        self._destination: Final[Entity | None] = destination
        # The stage in which the messages rest until it is published; nothing for most.
        self._stage: Final = stage
        self._ids: Final = output.namespace_context.message_ids
        self._in_flight = 0
        # The batch that is being read, in as many passes as it takes.
        self._begun: Final = Begun()

    def open(self) -> None:
        """Attach, and let the client send at once."""
        size_max = self._size_max()
        self.link.accept(max_message_size=size_max, properties={_BATCH_SIZE_MAX: Ulong(size_max)})
        self.link.max_message_size = size_max + _GATHERED_BEYOND_MAX
        self.output.connection.held.allow_message(2 * self.link.max_message_size)
        self.link.takes_runs = self._destination is None
        self.link.grant(CREDIT)

    def transfers(self, deliveries: list[IncomingDelivery], now: int, work: Pass) -> int:
        """Pass on what arrived in one pass as one command, as far as its order allows; answers how
        many are done, if not all of them fit this pass."""
        if self._destination is not None:
            return self._take_each(deliveries, now, work)
        size_max = self._entity.message_size_max
        wants_keys = self._entity.wants_keys
        tags: list[int] = []
        messages: list[Message] = []
        size = 0
        settled = False
        done = 0
        for delivery in deliveries:
            if work.left <= 0:
                break
            payload = delivery.payload
            is_batch = delivery.message_format == BATCH_FORMAT
            if tags and (is_batch or delivery.settled != settled):
                self._submit(tags, messages, size, settled)
                tags = []
                messages = []
                size = 0
            settled = delivery.settled
            if is_batch or len(payload) > size_max or delivery.state is not None:
                if not self._take_one(delivery, now, work):
                    break
                done += 1
                continue
            done += 1
            work.left -= 1
            try:
                messages.append(incoming(payload, now, self._ids, wants_keys))
            except DecodeError as error:
                self._malformed(delivery, error)
                continue
            tags.append(delivery.id)
            size += len(payload)
        if tags:
            self._submit(tags, messages, size, settled)
        return done

    def _take_each(self, deliveries: list[IncomingDelivery], now: int, work: Pass) -> int:
        done = 0
        for delivery in deliveries:
            if work.left <= 0 or not self._take_one(delivery, now, work):
                break
            done += 1
        return done

    def run(self, event: RunReceived, now: int) -> None:
        """Pass on messages that have nothing special as one command."""
        entity = self._entity
        payloads = event.payloads
        messages = incoming_run(
            payloads, entity.message_size_max, now, self._ids, entity.wants_keys
        )
        if len(messages) == len(payloads):
            self._submit(event.ids, messages, sum(map(len, payloads)), event.settled)
            return
        # At least one will be refused: each is looked at. There are no more than had credit.
        deliveries = [
            IncomingDelivery(id, b"", 0, event.settled, payload, None)
            for id, payload in zip(event.ids, payloads, strict=True)
        ]
        while deliveries:
            del deliveries[: self.transfers(deliveries, now, Pass())]

    def replied(self, reply: Reply) -> None:
        """Tell the client what became of its messages."""
        if isinstance(reply, SendsAccepted):
            self.link.settle(reply.tags, ACCEPTED)
            self._finished(len(reply.tags))
        elif isinstance(reply, Refused):
            declined = self.output.namespace_context.refusal_writer.decline(
                reply.refusal,
                entity=self.path,
                operation="send",
                peer=self.output.peer_name,
                count=len(reply.tags),
                kind=self._entity.kind,
            )
            self.link.settle(reply.tags, rejected(declined))
            self._finished(len(reply.tags))
        elif isinstance(reply, Numbered):
            self.link.settle([reply.tag], ACCEPTED)
            self._finished(1)
        else:
            raise AssertionError(f"a sender is not answered with {reply!r}")

    def replied_unasked(self, reply: Reply) -> None:
        """Take the reply to messages whose sender wants none; a refusal is still written down."""
        if isinstance(reply, Refused):
            self.output.namespace_context.refusal_writer.decline(
                reply.refusal,
                entity=self.path,
                operation="send",
                peer=self.output.peer_name,
                count=len(reply.tags),
                kind=self._entity.kind,
            )
            self._finished(len(reply.tags))
        elif isinstance(reply, SendsAccepted):
            self._finished(len(reply.tags))
        elif isinstance(reply, Numbered):
            self._finished(1)
        else:
            raise AssertionError(f"a sender is not answered with {reply!r}")

    def flush(self) -> None:
        """Let the answers go."""
        self.output.flush()

    def _submit(self, tags: list[int], messages: list[Message], size: int, settled: bool) -> None:
        self._in_flight += len(tags)
        if size > LARGE_BYTES:
            STEP.works_on(size, max([message.size for message in messages]))
        self.output.took(len(tags), size)
        origin = Unanswered(self) if settled else self
        if self._stage:
            self._entity.submit(Stage(origin, tags, messages, self._stage))
        else:
            self._entity.submit(SendMany(origin, tags, messages))

    def _take_one(self, delivery: IncomingDelivery, now: int, work: Pass) -> bool:
        """Take what does not go the short way: too large, a batch, within a transaction, or for
        another entity; answers whether it is done, or goes on in another pass."""
        begun = self._begun.take(delivery)
        size = len(delivery.payload)
        size_max = self._size_max()
        if size > size_max:
            text = (
                f"The received message (delivery-id:{delivery.id}, size:{size} bytes) exceeds "
                f"the limit ({size_max} bytes) currently allowed on the link."
            )
            self._refuse(delivery, Refusal(MESSAGE_TOO_BIG, text))
            return True
        is_batch = delivery.message_format == BATCH_FORMAT
        is_plain = delivery.state is None and self._destination is None
        messages: list[Message] = []
        via_keys: list[str | None] = []
        try:
            if is_batch:
                batch = begun if isinstance(begun, BatchReading) else BatchReading(delivery.payload)
                if not self._read_on(batch, is_plain, now, work):
                    self._begun.keep(delivery, batch)
                    return False
                if batch.is_too_long:
                    text = f"A batch has at most {BATCH_COUNT_MAX} messages; send it in several."
                    self._refuse(delivery, Refusal(MESSAGE_TOO_BIG, text))
                    return True
                messages = batch.messages
                via_keys = batch.via_keys
            else:
                work.left -= 1
                # With its keys, because another entity may have to decide by them.
                messages = [incoming(delivery.payload, now, self._ids, True)]
                via_keys = [via_key_of(delivery.payload)]
        except DecodeError as error:
            self._malformed(delivery, error)
            return True
        if delivery.state is not None:
            self._enlist(delivery, delivery.state, messages, via_keys, now)
        elif not messages:
            if not delivery.settled:
                self.link.settle([delivery.id], ACCEPTED)
            self._finished(0)
        elif self._destination is not None:
            self._transfer(delivery, messages, via_keys)
        else:
            self._submit_batch(delivery, messages)
        return True

    def _read_on(self, batch: BatchReading, is_plain: bool, now: int, work: Pass) -> bool:
        """Read on in a batch; answers whether nothing is left to be read."""
        wants_keys = not is_plain or self._entity.wants_keys
        return batch.read(work, now, self._ids, wants_keys=wants_keys, wants_via_keys=not is_plain)

    def _submit_batch(self, delivery: IncomingDelivery, messages: list[Message]) -> None:
        self._in_flight += 1
        self.output.took(1, len(delivery.payload))
        origin = Unanswered(self) if delivery.settled else self
        if self._stage:
            self._entity.submit(Stage(origin, [delivery.id], messages, self._stage, True))
        else:
            self._entity.submit(SendBatch(origin, delivery.id, messages))

    def _enlist(
        self,
        delivery: IncomingDelivery,
        state: bytes,
        messages: list[Message],
        via_keys: list[str | None],
        now: int,
    ) -> None:
        """Make messages part of a transaction; they are answered as if it had ended well."""
        if self._stage:
            self._refuse(delivery, Refusal(NOT_ALLOWED, texts.NO_STAGING_IN_TRANSACTIONS))
            return
        transactions = self.output.transactions
        transaction = transactions.named_by(state)
        if isinstance(transaction, Refusal):
            self._refuse(delivery, transaction)
            return
        work = Work(
            self._entity,
            self.link,
            messages=messages,
            via_keys=via_keys,
            destination=self._destination,
        )
        refusal = transactions.enlist(transaction, work, now)
        if refusal is not None:
            self._refuse(delivery, refusal)
            return
        if not delivery.settled:
            self.link.settle([delivery.id], transaction.answer(ACCEPTED))
        self._finished(0)

    def _transfer(
        self, delivery: IncomingDelivery, messages: list[Message], via_keys: list[str | None]
    ) -> None:
        """Send by way of this entity to another: a transaction of its own."""
        destination = self._destination
        assert destination is not None, "everything else goes the short way"
        self._in_flight += 1
        self.output.took(1, len(delivery.payload))
        origin = Unanswered(self) if delivery.settled else self
        work = transfers(destination, messages, via_keys)
        self._entity.submit(Commit(origin, delivery.id, work))

    def _size_max(self) -> int:
        own = self._entity.message_size_max
        return own if self._destination is None else min(own, self._destination.message_size_max)

    def _finished(self, count: int) -> None:
        self._in_flight -= count
        self.output.finished(count)
        credit = CREDIT - self._in_flight
        if credit - self.link.credit >= _USED_BEFORE_TOP_UP:
            self.link.grant(credit)

    def _malformed(self, delivery: IncomingDelivery, error: DecodeError) -> None:
        text = f"The message cannot be read: {error.text}."
        self._refuse(delivery, Refusal(INVALID_ARGUMENT, text), DECODE_ERROR)

    def _refuse(
        self, delivery: IncomingDelivery, refusal: Refusal, condition: str | None = None
    ) -> None:
        declined = self.output.namespace_context.refusal_writer.decline(
            refusal,
            entity=self.path,
            operation="send",
            peer=self.output.peer_name,
            kind=self._entity.kind,
        )
        if not delivery.settled:
            error = AmqpError(condition or declined.condition, declined.text)
            self.link.settle([delivery.id], encode_rejected(error))
        if delivery.state is not None:
            transactions = self.output.transactions
            transactions.doom(transactions.named_by(delivery.state), refusal)
        # It has used credit like any other.
        self._finished(0)


@final
class Unanswered:
    """The origin of messages that came settled: their sender is never answered (R-T4)."""

    __slots__ = ("_node",)

    def __init__(self, node: SendingNode) -> None:
        self._node: Final = node

    def replied(self, reply: Reply) -> None:
        """Take note, and say nothing."""
        self._node.replied_unasked(reply)

    def flush(self) -> None:
        """Let go what taking note has caused: a flow with new credit."""
        self._node.flush()
