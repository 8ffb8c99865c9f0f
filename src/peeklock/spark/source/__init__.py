"""Reads messages of the bus: modes peek, claim and receiveAndDelete."""

from peeklock.spark.data_sources import ServiceBusSource

__all__ = ["ServiceBusSource"]
