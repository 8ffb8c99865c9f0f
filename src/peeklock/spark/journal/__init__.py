"""Reads the journal of a queue or topic: over HTTP, as chunks, as rows, as a stream."""
