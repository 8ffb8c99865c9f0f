"""Transactions: sends, settlements and scheduling that happen together, or not at all.

A transaction lives on the connection of its first operation. What happens to either is the end of
it: the broker rolls back what was not committed when its connection or its control link goes.
Nothing in it is tried again: an operation that failed, was cancelled or took too long may or may
not be part of it, so that it can only be rolled back. Whoever wants another try begins another one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NoReturn, Self, TypeVar, final

from peeklock.amqp.errors import (
    NOT_ALLOWED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
)
from peeklock.amqp.frames.states import Declare, Discharge, TransactionalState
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, encode_message
from peeklock.amqp.values.composites import encode_composite
from peeklock.amqp.values.types import Encoded
from peeklock.client.connections.connection import ANSWERED_WITHIN_S, ClientConnection, Stamp
from peeklock.client.connections.retrying import with_retries
from peeklock.client.connections.sharing import shared
from peeklock.client.connections.transport import Transport
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.sending.sender_link import SenderLink

T = TypeVar("T")

# By these the broker says for certain that nothing of a transaction was carried out.
_ROLLED_BACK: Final = frozenset((TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT, TRANSACTION_UNKNOWN_ID))
_LOG: Final = logging.getLogger("peeklock.client")


class TransactionState(StrEnum):
    """Where a transaction is in its life."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    # The connection was lost before the broker's answer to the commit came.
    IN_DOUBT = "in doubt"


@final
class ServiceBusTransaction:
    """Operations that are carried out together or not at all; made by `ServiceBusClient`.

    Used with `async with`, it is committed at the end of the block, and rolled back when the block
    raises; `commit` and `rollback` end it earlier. It begins with its first operation.

        async with client.transaction() as transaction:
            await sender.send_messages(cooked, transaction=transaction)
            await receiver.complete_message(raw, transaction=transaction)
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection: Final = connection
        self._state = TransactionState.ACTIVE
        # The connection that it lives on, the link that it was declared on, its id.
        self._transport: Transport | None = None
        self._declaring: asyncio.Task[Control] | None = None
        # Why it can only be rolled back; whether a commit was asked for, and what ends it.
        self._why: BaseException | None = None
        self._is_commit = False
        self._ending: asyncio.Task[None] | None = None
        # Operations without an answer; a commit waits for them.
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self._entities: Final[set[str]] = set()
        # What is settled in it, if it is committed.
        self._held: Final[list[ServiceBusReceivedMessage]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._ending is not None:
            return
        if error is None:
            await self.commit()
        else:
            await self.rollback()

    def __repr__(self) -> str:
        return f"ServiceBusTransaction({self._state.value})"

    @property
    def state(self) -> TransactionState:
        """Whether it is active, committed, rolled back, or in doubt."""
        return self._state

    async def commit(self) -> None:
        """Carry out all of it; operations that are under way are waited for.

        Raises `TransactionRolledBackError` when nothing was carried out: an operation had failed,
        the broker refused, or its time (two minutes) was over. Raises `TransactionInDoubtError`
        when the connection is lost before the answer: then it was carried out wholly or not at
        all, and only the entities can tell. A call that is cancelled commits all the same, unless
        the client is closed before; `commit` again waits for the same answer. ValueError after a
        rollback that was asked for.
        """
        if self._ending is not None and not self._is_commit:
            raise ValueError("the transaction cannot be committed: it was rolled back")
        self._is_commit = True
        await shared(self._ending or self._end(self._commit()))

    async def rollback(self) -> None:
        """Carry out nothing of it; messages that were settled in it are locked as before.

        After a lost connection that is what the broker has done by itself. ValueError after a
        commit.
        """
        if not self._is_commit:
            await shared(self._ending or self._end(self._roll_back()))
        elif self._state is not TransactionState.ROLLED_BACK:
            raise ValueError(f"the transaction cannot be rolled back: {self._described()}")

    # --- what senders and receivers call

    async def perform(
        self,
        connection: ClientConnection,
        entity: str,
        operation: Callable[[], Awaitable[T]],
        *,
        within_s: float | None = None,
        messages: Iterable[ServiceBusReceivedMessage] = (),
    ) -> T:
        """Do something as part of this; whatever goes wrong with it dooms the transaction."""
        if connection is not self._connection:
            raise ValueError("the transaction belongs to another client")
        self._check_active()
        for message in messages:
            message.transaction = self
            self._held.append(message)
        self._entities.add(entity)
        self._under_way += 1
        if within_s is None:
            # Nothing here is tried twice: one try is all of it.
            within_s = connection.config.retry.try_timeout
        limit = asyncio.timeout(within_s)
        try:
            async with limit:
                return await operation()
        except TimeoutError as error:
            if not limit.expired():
                self._doom(error)
                raise
            late = OperationTimeoutError(f"no answer within {within_s} s")
            self._doom(late)
            raise late from error
        except BaseException as error:
            self._explain(error)
            self._doom(error)
            raise
        finally:
            self._under_way -= 1
            if not self._under_way and self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    async def stamp(self, transport: Transport, outcome: bytes = b"") -> bytes:
        """Return the state that makes a transfer, or an outcome, part of this transaction."""
        control = await self._declared(transport)
        if self._why is not None:
            self._fail(self._why)
        if self._ending is not None and not self._is_commit:
            raise TransactionRolledBackError("the transaction was rolled back meanwhile")
        encoded = Encoded(outcome) if outcome else None
        return encode_composite(TransactionalState(txn_id=control.id, outcome=encoded))

    # --- underneath

    def _check_active(self) -> None:
        if self._why is not None and self._ending is None:
            self._fail(self._why)
        if self._ending is not None:
            raise ValueError(f"nothing can be added to the transaction: {self._described()}")

    def _described(self) -> str:
        return "it is ending" if self._state is TransactionState.ACTIVE else f"it is {self._state}"

    def _fail(self, why: BaseException) -> NoReturn:
        reason = str(why) or type(why).__name__
        raise TransactionRolledBackError(
            f"the transaction can only be rolled back, because an operation failed: {reason}"
        ) from why

    def _explain(self, error: BaseException) -> None:
        """Say what helps where a broker refuses a second entity."""
        is_refused = isinstance(error, ServiceBusError) and error.condition == NOT_ALLOWED
        if is_refused and len(self._entities) > 1 and not self._connection.config.is_one_session:
            error.add_note(
                "A transaction over several entities needs a client that was made with "
                "enable_cross_entity_transactions=True, or a sender that was made with via."
            )

    def _doom(self, why: BaseException) -> None:
        # Also while a commit waits for what is under way: it must not be done without this.
        if self._why is None and self._state is TransactionState.ACTIVE:
            self._why = why

    async def _declared(self, transport: Transport) -> "Control":
        if self._declaring is None:
            self._transport = transport
            self._declaring = asyncio.create_task(self._declare(transport))
            self._declaring.add_done_callback(_look_at)
        if self._transport is not transport:
            raise TransactionRolledBackError(
                "the connection was lost, and the transaction was rolled back with it"
            )
        return await shared(self._declaring)

    async def _declare(self, transport: Transport) -> "Control":
        link = await self._connection.open_coordinator(transport)
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                id = await link.submit(_wish(Declare()))
        except TimeoutError as error:
            raise OperationTimeoutError("the broker has not declared the transaction") from error
        if not id:
            raise ServiceBusError("the broker accepted a transaction without giving its id")
        return Control(link, id)

    def _end(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it end whoever waits: a caller who is cancelled has asked for it all the same."""
        self._ending = asyncio.create_task(work)
        self._ending.add_done_callback(_look_at)
        return self._ending

    async def _commit(self) -> None:
        while self._under_way:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        why, declaring = self._why, self._declaring
        if why is not None:
            await self._roll_back()
            self._fail(why)
        if declaring is None:
            self._ended(TransactionState.COMMITTED)
            return
        control = await declaring
        if not control.link.is_open:
            # The wish to commit was never sent, and cannot be.
            self._ended(TransactionState.ROLLED_BACK)
            raise TransactionRolledBackError(
                "the connection was lost before the commit, and the transaction was rolled back"
            )
        try:
            await self._discharge(control, fail=False)
        except ServiceBusError as error:
            if error.condition in _ROLLED_BACK:
                self._ended(TransactionState.ROLLED_BACK)
                raise TransactionRolledBackError(
                    error.message, condition=error.condition
                ) from error
            self._doubt(error)
        except BaseException as error:  # noqa: BLE001  the loop ends, say, or no answer came
            self._doubt(error)
        self._ended(TransactionState.COMMITTED)

    def _doubt(self, error: BaseException) -> NoReturn:
        self._ended(TransactionState.IN_DOUBT)
        reason = str(error) or type(error).__name__
        raise TransactionInDoubtError(
            f"nobody can tell whether the transaction was committed: {reason}"
        ) from error

    async def _roll_back(self) -> None:
        try:
            if self._declaring is not None:
                control = await self._declaring
                if control.link.is_open:
                    await self._discharge(control, fail=True)
        except Exception as error:  # noqa: BLE001  it was never committed, and never will be
            # The broker rolls back by itself what nobody commits: with the link, or in time.
            _LOG.info("a rollback was not answered: %s", error)
        finally:
            self._ended(TransactionState.ROLLED_BACK)

    async def _discharge(self, control: "Control", *, fail: bool) -> None:
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            await control.link.submit(_wish(Discharge(txn_id=control.id, fail=fail)))

    def _ended(self, state: TransactionState) -> None:
        if self._state is not TransactionState.ACTIVE:
            return
        self._state = state
        for message in self._held:
            message.transaction = None
            message.is_settled = message.is_settled or state is TransactionState.COMMITTED
        self._held.clear()


async def managed(
    connection: ClientConnection,
    entity: str,
    operation: str,
    arguments: dict[str, Any],
    *,
    within_s: float | None = None,
    transaction: ServiceBusTransaction | None = None,
    link_name: str | None = None,
    stamp: Stamp | None = None,
) -> dict[Any, Any]:
    """Ask an entity's management node, as often as makes sense, or once within a transaction.

    A stamp is given by those who perform already what they ask for: that is asked once too.
    """
    ask = partial(
        connection.manage,
        entity,
        f"com.microsoft:{operation}",
        arguments,
        link_name=link_name,
        stamp=stamp,
    )
    if stamp is not None:
        return await ask()
    if transaction is None:
        return await with_retries(connection.config.retry, ask, within_s=within_s)
    within = partial(ask, stamp=transaction.stamp)
    return await transaction.perform(connection, entity, within, within_s=within_s)


@final
@dataclass(frozen=True, slots=True)
class Control:
    """A transaction as the broker knows it: its id, and the link that ends it."""

    link: SenderLink
    id: bytes


def _wish(wish: Declare | Discharge) -> bytes:
    return encode_message(AmqpMessage(body_kind=VALUE_BODY, body=Encoded(encode_composite(wish))))


def _look_at(task: "asyncio.Task[Any]") -> None:
    """Whoever waited has the failure; nobody may have."""
    if not task.cancelled():
        task.exception()
