"""A handler of orders, as its owner wrote it for Azure: nothing here knows of tests."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError


def place_order(client: ServiceBusClient, drink: str) -> None:
    """Order a drink."""
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(drink, message_id=drink))


def serve_orders(client: ServiceBusClient, served: list[str], count: int) -> None:
    """Make drinks until so many messages were handled; who comes twice is served once."""
    with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
        for message in receiver:
            if message.message_id not in served:
                served.append(str(message.message_id))
            try:
                receiver.complete_message(message)
            except MessageLockLostError:
                continue  # it comes again
            count -= 1
            if count == 0:
                return
