"""AMQP and HTTP: thin adapters between wire words and domain words."""
