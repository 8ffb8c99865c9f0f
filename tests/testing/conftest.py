"""The fixtures of the plugin, as a project has them that has Peeklock installed."""

from peeklock.testing.plugin import servicebus, servicebus_broker

__all__ = ["servicebus", "servicebus_broker"]
