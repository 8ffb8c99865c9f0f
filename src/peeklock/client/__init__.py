"""The client: asyncio, on the broker's own AMQP engine, with the names of azure-servicebus.

A name is loaded when it is first asked for: the command line reads connection strings with this
package, and must not wait for the rest of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from peeklock.client.batch import ServiceBusMessageBatch as ServiceBusMessageBatch
    from peeklock.client.client import ServiceBusClient as ServiceBusClient
    from peeklock.client.constants import NEXT_AVAILABLE_SESSION as NEXT_AVAILABLE_SESSION
    from peeklock.client.constants import AmqpMessageBodyType as AmqpMessageBodyType
    from peeklock.client.constants import ServiceBusMessageState as ServiceBusMessageState
    from peeklock.client.constants import ServiceBusReceiveMode as ServiceBusReceiveMode
    from peeklock.client.constants import ServiceBusSessionFilter as ServiceBusSessionFilter
    from peeklock.client.constants import ServiceBusSubQueue as ServiceBusSubQueue
    from peeklock.client.message import ServiceBusMessage as ServiceBusMessage
    from peeklock.client.options import TransportType as TransportType
    from peeklock.client.processor import ServiceBusProcessor as ServiceBusProcessor
    from peeklock.client.received import ServiceBusReceivedMessage as ServiceBusReceivedMessage
    from peeklock.client.receiver import ServiceBusReceiver as ServiceBusReceiver
    from peeklock.client.receiving.renewing import AutoLockRenewer as AutoLockRenewer
    from peeklock.client.sender import ServiceBusSender as ServiceBusSender
    from peeklock.client.session import ServiceBusSession as ServiceBusSession
    from peeklock.client.transactions import ServiceBusTransaction as ServiceBusTransaction
    from peeklock.client.transactions import TransactionState as TransactionState

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AmqpMessageBodyType",
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusProcessor",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "ServiceBusTransaction",
    "TransactionState",
    "TransportType",
]

_MODULES: Final = {
    "ServiceBusMessageBatch": "batch",
    "ServiceBusClient": "client",
    "TransportType": "options",
    "AmqpMessageBodyType": "constants",
    "NEXT_AVAILABLE_SESSION": "constants",
    "ServiceBusMessageState": "constants",
    "ServiceBusReceiveMode": "constants",
    "ServiceBusSessionFilter": "constants",
    "ServiceBusSubQueue": "constants",
    "ServiceBusMessage": "message",
    "ServiceBusProcessor": "processor",
    "ServiceBusReceivedMessage": "received",
    "ServiceBusReceiver": "receiver",
    "AutoLockRenewer": "receiving.renewing",
    "ServiceBusSender": "sender",
    "ServiceBusSession": "session",
    "ServiceBusTransaction": "transactions",
    "TransactionState": "transactions",
}


def __getattr__(name: str) -> Any:
    """Load a name of the package."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """List the names of the package."""
    return sorted([*globals(), *_MODULES])
