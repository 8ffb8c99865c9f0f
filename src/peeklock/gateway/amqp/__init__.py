"""The AMQP door: connections, links and their nodes."""
