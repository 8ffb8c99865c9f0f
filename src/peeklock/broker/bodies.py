"""Bodies that are no longer in memory are read before anybody needs them."""

from __future__ import annotations

from peeklock.entity.replies import ClaimsFetched, Delivered, Delivery, Found, Reply
from peeklock.store.store import PartitionId, Store


async def fetch_bodies(store: Store, partition: PartitionId, replies: list[Reply]) -> None:
    """Give every delivery in these replies its body."""
    cold: list[Delivery] = []
    for reply in replies:
        if isinstance(reply, (Delivered, Found, ClaimsFetched)):
            for delivery in reply.deliveries:
                if delivery.message is None:
                    cold.append(delivery)
    if not cold:
        return
    messages = await store.payloads(partition, [delivery.position for delivery in cold])
    for delivery, message in zip(cold, messages, strict=True):
        delivery.message = message
