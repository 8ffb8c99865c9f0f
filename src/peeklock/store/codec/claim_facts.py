"""How the facts about claims rest.

claim    kind u8, instant i64, lane u32, why u8, the owner, and what the kind needs
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias, cast

from peeklock.entity.claims.records import Claimed, OwnerHeard, Unclaimed
from peeklock.store.codec.kinds import CLAIMED, OWNER_HEARD, UNCLAIMED
from peeklock.store.codec.packing import pack_sequences, pack_text, unpack_sequences, unpack_text

ClaimFact: TypeAlias = Claimed | Unclaimed | OwnerHeard

# Bound once: compiled code then calls them without looking their names up.
# kind, instant, lane, why
_claim: Final = struct.Struct("<BqIB")
# epoch, timeout
_heard: Final = struct.Struct("<qq")

_CLAIM_BYTES: Final = 14


def encode_claim(record: ClaimFact) -> bytes:
    """Write a fact about claims."""
    at = record.at
    owner = pack_text(record.owner)
    if isinstance(record, Claimed):
        head = _claim.pack(CLAIMED, at, record.lane, 0)
        return head + owner + pack_sequences(record.sequences)
    if isinstance(record, Unclaimed):
        head = _claim.pack(UNCLAIMED, at, record.lane, record.why)
        return head + owner + pack_sequences(record.sequences)
    head = _claim.pack(OWNER_HEARD, at, record.lane, 0)
    return head + owner + _heard.pack(record.epoch, record.timeout_ms)


def decode_claim(record: memoryview, kind: int) -> ClaimFact:
    """Read what `encode_claim` wrote."""
    _, at, lane, why = cast(tuple[int, int, int, int], _claim.unpack_from(record))
    owner, offset = unpack_text(record, _CLAIM_BYTES)
    if owner is None:
        raise ValueError("an owner has a name")
    if kind == OWNER_HEARD:
        epoch, timeout_ms = cast(tuple[int, int], _heard.unpack_from(record, offset))
        return OwnerHeard(at, lane, owner, epoch, timeout_ms)
    sequences, _ = unpack_sequences(record, offset)
    if kind == CLAIMED:
        return Claimed(at, lane, owner, sequences)
    return Unclaimed(at, lane, why, owner, sequences)
