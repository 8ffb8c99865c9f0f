"""The client for those who do not await: scripts, threads, Spark tasks.

Each call runs in the process's one event loop and waits for it; see `BlockingLoop`.
"""

from peeklock.client.batch import ServiceBusMessageBatch as ServiceBusMessageBatch
from peeklock.client.blocking.client import ServiceBusClient as ServiceBusClient
from peeklock.client.blocking.processor import ServiceBusProcessor as ServiceBusProcessor
from peeklock.client.blocking.receiver import AutoLockRenewer as AutoLockRenewer
from peeklock.client.blocking.receiver import ServiceBusReceiver as ServiceBusReceiver
from peeklock.client.blocking.receiver import ServiceBusSession as ServiceBusSession
from peeklock.client.blocking.sender import ServiceBusSender as ServiceBusSender
from peeklock.client.blocking.transaction import ServiceBusTransaction as ServiceBusTransaction
from peeklock.client.blocking_loop import BlockingLoop as BlockingLoop
from peeklock.client.blocking_loop import PerProcess as PerProcess
from peeklock.client.constants import NEXT_AVAILABLE_SESSION as NEXT_AVAILABLE_SESSION
from peeklock.client.constants import AmqpMessageBodyType as AmqpMessageBodyType
from peeklock.client.constants import ServiceBusMessageState as ServiceBusMessageState
from peeklock.client.constants import ServiceBusReceiveMode as ServiceBusReceiveMode
from peeklock.client.constants import ServiceBusSessionFilter as ServiceBusSessionFilter
from peeklock.client.constants import ServiceBusSubQueue as ServiceBusSubQueue
from peeklock.client.message import ServiceBusMessage as ServiceBusMessage
from peeklock.client.options import TransportType as TransportType
from peeklock.client.received import ServiceBusReceivedMessage as ServiceBusReceivedMessage
from peeklock.client.transactions import TransactionState as TransactionState
