"""The doors, each with the real rooms behind it."""
