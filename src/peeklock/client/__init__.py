"""The client: asyncio, on the broker's own AMQP engine, with the names of azure-servicebus."""
