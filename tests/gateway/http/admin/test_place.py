"""What a path is about: names may contain slashes, encoded or not."""

from __future__ import annotations

import pytest

from peeklock.gateway.http.admin.place import AdminPath, place_of
from peeklock.gateway.http.request import HttpRequest


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/q1?api-version=2021-05", AdminPath("entity", "q1")),
        ("/a%2Fb", AdminPath("entity", "a/b")),
        ("/a/b/", AdminPath("entity", "a/b")),
        ("/", AdminPath("entity", "")),
        ("/$namespaceinfo", AdminPath("namespace")),
        ("/$NamespaceInfo", AdminPath("namespace")),
        ("/$Resources/Queues", AdminPath("queues")),
        ("/$Resources/queues/", AdminPath("queues")),
        ("/%24Resources/topics", AdminPath("topics")),
        ("/t/Subscriptions", AdminPath("subscriptions", "t")),
        ("/a%2Ft/subscriptions/", AdminPath("subscriptions", "a/t")),
        ("/a/t/Subscriptions/s", AdminPath("subscription", "a/t", "s")),
        ("/a/t/subscriptions/s/Rules", AdminPath("rules", "a/t", "s")),
        ("/t/Subscriptions/s/rules/r", AdminPath("rule", "t", "s", "r")),
        ("/t/Subscriptions/s/Rules/%24Default", AdminPath("rule", "t", "s", "$Default")),
        ("/t/Subscriptions/s/Rules/$default", AdminPath("rule", "t", "s", "$Default")),
        ("/t/Subscriptions/Rules", AdminPath("subscription", "t", "Rules")),
    ],
)
def test_places_are_read_from_the_right(path: str, expected: AdminPath) -> None:
    assert place_of(HttpRequest("GET", path)) == expected


@pytest.mark.parametrize("path", ["/$Resources", "/$Resources/relays", "/$Resources/queues/x"])
def test_nothing_else_is_listed(path: str) -> None:
    assert place_of(HttpRequest("GET", path)) is None


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/q/$deadletterqueue",
        "/$management",
        "/q%20q",
        "/q//q",
        "/q/../t",
        "/q/%2E%2E/t",
        "/q/./t",
        "/q%3Cb%3E",
        "/-q",
        "/" + "q" * 261,
        "/t/Subscriptions/s$",
        "/t/Subscriptions/" + "s" * 51,
        "/t/Subscriptions/s/Rules/r%20r",
        "/t/Subscriptions/a/Subscriptions/b",
    ],
)
def test_names_that_nothing_has_are_a_problem(path: str) -> None:
    place = place_of(HttpRequest("GET", path))
    assert place is not None
    assert place.problem()
