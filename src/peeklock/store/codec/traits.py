"""How the traits of a message rest: flags tell which there are, these follow in a fixed order."""

from __future__ import annotations

import struct
from typing import Final

from peeklock.entity.message import NEVER, NO_DURATION, Traits
from peeklock.store.codec.packing import pack_text, unpack_text

_HAS_TIME_TO_LIVE: Final = 1
_HAS_SCHEDULE: Final = 2
_HAS_EXPIRY: Final = 4
_HAS_SESSION: Final = 8
_HAS_PARTITION_KEY: Final = 16
_HAS_HOPS: Final = 32
_HAS_PAST: Final = 64  # its first number and where it was dead-lettered, both elsewhere

_instant: Final = struct.Struct("<q")
_word: Final = struct.Struct("<I")
_number: Final = struct.Struct("<Q")


def pack_traits(traits: Traits) -> tuple[int, bytes]:
    """Write what there is, beside the id, which has a place of its own."""
    flags = 0
    packed = b""
    if traits.time_to_live_ms != NO_DURATION:
        flags |= _HAS_TIME_TO_LIVE
        packed += _instant.pack(traits.time_to_live_ms)
    if traits.scheduled_at != NEVER:
        flags |= _HAS_SCHEDULE
        packed += _instant.pack(traits.scheduled_at)
    if traits.expires_at != NEVER:
        flags |= _HAS_EXPIRY
        packed += _instant.pack(traits.expires_at)
    if traits.session_id is not None:
        flags |= _HAS_SESSION
        packed += pack_text(traits.session_id)
    if traits.partition_key is not None:
        flags |= _HAS_PARTITION_KEY
        packed += pack_text(traits.partition_key)
    if traits.hops:
        flags |= _HAS_HOPS
        packed += _word.pack(traits.hops)
    if traits.enqueue_sequence or traits.dead_letter_source:
        flags |= _HAS_PAST
        packed += _number.pack(traits.enqueue_sequence)
        packed += pack_text(traits.dead_letter_source)
    return flags, packed


def unpack_traits(record: memoryview, flags: int, offset: int, traits: Traits) -> int:
    """Read what the flags tell of; return where it ends."""
    if flags & _HAS_TIME_TO_LIVE:
        traits.time_to_live_ms = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_SCHEDULE:
        traits.scheduled_at = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_EXPIRY:
        traits.expires_at = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_SESSION:
        traits.session_id, offset = unpack_text(record, offset)
    if flags & _HAS_PARTITION_KEY:
        traits.partition_key, offset = unpack_text(record, offset)
    if flags & _HAS_HOPS:
        traits.hops = _word.unpack_from(record, offset)[0]
        offset += 4
    if flags & _HAS_PAST:
        traits.enqueue_sequence = _number.unpack_from(record, offset)[0]
        source, offset = unpack_text(record, offset + 8)
        traits.dead_letter_source = source or ""
    return offset
