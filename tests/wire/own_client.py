"""Our own client in tests: a loop for each test, and a broker's connection string."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from peeklock.client import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

# A test that takes longer than this hangs, whatever it waits for.
DONE_WITHIN_S: Final = 60.0
RECEIVE_WITHIN_S: Final = 10.0
# The lower bits of a sequence number; those above are its partition's.
PLACE: Final = (1 << 48) - 1


def run_with(
    connection_string: str,
    test: Callable[[ServiceBusClient], Awaitable[None]],
    **options: Any,
) -> None:
    """Run a test with a client of its own, which is closed behind it."""

    async def run() -> None:
        async with (
            asyncio.timeout(DONE_WITHIN_S),
            ServiceBusClient.from_connection_string(connection_string, **options) as client,
        ):
            await test(client)

    asyncio.run(run())


async def send(client: ServiceBusClient, queue: str, *bodies: str | bytes, **options: Any) -> None:
    """Send messages that keep their order, on partitioned entities too."""
    if "session_id" not in options:
        options["partition_key"] = "home"
    async with client.get_queue_sender(queue) as sender:
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body, **options))


async def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages, however many calls it takes."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        more = await receiver.receive_messages(count - len(found), RECEIVE_WITHIN_S)
        assert more, f"{len(found)} of {count} messages came"
        found += more
    return found


async def take_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    [message] = await take(receiver, 1)
    return message


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
