"""How long does a burst of 100 sends take over a long line to a slow store (R-T6)?

The line has a round trip of 70 ms, the store needs 10 ms for each commit. One send after another
pays both each time; sends that overlap pay them once, or once for every ten.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.client import COMPILED, ROOT
from bench.delay import LongLine
from bench.figures import machine, median, spread, table, verdict
from bench.peeklock_server import Peeklock
from bench.plan import Plan

SENDS: Final = 100
ROUND_TRIP_MS: Final = 70
STORE_MS: Final = 10
BODY: Final = b"x" * 1_000
OURS: Final = "peeklock.client"
AZURE: Final = "azure-servicebus (aio)"
# The official client is not bounded here: with ten at a time on one sender it stands still.
WAYS: Final = {
    OURS: ("one by one", "overlapped", "bounded by 10", "send_soon"),
    AZURE: ("one by one", "overlapped"),
}
DONE_WITHIN_S: Final = 120.0


def answer(plan: Plan) -> None:
    """Measure in interleaved rounds and print medians beside what the requirement says."""
    print(machine(plan.directory))
    results: dict[tuple[str, str], list[float]] = {}
    with (
        Peeklock(plan.directory, "compiled", settings={"commit_delay_ms": str(STORE_MS)}) as server,
        LongLine(server.endpoint.port, ROUND_TRIP_MS / 2) as line,
    ):
        for _ in range(min(plan.rounds, 3)):
            for client, ways in WAYS.items():
                for way in ways:
                    took = run(line.port, server.endpoint.address, client, way)
                    results.setdefault((client, way), []).append(took)
    rows = [
        [f"{client}, {way}", f"{median(found):.2f}", spread(found, 2)]
        for (client, way), found in results.items()
    ]
    title = (
        f"A burst of {SENDS} sends, {ROUND_TRIP_MS} ms round trip, {STORE_MS} ms store, medians of "
        f"{len(next(iter(results.values())))} rounds"
    )
    table(title, ["", "seconds", "spread"], rows)
    print()
    one_by_one = median(results[OURS, "one by one"])
    overlapped = median(results[OURS, "overlapped"])
    print(verdict("one by one", one_by_one, "s", least=SENDS * (ROUND_TRIP_MS + STORE_MS) / 1000))
    print(verdict("overlapped", overlapped, "s", most=1.0))
    print(verdict("bounded by 10", median(results[OURS, "bounded by 10"]), "s", most=2.0))
    rival = median(results[AZURE, "overlapped"])
    print(f"overlapped, beside azure-servicebus: {rival / overlapped:.1f} times as fast")


def run(port: int, queue: str, client: str, way: str) -> float:
    """Send the burst from a process of its own, compiled; gives the seconds it took."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.burst", str(port), queue, client, way],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DONE_WITHIN_S,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    took: float = json.loads(done.stdout)
    return took


def connection_string(port: int) -> str:
    """Give what both clients are told."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


async def burst(port: int, queue: str, client: str, way: str) -> float:
    """Open a sender, send one message, and then measure the burst."""
    text = connection_string(port)
    if client == OURS:
        from peeklock.client import ServiceBusClient, ServiceBusMessage

        async with ServiceBusClient.from_connection_string(text) as bus:
            bound = 10 if way == "bounded by 10" else None
            async with bus.get_queue_sender(queue, max_in_flight=bound) as sender:
                await sender.send_messages(ServiceBusMessage(BODY))
                begun = time.perf_counter()
                if way == "send_soon":
                    await asyncio.gather(
                        *(sender.send_soon(ServiceBusMessage(BODY)).outcome for _ in range(SENDS))
                    )
                else:
                    send = sender.send_messages
                    await _burst(lambda: send(ServiceBusMessage(BODY)), way == "one by one")
                return time.perf_counter() - begun
    from azure.servicebus import ServiceBusMessage as AzureMessage
    from azure.servicebus.aio import ServiceBusClient as AzureClient

    async with (
        AzureClient.from_connection_string(text) as rival,
        rival.get_queue_sender(queue) as theirs,
    ):
        await theirs.send_messages(AzureMessage(BODY))
        begun = time.perf_counter()
        await _burst(lambda: theirs.send_messages(AzureMessage(BODY)), way == "one by one")
        return time.perf_counter() - begun


async def _burst(send: Callable[[], Awaitable[Any]], one_by_one: bool) -> None:
    if one_by_one:
        for _ in range(SENDS):
            await send()
    else:
        await asyncio.gather(*(send() for _ in range(SENDS)))


if __name__ == "__main__":
    print(asyncio.run(burst(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])))
