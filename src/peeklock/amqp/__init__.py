"""AMQP 1.0 as a pure machine for both roles: bytes in, events out."""
