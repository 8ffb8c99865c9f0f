"""Tests of the handler; the fixture `servicebus` comes with Peeklock."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError
from azure.servicebus.management import ServiceBusAdministrationClient
from orders import place_order, serve_orders

from peeklock.testing import ServiceBus


@pytest.fixture
def client(servicebus: ServiceBus) -> Iterator[ServiceBusClient]:
    """The official client, in a namespace that only this test has."""
    servicebus.create_queue("orders", lock_duration=timedelta(seconds=30))
    with ServiceBusClient.from_connection_string(
        servicebus.connection_string, retry_backoff_factor=0.01
    ) as client:
        yield client


def test_an_order_is_served(client: ServiceBusClient) -> None:
    served: list[str] = []
    place_order(client, "tea")
    serve_orders(client, served, count=1)
    assert served == ["tea"]


def test_a_lock_that_ends_is_noticed(client: ServiceBusClient, servicebus: ServiceBus) -> None:
    """Half a minute passes at the broker, and not here."""
    place_order(client, "tea")
    with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
        (message,) = receiver.receive_messages()
        servicebus.clock.advance(31)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (message,) = receiver.receive_messages()
        assert message.delivery_count == 1
        receiver.complete_message(message)


def test_an_order_that_comes_twice_is_served_once(
    client: ServiceBusClient, servicebus: ServiceBus
) -> None:
    served: list[str] = []
    place_order(client, "tea")
    servicebus.faults.duplicate_delivery("orders")
    serve_orders(client, served, count=2)
    assert served == ["tea"]


def test_a_busy_server_and_a_lost_lock_lose_no_order(
    client: ServiceBusClient, servicebus: ServiceBus
) -> None:
    served: list[str] = []
    servicebus.faults.server_busy("orders")
    place_order(client, "tea")
    servicebus.faults.lose_lock("orders")
    serve_orders(client, served, count=1)
    assert served == ["tea"]


def test_queues_can_be_made_by_the_administration_client(servicebus: ServiceBus) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        servicebus.connection_string, connection_verify=servicebus.authority
    ) as administration:
        administration.create_queue("orders")
        runtime = administration.get_queue_runtime_properties("orders")
    assert runtime.total_message_count == 0
