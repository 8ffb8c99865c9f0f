"""The end of a link where messages leave: a queue for want of credit, and a future for each."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, final

from peeklock.amqp.dialect import BATCH_FORMAT, BATCH_SIZE_MAX
from peeklock.amqp.errors import MESSAGE_SIZE_EXCEEDED, DecodeError
from peeklock.amqp.frames.states import Accepted, Declared, Rejected, TransactionalState
from peeklock.amqp.frames.termini import Coordinator, Target
from peeklock.amqp.sessions.delivery import IncomingDelivery, OutgoingDelivery
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.values.composites import ACCEPTED, decode_composite
from peeklock.client.connections.attachment import Attachment
from peeklock.client.connections.transport import Transport
from peeklock.client.exceptions import MessageSizeExceededError, ServiceBusError, from_error

# Where a broker does not say how large a batch may be; the service takes no larger one.
_LARGEST_BATCH: Final = 1 << 20
_TAG_SIZE: Final = 16
# Sends that leave together; the last sizes of lists are thrown away soon.
_RUN_MAX: Final = 1024
_NOTHING: Final = [b""] * _RUN_MAX


@final
class SenderLink:
    """A link on which messages leave; each send is a future."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        target: Target | Coordinator,
        *,
        session: Session | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        if session is None:
            session = transport.entity_session()
        self.name: Final = name
        # The largest message that the entity takes, 0 says that there is no limit; and the largest
        # batch, which may be smaller.
        self.max_message_size = 0
        self.max_batch_size = _LARGEST_BATCH
        # Called once, when the link is gone, with the reason; for whoever opened it.
        self.when_gone: Callable[[ServiceBusError], None] | None = None
        self.transport: Final = transport
        self._loop: Final = transport.loop
        self._link: Final = session.attach_sender(name, target, properties=properties)
        self._attachment: Final = Attachment(transport, self._link, self)
        # What waits for credit or for the end of this turn of the loop, side by side.
        self._payloads: list[bytes] = []
        self._formats: list[int] = []
        self._states: list[bytes | None] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._is_due = False
        self._sent = 0

    @property
    def is_open(self) -> bool:
        """Whether messages can leave; a link that is gone never comes back, open another one."""
        return self._attachment.is_open

    @property
    def is_gone(self) -> bool:
        """Whether the link was open, or about to be, and is not any more."""
        return self._attachment.error is not None

    @property
    def pending_count(self) -> int:
        """How many sends are queued or under way and have no outcome yet."""
        return len(self._payloads) + len(self._link.session.outgoing.unsettled)

    def submit(
        self, payload: bytes, *, is_batch: bool = False, state: bytes | None = None
    ) -> asyncio.Future[Any]:
        """Send an encoded message, or a batch of them; the future tells the outcome.

        `state` makes it part of a transaction; where the message declares one, the future gives
        its id. It waits its turn while there is no credit. A future that is cancelled before its
        message left takes the message back; later it makes no difference to the message.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._attachment.error is not None:
            future.set_exception(self._attachment.failure())
            return future
        if 0 < self.max_message_size < len(payload):
            # Said here, because a broker ends the link for it.
            future.set_exception(_too_large(len(payload), self.max_message_size))
            return future
        self._payloads.append(payload)
        self._formats.append(BATCH_FORMAT if is_batch else 0)
        self._states.append(state)
        self._futures.append(future)
        if not self._is_due:
            self._is_due = True
            self.transport.pump_soon(self)
        return future

    async def wait_open(self, within_s: float) -> None:
        """Wait until the broker has attached its side."""
        await self._attachment.wait(within_s)

    def leave(self, error: ServiceBusError) -> None:
        """Detach without waiting; what has no outcome yet fails with this."""
        self._attachment.leave(error)

    async def close(self) -> None:
        """Detach; what has no outcome yet fails."""
        await self._attachment.detach()

    # --- what the transport calls

    def pump(self) -> None:
        """Hand over to the engine what credit allows, most of it in one go."""
        self._is_due = False
        while self._payloads:
            count = min(len(self._payloads), self._link.credit, _RUN_MAX)
            if count <= 0 or not self._link.attached:
                return
            payloads = self._payloads[:count]
            formats = self._formats[:count]
            states = self._states[:count]
            futures = self._futures[:count]
            del self._payloads[:count], self._formats[:count]
            del self._states[:count], self._futures[:count]
            if any(map(asyncio.Future.done, futures)):
                kept = [at for at in range(count) if not futures[at].done()]
                payloads = [payloads[at] for at in kept]
                formats = [formats[at] for at in kept]
                states = [states[at] for at in kept]
                futures = [futures[at] for at in kept]
            self._send(payloads, formats, states, futures)
        # The broker may want back what is left, and waits for an answer.
        self._link.drained()

    def _send(
        self,
        payloads: list[bytes],
        formats: list[int],
        states: list[bytes | None],
        futures: list[asyncio.Future[Any]],
    ) -> None:
        link, count, first = self._link, len(payloads), self._sent
        self._sent += count
        tags = [number.to_bytes(_TAG_SIZE, "big") for number in range(first, first + count)]
        done = 0
        if count > 1 and not any(formats) and not any(states):
            done = link.send_run(tags, _NOTHING[:count], payloads, False, futures)
        for at in range(done, count):
            link.send(tags[at], b"", payloads[at], False, futures[at], formats[at], states[at])

    def on_attached(self) -> None:
        """The broker has attached its side, and said how large a message may be."""
        self.max_message_size = self._link.peer_max_message_size
        batches = (self._link.properties or {}).get(BATCH_SIZE_MAX)
        self.max_batch_size = batches if isinstance(batches, int) and batches else _LARGEST_BATCH
        if self.max_message_size:
            self.max_batch_size = min(self.max_batch_size, self.max_message_size)
        self._attachment.attached()

    def on_flow(self) -> None:
        """There is credit, or the broker wants it back."""
        if self._payloads:
            if not self._is_due:
                self._is_due = True
                self.transport.pump_soon(self)
        elif self._link.drain:
            self._link.drained()

    def on_outcomes(
        self, outcome: bytes, is_settled: bool, deliveries: list[OutgoingDelivery]
    ) -> None:
        """The broker took messages, or said why not."""
        if not is_settled:
            self._link.settle([delivery.id for delivery in deliveries], outcome)
        result = b"" if outcome == ACCEPTED else _accepted(outcome)
        if result is not None:
            for delivery in deliveries:
                future = delivery.context
                if not future.done():
                    future.set_result(result)
            return
        for delivery in deliveries:
            future = delivery.context
            if not future.done():
                future.set_exception(_refusal(outcome))

    def on_gone(self, error: ServiceBusError, lost: list[OutgoingDelivery]) -> None:
        """The link is no more: every send without an outcome fails."""
        lost = lost or self._link.unsettled()
        if not self._attachment.gone(error):
            return
        futures = [delivery.context for delivery in lost] + self._futures
        self._payloads, self._formats, self._states, self._futures = [], [], [], []
        for future in futures:
            if not future.done():
                future.set_exception(self._attachment.failure())
        if self.when_gone is not None:
            self.when_gone(self._attachment.failure())

    def on_transfers(self, deliveries: list[IncomingDelivery]) -> None:
        """Nothing comes on a link where we send; the engine sees to that."""
        raise AssertionError(f"{len(deliveries)} messages came on a link to send on")

    def on_answers(self, state: bytes, ids: list[int]) -> None:
        """Nothing is answered on a link where we send; the engine sees to that."""
        raise AssertionError(f"{len(ids)} answers came on a link to send on: {state!r}")


def _too_large(size: int, size_max: int) -> MessageSizeExceededError:
    return MessageSizeExceededError(
        f"the message has {size} bytes, and the entity takes {size_max}",
        condition=MESSAGE_SIZE_EXCEEDED,
    )


def _accepted(outcome: bytes) -> bytes | None:
    """Return the id of a transaction that was declared, nothing for another yes, None for a no."""
    read = _read(outcome)
    if isinstance(read, TransactionalState):
        # It holds if the transaction does.
        read = read.outcome
    if isinstance(read, Declared):
        return read.txn_id
    return b"" if isinstance(read, Accepted) else None


def _refusal(outcome: bytes) -> ServiceBusError:
    read = _read(outcome)
    if isinstance(read, Rejected):
        if read.error is not None:
            return from_error(read.error, "the message was rejected")
        return ServiceBusError("the message was rejected, and it was not said why")
    kind = type(read).__name__.lower()
    return ServiceBusError(f"the message was not taken: {kind}", is_retryable=True)


def _read(outcome: bytes) -> object:
    if not outcome:
        return None
    try:
        value: object = decode_composite(outcome)[0]
    except DecodeError:
        return None
    return value
