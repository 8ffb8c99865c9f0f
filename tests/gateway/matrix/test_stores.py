"""The authorization matrix of `/$stores`: who manages the namespace, and nobody else."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.gateway.matrix.credentials import CREDENTIALS
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit


@dataclass(frozen=True)
class Row:
    """What is asked, and what is answered to somebody who may."""

    method: str
    path: str
    status: int


ROWS = [
    Row("GET", "$stores", 200),
    Row("HEAD", "$stores", 200),
    Row("POST", "$stores/store-0/offline", 200),
    Row("POST", "$stores/store-0/online", 200),
    Row("POST", "$stores/store-0/online?make=true", 200),
    Row("POST", "$stores/nothing/offline", 404),
    Row("POST", "$stores", 405),
    Row("DELETE", "$stores", 405),
    Row("PUT", "$stores/store-0/online", 405),
    Row("GET", "$stores/store-0/offline", 405),
    Row("GET", "$stores/store-0", 404),
    Row("POST", "$stores/store-0/burn", 404),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_all_about_stores_takes_the_right_to_manage_the_namespace(row: Row) -> None:
    """What is allowed is done, what is not is refused and changes nothing."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        name = broker.stores.states()[0].name
        path = row.path.replace("store-0", name)
        for credential in CREDENTIALS:
            before = await broker.state()
            token = credential.token("q", path.partition("?")[0], broker.clock.now())
            answer = await broker.ask(row.method, f"/{path}", token)
            # The stores are the whole namespace's: a token for anything less is not enough.
            is_for_all = credential.made_for == "namespace"
            if is_for_all and "Manage" in credential.gives_on_all():
                assert answer.status == row.status, str(credential)
                await broker.stores.online(name)
            else:
                is_known = is_for_all and credential.is_good_for_all()
                assert answer.status == (403 if is_known else 401), str(credential)
                assert "TrackingId:" in json.loads(answer.body())["error"]
                assert await broker.state() == before

    inhabit(visit)


def test_health_is_told_to_everybody_and_nothing_else_is() -> None:
    """The one node without a guard says one thing."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        for credential in CREDENTIALS:
            token = credential.token("q", "health", broker.clock.now())
            assert (await broker.ask("GET", "/health", token)).status == 200
            for method in ("POST", "PUT", "DELETE"):
                assert (await broker.ask(method, "/health", token)).status == 405
        assert (await broker.ask("GET", "/", None)).status == 200, "there is nothing in it"
        for target in ("//", "/$", "/$cbs", "/q", "/health/", "/$stores/", "/$resources"):
            assert (await broker.ask("GET", target, None)).status == 401, target

    inhabit(visit)
