"""The authorization matrix of journals: every verb on both of their paths."""

from __future__ import annotations

import pytest

from tests.gateway.matrix.credentials import CREDENTIALS
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

PLACES = [("q", ""), ("q", "/0"), ("t", ""), ("t", "/0?after=0&limit=1")]
OTHER_VERBS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")


@pytest.mark.parametrize(("entity", "rest"), PLACES)
def test_who_may_receive_may_read(entity: str, rest: str) -> None:
    """And nobody else; nobody changes anything by it."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.topic("t")
        for home in ("q", "t"):
            sent = await broker.ask("POST", f"/{home}/messages", broker.root(), b"x")
            assert sent.status == 201
        path = f"{entity}/$journal{rest}"
        for credential in CREDENTIALS:
            before = await broker.state()
            token = credential.token(entity, path.partition("?")[0], broker.clock.now())
            for method in ("GET", "HEAD"):
                answer = await broker.ask(method, f"/{path}", token)
                if "Listen" in credential.gives():
                    assert answer.status == 200, str(credential)
                else:
                    assert answer.status == (403 if credential.is_good() else 401), str(credential)
                    assert "TrackingId:" in answer.document["error"]
            assert await broker.state() == before, credential

    inhabit(visit)


def test_a_verb_that_does_not_fit_is_told_so_only_inside() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        for method in OTHER_VERBS:
            for path in ("/q/$journal", "/q/$journal/0"):
                assert (await broker.ask(method, path, None)).status == 401
                answer = await broker.ask(method, path, broker.root())
                assert answer.status == 405
                assert ("allow", "GET, HEAD") in answer.headers

    inhabit(visit)
