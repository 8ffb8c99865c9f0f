"""Where the messages of a partition are, and that no decision moves one without its record."""

from collections.abc import Sequence

from peeklock.entity.entries import GONE, LOCKED
from peeklock.entity.partition import Partition
from peeklock.entity.records import READY, STAGED, Record
from peeklock.entity.tables.places import DEAD, LOCKED_DEFERRED, MOVES, NEW, PLACE_NAMES, RENUMBERED

# A message that is nowhere has no lane.
NOWHERE = -1
# Tests of very many messages are about costs, and this would be most of theirs.
FOLLOWED_MAX = 2_000

# The lane and the place of each message, by its number.
Places = dict[int, tuple[int, int]]


def places_of(partition: Partition) -> Places | None:
    """Where each live message is; None where they are too many to follow."""
    state = partition._state
    if state.bodies.count > FOLLOWED_MAX:
        return None
    found: Places = {entry.sequence: (NOWHERE, STAGED) for entry in state.stages.entries()}
    for lane in state.lanes.values():
        for entry in lane.entries():
            lock = lane.locked.get(entry.sequence) if entry.place == LOCKED else None
            is_back = lock is not None and lock.deferred
            place = LOCKED_DEFERRED if is_back else entry.place
            found[entry.sequence] = (lane.number, place)
    # What was published and waits for its turn to be put into its lane.
    for number, entry in partition._copying.outstanding():
        found[entry.sequence] = (number, entry.place)
    return found


def moved(before: Places | None, partition: Partition, records: Sequence[Record]) -> Places | None:
    """Check that each change is a move of the table whose record was written; gives the places."""
    after = places_of(partition)
    if before is None or after is None:
        return after
    written = {type(record).__name__ for record in records}
    strange = set()
    for number in before.keys() | after.keys():
        lane, old = before.get(number, (NOWHERE, NEW))
        other, new = after.get(number, (NOWHERE, GONE))
        is_moved = NOWHERE not in (lane, other) and lane != other
        if not is_explained(old, new, written, is_moved=is_moved):
            strange.add((PLACE_NAMES[old], PLACE_NAMES[new]))
    assert strange == set(), f"moves without a record: {strange}, records {sorted(written)}"
    return after


def is_explained(before: int, after: int, records: set[str], *, is_moved: bool = False) -> bool:
    """Tell whether moves whose records were written lead a number from one place to the other;
    into another lane it comes as a dead letter."""
    reached = _reached(before, records)
    if is_moved:
        return DEAD in reached and after in _reached(READY, records)
    return after in reached or (DEAD in reached and after in _reached(READY, records))


def _reached(place: int, records: set[str]) -> set[int]:
    moves = list(MOVES)
    for begin, end, what, told in RENUMBERED:
        moves += [(begin, GONE, what, told), (NEW, end, what, told)]
    reached = {place}
    left = [place]
    while left:
        here = left.pop()
        for begin, end, _, told in moves:
            if begin == here and end not in reached and (not told or records.intersection(told)):
                reached.add(end)
                left.append(end)
    return reached
