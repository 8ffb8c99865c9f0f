"""The processor of the blocking client: handlers in threads (R-F5)."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peeklock.client.blocking import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, Queues

WITHIN_S = 20.0


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        yield client


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, partition_key="k") for body in bodies])


def left(client: ServiceBusClient, queue: str) -> list[str]:
    with client.get_queue_receiver(queue) as receiver:
        return [str(message) for message in receiver.peek_messages(100)]


def test_handlers_run_in_threads_and_are_bounded(client: ServiceBusClient, queue: str) -> None:
    """R-F5."""
    send(client, queue, *map(str, range(40)))
    seen: list[str] = []
    together = threading.Barrier(4)
    counts = threading.Lock()
    running, most = 0, 0

    def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
        nonlocal running, most
        with counts:
            running += 1
            most = max(most, running)
        # Four of them are here at once, or none goes on.
        together.wait(WITHIN_S)
        with counts:
            running -= 1
            seen.append(str(message))

    with client.get_queue_processor(queue, handle, max_concurrent_calls=4) as processor:
        was_running = processor.is_running
        until(lambda: len(seen) == 40)
    assert (was_running, processor.is_running) == (True, False)
    assert most == 4
    assert sorted(seen, key=int) == [str(n) for n in range(40)]
    assert left(client, queue) == []


def test_a_handler_that_fails_has_its_message_abandoned(
    client: ServiceBusClient, queues: Queues
) -> None:
    """Those who are told may use the client, as the handler may."""
    queue = queues.take("three-deliveries")
    send(client, queue, "good", "bad")
    told: list[tuple[str, str, list[str]]] = []

    def handle(message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
        receiver.renew_message_lock(message)
        if str(message) == "bad":
            raise RuntimeError("no good")
        receiver.complete_message(message)

    def on_error(message: Any, error: Exception) -> None:
        told.append((str(message), str(error), left(client, queue)))

    with client.get_queue_processor(queue, handle, on_error=on_error):
        until(lambda: len(told) == 3)
        with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
            [message] = dead.receive_messages(1, WITHIN_S)
    assert str(message) == "bad"
    assert [(text, error) for text, error, _ in told] == [("bad", "no good")] * 3
    assert left(client, queue) == []


def test_locks_are_renewed_while_a_handler_blocks(client: ServiceBusClient, queues: Queues) -> None:
    """R-L2."""
    queue = queues.take("short-lock")
    send(client, queue, "slow")
    calls: list[int] = []
    ended = threading.Event()

    def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
        calls.append(message.delivery_count)
        time.sleep(LOCK_SHORT_S * 1.6)
        ended.set()

    with client.get_queue_processor(queue, handle, max_concurrent_calls=2):
        assert ended.wait(WITHIN_S)
    assert calls == [0]
    assert left(client, queue) == []


def test_sessions_are_worked_on_side_by_side_and_in_order(
    client: ServiceBusClient, queues: Queues
) -> None:
    """R-F5."""
    queue = queues.take("session")
    with client.get_queue_sender(queue) as sender:
        for session in range(4):
            sender.send_messages(
                [ServiceBusMessage(str(n), session_id=str(session)) for n in range(5)]
            )
    seen: dict[str, list[str]] = {}
    guard = threading.Lock()

    def handle(message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
        receiver.session.set_state(str(message))
        with guard:
            seen.setdefault(receiver.session.session_id, []).append(str(message))

    with client.get_queue_processor(
        queue, handle, max_concurrent_sessions=2, session_idle_timeout=0.2
    ):
        until(lambda: sum(map(len, seen.values())) == 20)
    assert seen == {str(session): [str(n) for n in range(5)] for session in range(4)}


def test_stopping_waits_for_handlers_and_leaves_the_rest(
    client: ServiceBusClient, queue: str
) -> None:
    send(client, queue, *map(str, range(10)))
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []
    refusals: list[str] = []

    def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
        for end in (processor.stop, client.close):
            with pytest.raises(RuntimeError) as refused:
                end()
            refusals.append(str(refused.value))
        begun.set()
        assert go_on.wait(WITHIN_S)
        ended.append(str(message))

    processor = client.get_queue_processor(queue, handle, max_concurrent_calls=3)
    processor.start()
    assert begun.wait(WITHIN_S)
    stops = [threading.Thread(target=processor.stop) for _ in range(3)]
    for stop in stops:
        stop.start()
    time.sleep(0.2)
    assert all(stop.is_alive() for stop in stops)
    go_on.set()
    for stop in stops:
        stop.join(WITHIN_S)
    assert 1 <= len(ended) <= 3
    assert set(refusals) == {"a handler cannot stop its processor: it would wait for itself"}
    assert sorted([*left(client, queue), *ended], key=int) == [str(n) for n in range(10)]
    # It can begin again, also by threads that are in a hurry.
    starts = [threading.Thread(target=processor.start) for _ in range(3)]
    for start in starts:
        start.start()
    for start in starts:
        start.join(WITHIN_S)
    until(lambda: len(ended) == 10)
    processor.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("peeklock-handler")]


def test_closing_the_client_stops_its_processors(broker: BrokerProcess, queue: str) -> None:
    client = ServiceBusClient.from_connection_string(broker.connection_string)
    send(client, queue, "one")
    seen: list[str] = []

    def handle(message: ServiceBusReceivedMessage, _receiver: ServiceBusReceiver) -> None:
        time.sleep(0.2)
        seen.append(str(message))

    processor = client.get_queue_processor(queue, handle)
    processor.start()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("two", partition_key="k"))
    until(lambda: seen)
    client.close()
    assert not processor.is_running
