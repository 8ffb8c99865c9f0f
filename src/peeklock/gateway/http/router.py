"""Which part of the HTTP door answers a request."""

from collections.abc import Coroutine
from typing import Any, Protocol, final

from peeklock.gateway.http.answer import Answer, not_allowed, not_found
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.request import Request


class Node(Protocol):
    """Answers everything below one path, and may take its time."""

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        ...


@final
class Router:
    """Finds who answers: health, or the node whose name is the first part of the path."""

    def __init__(self, health: Health, nodes: dict[str, Node] | None = None) -> None:
        self._health = health
        self._nodes = nodes or {}

    def route(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer at once, or with something to wait for."""
        if request.path == "/health":
            if request.method not in ("GET", "HEAD"):
                return not_allowed(request.method, ["GET", "HEAD"])
            return self._health.answer()
        if not request.path.startswith("/"):
            return not_found(request.path)
        node = self._nodes.get(request.segments()[0])
        return not_found(request.path) if node is None else node.answer(request)
