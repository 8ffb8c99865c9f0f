"""A broker in this process: namespaces that come and go, and a clock that tests move."""

import asyncio
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from peeklock import testing
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import (
    MessageLockLostError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    SessionLockLostError,
)
from peeklock.server import BrokerParts
from peeklock.testing import InProcessBroker, NamespaceError, ServiceBus
from tests.broker.broker_harness import until

DAY = timedelta(days=1)
# Nothing is waited for that long: a machine may be busy.
WAIT_S = 30


def client_of(bus: ServiceBus) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(bus.connection_string)


def parts_of(broker: InProcessBroker) -> BrokerParts:
    parts = broker._parts
    assert parts is not None
    return parts


def send(bus: ServiceBus, *bodies: str, to: str = "orders") -> None:
    with client_of(bus) as client, client.get_queue_sender(to) as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def waiting(bus: ServiceBus, queue: str = "orders") -> list[str]:
    with client_of(bus) as client, client.get_queue_receiver(queue) as receiver:
        return [str(message) for message in receiver.peek_messages(10)]


# --- namespaces


def test_two_namespaces_at_once_have_nothing_to_do_with_each_other(
    servicebus_broker: InProcessBroker,
) -> None:
    """R-F7: the key tells them apart, because the host cannot."""
    with servicebus_broker.namespace() as one, servicebus_broker.namespace() as two:
        for bus in (one, two):
            bus.create_queue("orders")
        send(one, "tea")
        assert (waiting(one), waiting(two)) == (["tea"], [])


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_finds_nothing_of_those_before(servicebus: ServiceBus, turn: int) -> None:
    servicebus.create_queue("orders")
    assert waiting(servicebus) == []
    send(servicebus, "tea")


def test_what_is_dropped_leaves_nothing(servicebus_broker: InProcessBroker) -> None:
    with servicebus_broker.namespace("gone", {"Queues": [{"Name": "orders"}]}) as bus:
        send(bus, "tea")
        with client_of(bus) as client, pytest.raises(ServiceBusError):
            client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("tea"))
    parts = parts_of(servicebus_broker)
    assert parts.broker.entities() == []
    assert [each.name for each in parts.broker.namespaces.all()] == ["sbemulatorns"]
    assert not [each for each in parts.overview.budgets if "gone" in each.name]
    assert not [each for each in parts.overview.refusals if "gone" in each]
    # The name is free, and what has it next is new.
    with servicebus_broker.namespace("gone", {"Queues": [{"Name": "orders"}]}) as bus:
        assert waiting(bus) == []


def test_a_client_that_was_forgotten_is_cut_off_and_its_key_is_good_no_more(
    servicebus_broker: InProcessBroker,
) -> None:
    with servicebus_broker.namespace() as bus:
        bus.create_queue("orders")
        left = client_of(bus)
        sender = left.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("tea"))
    with pytest.raises(ServiceBusAuthenticationError):
        sender.send_messages(ServiceBusMessage("coffee"), timeout=WAIT_S)
    left.close()


def test_a_name_that_is_taken_and_a_wrong_document_are_told(
    servicebus_broker: InProcessBroker,
) -> None:
    with servicebus_broker.namespace("one") as bus:
        with (
            pytest.raises(NamespaceError, match="there is a namespace 'ONE' already"),
            servicebus_broker.namespace("ONE"),
        ):
            pass
        with pytest.raises(NamespaceError, match="NoSuchThing"):
            bus.create_queue("orders", no_such_thing=1)
        with pytest.raises(NamespaceError, match="Name cannot be given here"):
            bus.configure({"Name": "other"})
        with pytest.raises(NamespaceError, match="drinks"):
            bus.create_subscription("drinks", "hot")
        with (
            pytest.raises(NamespaceError, match="forwards to 'nowhere'"),
            servicebus_broker.namespace(
                "two", {"Queues": [{"Name": "a", "Properties": {"ForwardTo": "nowhere"}}]}
            ),
        ):
            pass
    assert not parts_of(servicebus_broker).broker.entities()


def test_entities_are_made_with_the_words_of_the_administration_client(
    servicebus: ServiceBus,
) -> None:
    servicebus.create_queue("orders", lock_duration=timedelta(seconds=7), requires_session=True)
    servicebus.create_topic("drinks", duplicate_detection_history_time_window=DAY)
    only_hot = {
        "Name": "hot",
        "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "hot = TRUE"}},
    }
    servicebus.create_subscription("drinks", "hot", rules=[only_hot], max_delivery_count=3)
    with ServiceBusAdministrationClient.from_connection_string(
        servicebus.connection_string, connection_verify=servicebus.authority
    ) as official:
        queue = official.get_queue("orders")
        assert (queue.lock_duration, queue.requires_session) == (timedelta(seconds=7), True)
        assert official.get_subscription("drinks", "hot").max_delivery_count == 3
        assert [rule.name for rule in official.list_rules("drinks", "hot")] == ["hot"]
        official.create_queue("made-by-the-client")
    send(servicebus, "tea", to="made-by-the-client")


# --- the clock


def test_a_lock_ends_without_waiting(servicebus: ServiceBus) -> None:
    servicebus.create_queue("orders")
    with client_of(servicebus) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        receiver = client.get_queue_receiver("orders", max_wait_time=WAIT_S)
        (message,) = receiver.receive_messages()
        servicebus.clock.advance(61)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (message,) = receiver.receive_messages()
        assert message.delivery_count == 1
        receiver.complete_message(message)


def test_lives_end_and_schedules_fall_due(servicebus: ServiceBus) -> None:
    servicebus.create_queue("orders", dead_lettering_on_message_expiration=True)
    tomorrow = datetime.now(UTC) + DAY
    with client_of(servicebus) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(minutes=1)))
        sender.schedule_messages(
            [ServiceBusMessage("later", time_to_live=timedelta(hours=1))], tomorrow
        )
        servicebus.clock.advance(timedelta(minutes=2))
        dead = client.get_queue_receiver("orders", sub_queue="deadletter", max_wait_time=WAIT_S)
        (message,) = dead.receive_messages()
        assert (str(message), message.dead_letter_reason) == ("short", "TTLExpiredException")
        dead.complete_message(message)
        assert servicebus.clock.advance(DAY) > tomorrow
        (message,) = client.get_queue_receiver("orders", max_wait_time=WAIT_S).receive_messages()
        assert str(message) == "later"


def test_one_thing_follows_from_another_on_the_way(servicebus: ServiceBus) -> None:
    """It was due in an hour and lived for one: after a day it has come and gone."""
    servicebus.create_queue("orders", dead_lettering_on_message_expiration=True)
    with client_of(servicebus) as client:
        message = ServiceBusMessage("later", time_to_live=timedelta(hours=1))
        due = datetime.now(UTC) + timedelta(hours=1)
        client.get_queue_sender("orders").schedule_messages([message], due)
        servicebus.clock.advance(DAY)
        dead = client.get_queue_receiver("orders", sub_queue="deadletter", max_wait_time=WAIT_S)
        assert [str(each) for each in dead.receive_messages()] == ["later"]


def test_sessions_and_duplicate_windows_follow(servicebus: ServiceBus) -> None:
    servicebus.create_queue(
        "orders",
        requires_session=True,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=10),
    )
    with client_of(servicebus) as client:
        sender = client.get_queue_sender("orders")
        message = ServiceBusMessage("tea", session_id="s", message_id="same")
        sender.send_messages(message)
        sender.send_messages(message)
        receiver = client.get_queue_receiver("orders", session_id="s", max_wait_time=WAIT_S)
        assert len(receiver.receive_messages(10)) == 1
        servicebus.clock.advance(timedelta(minutes=11))
        with pytest.raises((SessionLockLostError, ServiceBusError)):
            receiver.session.set_state("mine")
        sender.send_messages(message)
        again = client.get_queue_receiver("orders", session_id="s", max_wait_time=WAIT_S)
        assert len(again.peek_messages(10)) == 2


def test_tokens_go_by_real_time_unless_that_is_asked_for(servicebus: ServiceBus) -> None:
    servicebus.create_queue("orders")
    with client_of(servicebus) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("one"))
        servicebus.clock.advance(DAY)
        sender.send_messages(ServiceBusMessage("two"))
        servicebus.clock.advance(DAY, tokens=True)
        # What the client signs by its own clock is a day old at the broker.
        with pytest.raises(ServiceBusAuthorizationError):
            sender.send_messages(ServiceBusMessage("three"), timeout=WAIT_S)
    with pytest.raises(ValueError, match="backwards"):
        servicebus.clock.advance(-1)


def test_silent_connections_go_by_real_time_unless_that_is_asked_for(
    servicebus_broker: InProcessBroker,
) -> None:
    with servicebus_broker.namespace() as bus:
        bus.create_queue("orders")
        amqp = parts_of(servicebus_broker).amqp
        with client_of(bus) as client:
            sender = client.get_queue_sender("orders")
            sender.send_messages(ServiceBusMessage("one"))
            bus.clock.advance(DAY)
            bus.clock.advance(1, connections=True)
            servicebus_broker.call(until(lambda: amqp.count == 1))
            bus.clock.advance(DAY, connections=True)
            servicebus_broker.call(until(lambda: amqp.count == 0))
            sender.send_messages(ServiceBusMessage("two"))
        assert waiting(bus) == ["one", "two"]


def test_namespaces_share_one_broker(servicebus_broker: InProcessBroker) -> None:
    """That is why it costs a test so little; `bench/fixture.py` measures how much."""
    with servicebus_broker.namespace() as bus:
        bus.create_queue("orders")
        parts = parts_of(servicebus_broker)
    for _ in range(5):
        with servicebus_broker.namespace() as bus:
            bus.create_queue("orders")
        assert parts_of(servicebus_broker) is parts


def test_one_that_could_not_start_can_start_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker() as broker:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        with pytest.raises(FileNotFoundError), broker.namespace():
            pass
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with broker.namespace() as bus:
            bus.create_queue("orders")
            bus.clock.advance(DAY)
        # Nobody is counted who never had a namespace: the clock is the present one again.
        with broker.namespace() as bus:
            assert bus.clock.now() < datetime.now(UTC) + DAY / 2


def test_who_comes_after_a_clock_was_moved_has_the_present(
    servicebus_broker: InProcessBroker,
) -> None:
    with servicebus_broker.namespace() as bus:
        assert bus.clock.advance(DAY) > datetime.now(UTC) + DAY / 2
    with servicebus_broker.namespace() as bus:
        assert bus.clock.now() < datetime.now(UTC) + DAY / 2


def test_it_can_be_used_from_a_loop_and_is_closed_twice() -> None:
    async def scenario() -> None:
        with InProcessBroker() as broker, broker.namespace() as bus:
            bus.create_queue("orders")
        broker.close()

    asyncio.run(scenario())


def test_the_plugin_costs_a_run_without_it_nothing() -> None:
    """Every run of pytest loads it where Peeklock is installed."""
    code = "import sys, pytest; import peeklock.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("peeklock.")}
    assert ours == {"peeklock.version", "peeklock.testing", "peeklock.testing.plugin"}
    assert not hasattr(testing, "NoSuchName")
