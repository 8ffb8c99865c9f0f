"""The moves of a message, by verb, on one `State`."""
