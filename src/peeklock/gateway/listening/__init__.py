"""Listening: sockets, TLS, WebSockets, and what a new connection speaks."""
