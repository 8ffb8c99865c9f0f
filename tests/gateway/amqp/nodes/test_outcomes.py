"""Outcomes: which settlement each state means."""

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.frames.states import Received
from peeklock.amqp.values.composites import (
    ACCEPTED,
    REJECTED_PLAIN,
    RELEASED,
    encode_composite,
    encode_modified,
    encode_rejected,
)
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Ulong
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
)
from peeklock.entity.refusals import INVALID_ARGUMENT, Refusal
from peeklock.entity.settlement import Settlement
from peeklock.gateway.amqp.nodes.outcomes import ANSWERS, OutcomeReader, ReadOutcome


def modified(*, failed: bool = False, here: bool = False) -> bytes:
    return encode_modified(delivery_failed=failed, undeliverable_here=here)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (ACCEPTED, COMPLETE),
        (b"\x00\x53\x24\xc0\x01\x00", COMPLETE),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x24\x45", COMPLETE),
        (RELEASED, RELEASE),
        (modified(failed=True), ABANDON),
        (modified(), ABANDON),
        (b"\x00\x53\x27\x45", ABANDON),
        (modified(failed=True, here=True), DEFER),
        (modified(here=True), DEFER),
        (REJECTED_PLAIN, DEAD_LETTER),
        (b"\x00\x53\x25\x45", DEAD_LETTER),
    ],
)
def test_every_outcome_is_a_settlement(state: bytes, outcome: int) -> None:
    reader = OutcomeReader()
    found = reader.read(state)
    assert found == ReadOutcome(Settlement(outcome))
    assert reader.read(bytes(state)) is found
    assert outcome in ANSWERS


def test_what_says_nothing_counts_only_when_it_is_settled() -> None:
    for state in (b"", encode_composite(Received(section_number=0, section_offset=0))):
        assert OutcomeReader().read(state) == ReadOutcome(Settlement(RELEASE), is_final=False)


@pytest.mark.parametrize("kind", [Symbol, str])
def test_reasons_and_changes_are_read_from_either_kind_of_key(kind: type[str]) -> None:
    info = {
        kind("DeadLetterReason"): "r",
        kind("DeadLetterErrorDescription"): "d" * 5_000,
        kind("n"): 1,
    }
    state = encode_rejected(AmqpError("com.microsoft:dead-letter", None, info))
    assert OutcomeReader().read(state) == ReadOutcome(
        Settlement(DEAD_LETTER, {"n": encode(1)}, "r", "d" * 4_096)
    )


def test_the_text_of_the_error_stands_in_for_a_missing_description() -> None:
    state = encode_rejected(AmqpError("com.microsoft:dead-letter", "text"))
    assert OutcomeReader().read(state) == ReadOutcome(Settlement(DEAD_LETTER, None, None, "text"))


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (encode(Described(Ulong(0x34), [b"", None])), INVALID_ARGUMENT),
        (encode(Described(Ulong(0x34), [b"t", Described(Ulong(0x33), [b"t"])])), INVALID_ARGUMENT),
        (encode(Described(Ulong(0x33), [b"t"])), INVALID_ARGUMENT),
        (encode(7), INVALID_ARGUMENT),
        (b"\xff", INVALID_ARGUMENT),
    ],
)
def test_what_is_no_outcome_is_refused(state: bytes, kind: str) -> None:
    found = OutcomeReader().read(state)
    assert isinstance(found, Refusal)
    assert found.kind == kind


def test_what_is_remembered_is_bounded() -> None:
    reader = OutcomeReader()
    for number in range(200):
        reader.read(
            encode_modified(
                delivery_failed=True,
                undeliverable_here=False,
                message_annotations={"n": number},
            )
        )
    assert len(reader._remembered) == 64
