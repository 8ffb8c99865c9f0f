"""Where the messages of a partition are, and that no decision moves one without its record."""

from collections.abc import Sequence

from peeklock.entity.partition import Partition
from peeklock.entity.places import GONE, NEW, is_explained
from peeklock.entity.records import STAGED, Record

# Tests of very many messages are about costs, and this would be most of theirs.
FOLLOWED_MAX = 2_000


def places_of(partition: Partition) -> dict[int, int] | None:
    """The place of each live message, by its number; None where they are too many to follow."""
    state = partition._state
    if state.bodies.count > FOLLOWED_MAX:
        return None
    found = {entry.sequence: STAGED for entry in state.stages.entries()}
    for lane in state.lanes.values():
        found.update((entry.sequence, entry.place) for entry in lane.entries())
    # What was published and waits for its turn to be put into its lane.
    found.update((entry.sequence, entry.place) for _, entry in partition._copying.outstanding())
    return found


def moved(
    before: dict[int, int] | None, partition: Partition, records: Sequence[Record]
) -> dict[int, int] | None:
    """Check that each change is a move of the table whose record was written; gives the places."""
    after = places_of(partition)
    if before is None or after is None:
        return after
    written = {type(record).__name__ for record in records}
    changes = {
        (before.get(number, NEW), after.get(number, GONE))
        for number in before.keys() | after.keys()
        if before.get(number, NEW) != after.get(number, GONE)
    }
    strange = [each for each in changes if not is_explained(*each, written)]
    assert strange == [], f"moves without a record: {strange}, records {sorted(written)}"
    return after
