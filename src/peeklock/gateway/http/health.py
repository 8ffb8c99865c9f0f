"""Whether the broker serves: told in the form of the official emulator, and for orchestrators."""

from collections.abc import Callable, Sequence
from typing import Final, final

from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest
from peeklock.store.stores import StoreState

READY: Final = "/ready"

HEALTHY: Final = {"status": "healthy", "message": "Service is healthy."}
UNHEALTHY: Final = {
    "status": "unhealthy",
    "message": "Service not available. Please try after some time.",
}


@final
class Health:
    """Healthy from the moment everything listens until the broker begins to stop."""

    def __init__(self) -> None:
        self.is_serving = False

    def answer(self) -> Answer:
        """Tell it."""
        return Answer(200, HEALTHY) if self.is_serving else Answer(503, UNHEALTHY)


@final
class ReadyNode:
    """Answers `GET /ready`: whether it makes sense to lead clients here.

    A broker that is short of space or memory is ready: it refuses sends, which clients try again,
    and everything else goes on. One of whose stores none is there is not.
    """

    def __init__(self, health: Health, stores: Callable[[], Sequence[StoreState]]) -> None:
        self._health = health
        self._stores = stores

    async def answer(self, _request: HttpRequest) -> Answer:
        """Tell it, with what is missing."""
        states = self._stores()
        online = sum(state.is_online for state in states)
        is_ready = self._health.is_serving and online > 0
        document = {
            "status": "ready" if is_ready else "not ready",
            "serving": self._health.is_serving,
            "stores": len(states),
            "stores_online": online,
        }
        return Answer(200 if is_ready else 503, document)
