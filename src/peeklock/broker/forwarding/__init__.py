"""Forwarding: messages of one entity go on to another, exactly once."""
