"""The client: asyncio, on the broker's own AMQP engine, with the names of azure-servicebus."""

from peeklock.client.batch import ServiceBusMessageBatch as ServiceBusMessageBatch
from peeklock.client.client import ServiceBusClient as ServiceBusClient
from peeklock.client.client import TransportType as TransportType
from peeklock.client.constants import NEXT_AVAILABLE_SESSION as NEXT_AVAILABLE_SESSION
from peeklock.client.constants import ServiceBusMessageState as ServiceBusMessageState
from peeklock.client.constants import ServiceBusReceiveMode as ServiceBusReceiveMode
from peeklock.client.constants import ServiceBusSessionFilter as ServiceBusSessionFilter
from peeklock.client.constants import ServiceBusSubQueue as ServiceBusSubQueue
from peeklock.client.message import ServiceBusMessage as ServiceBusMessage
from peeklock.client.processor import ServiceBusProcessor as ServiceBusProcessor
from peeklock.client.received import ServiceBusReceivedMessage as ServiceBusReceivedMessage
from peeklock.client.receiver import ServiceBusReceiver as ServiceBusReceiver
from peeklock.client.renewing import AutoLockRenewer as AutoLockRenewer
from peeklock.client.sender import ServiceBusSender as ServiceBusSender
from peeklock.client.session import ServiceBusSession as ServiceBusSession
