"""How a batch is divided among tasks: by bytes, and never within a session."""

from collections.abc import Sequence
from typing import Final

from peeklock.spark.offsets import partition_of
from peeklock.spark.source.claim_keeper import ClaimedMessage

# What a message costs besides its bytes.
_ROW_BYTES: Final = 200


def divide(claims: Sequence[ClaimedMessage], slice_bytes: int, slices_min: int) -> list[list[int]]:
    """Divide messages into tasks of about the same size, each a list of ascending numbers.

    What is near in numbers stays near, so that most tasks ask only one partition of the entity.
    """
    units = _units(claims)
    total = sum(size for _, size in units)
    count = min(len(units), max(slices_min, -(-total // slice_bytes)))
    slices: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for numbers, size in units:
        slices[(2 * before + size) * count // (2 * total)] += numbers
        before += size
    return [sorted(numbers) for numbers in slices if numbers]


def _units(claims: Sequence[ClaimedMessage]) -> list[tuple[list[int], int]]:
    """Put together what belongs together: the messages of a session, any other for itself."""
    sessions: dict[tuple[int, str], list[ClaimedMessage]] = {}
    units: list[tuple[list[int], int]] = []
    for claimed in claims:
        if claimed.session_id is None:
            units.append(([claimed.number], claimed.size + _ROW_BYTES))
        else:
            key = (partition_of(claimed.number), claimed.session_id)
            sessions.setdefault(key, []).append(claimed)
    for members in sessions.values():
        size = sum(claimed.size + _ROW_BYTES for claimed in members)
        units.append((sorted(claimed.number for claimed in members), size))
    return sorted(units)
