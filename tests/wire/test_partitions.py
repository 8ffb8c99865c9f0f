"""Partitioned queues: where messages go, and that nobody notices the partitions."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    Bus,
    assert_no_gaps,
    assert_nothing_comes,
    bodies,
    body,
    number,
    partition,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import PARTITIONS_DEFAULT, Queues

pytestmark = pytest.mark.side_by_side

KEY_NAME = "x-opt-partition-key"
KEYS = [f"key-{index}" for index in range(40)]


def entities(bus: Bus, queue: str) -> dict[bytes, int]:
    """In which partition each message of a queue rests, by its body."""
    with bus.receiver(queue) as receiver:
        return {body(message): partition(message) for message in peek_all(receiver)}


# --- R-P3: where messages go


def test_a_key_has_one_partition(bus: Bus, queues: Queues) -> None:
    """R-P3: always the same one, whether it is a session or a partition key."""
    queue = queues.take("partitioned")
    bus.send(queue, *[ServiceBusMessage(f"p {key}", partition_key=key) for key in KEYS])
    bus.send(queue, *[ServiceBusMessage(f"again {key}", partition_key=key) for key in KEYS])
    bus.send(queue, *[ServiceBusMessage(f"s {key}", session_id=key) for key in KEYS])
    both = [ServiceBusMessage(f"b {key}", session_id=key, partition_key=key) for key in KEYS]
    bus.send(queue, *both)

    found = entities(bus, queue)
    for key in KEYS:
        kinds = ("p", "again", "s", "b")
        assert len({found[f"{kind} {key}".encode()] for kind in kinds}) == 1
    assert len(set(found.values())) > PARTITIONS_DEFAULT // 2


def test_a_key_has_one_partition_in_each_queue(bus: Bus, queues: Queues) -> None:
    """R-P3: it does not depend on anything else."""
    first, second = queues.take_many("partitioned", 2)
    for queue in (first, second):
        bus.send(queue, *[ServiceBusMessage(key, partition_key=key) for key in KEYS])
    assert entities(bus, first) == entities(bus, second)


def test_equal_ids_meet_where_duplicates_are_looked_for(bus: Bus, queues: Queues) -> None:
    """R-P3, R-S9: the id is the key; elsewhere it is not."""
    queue = queues.take("partitioned-duplicates")
    for turn in range(3):
        bus.send(queue, *[ServiceBusMessage(f"{turn} {key}", message_id=key) for key in KEYS])
    found = entities(bus, queue)
    assert sorted(found) == sorted(f"0 {key}".encode() for key in KEYS)
    assert len(set(found.values())) > PARTITIONS_DEFAULT // 2


def test_messages_without_a_key_take_turns(bus: Bus, queues: Queues) -> None:
    """R-P3: also with equal ids, where nobody looks for duplicates."""
    queue = queues.take("partitioned")
    count = 3 * PARTITIONS_DEFAULT
    bus.send(queue, *[ServiceBusMessage(f"{n}", message_id="same") for n in range(count)])
    assert set(Counter(entities(bus, queue).values()).values()) == {3}


def test_a_batch_goes_to_one_partition(bus: Bus, queues: Queues) -> None:
    """R-T5: so that it is stored whole or not at all; the next one goes to another."""
    queue = queues.take("partitioned")
    for turn in range(PARTITIONS_DEFAULT):
        bus.send(queue, [ServiceBusMessage(f"{turn} {index}") for index in range(5)])
    found = entities(bus, queue)
    batches = [{found[b"%d %d" % (t, i)] for i in range(5)} for t in range(PARTITIONS_DEFAULT)]
    assert all(len(batch) == 1 for batch in batches)
    assert len(set().union(*batches)) == PARTITIONS_DEFAULT


def test_a_batch_of_several_keys_is_refused(bus: Bus, queues: Queues) -> None:
    """R-P3: nothing of it is stored; one key is fine, however it is written."""
    queue = queues.take("partitioned")
    mixed = [
        [ServiceBusMessage("x", partition_key="a"), ServiceBusMessage("x", partition_key="b")],
        [ServiceBusMessage("x", session_id="a"), ServiceBusMessage("x", session_id="b")],
        [ServiceBusMessage("x", partition_key="a"), ServiceBusMessage("x")],
    ]
    with bus.sender(queue) as sender:
        for batch in mixed:
            with pytest.raises(ServiceBusError, match="different keys"):
                sender.send_messages(batch)
        sender.send_messages(
            [ServiceBusMessage("fine", session_id="a"), ServiceBusMessage("too", partition_key="a")]
        )
    assert set(entities(bus, queue)) == {b"fine", b"too"}


@pytest.mark.parametrize("kind", ["partitioned", "partitioned-session"])
def test_a_session_and_another_key_are_refused(
    broker: BrokerProcess, queues: Queues, kind: str
) -> None:
    """R-P3: by the broker, for clients that do not look; the link lives on."""
    generic = pytest.importorskip("tests.wire.generic")
    queue = queues.take(kind)
    with generic.Generic(broker.amqp_port) as client:
        sender = client.sender(queue)
        for session, key, is_taken in (("a", "b", False), ("a", "a", True), ("a", None, True)):
            message = generic.message("x")
            message.group_id = session
            message.annotations = {} if key is None else {generic.proton.symbol(KEY_NAME): key}
            if is_taken:
                sender.send(message)
            else:
                with pytest.raises(generic.utils.SendException):
                    sender.send(message)
    log = broker.log_since(0)
    assert any("not-allowed" in line and queue in line for line in log.splitlines())


# --- R-P5: receiving


def test_ten_receivers_get_one_message_each(bus: Bus, queues: Queues) -> None:
    """R-P5: wherever the messages are; nobody locks more than was asked for."""
    queue = queues.take("partitioned")
    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        receivers = [stack.enter_context(bus.receiver(queue)) for _ in range(10)]
        waiting = [pool.submit(receive_one, receiver) for receiver in receivers]
        time.sleep(1)
        bus.send(queue, *[ServiceBusMessage(f"{index}") for index in range(10)])
        got = [future.result() for future in waiting]
        for receiver, message in zip(receivers, got, strict=True):
            receiver.complete_message(message)
        assert peek_all(receivers[0]) == []
    assert sorted(bodies(got)) == [b"%d" % index for index in range(10)]


def test_ten_receivers_share_one_partition(bus: Bus, queues: Queues) -> None:
    """R-P5: one that has most of the messages serves all who ask."""
    queue = queues.take("partitioned")
    bus.send(queue, [ServiceBusMessage(f"{index}", partition_key="k") for index in range(100)])
    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        receivers = [stack.enter_context(bus.receiver(queue)) for _ in range(10)]
        got = list(pool.map(lambda receiver: receive(receiver, 10), receivers))
        for receiver, messages in zip(receivers, got, strict=True):
            assert bodies(messages) == sorted(bodies(messages), key=int)
            for message in messages:
                receiver.complete_message(message)
        assert peek_all(receivers[0]) == []
    assert len({number(message) for messages in got for message in messages}) == 100


def test_what_one_receiver_has_not_asked_for_is_others(bus: Bus, queues: Queues) -> None:
    """R-P5: of messages in every partition it gets two, and the others get the rest at once."""
    queue = queues.take("partitioned")
    bus.send(queue, *[ServiceBusMessage(f"{index}") for index in range(2 * PARTITIONS_DEFAULT)])
    with bus.receiver(queue) as modest, bus.receiver(queue) as other:
        few = receive(modest, 2)
        rest = receive(other, 2 * PARTITIONS_DEFAULT - 2, within_s=5)
        assert_nothing_comes(modest)
    assert len({number(message) for message in few + rest}) == 2 * PARTITIONS_DEFAULT
    assert {message.delivery_count for message in few + rest} == {0}


@pytest.mark.parametrize(
    "mode", [ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE]
)
def test_receivers_lose_nothing_while_messages_pour_in(
    bus: Bus, queues: Queues, mode: ServiceBusReceiveMode
) -> None:
    """R-P5, R-S1: each is received once and counts no other delivery."""
    queue = queues.take("partitioned")
    got: list[bytes] = []
    sent = threading.Event()
    locks = mode == ServiceBusReceiveMode.PEEK_LOCK

    def some(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
        # The client counts the opening of a link into the wait, which then may end before it began.
        with contextlib.suppress(OperationTimeoutError):
            return receiver.receive_messages(max_message_count=7, max_wait_time=2)
        return []

    def take() -> None:
        is_over = False
        while not is_over:
            # Where a message is gone when it is sent, one that meets a closing link is lost: only
            # receivers that lock come and go.
            with bus.receiver(queue, receive_mode=mode, prefetch_count=5 * locks) as receiver:
                for _ in range(6 if locks else 1000):
                    is_last = sent.is_set()
                    messages = some(receiver)
                    for message in messages:
                        assert message.delivery_count == 0
                        if locks:
                            receiver.complete_message(message)
                    got.extend(bodies(messages))
                    is_over = is_last and not messages
                    if is_over:
                        break

    with ThreadPoolExecutor(4) as pool:
        taking = [pool.submit(take) for _ in range(4)]
        with bus.sender(queue) as sender:
            for index in range(200):
                sender.send_messages(ServiceBusMessage(f"{index}"))
        sent.set()
        for future in taking:
            future.result(90)
    with bus.receiver(queue) as receiver:
        assert peek_all(receiver) == []
    assert sorted(got, key=int) == [b"%d" % index for index in range(200)]


def test_settling_reaches_every_partition(bus: Bus, queues: Queues) -> None:
    """R-P2: each way, for messages of all partitions, in one receiver."""
    queue = queues.take("partitioned")
    count = 4 * PARTITIONS_DEFAULT
    bus.send(queue, *[ServiceBusMessage(f"{index}") for index in range(count)])
    with bus.receiver(queue) as receiver, bus.dead_letters(queue) as dead_letters:
        messages = sorted(receive(receiver, count), key=number)
        for way in range(4):
            for message in messages[way::4]:
                (
                    receiver.complete_message,
                    receiver.abandon_message,
                    receiver.defer_message,
                    receiver.dead_letter_message,
                )[way](message)
        again = receive(receiver, count // 4)
        assert {message.delivery_count for message in again} == {1}
        assert {number(message) for message in again} == {number(m) for m in messages[1::4]}
        for message in again:
            receiver.renew_message_lock(message)
        wanted = [number(message) for message in messages[2::4]]
        deferred = receiver.receive_deferred_messages(wanted)
        assert [number(message) for message in deferred] == wanted
        for message in again + deferred:
            receiver.complete_message(message)
        assert peek_all(receiver) == []
        dead = receive(dead_letters, count // 4)
        assert {number(message) for message in dead} == {number(m) for m in messages[3::4]}


# --- R-P6: peeking


@pytest.mark.parametrize("page_size", [1, 7, 250])
def test_peeking_walks_through_all_partitions(bus: Bus, queues: Queues, page_size: int) -> None:
    """R-P6: ascending, nothing missed and nothing twice, in pages of any size."""
    queue = queues.take("partitioned")
    bus.send(queue, *[ServiceBusMessage(f"{index}") for index in range(50)])
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(50, 100)])
    with bus.receiver(queue) as receiver:
        found = list(pages(receiver, page_size))
    assert sorted(int(body(message)) for message in found) == list(range(100))
    numbers = [number(message) for message in found]
    assert numbers == sorted(numbers)
    assert_no_gaps(found, partitioned=True)


def pages(receiver: ServiceBusReceiver, size: int) -> Iterator[ServiceBusReceivedMessage]:
    """Browse with numbers, page after page."""
    start = 1
    while page := receiver.peek_messages(max_message_count=size, sequence_number=start):
        assert len(page) <= size
        yield from page
        start = number(page[-1]) + 1


def test_peeking_goes_on_by_itself(bus: Bus, queues: Queues) -> None:
    """R-P6: without a number, as applications browse; a page may be short and is not empty."""
    queue = queues.take("partitioned")
    bus.send(queue, *[ServiceBusMessage(f"{index}") for index in range(40)])
    with bus.receiver(queue) as receiver:
        found = []
        while page := receiver.peek_messages(max_message_count=9):
            found += page
    assert sorted(int(body(message)) for message in found) == list(range(40))


def test_peeking_shows_large_messages(bus: Bus, queues: Queues) -> None:
    """R-P6: an answer has its limit, the walk goes on behind it."""
    queue = queues.take("partitioned")
    bus.send(queue, *[ServiceBusMessage(b"%02d" % n + b"x" * 100_000) for n in range(20)])
    with bus.receiver(queue) as receiver:
        found = peek_all(receiver)
    assert sorted(int(body(message)[:2]) for message in found) == list(range(20))


# --- sessions


def test_the_next_session_may_be_in_any_partition(bus: Bus, queues: Queues) -> None:
    """R-P2: each of many receivers gets one of its own, and each session is found."""
    queue = queues.take("partitioned-session")
    names = [f"s{index}" for index in range(12)]
    bus.send(queue, *[ServiceBusMessage(name, session_id=name) for name in names])
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:

        def accept(_: int) -> tuple[str, bytes]:
            receiver = stack.enter_context(
                bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
            )
            message = receive_one(receiver)
            receiver.complete_message(message)
            return message.session_id or "", body(message)

        got = list(pool.map(accept, range(12)))
    assert sorted(got) == sorted((name, name.encode()) for name in names)


def test_whoever_waits_for_a_session_is_woken(bus: Bus, queues: Queues) -> None:
    """R-P2: by the first message of any partition, one after the other."""
    queue = queues.take("partitioned-session")
    with ThreadPoolExecutor(3) as pool:

        def accept(_: int) -> str:
            with bus.receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30
            ) as receiver:
                return receive_one(receiver).session_id or ""

        waiting = [pool.submit(accept, index) for index in range(3)]
        time.sleep(2)
        bus.send(queue, *[ServiceBusMessage("x", session_id=f"s{n}") for n in range(3)])
        assert sorted(future.result(30) for future in waiting) == ["s0", "s1", "s2"]
