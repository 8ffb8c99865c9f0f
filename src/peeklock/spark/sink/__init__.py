"""Writes rows to the bus as messages, or settles the messages that rows name."""
