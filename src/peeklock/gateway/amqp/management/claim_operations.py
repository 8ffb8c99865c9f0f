"""The operations of `$management` on claims, which are our own: an owner takes messages for itself,
looks at them as often as it needs, and settles them when its work is safe."""

from typing import Any, Final

from peeklock.amqp.values.constructors import INT, LONG
from peeklock.amqp.values.types import Array, Int, Timestamp
from peeklock.auth.rights import LISTEN
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.commands import (
    RELEASE,
    ClaimMessages,
    Command,
    FetchClaims,
    ListClaims,
    SettleClaims,
)
from peeklock.entity.definition import TOPIC
from peeklock.entity.message import NO_DURATION
from peeklock.entity.refusals import NOT_ALLOWED, Refusal
from peeklock.entity.replies import ClaimsFetched, ClaimsListed, ClaimsMade, Reply
from peeklock.entity.routing import partition_of_sequence
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.address import OWN, TRANSFER_DEAD_LETTERS
from peeklock.gateway.amqp.management.arguments import INT32_MAX
from peeklock.gateway.amqp.management.calls import OWN_PREFIX, Call, Operation, numbers
from peeklock.gateway.amqp.messages.translate import peeked
from peeklock.gateway.amqp.nodes.outcomes import STATUSES, disposition

OWNER_LENGTH_MAX: Final = 128
# How many messages one claim, one list or one settlement may be about.
CLAIM_COUNT_MAX: Final = 10_000
SESSION_COUNT_DEFAULT: Final = 100
# The limits of one fetch; whoever wants more goes on from where it ended.
FETCH_COUNT_MAX: Final = 1_000
FETCH_BYTES_DEFAULT: Final = 1 << 20
FETCH_BYTES_MAX: Final = 4 << 20
TIMEOUT_MS_MAX: Final = (1 << 32) - 1

_STATUSES: Final = STATUSES | {"released": RELEASE}


def _owner(call: Call) -> str:
    owner = call.arguments.text("owner")
    if not 1 <= len(owner) <= OWNER_LENGTH_MAX:
        call.arguments.wrong("owner", f"must have 1 to {OWNER_LENGTH_MAX} characters")
    return owner


def _epoch(call: Call) -> int:
    """Whoever gives no epoch is not fenced."""
    return call.arguments.optional_number("epoch", NO_EPOCH, low=1)


def _sequences(call: Call) -> list[int]:
    sequences = call.arguments.numbers("sequence-numbers", most=CLAIM_COUNT_MAX)
    if sequences and min(sequences) < 0:
        call.arguments.wrong("sequence-numbers", "must not be negative")
    return sequences


# --- claiming


def _read_claim(call: Call) -> Command | Refusal:
    # What holds for receivers: a topic has nothing to take, and what forwards gives nothing else.
    # What was claimed before may still be looked at and settled.
    if call.entity.kind == TOPIC and call.sub_queue != TRANSFER_DEAD_LETTERS:
        return Refusal(NOT_ALLOWED, texts.NO_RECEIVING_FROM_TOPICS)
    if call.entity.forward_to and call.sub_queue == OWN:
        return Refusal(NOT_ALLOWED, texts.NO_CLAIMING_WHILE_FORWARDING)
    arguments = call.arguments
    owner = _owner(call)
    epoch = arguments.number("epoch", low=1)
    count = arguments.number("message-count", low=1, high=CLAIM_COUNT_MAX)
    bytes_max = arguments.optional_number("max-bytes", 0)
    timeout_ms = arguments.optional_number("claim-timeout", NO_DURATION, low=1, high=TIMEOUT_MS_MAX)
    session_count = arguments.optional_number(
        "session-count", SESSION_COUNT_DEFAULT, low=1, high=INT32_MAX
    )
    upto: dict[int, int] | None = None
    if arguments.has("upto"):
        upto = {}
        for number in arguments.numbers("upto"):
            if number < 0:
                arguments.wrong("upto", "must not hold negative numbers")
                break
            partition_index = partition_of_sequence(number)
            upto[partition_index] = max(number, upto.get(partition_index, 0))
    return ClaimMessages(
        call.origin,
        call.tag,
        call.lane,
        owner,
        epoch,
        count,
        bytes_max,
        timeout_ms,
        upto,
        session_count,
    )


def _write_claim(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, ClaimsMade), f"claims were expected, not {reply!r}"
    if not reply.sequences:
        return None
    body: dict[Any, Any] = {
        "sequence-numbers": Array(LONG, reply.sequences),
        "sizes": Array(INT, reply.sizes),
    }
    if reply.session_ids is not None:
        body["session-ids"] = reply.session_ids
    return body


# --- looking


def _read_list(call: Call) -> Command | Refusal:
    arguments = call.arguments
    owner = _owner(call)
    epoch = _epoch(call)
    first = arguments.number("from-sequence-number", low=-(1 << 63))
    count = arguments.number("message-count", low=1, high=CLAIM_COUNT_MAX)
    return ListClaims(call.origin, call.tag, call.lane, owner, epoch, first, count)


def _write_list(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, ClaimsListed), f"a list of claims was expected, not {reply!r}"
    oldest = reply.oldest_enqueued_at
    body: dict[Any, Any] = {
        "epoch": reply.epoch,
        "sequence-numbers": Array(LONG, reply.sequences),
        "sizes": Array(INT, reply.sizes),
        "attempts": Array(INT, reply.attempts),
        "last-sequence-numbers": Array(LONG, reply.last_sequences),
        "active-count": reply.active,
        "oldest-enqueued": Timestamp(oldest) if oldest else None,
    }
    if reply.session_ids is not None:
        body["session-ids"] = reply.session_ids
    if reply.missing:
        body["missing-partitions"] = Array(INT, reply.missing)
    return body


def _read_fetch(call: Call) -> Command | Refusal:
    arguments = call.arguments
    owner = _owner(call)
    sequences = _sequences(call)
    # Read here, where a wrong type can still be refused.
    arguments.flag("omit-message-body")
    bytes_max = arguments.optional_number("max-bytes", FETCH_BYTES_DEFAULT, low=1)
    return FetchClaims(
        call.origin,
        call.tag,
        call.lane,
        owner,
        sequences[:FETCH_COUNT_MAX],
        min(bytes_max, FETCH_BYTES_MAX),
    )


def _write_fetch(call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, ClaimsFetched), f"claimed messages were expected, not {reply!r}"
    omit = call.arguments.flag("omit-message-body")
    messages = [{"message": peeked(delivery, omit)} for delivery in reply.deliveries]
    return {"messages": messages, "looked-at": Int(reply.looked_at)}


# --- settling


def _read_settle(call: Call) -> Command | Refusal:
    owner = _owner(call)
    epoch = _epoch(call)
    sequences = _sequences(call)
    settlement = disposition(call.arguments, _STATUSES)
    return SettleClaims(call.origin, call.tag, call.lane, owner, epoch, sequences, settlement)


def _write_settle(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    return {"message-count": Int(numbers(reply)[0])}


CLAIM_OPERATIONS: Final[dict[str, Operation]] = {
    OWN_PREFIX + "claim-messages": Operation(LISTEN, _read_claim, _write_claim),
    OWN_PREFIX + "list-claims": Operation(LISTEN, _read_list, _write_list),
    OWN_PREFIX + "fetch-claims": Operation(LISTEN, _read_fetch, _write_fetch),
    OWN_PREFIX + "settle-claims": Operation(LISTEN, _read_settle, _write_settle),
}
