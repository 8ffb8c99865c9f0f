"""The type system of AMQP: values to bytes and back."""
