"""What a path is about: names may contain slashes, encoded or not."""

from __future__ import annotations

import pytest

from peeklock.gateway.http.admin.place import Place, place_of
from peeklock.gateway.http.request import Request


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/q1?api-version=2021-05", Place("home", "q1")),
        ("/a%2Fb", Place("home", "a/b")),
        ("/a/b/", Place("home", "a/b")),
        ("/", Place("home", "")),
        ("/$namespaceinfo", Place("namespace")),
        ("/$NamespaceInfo", Place("namespace")),
        ("/$Resources/Queues", Place("queues")),
        ("/$Resources/queues/", Place("queues")),
        ("/%24Resources/topics", Place("topics")),
        ("/t/Subscriptions", Place("subscriptions", "t")),
        ("/a%2Ft/subscriptions/", Place("subscriptions", "a/t")),
        ("/a/t/Subscriptions/s", Place("subscription", "a/t", "s")),
        ("/a/t/subscriptions/s/Rules", Place("rules", "a/t", "s")),
        ("/t/Subscriptions/s/rules/r", Place("rule", "t", "s", "r")),
        ("/t/Subscriptions/s/Rules/%24Default", Place("rule", "t", "s", "$Default")),
        ("/t/Subscriptions/s/Rules/$default", Place("rule", "t", "s", "$Default")),
        ("/t/Subscriptions/Rules", Place("subscription", "t", "Rules")),
    ],
)
def test_places_are_read_from_the_right(path: str, expected: Place) -> None:
    assert place_of(Request("GET", path)) == expected


@pytest.mark.parametrize("path", ["/$Resources", "/$Resources/relays", "/$Resources/queues/x"])
def test_nothing_else_is_listed(path: str) -> None:
    assert place_of(Request("GET", path)) is None


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
    place = place_of(Request("GET", path))
    assert place is not None
    assert place.problem()
