"""The kit for tests with the official clients: the fixture in its own process, and `--testing`."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from peeklock.testing import ServiceBus
from peeklock.testing.plugin import servicebus, servicebus_broker

__all__ = ["servicebus", "servicebus_broker"]

WAIT_S = 30


def test_the_official_client_goes_on_after_each(servicebus: ServiceBus) -> None:
    """R-F1: whatever happens, it sends again, and receives what was sent."""
    servicebus.create_queue("orders")
    with ServiceBusClient.from_connection_string(
        servicebus.connection_string, retry_backoff_factor=0.01
    ) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("first"))
            servicebus.faults.server_busy("orders")
            sender.send_messages(ServiceBusMessage("busy"))
            servicebus.faults.detach("orders")
            sender.send_messages(ServiceBusMessage("detached"))
            servicebus.faults.cut_connection("orders")
            sender.send_messages(ServiceBusMessage("cut"))
        with client.get_queue_receiver("orders", max_wait_time=WAIT_S) as receiver:
            bodies: list[str] = []
            for message in receiver:
                bodies.append(str(message))
                receiver.complete_message(message)
                if len(bodies) == 4:
                    break
    assert bodies == ["first", "busy", "detached", "cut"]
    assert servicebus.faults.waiting() == []
