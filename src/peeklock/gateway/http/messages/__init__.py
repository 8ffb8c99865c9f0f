"""The runtime REST API: messages sent, received and settled by HTTP (protocol 10)."""
