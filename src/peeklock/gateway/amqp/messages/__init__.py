"""Messages between wire and domain."""
