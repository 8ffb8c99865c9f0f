"""Transactions for those who do not await."""

from typing import Final, Self, final

from peeklock.client.blocking.bridge import Bridge
from peeklock.client.transactions import ServiceBusTransaction as AwaitedTransaction
from peeklock.client.transactions import TransactionState


@final
class ServiceBusTransaction:
    """Operations that are carried out together or not at all; any thread may add to it.

    Used with `with`, it is committed at the end of the block, and rolled back when the block
    raises; `commit` and `rollback` end it earlier.

        with client.transaction() as transaction:
            sender.send_messages(cooked, transaction=transaction)
            receiver.complete_message(raw, transaction=transaction)
    """

    def __init__(self, inner: AwaitedTransaction, bridge: Bridge) -> None:
        self.inner: Final = inner
        self._bridge = bridge

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._bridge.run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def state(self) -> TransactionState:
        """Whether it is active, committed, rolled back, or in doubt."""
        return self.inner.state

    def commit(self) -> None:
        """Carry out all of it; operations that are under way in other threads are waited for.

        Raises `TransactionRolledBackError` when nothing was carried out,
        `TransactionInDoubtError` when the connection is lost before the answer, ValueError after
        a rollback that was asked for.
        """
        self._bridge.run(self.inner.commit())

    def rollback(self) -> None:
        """Carry out nothing of it; ValueError after a commit."""
        self._bridge.run(self.inner.rollback())


def inner_of(transaction: ServiceBusTransaction | None) -> AwaitedTransaction | None:
    """Return the transaction that is awaited."""
    return None if transaction is None else transaction.inner
