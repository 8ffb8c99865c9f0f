"""What a receiver's outcome means: wire states become settlements here, and nowhere else.

The same few byte strings come nearly always, so that their readings are remembered by the bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.dialect import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.states import (
    Accepted,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from peeklock.amqp.values.composites import (
    ACCEPTED,
    REJECTED_PLAIN,
    RELEASED,
    decode_composite,
    encode_modified,
)
from peeklock.amqp.values.encoder import encode
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
)
from peeklock.entity.refusals import INVALID_ARGUMENT, Refusal
from peeklock.entity.settlement import PLAIN_COMPLETE, PLAIN_RELEASE, Settlement
from peeklock.gateway.amqp.management.arguments import Arguments

# What the service keeps of either.
NOTE_LENGTH_MAX: Final = 4_096

# Longer states carry texts of their own and would hardly ever be found again.
_REMEMBERED_SIZE_MAX: Final = 64
_REMEMBERED_MAX: Final = 64


@final
@dataclass(slots=True, init=False)
class ReadOutcome:
    """A settlement as a delivery state tells it; one that is not final counts only when it comes
    settled."""

    settlement: Final[Settlement]
    is_final: Final[bool]
    txn_id: Final[bytes]  # the transaction that it belongs to, if any

    def __init__(
        self, settlement: Settlement, *, is_final: bool = True, txn_id: bytes = b""
    ) -> None:
        self.settlement = settlement
        self.is_final = is_final
        self.txn_id = txn_id


# The state that confirms a settlement: the same outcome, and rejected without an error, because
# with one it would mean that the dead-lettering failed (protocol 5.2).
ANSWERS: Final[dict[int, bytes]] = {
    COMPLETE: ACCEPTED,
    ABANDON: encode_modified(delivery_failed=True, undeliverable_here=False),
    DEFER: encode_modified(delivery_failed=True, undeliverable_here=True),
    DEAD_LETTER: REJECTED_PLAIN,
    RELEASE: RELEASED,
}

_COMPLETE: Final = ReadOutcome(PLAIN_COMPLETE)
_RELEASE: Final = ReadOutcome(PLAIN_RELEASE)
# It was not said that the message was taken, so it is not.
_NOTHING_SAID: Final = ReadOutcome(PLAIN_RELEASE, is_final=False)


@final
class OutcomeReader:
    """Reads delivery states and remembers the short ones."""

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        self._remembered: dict[bytes, ReadOutcome] = {}

    def read(self, state: bytes) -> ReadOutcome | Refusal:
        """Give the settlement that an encoded state asks for, or why there is none."""
        known = self._remembered.get(state)
        if known is not None:
            return known
        found = _read(state)
        if (
            isinstance(found, ReadOutcome)
            and not found.txn_id
            and len(state) <= _REMEMBERED_SIZE_MAX
            and len(self._remembered) < _REMEMBERED_MAX
        ):
            self._remembered[state] = found
        return found


def changes_of(items: Mapping[Any, Any]) -> dict[str, bytes] | None:
    """Give properties to set as name and encoded value; keys may be symbols or strings."""
    if not items:
        return None
    return {str(key): encode(value) for key, value in items.items()}


# The service's own spelling of "deferred" is kept; the right one is understood too.
STATUSES: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "suspended": DEAD_LETTER,
    "defered": DEFER,
    "deferred": DEFER,
}


def disposition(arguments: Arguments, statuses: dict[str, int]) -> Settlement:
    """Read the outcome that a request to `$management` names, one of some, and what goes with it;
    the arguments hold the refusal where something is wrong with them."""
    status = arguments.text("disposition-status")
    reason: Any = arguments.optional_text("deadletter-reason")
    description: Any = arguments.optional_text("deadletter-description")
    properties = {
        str(key): value for key, value in arguments.optional_map("properties-to-modify").items()
    }
    outcome = statuses.get(status.lower(), -1)
    if outcome < 0:
        arguments.wrong("disposition-status", f"must be one of {', '.join(statuses)}")
    if outcome != DEAD_LETTER:
        return Settlement(outcome, changes_of(properties))
    # The explicit reason beats the one among the properties.
    among_reason = properties.pop(DEAD_LETTER_REASON, None)
    among_description = properties.pop(DEAD_LETTER_DESCRIPTION, None)
    return dead_letter(
        properties,
        among_reason if reason is None else reason,
        among_description if description is None else description,
    )


def dead_letter(properties: Mapping[Any, Any], reason: Any, description: Any) -> Settlement:
    """Return the settlement that dead-letters, with texts cut to what is kept of them."""
    changes = changes_of(properties)
    return Settlement(DEAD_LETTER, changes, _note_text(reason), _note_text(description))


def _note_text(value: Any) -> str | None:
    return None if value is None else str(value)[:NOTE_LENGTH_MAX]


def _read(state: bytes) -> ReadOutcome | Refusal:
    if not state:
        return _NOTHING_SAID
    try:
        outcome, _ = decode_composite(state)
    except DecodeError as error:
        return Refusal(INVALID_ARGUMENT, f"The delivery state cannot be read: {error.text}.")
    if isinstance(outcome, TransactionalState):
        return _transactional(outcome)
    return _settlement(outcome)


def _transactional(state: TransactionalState) -> ReadOutcome | Refusal:
    if not state.txn_id:
        return Refusal(INVALID_ARGUMENT, "The delivery state names no transaction.")
    if state.outcome is None:
        return _NOTHING_SAID
    found = _settlement(state.outcome)
    if isinstance(found, Refusal):
        return found
    return ReadOutcome(found.settlement, is_final=found.is_final, txn_id=state.txn_id)


def _settlement(outcome: Any) -> ReadOutcome | Refusal:
    if isinstance(outcome, Accepted):
        return _COMPLETE
    if isinstance(outcome, Released):
        return _RELEASE
    if isinstance(outcome, Modified):
        return _modified(outcome)
    if isinstance(outcome, Rejected):
        return _rejected(outcome)
    if isinstance(outcome, Received):
        return _NOTHING_SAID
    return Refusal(INVALID_ARGUMENT, "The delivery state is no outcome.")


def _modified(outcome: Modified) -> ReadOutcome:
    annotations = outcome.message_annotations
    changes = None if annotations is None else changes_of(annotations)
    return ReadOutcome(Settlement(DEFER if outcome.undeliverable_here else ABANDON, changes))


def _rejected(outcome: Rejected) -> ReadOutcome:
    error = outcome.error
    if error is None:
        return ReadOutcome(Settlement(DEAD_LETTER))
    properties: dict[Any, Any] = {}
    if error.info is not None:
        properties.update({str(key): value for key, value in error.info.items()})
    reason = properties.pop(DEAD_LETTER_REASON, None)
    description = properties.pop(DEAD_LETTER_DESCRIPTION, None)
    if description is None:
        description = error.description
    return ReadOutcome(dead_letter(properties, reason, description))
