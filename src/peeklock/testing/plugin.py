"""The plugin of pytest: the fixture `servicebus`, a fresh namespace for each test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from peeklock.testing.in_process import InProcessBroker
    from peeklock.testing.service_bus import ServiceBus


@pytest.fixture(scope="session")
def servicebus_broker() -> "Iterator[InProcessBroker]":
    """The broker that all tests of this process share; it starts with the first of them."""
    # Imported here: the plugin is loaded by every run of pytest where Peeklock is installed.
    from peeklock.testing.in_process import InProcessBroker

    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def servicebus(servicebus_broker: "InProcessBroker") -> "Iterator[ServiceBus]":
    """A namespace that nobody else has, dropped with all that is in it when the test is over."""
    with servicebus_broker.namespace() as bus:
        yield bus
