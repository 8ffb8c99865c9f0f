"""A Service Bus for tests: a broker in this process, a fresh namespace for each test.

With pytest the fixture `servicebus` is there as soon as Peeklock is installed. Others start an
`InProcessBroker` themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from peeklock.testbed.faults import Fault, FaultError
    from peeklock.testbed.made_namespaces import NamespaceError
    from peeklock.testing.broker_faults import BrokerFaults
    from peeklock.testing.in_process import InProcessBroker
    from peeklock.testing.service_bus import BrokerClock, ServiceBus

# Imported when they are asked for: the plugin is below this package, and every run of pytest loads
# it where Peeklock is installed.
_HOMES: Final = {
    "Fault": "peeklock.testbed.faults",
    "FaultError": "peeklock.testbed.faults",
    "NamespaceError": "peeklock.testbed.made_namespaces",
    "BrokerFaults": "peeklock.testing.broker_faults",
    "InProcessBroker": "peeklock.testing.in_process",
    "BrokerClock": "peeklock.testing.service_bus",
    "ServiceBus": "peeklock.testing.service_bus",
}

__all__ = [
    "BrokerClock",
    "BrokerFaults",
    "Fault",
    "FaultError",
    "InProcessBroker",
    "NamespaceError",
    "ServiceBus",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'peeklock.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
