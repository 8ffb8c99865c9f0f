"""Bodies that are no longer in memory are read before anybody needs them."""

from __future__ import annotations

from peeklock.entity.commands import Command, PublishStages, Tick
from peeklock.entity.partition import Partition
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


async def bring_bodies(
    store: Store, where: PartitionId, partition: Partition, commands: list[Command], now: int
) -> None:
    """Bodies that the rules of a topic will read are in memory before it decides.

    The decision must be taken at the same instant: a later one could need more of them.
    """
    for command in commands:
        if isinstance(command, Tick):
            entries = partition.bodies_wanted(now)
        elif isinstance(command, PublishStages):
            entries = partition.bodies_to_publish(command)
        else:
            continue
        if entries:
            positions = [entry.position for entry in entries]
            partition.bring_bodies(entries, await store.payloads(where, positions))
