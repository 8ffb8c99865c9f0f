"""Entities of several partitions: they answer the commands that one partition answers."""
