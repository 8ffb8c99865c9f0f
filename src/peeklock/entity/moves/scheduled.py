"""What falls due next, looked at without touching it."""

from __future__ import annotations

import heapq

from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane


def falling_due(lane: Lane, now: int, count_max: int, bytes_max: int) -> list[Entry]:
    """Return the first scheduled entries whose instant has come, in its order; they stay where they
    are, and only they are looked at: so many, or so many bytes, and at least one."""
    found: list[Entry] = []
    schedules = lane.schedules
    size = 0
    looked = 0
    branches: list[tuple[int, int, int]] = []  # heap of (due, sequence, place)
    if schedules:
        branches.append((schedules[0][0], schedules[0][1], 0))
    while branches and looked < count_max:
        due, sequence, at = heapq.heappop(branches)
        if due > now:
            break
        looked += 1
        entry = lane.scheduled.get(sequence)
        if entry is not None:
            size += entry.size
            if found and size > bytes_max:
                break
            found.append(entry)
        for below in (2 * at + 1, 2 * at + 2):  # a heap's later ones are below these
            if below < len(schedules):
                heapq.heappush(branches, (schedules[below][0], schedules[below][1], below))
    return found
