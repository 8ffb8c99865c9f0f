"""Transactions, and what two entities know of each other while messages are forwarded."""
