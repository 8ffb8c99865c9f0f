"""AMQP: connections, links and their nodes."""
