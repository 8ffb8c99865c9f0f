"""Decodes the journal; the name that programs know for `peeklock.spark.journal.decoder`."""

from peeklock.spark.journal.decoder import SCHEMA, FactDecoder, decode

__all__ = ["SCHEMA", "FactDecoder", "decode"]
