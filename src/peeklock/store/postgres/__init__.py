"""Stores that are PostgreSQL databases: chunks are values of a table, an owner is a row's epoch."""
