"""Peeklock, a durable message broker that the official Service Bus clients use unmodified."""

from typing import Final

__version__: Final = "0.1.0"
