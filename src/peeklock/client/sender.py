"""Sending: one message, a batch, many at once, later, or without waiting."""

# ruff: noqa: ASYNC109  (parameters are called as they are in azure-servicebus)

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Final, Self, cast, final
from uuid import uuid4

from peeklock.amqp.dialect import PARTITION_KEY, SCHEDULED_TIME
from peeklock.amqp.messages.annotations import find_annotation
from peeklock.amqp.messages.properties import read_properties
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Symbol, Timestamp
from peeklock.client.batch import BATCH_SIZE_DEFAULT, ServiceBusMessageBatch
from peeklock.client.connections.connection import ClientConnection
from peeklock.client.connections.retrying import check_timeout, with_retries
from peeklock.client.exceptions import MessageSizeExceededError
from peeklock.client.message import ServiceBusMessage, instant_ms
from peeklock.client.reporting import OnError, Reporting
from peeklock.client.sending.batching import FLUSH_INTERVAL_S, SendBatching
from peeklock.client.sending.buffer import (
    PENDING_BYTES_MAX,
    PENDING_MESSAGES_MAX,
    Buffered,
    SendBuffer,
)
from peeklock.client.sending.outbound import Outbound, Sendable, as_message
from peeklock.client.sending.sender_link import SenderLink
from peeklock.client.transactions import ServiceBusTransaction, managed


@final
class ServiceBusSender:
    """Sends to one queue or topic; made by a ServiceBusClient."""

    def __init__(
        self,
        connection: ClientConnection,
        entity: str,
        *,
        flush_interval: float = FLUSH_INTERVAL_S,
        max_in_flight: int | None = None,
        max_pending_messages: int = PENDING_MESSAGES_MAX,
        max_pending_bytes: int = PENDING_BYTES_MAX,
        on_error: OnError | None = None,
        link_properties: dict[Any, Any] | None = None,
        client_identifier: str | None = None,
        via: str | None = None,
    ) -> None:
        """`max_in_flight` bounds the sends without an outcome; without it only the broker does.

        The `max_pending_` numbers bound what `send_soon` holds.
        """
        if flush_interval < 0:
            raise ValueError("flush_interval cannot be negative; 0 turns batching off")
        if max_in_flight is not None and max_in_flight < 1:
            raise ValueError("max_in_flight must be at least 1")
        self.entity_name: Final = entity
        # What the links are called after, for those who look for them in logs.
        self.client_identifier: Final = client_identifier or f"SBSender-{uuid4()}"
        self._connection = connection
        self._link_properties = link_properties
        # The entity that takes the messages and forwards them to this one, None where none does.
        self._via = via
        self._bound: Any = nullcontext()
        if max_in_flight is not None:
            self._bound = asyncio.Semaphore(max_in_flight)
        self._link: SenderLink | None = None
        self._opening = asyncio.Lock()
        # Nothing more is taken; what is held still leaves.
        self._is_closing = False
        self._is_closed = False
        self._closed = asyncio.Event()
        self._reporting = Reporting(on_error)
        self._batching = SendBatching(
            self._send,
            self._batch_size_max,
            flush_interval,
            self._reporting,
            SendBuffer(max_pending_messages, max_pending_bytes),
        )

    async def __aenter__(self) -> Self:
        await with_retries(self._connection.config.retry, self._opened)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def send_messages(
        self,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Send a message, a batch, or a list (as one batch), and return when it is accepted.

        Parameters:
            message: what is sent; a message that was received goes on as a new one.
            timeout: seconds, over all tries; without it those of the client.
            transaction: it is sent when that is committed.

        Raises:
            ServiceBusError: why it was not accepted; OperationTimeoutError after the timeout.
            ValueError: the sender is closed, or the timeout makes no sense.

        Example:
            await sender.send_messages(ServiceBusMessage("a cup of tea"), timeout=10)
        """
        self._check_open()
        check_timeout(timeout)
        if transaction is None:
            payload, is_batch = await self._payload_of(message)
            if payload is not None:
                await self._send(payload, is_batch, timeout)
            return
        await transaction.perform(
            self._connection,
            self._via or self.entity_name,
            partial(self._send_within, transaction, message),
            within_s=timeout,
        )

    def send_soon(self, message: Sendable) -> Buffered:
        """Send soon: messages that are given soon after each other leave as one batch.

        Await the result to wait for room in the buffer (`max_pending_messages` and
        `max_pending_bytes` of the sender): that takes no time unless it is full, and gives a
        future of the outcome, which can be awaited too or left alone. A wait that is cancelled
        while the buffer is full takes the message back. A message is never dropped for want of
        room, also when nobody awaits; then the buffer has no bound.

        Parameters:
            message: what is sent.

        Raises:
            ValueError: the sender is closed. A failure that nobody awaits goes to `on_error`;
                without that it is told to the loop's exception handler, and `flush` or `close`
                raises it.

        Example:
            for order in orders:
                await sender.send_soon(ServiceBusMessage(order))
            await sender.flush()
        """
        self._check_open()
        outbound = as_message(message)
        return self._batching.put(message, outbound.encoded(), outbound.routing_key)

    async def flush(self) -> None:
        """Wait until all of `send_soon` has an outcome; raise what failed and nobody awaited."""
        await self._batching.flush()
        self._reporting.raise_first()

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        """Return an empty batch, as large as the entity takes, or smaller.

        Parameters:
            max_size_in_bytes: how large it may become; None is as large as the entity takes.

        Raises:
            ValueError: the entity takes less than that.

        Example:
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("one of many"))
            await sender.send_messages(batch)
        """
        await with_retries(self._connection.config.retry, self._opened)
        largest = self._batch_size_max()
        if max_size_in_bytes is not None and max_size_in_bytes > largest:
            raise ValueError(f"the entity takes {largest} bytes at most, not {max_size_in_bytes}")
        return ServiceBusMessageBatch(max_size_in_bytes or largest)

    async def schedule_messages(
        self,
        messages: Sendable | Iterable[Sendable],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> list[int]:
        """Let messages be handed out from a time on.

        Parameters:
            messages: one, or several, which are scheduled all or none.
            schedule_time_utc: when; a time without a zone is UTC.
            timeout: seconds, over all tries.
            transaction: they are scheduled when that is committed.

        Returns:
            The numbers to cancel them by, in their order.

        Raises:
            ServiceBusError: why they were not accepted.
            ValueError: the sender is closed.

        Example:
            [number] = await sender.schedule_messages(ServiceBusMessage("tea"), tomorrow)
        """
        self._check_open()
        check_timeout(timeout)
        several = _several(messages)
        given = [cast(Sendable, messages)] if several is None else several
        entries = [_scheduled(as_message(each), schedule_time_utc) for each in given]
        if not entries:
            return []
        answer = await self._manage("schedule-message", {"messages": entries}, timeout, transaction)
        numbers = answer["sequence-numbers"]
        return [int(number) for number in getattr(numbers, "items", numbers)]

    async def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Take scheduled messages back that have not been handed out yet, all or none.

        Parameters:
            sequence_numbers: one or several, as `schedule_messages` returned them.
            timeout: seconds, over all tries.
            transaction: they are taken back when that is committed.

        Raises:
            MessageNotFoundError: one of them is not scheduled any more.

        Example:
            await sender.cancel_scheduled_messages(number)
        """
        self._check_open()
        check_timeout(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        if numbers:
            arguments = {"sequence-numbers": Array(LONG, list(numbers))}
            await self._manage("cancel-scheduled-message", arguments, timeout, transaction)

    async def close(self) -> None:
        """Send what is held, detach, and raise what failed and nobody awaited."""
        if self._is_closing:
            # Who closes the client next must not cut off what the other call waits for.
            await self._closed.wait()
            return
        self._is_closing = True
        try:
            try:
                await self._batching.flush()
            finally:
                self._is_closed = True
            link, self._link = self._link, None
            if link is not None:
                await link.close()
        finally:
            self._closed.set()
        self._reporting.raise_first()

    # --- underneath

    def _check_open(self) -> None:
        if self._is_closing:
            raise ValueError("the sender is closed; get another one from the client")

    def _batch_size_max(self) -> int:
        if self._link is None:
            return BATCH_SIZE_DEFAULT
        return self._link.max_batch_size

    async def _batch_of(self, messages: Sequence[Sendable]) -> ServiceBusMessageBatch:
        batch = await self.create_message_batch() if messages else ServiceBusMessageBatch()
        for message in messages:
            batch.add_message(message)
        return batch

    async def _opened(self) -> SenderLink:
        link = self._link
        if link is not None and link.is_open:
            return link
        async with self._opening:
            if self._link is None or not self._link.is_open:
                if self._is_closed:
                    self._check_open()
                opened = await self._connection.open_sender(
                    self.entity_name,
                    properties=self._link_properties,
                    named_after=self.client_identifier,
                    via=self._via,
                )
                if self._is_closed:
                    # While it was being opened; nobody else knows of it.
                    await opened.close()
                    self._check_open()
                self._link = opened
            return self._link

    async def _payload_of(
        self, message: Sendable | ServiceBusMessageBatch | Iterable[Sendable]
    ) -> tuple[bytes | None, bool]:
        """Return what is to be sent, and whether it is a batch; None for one of no messages."""
        if isinstance(message, ServiceBusMessageBatch):
            batch = message
        elif (several := _several(message)) is not None:
            batch = await self._batch_of(several)
        else:
            payload = as_message(cast(Sendable, message)).encoded()
            # What was given before and is still held leaves first.
            await self._batching.give_way()
            return payload, False
        if not len(batch):
            return None, True
        await self._batching.give_way()
        return batch.encoded(), True

    async def _send(self, payload: bytes, is_batch: bool, timeout: float | None = None) -> None:
        async def attempt() -> None:
            await self._submit(await self._opened(), payload, is_batch)

        await with_retries(self._connection.config.retry, attempt, within_s=timeout)

    async def _send_within(
        self,
        transaction: ServiceBusTransaction,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
    ) -> None:
        """Send as part of a transaction, which waits for all of it from the first step on."""
        payload, is_batch = await self._payload_of(message)
        if payload is not None:
            # To open a link can be tried again, what is sent on it cannot.
            link = await with_retries(self._connection.config.retry, self._opened)
            await self._submit(link, payload, is_batch, await transaction.stamp(link.transport))

    async def _submit(
        self, link: SenderLink, payload: bytes, is_batch: bool, state: bytes | None = None
    ) -> None:
        largest = link.max_message_size
        if largest and len(payload) > largest:
            raise MessageSizeExceededError(
                f"the message of {len(payload)} bytes exceeds what the entity takes: {largest}"
            )
        async with self._bound:
            await link.submit(payload, is_batch=is_batch, state=state)

    async def _manage(
        self,
        operation: str,
        arguments: dict[str, Any],
        timeout: float | None,
        transaction: ServiceBusTransaction | None,
    ) -> dict[Any, Any]:
        return await managed(
            self._connection,
            self.entity_name,
            operation,
            arguments,
            within_s=timeout,
            transaction=transaction,
        )


def _several(given: Sendable | Iterable[Sendable]) -> list[Sendable] | None:
    """Give several messages as a list, None for one; that may be a mapping, iterable as well."""
    if isinstance(given, (Mapping, str, bytes)) or not isinstance(given, Iterable):
        return None
    return list(given)


def _scheduled(message: Outbound, at: datetime) -> dict[str, Any]:
    """Write the entry of a message that is to be scheduled; its own time is replaced."""
    if isinstance(message, ServiceBusMessage):
        before = message.scheduled_enqueue_time_utc
        message.scheduled_enqueue_time_utc = at
        payload = message.encoded()
        message.scheduled_enqueue_time_utc = before
    else:
        payload = _with_time(message.encoded(), instant_ms(at))
    cut = split(payload)
    own = read_properties(cut.bare, cut.properties_at)
    entry: dict[str, Any] = {"message-id": own.message_id or uuid4().hex, "message": payload}
    if own.group_id is not None:
        entry["session-id"] = own.group_id
    key = find_annotation(cut.annotations, PARTITION_KEY)
    if key is not None:
        entry["partition-key"] = str(key)
    return entry


def _with_time(payload: bytes, instant: int) -> bytes:
    from peeklock.amqp.messages.annotations import drop_annotations, head
    from peeklock.amqp.values.encoder import encode

    cut = split(payload)
    items, count = drop_annotations(cut.annotations, frozenset((SCHEDULED_TIME,)))
    items += encode(Symbol(SCHEDULED_TIME.decode())) + encode(Timestamp(instant))
    front = head(
        durable=cut.durable,
        priority=cut.priority,
        ttl_ms=cut.ttl_ms,
        delivery_count=0,
        annotations=items,
        annotations_count=count + 1,
    )
    return front + cut.bare
