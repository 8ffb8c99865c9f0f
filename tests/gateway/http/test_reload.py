"""A reload over HTTP: who manages the first namespace may, nobody else."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.clock import ManualClock
from peeklock.gateway.http.reload import NotReloaded, Reloaded, ReloadNode
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.refusals import RefusalWriter

NOW = 1_700_000_000_000


class HttpHarness:
    """The node, and what it reloads."""

    def __init__(self) -> None:
        clock = ManualClock(NOW)
        count = itertools.count(1)
        keys = KeyRing(
            [
                AuthorizationRule("root", "secret"),
                AuthorizationRule("worker", "secret", rights=SEND | LISTEN),
            ]
        )
        refusal_writer = RefusalWriter(
            clock=clock, random_source=lambda: next(count), namespace="ns"
        )
        self.problem = ""
        self.reloads = 0
        self.node = ReloadNode(self.reload, TokenGuard(keys, clock, refusal_writer))

    async def reload(self) -> Reloaded:
        self.reloads += 1
        if self.problem:
            raise NotReloaded(self.problem)
        return Reloaded(["queue 'q' is new"], [])

    async def ask(
        self, method: str = "POST", path: str = "/$reload", rule: str = "root"
    ) -> tuple[int, object]:
        token = generate_sas("http://localhost/", rule, "secret", NOW + 60_000)
        answer = await self.node.answer(HttpRequest(method, path, {"authorization": token}))
        return answer.status, answer.document


def run(scenario: Callable[[HttpHarness], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(HttpHarness())

    asyncio.run(whole())


def test_it_answers_what_changed() -> None:
    async def scenario(harness: HttpHarness) -> None:
        assert await harness.ask() == (
            200,
            {"changed": ["queue 'q' is new"], "restart": []},
        )

    run(scenario)


def test_it_answers_what_is_wrong() -> None:
    async def scenario(harness: HttpHarness) -> None:
        harness.problem = "Config.json: it is no JSON"
        assert await harness.ask() == (409, {"error": "Config.json: it is no JSON"})

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "rule", "status"),
    [
        ("POST", "/$reload", "worker", 403),
        ("POST", "/$reload", "nobody", 401),
        ("GET", "/$reload", "root", 405),
        ("POST", "/$reload/all", "root", 404),
    ],
)
def test_nobody_else_and_nothing_else(method: str, path: str, rule: str, status: int) -> None:
    async def scenario(harness: HttpHarness) -> None:
        assert (await harness.ask(method, path, rule))[0] == status
        assert harness.reloads == 0

    run(scenario)
