"""A Service Bus for tests: a broker in this process, a fresh namespace for each test.

With pytest the fixture `servicebus` is there as soon as Peeklock is installed. Others start an
`InProcessBroker` themselves.
"""

from peeklock.testbed.made_namespaces import NamespaceError
from peeklock.testing.in_process import InProcessBroker
from peeklock.testing.service_bus import BrokerClock, ServiceBus

__all__ = ["BrokerClock", "InProcessBroker", "NamespaceError", "ServiceBus"]
