"""Faults on demand, as clients see them."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from peeklock.client import ServiceBusReceivedMessage
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from peeklock.client.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)
from peeklock.testing import Fault, FaultError, InProcessBroker, ServiceBus

# Nothing is waited for that long: a machine may be busy.
WAIT_S = 30


def client_of(bus: ServiceBus, tries: int = 0) -> ServiceBusClient:
    """A client that tries again so often, and at once."""
    return ServiceBusClient.from_connection_string(
        bus.connection_string, retry_total=tries, retry_backoff_factor=0.01
    )


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def bus(servicebus: ServiceBus, request: pytest.FixtureRequest) -> ServiceBus:
    servicebus.create_queue("orders", enable_partitioning=request.param)
    servicebus.create_queue("others")
    return servicebus


def receive_one(receiver: ServiceBusReceiver) -> str:
    (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
    receiver.complete_message(message)
    return str(message)


def test_a_server_is_busy_as_often_as_it_is_to_be_and_only_there(bus: ServiceBus) -> None:
    fault = bus.faults.server_busy("orders", count=2)
    with client_of(bus) as client:
        client.get_queue_sender("others").send_messages(ServiceBusMessage("passes"))
        sender = client.get_queue_sender("orders")
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("refused"))
        assert (fault.struck, bus.faults.waiting()) == (1, [fault])
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("refused again"))
        assert (fault.struck, bus.faults.waiting()) == (2, [])
        sender.send_messages(ServiceBusMessage("tea"))
        assert receive_one(client.get_queue_receiver("orders")) == "tea"


def test_of_a_run_one_message_is_refused_and_the_others_do_not_notice(bus: ServiceBus) -> None:
    bus.faults.server_busy("orders", after=1)
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("one"))
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("two"))
        sender.send_messages(ServiceBusMessage("three"))
        receiver = client.get_queue_receiver("orders")
        assert {receive_one(receiver), receive_one(receiver)} == {"one", "three"}


def test_chance_is_the_same_with_the_same_seed(bus: ServiceBus) -> None:
    def struck(seed: int) -> list[bool]:
        fault = bus.faults.server_busy("orders", count=None, probability=0.5, seed=seed)
        found: list[bool] = []
        with client_of(bus) as client:
            sender = client.get_queue_sender("orders")
            for number in range(20):
                before = fault.struck
                try:
                    sender.send_messages(ServiceBusMessage(str(number)))
                except ServiceBusServerBusyError:
                    assert fault.struck == before + 1
                found.append(fault.struck > before)
        bus.faults.remove(fault)
        return found

    assert struck(7) == struck(7) != struck(8)
    assert bus.faults.waiting() == []


def test_an_answer_that_is_dropped_leaves_the_message_stored_and_the_sender_in_doubt(
    bus: ServiceBus,
) -> None:
    bus.create_queue(
        "orders-once",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=1),
    )
    fault = bus.faults.drop_answer("orders-once")
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders-once")
        message = ServiceBusMessage("tea", message_id="1")
        while not fault.struck:  # a busy machine may not even have sent it
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(message, timeout=0.5)
        sender.send_messages(message)
        receiver = client.get_queue_receiver("orders-once")
        assert [str(each) for each in receiver.peek_messages(10)] == ["tea"]


def test_an_answer_that_is_late_is_an_answer(bus: ServiceBus) -> None:
    fault = bus.faults.delay_answer("orders", by=timedelta(seconds=0.05))
    bus.faults.delay_answer("orders", by=0.05, operation="receive")
    with client_of(bus) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        assert receive_one(client.get_queue_receiver("orders")) == "tea"
    assert fault.struck == 1
    assert bus.faults.waiting() == []


def test_a_lock_is_lost_when_it_is_settled_or_renewed(bus: ServiceBus) -> None:
    with client_of(bus) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        receiver = client.get_queue_receiver("orders")
        for turn, operation in enumerate(("settle", "renew", "complete")):
            (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
            assert message.delivery_count == turn
            bus.faults.lose_lock("orders", operation=operation)
            use_lock: Callable[[ServiceBusReceivedMessage], object] = (
                receiver.renew_message_lock if operation == "renew" else receiver.complete_message
            )
            with pytest.raises(MessageLockLostError):
                use_lock(message)
        assert receive_one(receiver) == "tea"


def test_this_lock_is_lost_now(bus: ServiceBus) -> None:
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        receiver = client.get_queue_receiver("orders")
        one, two = (receiver.receive_messages(max_wait_time=WAIT_S)[0] for _ in range(2))
        assert one.lock_token is not None
        bus.faults.lose_lock("orders", lock_token=one.lock_token)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(one)
        receiver.complete_message(two)
        assert receive_one(receiver) == str(one)
        with pytest.raises(FaultError, match="'nowhere'"):
            bus.faults.lose_lock("nowhere", lock_token=one.lock_token)
        with pytest.raises(FaultError, match="no more"):
            bus.faults.lose_lock("orders", lock_token=one.lock_token, count=2)


def test_a_session_is_lost_when_one_of_its_messages_is_settled(bus: ServiceBus) -> None:
    bus.create_queue("sessions", requires_session=True)
    bus.faults.lose_lock("sessions")
    with client_of(bus) as client:
        message = ServiceBusMessage("tea", session_id="s")
        client.get_queue_sender("sessions").send_messages(message)
        receiver = client.get_queue_receiver("sessions", session_id="s")
        (received,) = receiver.receive_messages(max_wait_time=WAIT_S)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(received)
        again = client.get_queue_receiver("sessions", session_id="s")
        assert receive_one(again) == "tea"


def test_what_was_completed_is_delivered_again(bus: ServiceBus) -> None:
    bus.faults.duplicate_delivery("orders")
    with client_of(bus) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        receiver = client.get_queue_receiver("orders")
        assert [receive_one(receiver), receive_one(receiver)] == ["tea", "tea"]
        assert receiver.peek_messages() == []


def test_a_link_is_detached_with_a_condition_and_comes_back(bus: ServiceBus) -> None:
    bus.faults.detach("orders", condition="com.microsoft:entity-disabled")
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("lost"))
        bus.faults.detach("orders", is_stored=True)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("stored"))
        sender.send_messages(ServiceBusMessage("tea"))
        receiver = client.get_queue_receiver("orders")
        assert {receive_one(receiver), receive_one(receiver)} == {"stored", "tea"}
        assert bus.faults.detach("orders", operation="now").struck > 0
        sender.send_messages(ServiceBusMessage("coffee"))


def test_a_connection_is_cut_before_or_after_a_message_is_stored(bus: ServiceBus) -> None:
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders")
        for is_stored in (False, True):
            bus.faults.cut_connection("orders", is_stored=is_stored)
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage(f"stored: {is_stored}"))
        receiver = client.get_queue_receiver("orders")
        assert [str(each) for each in receiver.peek_messages(10)] == ["stored: True"]
        assert bus.faults.cut_connection(operation="now").struck > 0
    with client_of(bus, tries=3) as client:
        bus.faults.cut_connection("orders", operation="receive")
        assert receive_one(client.get_queue_receiver("orders")) == "stored: True"


def test_a_store_that_is_stalled_keeps_everybody_waiting(bus: ServiceBus) -> None:
    done = threading.Event()
    with client_of(bus) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))

        def send() -> None:
            sender.send_messages(ServiceBusMessage("during"), timeout=WAIT_S)
            done.set()

        with bus.faults.stall_store("orders") as fault:
            sending = threading.Thread(target=send)
            sending.start()
            client.get_queue_sender("others").send_messages(ServiceBusMessage("passes"))
            assert not done.wait(0.1)
        assert done.wait(WAIT_S)
        sending.join()
        assert fault.struck >= 1


def test_a_stalled_store_does_not_keep_a_test_from_ending(bus: ServiceBus) -> None:
    bus.faults.add(Fault("stall-store"))
    with client_of(bus) as client, pytest.raises(OperationTimeoutError):
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=0.1)


def test_a_stalled_store_does_not_keep_a_broker_from_ending() -> None:
    """It waited for ever for what was to be written."""
    with InProcessBroker() as broker:
        with broker.namespace():
            assert broker._parts is not None
            controls = broker._parts.controls
        assert controls is not None
        # Nobody drops this one.
        made = broker.call(controls.namespaces.make("shop", {"Queues": [{"Name": "orders"}]}))
        bus = ServiceBus(broker.call, controls, made, broker.authority)
        bus.faults.add(Fault("stall-store"))
        with client_of(bus) as client, pytest.raises(OperationTimeoutError):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=0.1)
        broker.close()
        assert controls.faults.is_empty
        with pytest.raises(FaultError, match="broker stops"):
            controls.faults.add("shop", Fault("server-busy"))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"kind": "explode"}, "'explode' is no fault"),
        ({"kind": "drop-answer", "operation": "receive"}, "cannot happen at 'receive'"),
        ({"kind": "stall-store", "operation": "send"}, "it happens at every write"),
        ({"kind": "stall-store", "count": 3}, "mean nothing there"),
        ({"kind": "stall-store", "after": 1}, "mean nothing there"),
        ({"kind": "detach", "condition": "amqp:no-such"}, "but with"),
        ({"kind": "server-busy", "count": 0}, "at least once"),
        ({"kind": "server-busy", "after": -1}, "cannot be negative"),
        ({"kind": "server-busy", "probability": 0.0}, "above 0"),
        ({"kind": "delay-answer"}, "needs a delay"),
        ({"kind": "server-busy", "is_stored": True}, "come after the operation"),
        ({"kind": "detach", "operation": "now", "is_stored": True}, "has no answer"),
    ],
)
def test_a_fault_that_cannot_be_is_told(fault: dict[str, object], text: str) -> None:
    with pytest.raises(FaultError, match=text):
        Fault(**fault)  # type: ignore[arg-type] # wrong on purpose
