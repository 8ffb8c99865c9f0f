"""A small shop for the demonstration: orders come in, workers fail in the ways that workers do.

Orders become parcels (a session for each customer) and events. Some have no address and are
dead-lettered, some meet a service that is down and are tried again, some take longer than a lock.
"""

import asyncio
import json
import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, final

from peeklock.client import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from peeklock.client.exceptions import OperationTimeoutError, ServiceBusError

ORDERS: Final = "orders"
PARCELS: Final = "parcels"
EVENTS: Final = "events"
ARCHIVE: Final = f"{EVENTS}/Subscriptions/archive"
CONFIGURATION: Final = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": ORDERS,
                        "Properties": {"LockDuration": "PT5S", "MaxDeliveryCount": 3},
                    },
                    {
                        "Name": PARCELS,
                        "Properties": {
                            "RequiresSession": True,
                            "EnablePartitioning": True,
                            "PartitionCount": 4,
                        },
                    },
                ],
                "Topics": [
                    {
                        "Name": EVENTS,
                        "Subscriptions": [{"Name": "archive"}, {"Name": "billing"}],
                    }
                ],
            }
        ]
    }
}
NO_ADDRESS: Final = "NoAddress"
_TRACEBACK: Final = """StockServiceError: no answer from {host}:8443 after {ms} ms
Traceback (most recent call last):
  File "/srv/shop/worker.py", line 61, in handle
  File "/srv/shop/stock.py", line 118, in reserve
"""
# A few customers order most; they are the sessions of the parcels.
_CUSTOMERS: Final = 40
_LOCK_S: Final = 5.0


@final
class Shop:
    """Runs in a thread of its own until it is closed; what it did is counted."""

    def __init__(self, connection_string: str, orders_per_s: float) -> None:
        self._connection_string = connection_string
        self._orders_per_s = orders_per_s
        self._chance = random.Random(7)  # the same troubles in every demonstration
        self._is_open = True
        self._is_busy = True
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self.counts: dict[str, int] = {}
        # The sender's log, for the audit: what was sent, and whether the broker said so.
        self.sent: list[dict[str, Any]] = []
        # Once it is true, addresses are found.
        self.is_repaired = False

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, within_s: float) -> None:
        """Take no more orders, let the workers finish, and stop."""
        self._is_open = False
        deadline = time.monotonic() + within_s
        before = -1
        # Finished is when nothing was completed for a while that is longer than a lock.
        while time.monotonic() < deadline and self.counts.get("handled", 0) != before:
            before = self.counts.get("handled", 0)
            time.sleep(min(_LOCK_S + 2, max(deadline - time.monotonic(), 0)))
        self._is_busy = False
        self._thread.join(30)

    def _count(self, what: str, amount: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + amount

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with ServiceBusClient.from_connection_string(self._connection_string) as client:
            workers = [self._serve(client, ORDERS, self._handle_order) for _ in range(3)]
            billing = client.get_subscription_receiver(EVENTS, "billing")
            await asyncio.gather(
                self._take_orders(client),
                *workers,
                self._deliver(client),
                self._serve_receiver(billing, self._complete),
            )

    async def _take_orders(self, client: ServiceBusClient) -> None:
        number = 0
        async with client.get_queue_sender(ORDERS) as sender:
            while self._is_open:
                number += 1
                customer = int(_CUSTOMERS * self._chance.random() ** 3)
                row = {"message_id": f"order-{number:06}", "acked": False, "sent_order": number}
                self.sent.append(row)
                body = json.dumps({"order": number, "customer": customer})
                order = ServiceBusMessage(body, message_id=f"order-{number:06}", subject="order")
                try:
                    await sender.send_messages(order)
                except ServiceBusError:
                    self._count("sends in doubt")
                else:
                    row["acked"] = True
                    self._count("orders")
                await asyncio.sleep(self._chance.expovariate(self._orders_per_s))

    async def _serve(
        self,
        client: ServiceBusClient,
        queue: str,
        handle: Callable[..., Awaitable[None]],
    ) -> None:
        async with (
            client.get_queue_sender(PARCELS) as parcels,
            client.get_topic_sender(EVENTS) as events,
            client.get_queue_receiver(queue) as receiver,
        ):

            async def one(receiver: ServiceBusReceiver, order: ServiceBusReceivedMessage) -> None:
                await handle(receiver, order, parcels, events)

            await self._serve_receiver(receiver, one)

    async def _serve_receiver(
        self,
        receiver: ServiceBusReceiver,
        handle: Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[None]],
    ) -> None:
        while self._is_busy:
            for message in await receiver.receive_messages(max_message_count=10, max_wait_time=1):
                try:
                    await handle(receiver, message)
                except ServiceBusError:
                    self._count("too late")

    async def _complete(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
    ) -> None:
        await receiver.complete_message(message)
        self._count("handled")

    async def _handle_order(
        self,
        receiver: ServiceBusReceiver,
        message: ServiceBusReceivedMessage,
        parcels: Any,
        events: Any,
    ) -> None:
        order = json.loads(str(message))
        luck = order["order"] * 2654435761 % 1000 / 1000
        if luck < 0.08 and not self.is_repaired:
            text = f"customer {order['customer']} of order {uuid.uuid4()} has no address"
            await receiver.dead_letter_message(message, NO_ADDRESS, text)
            self._count("without an address")
            return
        if luck > 0.985:
            text = _TRACEBACK.format(host="10.0.3.7", ms=self._chance.randrange(3000, 9000))
            if (message.delivery_count or 0) >= 2:
                await receiver.dead_letter_message(message, "StockServiceDown", text)
            else:
                await receiver.abandon_message(message)
            self._count("stock service down")
            return
        if 0.90 < luck < 0.902 and not message.delivery_count:
            # It hangs, and when it is back its lock is lost.
            await asyncio.sleep(_LOCK_S + 1)
        customer = f"customer-{order['customer']:02}"
        await parcels.send_messages(ServiceBusMessage(str(message), session_id=customer))
        await events.send_messages(ServiceBusMessage(str(message), subject="order handled"))
        await self._complete(receiver, message)

    async def _deliver(self, client: ServiceBusClient) -> None:
        """Take parcels, a customer after the other."""
        while self._is_busy:
            receiver = client.get_queue_receiver(
                PARCELS, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
            )
            try:
                async with receiver:
                    for parcel in await receiver.receive_messages(
                        max_message_count=50, max_wait_time=0.5
                    ):
                        await self._complete(receiver, parcel)
            except OperationTimeoutError:
                continue  # No customer waits for anything.
            except ServiceBusError:
                self._count("too late")
