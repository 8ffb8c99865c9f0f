"""AMQP: our own machine as the client, a broker on a memory store behind it."""
