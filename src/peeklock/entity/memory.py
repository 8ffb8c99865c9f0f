"""What the messages of a partition take in memory beside their bodies: counted, not measured."""

from __future__ import annotations

from typing import Final

from peeklock.entity.message import Message
from peeklock.entity.state import State

# What one message takes in memory beside its body, measured in the compiled form: in a queue, its
# lock, as a copy in a subscription (a few of them locked), as an id that is remembered.
ENTRY_BYTES: Final = 140
LOCK_BYTES: Final = 180
COPY_BYTES: Final = 160
SEEN_BYTES: Final = 180


def memory_of(state: State) -> int:
    """Each entry, each lock, each copy of a topic's message, each id that is remembered, and the
    states of sessions."""
    remembered = len(state.seen) * SEEN_BYTES + state.bodies.state_bytes
    if state.blueprint.router is not None:
        return state.bodies.count * COPY_BYTES + remembered
    locks = 0
    for lane in state.lanes.values():  # a queue has four at most
        locks += len(lane.locked)
    return state.bodies.count * ENTRY_BYTES + locks * LOCK_BYTES + remembered


def copies_of(state: State, messages: list[Message], now: int) -> int:
    """How many copies the rules make of these messages."""
    router = state.blueprint.router
    if router is None:
        return 0
    count = 0
    for message in messages:
        count += len(router(message, now))
    return count
