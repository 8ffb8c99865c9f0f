"""Which partition a message belongs to (R-P3): by its session, its key, its id, or by turns."""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from peeklock.entity.message import Message

PARTITION_BITS: Final = 48
"""The upper 16 bits of a sequence number name the partition, the lower 48 count in it."""


def partition_of_sequence(sequence: int) -> int:
    """Return the partition that gave a number."""
    return sequence >> PARTITION_BITS


def partition_of_key(key: str, partitions: int) -> int:
    """Return the partition of a key; the same for ever, because a session must stay where it is."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions


@final
class Routing:
    """What decides on the partition of an entity's messages."""

    __slots__ = ("by_message_id", "by_session")

    def __init__(self, by_message_id: bool = False, by_session: bool = False) -> None:
        # The entity looks for duplicates: they must meet.
        self.by_message_id: Final[bool] = by_message_id
        # It, or a subscription, requires sessions: the one without a name is in one partition too.
        self.by_session: bool = by_session

    def key_of(self, message: Message) -> str | None:
        """Return the key of a message by itself, or its id; None where turns decide."""
        key = self.shared_key_of(message)
        if key is None and self.by_message_id and message.message_id:
            return message.message_id
        return key

    def shared_key_of(self, message: Message) -> str | None:
        """Return the key that a message may share with others: its session, or its partition
        key."""
        session_id = message.session_id
        if session_id or (session_id is not None and self.by_session):
            return session_id
        return session_id if message.partition_key is None else message.partition_key


def has_conflict(message: Message) -> bool:
    """Return whether session and partition key both are set and differ, which nobody can route. An
    empty session is set by clients that mean none, and conflicts with no key."""
    return (
        bool(message.session_id)
        and message.partition_key is not None
        and message.session_id != message.partition_key
    )
