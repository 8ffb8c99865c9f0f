"""What the messages of a partition take in memory beside their bodies: counted, not measured."""

from __future__ import annotations

from typing import Final

from peeklock.entity.commands import MAIN
from peeklock.entity.state import State
from peeklock.entity.topics.copying import Copying

# What one message takes in memory beside its body, measured in the compiled form: in a queue, its
# lock, as a copy in a subscription (a few of them locked), as an id that is remembered.
ENTRY_BYTES: Final = 140
LOCK_BYTES: Final = 180
COPY_BYTES: Final = 160
SEEN_BYTES: Final = 180
# A session with its line and its name, before there is a message in it.
SESSION_BYTES: Final = 1_700


def memory_of(state: State) -> int:
    """Return the bytes of entries, locks, copies of a topic's messages, ids that are remembered,
    sessions and their states, and what receivers have said about messages."""
    bodies = state.bodies
    remembered = len(state.seen) * SEEN_BYTES + bodies.state_bytes
    remembered += bodies.session_count * SESSION_BYTES + bodies.detail_bytes
    if state.blueprint.router is not None:
        return bodies.count * COPY_BYTES + remembered
    locks = 0
    for lane in state.lanes.values():  # a queue has four at most
        locks += len(lane.locked)
    return bodies.count * ENTRY_BYTES + locks * LOCK_BYTES + remembered


def memory_expected(state: State, copying: Copying) -> int:
    """What the copies will take of messages that a topic has accepted and not published yet: they
    are counted from then on, because nothing can refuse them when their time has come."""
    if state.blueprint.router is None:
        return 0
    lane = state.lanes.get(MAIN)
    later = state.stages.count + (0 if lane is None else len(lane.scheduled))
    return later * copying.expected * COPY_BYTES if later else 0
