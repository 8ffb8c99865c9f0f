"""Which partition a message belongs to (R-P3): by its session, its key, its id, or by turns."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from peeklock.entity.message import Message

PARTITION_BITS: Final = 48
"""The upper 16 bits of a sequence number name the partition, the lower 48 count in it."""


def partition_of_sequence(sequence: int) -> int:
    """The partition that gave a number."""
    return sequence >> PARTITION_BITS


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a key; the same for ever, because a session must stay where it is."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions


def key_of(message: Message, *, by_message_id: bool) -> str | None:
    """What decides on a message's partition, or None where turns do.

    `by_message_id` holds where the entity looks for duplicates: they must meet.
    """
    session_id = message.session_id
    if session_id:
        return session_id
    if message.partition_key is not None:
        return message.partition_key
    if session_id is not None:
        return session_id
    if by_message_id and message.message_id:
        return message.message_id
    return None


def has_conflict(message: Message) -> bool:
    """Whether session and partition key both are set and differ, which nobody can route. An empty
    session is set by clients that mean none, and conflicts with no key."""
    return (
        bool(message.session_id)
        and message.partition_key is not None
        and message.session_id != message.partition_key
    )
