"""Refusals: each kind has its wire words, each refusal its tracking id and one line in the log."""

import logging
import re

import pytest

from peeklock.auth.refusal import invalid_key, invalid_signature
from peeklock.clock import ManualClock
from peeklock.entity.definition import QUEUE, SUBSCRIPTION, TOPIC
from peeklock.entity.refusals import (
    BUSY,
    ENTITY_NOT_FOUND,
    KINDS,
    LOCK_LOST,
    UNAUTHORIZED,
    Refusal,
)
from peeklock.gateway.refusals import WIRE_FORMS, RefusalWriter
from tests.broker.seeded_random import SeededRandom

# What the official clients try again by themselves (protocol 8.1).
RETRIED = {
    "amqp:internal-error",
    "amqp:link:detach-forced",
    "com.microsoft:timeout",
    "com.microsoft:server-busy",
}


def refusal_writer() -> RefusalWriter:
    return RefusalWriter(clock=ManualClock(), random_source=SeededRandom(1).number, namespace="ns")


def test_every_kind_has_its_wire_words() -> None:
    """R-T2."""
    assert set(WIRE_FORMS) == set(KINDS)


def test_the_condition_tells_whether_a_retry_can_succeed() -> None:
    """R-T2: never a condition that is retried for a permanent failure."""
    for form in WIRE_FORMS.values():
        assert form.is_retryable == (form.condition in RETRIED)
        assert 400 <= form.status < 600


def test_what_a_client_says_without_end_is_not_repeated() -> None:
    """An answer must fit into a frame, whatever the address was."""
    refusal = Refusal(UNAUTHORIZED, "x" * 60_000)
    declined = refusal_writer().decline(
        refusal, entity="q" * 60_000, operation="o" * 60_000, peer="p"
    )
    assert len(declined.text) < 5_000
    assert f"{'x' * 4_096}... TrackingId:" in declined.text
    assert f"SystemTracker:ns:Queue:{'q' * 512}...," in declined.text


def test_the_text_carries_tracking_id_entity_and_instant() -> None:
    """R-T2."""
    declined = refusal_writer().decline(
        Refusal(LOCK_LOST, "The lock is lost."), entity="q", operation="settle", peer="p:1"
    )
    assert (declined.condition, declined.status) == ("com.microsoft:message-lock-lost", 410)
    assert re.fullmatch(
        r"The lock is lost\. TrackingId:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}, "
        r"SystemTracker:ns:Queue:q, Timestamp:2023-11-14T22:13:20",
        declined.text,
    )
    assert declined.tracking_id in declined.text


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (QUEUE, "", "ns"),
        (QUEUE, "a/b", "ns:Queue:a/b"),
        (TOPIC, "t", "ns:Topic:t"),
        (SUBSCRIPTION, "t/Subscriptions/s", "ns:Topic:t|s"),
        (SUBSCRIPTION, "a/T/subscriptions/S", "ns:Topic:a/T|S"),
    ],
)
def test_entities_are_named_by_their_kind(kind: str, path: str, expected: str) -> None:
    """R-T2: as the service does in its texts."""
    declined = refusal_writer().decline(
        Refusal(BUSY, "Busy."), entity=path, operation="send", peer="p:1", kind=kind
    )
    assert f", SystemTracker:{expected}, " in declined.text


def test_tracking_ids_differ() -> None:
    one_writer = refusal_writer()
    ids = {
        one_writer.decline(
            Refusal(BUSY, "Busy."), entity="", operation="send", peer="p:1"
        ).tracking_id
        for _ in range(100)
    }
    assert len(ids) == 100


def test_a_refusal_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever peers put into it: no line breaks, no quotes that end too early."""
    caplog.set_level(logging.INFO, "peeklock.refusals")
    declined = refusal_writer().decline(
        Refusal(UNAUTHORIZED, 'bad "name"\nrefused kind=faked'),
        entity="a b",
        operation="attach",
        peer="127.0.0.1:5",
        count=3,
    )
    (record,) = caplog.records
    line = record.getMessage()
    assert "\n" not in line
    assert line.startswith("refused operation=attach kind=unauthorized")
    assert f"tracking={declined.tracking_id}" in line
    assert 'entity="a b"' in line
    assert r'text="bad \"name\"\nrefused kind=faked"' in line
    assert "count=3" in line


def test_a_flood_of_one_kind_is_a_hundred_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peeklock.refusals")
    told = refusal_writer()
    for kind in (BUSY, UNAUTHORIZED):
        for _ in range(300):
            told.decline(Refusal(kind, "No."), entity="q", operation="send", peer="p:1")
    assert len(caplog.records) == 200


def test_our_own_trouble_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    refusal_writer().decline(Refusal(BUSY, "Busy."), entity="q", operation="send", peer="p:1")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    ("refusal", "entity", "typed"),
    [
        (Refusal(ENTITY_NOT_FOUND, "No."), "ordes", "peeklock queue create ordes makes it"),
        (Refusal(ENTITY_NOT_FOUND, "No."), "", "peeklock queue create NAME makes it"),
        (Refusal(ENTITY_NOT_FOUND, "No."), "a/Subscriptions/b", "subscription create a b makes it"),
        (Refusal(UNAUTHORIZED, invalid_key().text), "", "has a wrong key or key name: take"),
        (Refusal(UNAUTHORIZED, invalid_signature().text), "", "has a wrong key or key name: take"),
    ],
)
def test_the_log_says_what_to_type(
    caplog: pytest.LogCaptureFixture, refusal: Refusal, entity: str, typed: str
) -> None:
    """The Python client hides our text for 15 seconds."""
    with caplog.at_level(logging.INFO):
        refusal_writer().decline(refusal, entity=entity, operation="attach", peer="p:1")
    assert "advice=" in caplog.messages[-1]
    assert typed in caplog.messages[-1]


def test_the_log_gives_no_advice_about_what_clients_handle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        for refusal in (Refusal(LOCK_LOST, "Lost."), Refusal(UNAUTHORIZED, "No right Send.")):
            refusal_writer().decline(refusal, entity="q", operation="settle", peer="p:1")
    assert all("advice=" not in message for message in caplog.messages)
