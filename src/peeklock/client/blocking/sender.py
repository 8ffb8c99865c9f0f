"""Sending for those who do not await."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Self, final

from peeklock.client.batch import ServiceBusMessageBatch
from peeklock.client.blocking.bridge import Bridge
from peeklock.client.blocking.transaction import ServiceBusTransaction, inner_of
from peeklock.client.sender import ServiceBusSender as AwaitedSender
from peeklock.client.sending.outbound import Sendable


@final
class ServiceBusSender:
    """Sends to one queue or topic."""

    def __init__(self, inner: AwaitedSender, bridge: Bridge) -> None:
        self._inner = inner
        self._bridge = bridge

    def __enter__(self) -> Self:
        self._bridge.run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def entity_name(self) -> str:
        """Where it sends to."""
        return self._inner.entity_name

    @property
    def client_identifier(self) -> str:
        """What its links are called after."""
        return self._inner.client_identifier

    def send_messages(
        self,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Send a message, a batch, or a list (as one batch); returns when it is accepted."""
        self._bridge.run(
            self._inner.send_messages(message, timeout=timeout, transaction=inner_of(transaction))
        )

    def send_soon(self, message: Sendable) -> None:
        """Send soon, in a batch with what else is given soon; blocks while the buffer is full.

        Its bounds are the sender's `max_pending_messages` and `max_pending_bytes`. A failure goes
        to `on_error`, or is raised by flush or close.
        """

        async def taken() -> None:
            await self._inner.send_soon(message)

        self._bridge.run(taken())

    def flush(self) -> None:
        """Wait until all of `send_soon` has an outcome; raise what failed."""
        self._bridge.finish(self._inner.flush())

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make a batch as large as the entity takes, or smaller."""
        return self._bridge.run(self._inner.create_message_batch(max_size_in_bytes))

    def schedule_messages(
        self,
        messages: Sendable | Iterable[Sendable],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> list[int]:
        """Let messages be handed out from a time on; return the numbers to cancel them by."""
        return self._bridge.run(
            self._inner.schedule_messages(
                messages, schedule_time_utc, timeout=timeout, transaction=inner_of(transaction)
            )
        )

    def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Take scheduled messages back, if they have not been handed out yet."""
        self._bridge.run(
            self._inner.cancel_scheduled_messages(
                sequence_numbers, timeout=timeout, transaction=inner_of(transaction)
            )
        )

    def close(self) -> None:
        """Send what is held, detach, and raise what failed and nobody was told of."""
        self._bridge.finish(self._inner.close())
