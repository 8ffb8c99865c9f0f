"""Crash tests: the broker is killed while it works, again and again, and nothing may be lost."""
