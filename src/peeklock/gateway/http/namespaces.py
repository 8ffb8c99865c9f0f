"""Which namespace a request belongs to, and who answers for it there.

The host says it, or else the key that has signed the token; whoever says neither means the first.
Each namespace has nodes of its own, with its own keys and its own entities.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, final
from weakref import WeakKeyDictionary

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest


class Answering(Protocol):
    """A node of one namespace."""

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        ...


class Bounding(Answering, Protocol):
    """One that takes large bodies too."""

    def body_bytes_max(self, request: HttpRequest) -> int:
        """How large a body may be, asked with the head alone."""
        ...

    def too_large(self, request: HttpRequest) -> Answer:
        """What a client is told whose body is larger."""
        ...


_N = TypeVar("_N", bound=Answering)


@final
class PerNamespace(Generic[_N]):
    """Hands each request to the node of its namespace."""

    def __init__(self, namespaces: Namespaces, make: Callable[[Namespace], _N]) -> None:
        """Namespaces that only the catalog knows, or that are made later, get their nodes when
        somebody asks for them; one that is dropped takes its node along."""
        self._namespaces = namespaces
        self._make = make
        self._nodes: WeakKeyDictionary[Namespace, _N] = WeakKeyDictionary()
        for each in namespaces.all():
            self._nodes[each] = make(each)

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        return await self.node(request).answer(request)

    def node(self, request: HttpRequest) -> _N:
        """Find the node that a request is for."""
        namespace = meant_by(request, self._namespaces)
        node = self._nodes.get(namespace)
        if node is None:
            node = self._nodes[namespace] = self._make(namespace)
        return node


@final
class BoundsPerNamespace:
    """Asks the node of its namespace how large the body of a request may be."""

    def __init__(self, nodes: PerNamespace[Bounding]) -> None:
        self._nodes = nodes

    def body_bytes_max(self, request: HttpRequest) -> int:
        """How large a body may be, asked with the head alone."""
        return self._nodes.node(request).body_bytes_max(request)

    def too_large(self, request: HttpRequest) -> Answer:
        """What a client is told whose body is larger."""
        return self._nodes.node(request).too_large(request)


def meant_by(request: HttpRequest, namespaces: Namespaces) -> Namespace:
    """Find the namespace of a request."""
    namespace = namespaces.at(request.headers.get("host", ""))
    if namespace is not None:
        return namespace
    return namespaces.of_token(request.headers.get("authorization", ""))
