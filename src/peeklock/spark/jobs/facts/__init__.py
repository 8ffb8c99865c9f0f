"""The journal as tables: its facts, the lives of messages, tallies and rates."""
