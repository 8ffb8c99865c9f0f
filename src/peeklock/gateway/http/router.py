"""Which node answers an HTTP request."""

from collections.abc import Coroutine
from typing import Any, Final, Protocol, final

from peeklock.gateway.http.answer import Answer, not_allowed, not_found
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.journal import journal_place
from peeklock.gateway.http.messages.places import place_of
from peeklock.gateway.http.request import HttpRequest

# The nodes that have no name of their own, because entities give the paths theirs.
ENTITIES: Final = "*"
MESSAGES: Final = "*/messages"
JOURNALS: Final = "*/$journal"


class Node(Protocol):
    """Answers everything below one path, and may take its time."""

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        ...


@final
class Router:
    """Finds who answers: a page, the node whose name is the first part of the path, or the nodes
    for the messages of entities, for their journals and for the entities themselves."""

    def __init__(
        self,
        health: Health,
        nodes: dict[str, Node] | None = None,
        pages: dict[str, Node] | None = None,
    ) -> None:
        """Pages are whole paths, with their slash, beside that of the health."""
        self._health = health
        self._nodes = nodes or {}
        self._pages = pages or {}

    def route(self, request: HttpRequest) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer at once, or with something to wait for."""
        if request.path == "/health":
            if request.method not in ("GET", "HEAD"):
                return not_allowed(request.method, ["GET", "HEAD"])
            return self._health.answer()
        page = self._pages.get(request.path)
        if page is not None and request.method in ("GET", "HEAD") and not _is_about_one(request):
            return page.answer(request)
        if not request.path.startswith("/"):
            return not_found(request.path)
        node = self._nodes.get(request.segments()[0])
        if node is None:
            node = self._nodes.get(_kind(request))
        return not_found(request.path) if node is None else node.answer(request)


def _is_about_one(request: HttpRequest) -> bool:
    """Tell whether a request is about the entity that has the name of a page: who looks at it by
    the administration names the version of that."""
    return "api-version=" in request.target.partition("?")[2]


def _kind(request: HttpRequest) -> str:
    if is_about_messages(request):
        return MESSAGES
    return ENTITIES if journal_place(request.path) is None else JOURNALS


def is_about_messages(request: HttpRequest) -> bool:
    """Tell whether a request sends, receives or settles: `q/messages`, `q/messages/head`,
    `q/messages/ID/TOKEN`. An entity that happens to have such a name can still be put."""
    if request.method == "PUT" and "atom" in request.headers.get("content-type", ""):
        return False
    return place_of(request.method, request.path) is not None
