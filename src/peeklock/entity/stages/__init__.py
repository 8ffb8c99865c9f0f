"""Stages: messages that are stored first and seen later, all of a batch together and once."""
