"""Places for handshakes: so many at once, in turn, and nobody keeps one for long."""

import asyncio
from collections.abc import Awaitable, Callable

from peeklock.budgets import Budget
from peeklock.gateway.listening.handshakes import Handshakes
from tests.broker.broker_harness import until


class Client:
    """A connection that wants a handshake."""

    def __init__(self, handshakes: Handshakes) -> None:
        self.handshakes = handshakes
        self.is_shaking = False
        self.is_aborted = False

    def shake(self) -> None:
        self.is_shaking = True

    def abort(self) -> None:
        self.is_aborted = True
        self.handshakes.ended(self)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(_limited(test), 10))


async def _limited(test: Callable[[], Awaitable[None]]) -> None:
    await test()


def test_who_finds_no_place_waits_for_one() -> None:
    async def talk() -> None:
        budget = Budget("tls_handshakes", 2)
        handshakes = Handshakes(budget)
        clients = [Client(handshakes) for _ in range(4)]
        for client in clients:
            handshakes.begin(client)
        assert [client.is_shaking for client in clients] == [True, True, False, False]
        handshakes.ended(clients[1])
        handshakes.ended(clients[1])
        assert [client.is_shaking for client in clients] == [True, True, True, False]
        # Somebody who was not waited for.
        handshakes.ended(clients[3])
        for client in (clients[0], clients[2]):
            handshakes.ended(client)
        assert budget.used == 0
        assert budget.peak == 2

    run(talk)


def test_who_dawdles_while_others_wait_is_cut_off() -> None:
    async def talk() -> None:
        budget = Budget("tls_handshakes", 2)
        handshakes = Handshakes(budget, dawdle_s=0.02)
        clients = [Client(handshakes) for _ in range(5)]
        for client in clients:
            handshakes.begin(client)
        await until(lambda: all(client.is_shaking for client in clients))
        assert [client.is_aborted for client in clients] == [True, True, True, False, False]
        assert budget.refused == 3

    run(talk)
