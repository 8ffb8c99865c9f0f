"""The authorization matrix of the runtime REST API: every verb on every path about messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from xml.etree.ElementTree import fromstring

import pytest

from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.messages import places
from peeklock.gateway.http.messages.node import _METHODS
from tests.gateway.http.messages.rest_harness import BATCH
from tests.gateway.matrix.credentials import CREDENTIALS, Credential
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

GUID: Final = "00000000-0000-0000-0000-000000000001"
OTHER_VERBS: Final = ("GET", "PATCH", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Row:
    """An operation: its verb, where it is asked, what it takes and answers (protocol 10)."""

    kind: int
    method: str
    entity: str
    home: str
    needed: str
    status: int
    content_type: str = ""

    @property
    def is_settling(self) -> bool:
        return self.kind == places.ONE


def rows() -> list[Row]:
    """The operations of a queue, and of a subscription; by hand from protocol 2.3 and 10."""
    found = [
        Row(places.SENDING, "POST", "q", "q", "Send", 201),
        Row(places.SENDING, "POST", "q", "q", "Send", 201, BATCH),
        Row(places.SENDING, "POST", "t", "t", "Send", 201),
    ]
    for entity, home in (("q", "q"), ("t/subscriptions/s", "t")):
        found += [
            Row(places.HEAD, "POST", entity, home, "Listen", 201),
            Row(places.HEAD, "DELETE", entity, home, "Listen", 200),
            Row(places.ONE, "PUT", entity, home, "Listen", 200),
            Row(places.ONE, "POST", entity, home, "Listen", 200),
            Row(places.ONE, "DELETE", entity, home, "Listen", 200),
        ]
    for entity, home in (("q", "q"), ("t/subscriptions/s", "t")):
        dead = f"{entity}/$DeadLetterQueue"
        # There are no dead letters here.
        found += [Row(places.HEAD, method, dead, home, "Listen", 204) for method in _HEAD_METHODS]
    return found


_HEAD_METHODS: Final = ("POST", "DELETE")
ROWS = rows()


async def path_of(broker: WatchedBroker, row: Row) -> str:
    """Make ready what the operation needs, and say where to ask."""
    if row.kind == places.SENDING:
        return f"{row.entity}/messages"
    if "$" in row.entity:
        return f"{row.entity}/messages/head"
    sent = await broker.ask("POST", f"/{row.home}/messages", broker.root(), b"x")
    assert sent.status == 201
    if not row.is_settling:
        return f"{row.entity}/messages/head"
    target = f"/{row.entity}/messages/head?timeout=0"
    locked = await broker.ask("POST", target, broker.root())
    assert locked.status == 201
    return urlsplit({name.lower(): text for name, text in locked.headers}["location"]).path.lstrip(
        "/"
    )


async def ask(
    broker: WatchedBroker, row: Row, method: str, path: str, credential: Credential
) -> Answer:
    token = credential.token(row.home, path, broker.clock.now())
    target = f"/{path}?timeout=0" if row.kind == places.HEAD else f"/{path}"
    headers = {"content-type": row.content_type} if row.content_type else {}
    body = b'[{"Body":"x"}]' if row.content_type else b"x"
    return await broker.ask(method, target, token, body, headers)


def check_refusal(answer: Answer, credential: Credential) -> None:
    """Who shows nothing good is not known (401), who is known may lack the right (403)."""
    error = fromstring(answer.body())
    assert error.findtext("Code") == str(answer.status)
    assert "TrackingId:" in (error.findtext("Detail") or "")
    assert answer.status == (403 if credential.is_good() else 401), str(credential)
    challenge = ("www-authenticate", "SharedAccessSignature")
    assert (challenge in answer.headers) == (answer.status == 401)


def test_every_operation_has_an_expectation() -> None:
    """Whoever adds an operation says here who may use it."""
    asked = {(row.kind, row.method) for row in ROWS}
    assert asked == {(kind, method) for kind, methods in _METHODS.items() for method in methods}
    kinds = {value for name, value in vars(places).items() if name in ("SENDING", "HEAD", "ONE")}
    assert set(_METHODS) == kinds


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.method} {row.kind} {row.entity} {bool(row.content_type)}"
)
def test_every_operation_takes_its_right(row: Row) -> None:
    """What is allowed is done, what is not is refused and changes nothing."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.topic("t")
        path = await path_of(broker, row)
        for credential in CREDENTIALS:
            before = await broker.state()
            answer = await ask(broker, row, row.method, path, credential)
            if row.needed in credential.gives():
                assert answer.status == row.status, (str(credential), answer.body())
                path = await path_of(broker, row)
            else:
                check_refusal(answer, credential)
                assert await broker.state() == before, credential

    inhabit(visit)


def test_a_verb_that_does_not_fit_is_told_so_only_inside() -> None:
    """Who may not come in learns nothing; nothing is changed either way."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        for row in ROWS:
            if row.home != "q" or row.kind == places.SENDING:
                continue
            end = "messages/head" if row.kind == places.HEAD else f"messages/1/{GUID}"
            path = f"{row.entity}/{end}"
            before = await broker.state()
            for credential in CREDENTIALS:
                for method in OTHER_VERBS:
                    answer = await ask(broker, row, method, path, credential)
                    if row.needed in credential.gives():
                        assert answer.status == 405
                    else:
                        check_refusal(answer, credential)
            assert await broker.state() == before

    inhabit(visit)


def test_whether_an_entity_exists_is_told_to_nobody_without_a_right() -> None:
    """What is not there is refused like what is there."""

    async def visit(broker: WatchedBroker) -> None:
        for credential in CREDENTIALS:
            for row in ROWS:
                if row.entity != "q":
                    continue
                ends = {
                    places.SENDING: "messages",
                    places.HEAD: "messages/head",
                    places.ONE: f"messages/1/{GUID}",
                }
                missing = Row(row.kind, row.method, "missing", "missing", row.needed, 404)
                path = f"missing/{ends[row.kind]}"
                answer = await ask(broker, missing, row.method, path, credential)
                # No rule can stand on what is not there.
                if credential.rule_at == "namespace" and row.needed in credential.gives():
                    assert answer.status == 404
                else:
                    assert answer.status in (401, 403), str(credential)
                    assert answer.status == 401 or credential.rule_at == "namespace"

    inhabit(visit)
