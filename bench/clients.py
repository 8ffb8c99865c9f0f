"""How fast is our own client beside the official one, on the same broker?

1 KB messages: sent one by one, overlapped, without waiting, in batches; received and completed.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, final

from bench.burst import DONE_WITHIN_S, connection_string
from bench.client import COMPILED, ROOT
from bench.figures import machine, median, spread, table
from bench.peeklock_server import Peeklock
from bench.plan import Plan

BODY: Final = b"x" * 1_000
BATCH: Final = 100
WINDOW: Final = 200
OURS: Final = "peeklock.client"
OURS_BLOCKING: Final = "peeklock.client.blocking"
AZURE_ASYNC: Final = "azure-servicebus (aio)"
AZURE: Final = "azure-servicebus"

ONE_BY_ONE: Final = "send, one by one"
OVERLAPPED: Final = f"send, {WINDOW} overlapped"
SOON: Final = "send_soon (implicit batches)"
BATCHES: Final = f"send, batches of {BATCH}"
RECEIVE: Final = f"receive {BATCH} and complete each"
RECEIVE_SOON: Final = f"receive {BATCH}, complete_soon"
# How many messages each way moves; the official client gets fewer, because it is slower.
COUNTS: Final[dict[str, dict[str, int]]] = {
    ONE_BY_ONE: {OURS: 2_000, OURS_BLOCKING: 2_000, AZURE_ASYNC: 1_000, AZURE: 1_000},
    OVERLAPPED: {OURS: 40_000, AZURE_ASYNC: 2_000},
    SOON: {OURS: 100_000, OURS_BLOCKING: 20_000},
    BATCHES: {OURS: 200_000, OURS_BLOCKING: 100_000, AZURE_ASYNC: 40_000, AZURE: 40_000},
    RECEIVE: {OURS: 2_000, OURS_BLOCKING: 2_000, AZURE_ASYNC: 1_000, AZURE: 1_000},
    RECEIVE_SOON: {OURS: 100_000, OURS_BLOCKING: 20_000},
}
# What stands beside what in the ratios.
RIVALS: Final = {OURS: AZURE_ASYNC, OURS_BLOCKING: AZURE}
SAME_AIM: Final = {SOON: OVERLAPPED, RECEIVE_SOON: RECEIVE}


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians and ratios."""
    print(machine(plan.directory))
    results: dict[tuple[str, str], list[float]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    with Peeklock(plan.directory, "compiled") as server:
        endpoint = server.endpoint
        for _ in range(min(plan.rounds, 3)):
            for way, counts in COUNTS.items():
                for client, count in counts.items():
                    wanted = max(WINDOW, count // (20 if plan.quick else 1))
                    rate, cost = run(endpoint.port, endpoint.address, client, way, wanted)
                    results.setdefault((way, client), []).append(rate)
                    costs.setdefault((way, client), []).append(cost)
    rows = [
        [
            way,
            client,
            f"{median(rates):,.0f}",
            spread(rates),
            _ratio(results, way, client),
            f"{median(costs[way, client]):.0f}",
        ]
        for (way, client), rates in results.items()
    ]
    rounds = len(next(iter(results.values())))
    columns = ["1 KB messages", "client", "msgs/s", "spread", "beside azure", "client us"]
    table(f"Clients on the same broker, medians of {rounds} interleaved rounds", columns, rows)


def _ratio(results: dict[tuple[str, str], list[float]], way: str, client: str) -> str:
    rival = RIVALS.get(client)
    if rival is None:
        return ""
    beside = results.get((way, rival)) or results.get((SAME_AIM.get(way, way), rival))
    if beside is None:
        # The synchronous client can only send one after another.
        beside = results[ONE_BY_ONE, rival]
    return f"{median(results[way, client]) / median(beside):.1f} x"


def run(port: int, queue: str, client: str, way: str, count: int) -> tuple[float, float]:
    """Let a client of a process of its own do it; gives messages per second and CPU for each."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.clients", str(port), queue, client, way, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DONE_WITHIN_S,
    )
    if done.returncode:
        raise RuntimeError(f"{client}, {way}: {done.stderr.strip()}")
    rate, cost = json.loads(done.stdout)
    return rate, cost


# --- the other process


@final
class Watch:
    """Times one thing: by the clock, and by what the process spent on it."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._spent = time.process_time()

    def rate_and_cost(self, count: int) -> tuple[float, float]:
        """Give messages per second, and microseconds of CPU for each."""
        spent = time.process_time() - self._spent
        return count / (time.perf_counter() - self._begun), spent / count * 1e6


def measure(port: int, queue: str, client: str, way: str, count: int) -> tuple[float, float]:
    """Do one thing with one client, and give its rate and its cost."""
    text = connection_string(port)
    if client in (OURS, AZURE_ASYNC):
        return asyncio.run(_measure_awaited(text, queue, client, way, count))
    return _measure_blocking(text, queue, client, way, count)


async def _measure_awaited(
    text: str, queue: str, client: str, way: str, count: int
) -> tuple[float, float]:
    bus_class, message_class = _classes(client)
    async with bus_class.from_connection_string(text) as bus:
        if way in (RECEIVE, RECEIVE_SOON):
            async with bus.get_queue_sender(queue) as sender:
                await _send_batches(sender, message_class, count)
            async with bus.get_queue_receiver(queue, prefetch_count=2 * BATCH) as receiver:
                return await _timed(lambda: _receive(receiver, way, count), count)
        async with bus.get_queue_sender(queue) as sender:
            await sender.send_messages(message_class(BODY))
            work = {
                ONE_BY_ONE: lambda: _send_singly(sender, message_class, count),
                OVERLAPPED: lambda: _send_overlapped(sender, message_class, count),
                SOON: lambda: _send_soon(sender, message_class, count),
                BATCHES: lambda: _send_batches(sender, message_class, count),
            }[way]
            found = await _timed(work, count)
        await _empty(bus, queue)
        return found


async def _timed(work: Callable[[], Awaitable[None]], count: int) -> tuple[float, float]:
    watch = Watch()
    await work()
    return watch.rate_and_cost(count)


async def _send_singly(sender: Any, message_class: Any, count: int) -> None:
    for _ in range(count):
        await sender.send_messages(message_class(BODY))


async def _send_overlapped(sender: Any, message_class: Any, count: int) -> None:
    # In rounds: a sender of the official client stands still when sends of several tasks follow
    # each other on it.
    for _ in range(count // WINDOW):
        await asyncio.gather(*(sender.send_messages(message_class(BODY)) for _ in range(WINDOW)))


async def _send_soon(sender: Any, message_class: Any, count: int) -> None:
    for _ in range(count):
        await sender.send_soon(message_class(BODY))
    await sender.flush()


async def _send_batches(sender: Any, message_class: Any, count: int) -> None:
    for _ in range(count // BATCH):
        batch = await sender.create_message_batch()
        for _ in range(BATCH):
            batch.add_message(message_class(BODY))
        await sender.send_messages(batch)


async def _receive(receiver: Any, way: str, count: int) -> None:
    taken = 0
    while taken < count:
        messages = await receiver.receive_messages(BATCH, max_wait_time=20)
        for message in messages:
            if way == RECEIVE_SOON:
                receiver.complete_soon(message)
            else:
                await receiver.complete_message(message)
        taken += len(messages)
    if way == RECEIVE_SOON:
        await receiver.flush()


async def _empty(bus: Any, queue: str) -> None:
    """Leave nothing to the next one."""
    if hasattr(bus.get_queue_receiver(queue), "purge_messages"):
        await bus.get_queue_receiver(queue).purge_messages()


def _measure_blocking(
    text: str, queue: str, client: str, way: str, count: int
) -> tuple[float, float]:
    bus_class, message_class = _classes(client)
    with bus_class.from_connection_string(text) as bus:
        with bus.get_queue_sender(queue) as sender:
            sender.send_messages(message_class(BODY))
            watch = Watch()
            if way == ONE_BY_ONE:
                for _ in range(count):
                    sender.send_messages(message_class(BODY))
            elif way == SOON:
                for _ in range(count):
                    sender.send_soon(message_class(BODY))
                sender.flush()
            else:
                for _ in range(count // BATCH):
                    batch = sender.create_message_batch()
                    for _ in range(BATCH):
                        batch.add_message(message_class(BODY))
                    sender.send_messages(batch)
            found = watch.rate_and_cost(count)
        if way in (RECEIVE, RECEIVE_SOON):
            with bus.get_queue_receiver(queue, prefetch_count=2 * BATCH) as receiver:
                watch = Watch()
                _receive_blocking(receiver, way, count)
                found = watch.rate_and_cost(count)
        return found


def _receive_blocking(receiver: Any, way: str, count: int) -> None:
    taken = 0
    while taken < count:
        messages = receiver.receive_messages(BATCH, max_wait_time=20)
        for message in messages:
            (receiver.complete_soon if way == RECEIVE_SOON else receiver.complete_message)(message)
        taken += len(messages)
    if way == RECEIVE_SOON:
        receiver.flush()


def _classes(client: str) -> tuple[Any, Any]:
    if client == OURS:
        from peeklock.client import ServiceBusClient, ServiceBusMessage

        return ServiceBusClient, ServiceBusMessage
    if client == OURS_BLOCKING:
        from peeklock.client import blocking

        return blocking.ServiceBusClient, blocking.ServiceBusMessage
    import azure.servicebus

    if client == AZURE:
        return azure.servicebus.ServiceBusClient, azure.servicebus.ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient as AzureClient

    return AzureClient, azure.servicebus.ServiceBusMessage


if __name__ == "__main__":
    measured = measure(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    print(json.dumps(measured))
