"""Receiving: messages of an entity or of one of its sessions, and the answers to them."""

# ruff: noqa: ASYNC109  (parameters are called as they are in azure-servicebus)

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Self, cast, final
from uuid import uuid4

from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Int, Timestamp, Uint
from peeklock.client.connections.connection import ANSWERED_WITHIN_S, ClientConnection, Stamp
from peeklock.client.connections.retrying import check_timeout, one_try, with_retries
from peeklock.client.constants import (
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
)
from peeklock.client.exceptions import (
    OperationTimeoutError,
    SessionLockLostError,
)
from peeklock.client.message import instant_ms, moment_of
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.receiving import settlement
from peeklock.client.receiving.prefetch import Prefetch
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.client.receiving.renewing import AutoLockRenewer
from peeklock.client.receiving.settlement import (
    COMPLETE,
    ClientSettlement,
    check_all_settleable,
    check_locked,
    check_settleable,
)
from peeklock.client.receiving.settler import Settler
from peeklock.client.reporting import OnError, Outcome, Reporting
from peeklock.client.sending.batching import FLUSH_INTERVAL_S, CompleteBatching
from peeklock.client.session import ServiceBusSession
from peeklock.client.transactions import ServiceBusTransaction, managed

# How many completes are held at most; more are no faster.
COMPLETES_MAX: Final = 1_000
# The most that one call peeks and deletes.
_PEEK_MAX: Final = 250
_DELETE_MAX: Final = 4_000
# As long as the service waits for a session when it is not told.
_SESSION_WAIT_S: Final = 60.0


@final
class ServiceBusReceiver:
    """Receives from one queue, subscription or sub queue; made by a ServiceBusClient."""

    def __init__(
        self,
        connection: ClientConnection,
        entity: str,
        *,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        session_id: str | ServiceBusSessionFilter | None = None,
        prefetch_count: int = 0,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        flush_interval: float = FLUSH_INTERVAL_S,
        on_error: OnError | None = None,
        client_identifier: str | None = None,
    ) -> None:
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError("max_wait_time must be greater than 0")
        if flush_interval < 0:
            raise ValueError("flush_interval cannot be negative; 0 turns batching off")
        self.entity_path: Final = entity
        # What the links are called after, for those who look for them in logs.
        self.client_identifier: Final = client_identifier or f"SBReceiver-{uuid4()}"
        self.receive_mode: Final = ServiceBusReceiveMode(receive_mode)
        self._connection = connection
        self._wanted_session = session_id
        self._prefetch = Prefetch(prefetch_count)
        self._max_wait_time = max_wait_time
        self._renewer = auto_lock_renewer
        self._link: ReceiverLink | None = None
        self._session: ServiceBusSession | None = None
        self._opening = asyncio.Lock()
        self._receiving = asyncio.Lock()
        # Nothing more is taken; what is held is still settled.
        self._is_closing = False
        self._is_closed = False
        self._closed = asyncio.Event()
        # What peek goes on behind.
        self._last: ServiceBusReceivedMessage | None = None
        self._reporting = Reporting(on_error)
        self._settler = Settler(connection, entity, self._ask)
        self._completes = CompleteBatching(
            self._settler.complete_all, flush_interval, COMPLETES_MAX, self._reporting
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        # It ends when nothing has come for `max_wait_time`, and never without one.
        messages = await self.receive_messages(1, self._max_wait_time)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    @property
    def session(self) -> ServiceBusSession:
        """The session that the receiver holds, once it is open; None if it was made for none."""
        if self._session is None and self._wanted_session is not None:
            raise ValueError("the receiver is not open yet, and has no session")
        # Typed as the official client does, for those who know what they made.
        return cast(ServiceBusSession, self._session)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    async def open(self) -> None:
        """Attach, and get the session if one is wanted; what comes later does it as well."""
        await with_retries(
            self._connection.config.retry,
            lambda: self._opened(self._session_wait_s(self._max_wait_time)),
            bounds_tries=False,
        )

    # --- receiving

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take up to `max_message_count` messages: wait for the first, then for no more.

        `max_wait_time` is seconds for the first: None is that of the receiver, or as long as
        needed. Returns none when the time is over. Raises a ServiceBusError that tells why nothing
        can be received, ValueError when a number makes no sense or the receiver is closed.

        Example:
            for message in await receiver.receive_messages(100, max_wait_time=5):
                await receiver.complete_message(message)
        """
        count = 1 if max_message_count is None else max_message_count
        if count < 1:
            raise ValueError("max_message_count must be at least 1")
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError("max_wait_time must be greater than 0")
        wait_s = self._max_wait_time if max_wait_time is None else max_wait_time
        async with self._receiving:
            link, deliveries = await self._receive(count, wait_s)
        deletes = self.receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        if self._is_closed and not deletes:
            # Closed while this call waited: nobody could settle them any more.
            link.release(deliveries)
            self._check_open()
        messages = [
            ServiceBusReceivedMessage(each.payload, link=link, delivery=each, is_deleted=deletes)
            for each in deliveries
        ]
        if messages:
            self._last = messages[-1]
        if self._renewer is not None and not deletes and self._wanted_session is None:
            for message in messages:
                self._renewer.register(self, message)
        return messages

    async def _receive(
        self, count: int, wait_s: float | None
    ) -> tuple[ReceiverLink, list[IncomingDelivery]]:
        loop = asyncio.get_running_loop()
        deadline = None if wait_s is None else loop.time() + wait_s

        async def attempt() -> tuple[ReceiverLink, list[IncomingDelivery]]:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            link = await self._opened(self._session_wait_s(left))
            left = None if deadline is None else max(0.0, deadline - loop.time())
            prefetch = self._prefetch if self._prefetch.count else None
            return link, await link.receive(count, left, prefetch)

        # A wait for messages is no try that takes too long; to open the link may be one.
        return await with_retries(self._connection.config.retry, attempt, bounds_tries=False)

    async def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Look at up to `max_message_count` messages, locked, deferred, scheduled or not.

        `sequence_number` is the first; 0 goes on behind those that were seen last. `timeout` is
        seconds for each answer. Nothing is taken.
        """
        if max_message_count < 1:
            raise ValueError("max_message_count must be at least 1")
        if isinstance(self._wanted_session, ServiceBusSessionFilter):
            # Which session it is shows when there is one.
            await self.open()
        first = sequence_number or self._next_number()
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < max_message_count:
            arguments: dict[str, Any] = {
                "from-sequence-number": first,
                "message-count": Int(min(max_message_count - len(found), _PEEK_MAX)),
            }
            answer = await self.manage("peek-message", self._in_session(arguments), timeout)
            page = [
                ServiceBusReceivedMessage(bytes(entry["message"]), is_peeked=True)
                for entry in answer.get("messages", [])
            ]
            if not page:
                break
            found += page
            self._last = page[-1]
            first = self._next_number()
        return found

    async def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take messages that were deferred, all or none, by one or several `sequence_numbers`.

        `timeout` is seconds for the answer. Raises MessageNotFoundError when one of them is not
        deferred any more.
        """
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        if not numbers:
            return []
        if self._wanted_session is not None:
            await self.open()
        deletes = self.receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        arguments = {
            "sequence-numbers": Array(LONG, list(numbers)),
            "receiver-settle-mode": Uint(0 if deletes else 1),
        }
        answer = await self.manage(
            "receive-by-sequence-number", self._in_session(arguments), timeout
        )
        return [
            ServiceBusReceivedMessage(
                bytes(entry["message"]), lock_token=entry.get("lock-token"), is_deleted=deletes
            )
            for entry in answer.get("messages", [])
        ]

    # --- settling

    async def complete_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Remove `message`: it is done. Within a `transaction`, when that is committed.

        Raises MessageLockLostError or SessionLockLostError when the lock has ended,
        MessageAlreadySettled, or ValueError for a message without a lock, one that belongs to a
        transaction that has not ended, and a receiver that is closed. So do the other three.

        Example:
            await receiver.complete_message(message)
        """
        await self._settle(message, COMPLETE, transaction)

    async def complete_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Remove `messages`, in one write; raise the first failure when all are answered.

        `transaction` and the errors are those of `complete_message`.
        """
        self._check_open()
        check_all_settleable(messages)
        if transaction is not None:
            await self._settler.settle_within(transaction, messages, COMPLETE)
            return
        for message in messages:
            message.is_settled = True
        results = await asyncio.gather(
            *self._settler.complete_all(list(messages)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def complete_soon(self, message: ServiceBusReceivedMessage) -> Outcome:
        """Complete `message` without waiting; those of soon after each other travel as one.

        Failures surface as those of `ServiceBusSender.send_soon` do.
        """
        if self._is_closing:
            raise ValueError("the receiver is closed; get another one from the client")
        check_settleable(message)
        message.is_settled = True
        return self._completes.put(message)

    async def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Give `message` back, for anybody to receive; it counts as a failed delivery.

        `properties` are set on it. `transaction` and the errors are those of `complete_message`.

        Example:
            await receiver.abandon_message(message, {"attempt": 2})
        """
        await self._settle(message, settlement.abandon(properties), transaction)

    async def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Set `message` aside, to be received by its number.

        `properties` are set on it. `transaction` and the errors are those of `complete_message`.
        """
        await self._settle(message, settlement.defer(properties), transaction)

    async def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Move `message` to the dead-letter queue, and say why.

        `reason` is a word and `error_description` a sentence; `properties` are set on it.
        `transaction` and the errors are those of `complete_message`.

        Example:
            await receiver.dead_letter_message(message, "BadOrder", "The order has no lines.")
        """
        how = settlement.dead_letter(reason, error_description, properties)
        await self._settle(message, how, transaction)

    def release_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give `messages` back as if they had not been handed out; nothing is answered."""
        self._check_open()
        check_all_settleable(messages)
        for message in messages:
            message.is_settled = True
            if message.link is not None and message.delivery is not None and message.link.is_open:
                message.link.release([message.delivery])

    async def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None
    ) -> datetime:
        """Hold `message` for another lock duration; return until when.

        `timeout` is seconds for the answer. Raises MessageLockLostError when the lock has ended,
        TypeError for a message of a session, which has no lock of its own.
        """
        if self._wanted_session is not None:
            raise TypeError("messages of a session have its lock: renew that of the session")
        check_locked(message)
        arguments = {"lock-tokens": Array(UUID_CODE, [message.lock_token])}
        answer = await self.manage("renew-lock", arguments, timeout)
        expirations = answer["expirations"]
        until = int(next(iter(getattr(expirations, "items", expirations))))
        message.lock_renewed(until)
        return moment_of(until)

    # --- many at once

    async def delete_messages(
        self, max_message_count: int, *, before_enqueue_time_utc: datetime | None = None
    ) -> int:
        """Delete the oldest messages that nobody holds, in one call; return how many there were.

        `max_message_count` is how many at most, of which one call deletes 4,000;
        `before_enqueue_time_utc` spares those that were enqueued later than that, or than now.
        """
        before = datetime.now(UTC) if before_enqueue_time_utc is None else before_enqueue_time_utc
        arguments = {
            "message-count": Int(min(max_message_count, _DELETE_MAX)),
            "enqueued-time-utc": Timestamp(instant_ms(before)),
        }
        answer = await self.manage("batch-delete-messages", self._in_session(arguments), None)
        return int(answer.get("message-count", 0))

    async def purge_messages(self, *, before_enqueue_time_utc: datetime | None = None) -> int:
        """Delete all messages that nobody holds; return how many there were.

        `before_enqueue_time_utc` spares those that were enqueued later than that, or than now.
        """
        before = before_enqueue_time_utc or datetime.now(UTC)
        deleted = 0
        while count := await self.delete_messages(_DELETE_MAX, before_enqueue_time_utc=before):
            deleted += count
        return deleted

    async def flush(self) -> None:
        """Wait until all of `complete_soon` is settled; raise what failed and nobody awaited."""
        await self._completes.flush()
        self._reporting.raise_first()

    async def close(self) -> None:
        """Settle what is held, give back what was prefetched, detach."""
        if self._is_closing:
            # Who closes the client next must not cut off what the other call waits for.
            await self._closed.wait()
            return
        self._is_closing = True
        try:
            try:
                await self._completes.flush()
            finally:
                self._is_closed = True
            link, self._link = self._link, None
            if link is not None:
                await link.close()
        finally:
            self._closed.set()
        self._reporting.raise_first()

    # --- underneath

    async def manage(
        self,
        operation: str,
        arguments: dict[str, Any],
        timeout: float | None = None,
        stamp: Stamp | None = None,
    ) -> dict[Any, Any]:
        """Ask the entity's management node, in the name of this receiver's link.

        `operation` is its name and `arguments` what it takes; `timeout` is seconds for the answer,
        and `stamp` makes it part of a transaction.
        """
        self._check_open()
        check_timeout(timeout)
        if operation.endswith("session-state") or operation == "renew-session-lock":
            await self.open()
        link = self._link
        name = None if link is None else link.name
        return await managed(
            self._connection,
            self.entity_path,
            operation,
            arguments,
            within_s=timeout,
            link_name=name,
            stamp=stamp,
        )

    async def _ask(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        stamp: Stamp | None,
    ) -> dict[Any, Any]:
        return await self.manage(operation, self._in_session(arguments), stamp=stamp)

    async def _settle(
        self,
        message: ServiceBusReceivedMessage,
        how: ClientSettlement,
        transaction: ServiceBusTransaction | None,
    ) -> None:
        self._check_open()
        await self._settler.settle(message, how, transaction)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the receiver is closed; get another one from the client")

    def _session_wait_s(self, wait_s: float | None) -> float:
        if self._wanted_session is None:
            return ANSWERED_WITHIN_S
        return _SESSION_WAIT_S if wait_s is None else wait_s

    def _in_session(self, arguments: dict[str, Any]) -> dict[str, Any]:
        session_id = self._wanted_session
        if self._session is not None:
            session_id = self._session.session_id
        return {**arguments, "session-id": session_id} if isinstance(session_id, str) else arguments

    def _next_number(self) -> int:
        number = None if self._last is None else self._last.sequence_number
        return 1 if number is None else number + 1

    async def _opened(self, wait_s: float) -> ReceiverLink:
        link = self._link
        if link is not None and link.is_open:
            return link
        async with self._opening:
            self._check_open()
            if self._link is None or (not self._link.is_open and not self._link.buffered):
                opened = await self._open_link(wait_s)
                if self._is_closed:
                    # While it was being opened; nobody else knows of it.
                    await opened.close()
                    self._check_open()
                self._link = opened
            return self._link

    async def _open_link(self, wait_s: float) -> ReceiverLink:
        wanted = self._wanted_session
        if self._session is not None:
            # Another link would be another holder: what was begun with this one is not its own.
            raise SessionLockLostError(
                f"the session '{self._session.session_id}' ended with its link"
            )
        try:
            opening = self._connection.open_receiver(
                self.entity_path,
                deletes=self.receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE,
                session_id=wanted if isinstance(wanted, str) else None,
                any_session=isinstance(wanted, ServiceBusSessionFilter),
                wait_s=wait_s,
                named_after=self.client_identifier,
            )
            waits_s = 0.0 if wanted is None else wait_s
            link = await one_try(self._connection.config.retry, opening, beyond_s=waits_s)
        except OperationTimeoutError as error:
            if wanted is None:
                raise
            # The broker has waited as long as it was told; once is what was asked for.
            raise OperationTimeoutError(
                error.message, condition=error.condition, is_retryable=False
            ) from error
        if wanted is not None and link.session_id is not None:
            self._session = ServiceBusSession(self, link.session_id, link.locked_until_ms)
            if self._renewer is not None:
                self._renewer.register(self, self._session)
        return link
