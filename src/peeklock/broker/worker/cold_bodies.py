"""Bodies that are no longer in memory are read before anybody needs them."""

from __future__ import annotations

from peeklock.entity.commands import Command, PublishStages, Tick
from peeklock.entity.deliveries import Delivery
from peeklock.entity.entries import Entry
from peeklock.entity.partition import Partition
from peeklock.entity.replies import ClaimsFetched, Delivered, Found, Reply
from peeklock.entity.stages.staging import STEP_BYTES_MAX
from peeklock.store.store import Damaged, PartitionId, Store


async def fetch_bodies(store: Store, partition: PartitionId, replies: list[Reply]) -> None:
    """Give every delivery in these replies its body; Damaged where one cannot be read."""
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
) -> list[Entry]:
    """Bodies that the rules of a topic will read are in memory before it decides; answers whose
    bodies are damaged.

    The decision must be taken at the same instant: a later one could need more of them.
    """
    damaged: list[Entry] = []
    size = 0
    for command in commands:
        if isinstance(command, Tick):
            entries = partition.bodies_wanted(now)
        elif isinstance(command, PublishStages):
            if size >= STEP_BYTES_MAX:
                continue  # it is published in a later round
            entries = partition.bodies_to_publish(command)
            size += sum([entry.size for entry in entries])
        else:
            continue
        if entries:
            damaged += await _bring(store, where, partition, entries)
    return damaged


async def _bring(
    store: Store, where: PartitionId, partition: Partition, entries: list[Entry]
) -> list[Entry]:
    damaged: list[Entry] = []
    try:
        messages = await store.payloads(where, [entry.position for entry in entries])
    except Damaged as error:
        damaged = [entry for entry in entries if entry.position in error.positions]
        entries = [entry for entry in entries if entry.position not in error.positions]
        messages = await store.payloads(where, [entry.position for entry in entries])
    partition.bring_bodies(entries, messages)
    return damaged
