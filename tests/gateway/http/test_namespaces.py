"""Which namespace a request belongs to: by host, by key, or the first."""

import asyncio

import pytest

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.namespaces import Bounding, BoundsPerNamespace, PerNamespace
from peeklock.gateway.http.request import HttpRequest

BOTH = Namespaces(
    [
        Namespace("one", [AuthorizationRule("root", "key-1")]),
        Namespace("two", [AuthorizationRule("root", "key-2")]),
    ]
)


class Node:
    """Says where it is."""

    def __init__(self, namespace: Namespace) -> None:
        self.name = namespace.name

    async def answer(self, request: HttpRequest) -> Answer:
        return Answer(200, {"here": self.name, "path": request.path})

    def body_bytes_max(self, request: HttpRequest) -> int:
        return len(self.name + request.path)

    def too_large(self, request: HttpRequest) -> Answer:
        return Answer(403, {"here": self.name, "path": request.path})


def signed(key: str) -> str:
    return generate_sas("http://localhost/q", "root", key, 1 << 40)


@pytest.mark.parametrize(
    ("host", "token", "expected"),
    [
        ("one.localhost:5300", signed("key-1"), "one"),
        ("Two.localhost:5300", signed("key-2"), "two"),
        # The host wins, and the node refuses the key.
        ("two.servicebus.windows.net", signed("key-1"), "two"),
        ("localhost:5300", signed("key-1"), "one"),
        ("localhost:5300", signed("key-2"), "two"),
        ("127.0.0.1:5300", signed("key-2"), "two"),
        ("[::1]:5300", signed("key-2"), "two"),
        ("localhost", signed("key-3"), "one"),
        ("localhost", "nothing", "one"),
        ("localhost", None, "one"),
        (None, None, "one"),
    ],
)
def test_the_host_says_it_or_the_key_or_nobody(
    host: str | None, token: str | None, expected: str
) -> None:
    """R-F7."""
    given = {"host": host, "authorization": token}
    headers = {name: value for name, value in given.items() if value is not None}
    nodes: PerNamespace[Bounding] = PerNamespace(BOTH, Node)
    request = HttpRequest("GET", "/q", headers)
    answer = asyncio.run(nodes.answer(request))
    assert answer.document == {"here": expected, "path": "/q"}
    bounds = BoundsPerNamespace(nodes)
    assert bounds.body_bytes_max(request) == 5
    assert bounds.too_large(request).document["here"] == expected


def test_a_namespace_that_came_later_is_answered_too() -> None:
    namespaces = Namespaces([Namespace("one")])
    nodes = PerNamespace(namespaces, Node)
    namespaces.get("kept")
    assert nodes.node(HttpRequest("GET", "/", {"host": "kept.localhost"})).name == "kept"


def test_a_node_is_made_once() -> None:
    nodes = PerNamespace(BOTH, Node)
    first = nodes.node(HttpRequest("GET", "/", {"host": "two"}))
    assert nodes.node(HttpRequest("PUT", "/x", {"host": "TWO.localhost"})) is first
