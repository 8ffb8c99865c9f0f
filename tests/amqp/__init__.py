"""Tests of the amqp room."""
