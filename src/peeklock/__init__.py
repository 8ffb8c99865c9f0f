"""Peeklock, a durable message broker that the official Service Bus clients use unmodified."""

from peeklock.version import VERSION

__version__ = VERSION
