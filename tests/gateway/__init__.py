"""AMQP and HTTP, each with the real packages behind it."""
