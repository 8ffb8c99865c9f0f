"""Who answers a request: the messages of an entity are not the entity."""

from __future__ import annotations

import pytest

from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.router import is_about_messages

ATOM = {"content-type": "application/atom+xml;type=entry;charset=utf-8"}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/q/messages", True),
        ("POST", "/q/Messages/", True),
        ("POST", "/a/b/messages/head?timeout=5", True),
        ("POST", "/t/subscriptions/s/messages/head", True),
        ("POST", "/q/messages/7/4f9e", True),
        ("POST", "/q", False),
        ("POST", "/messages", False),
        ("DELETE", "/q/messages/head", True),
        ("DELETE", "/q/messages/7/4f9e", True),
        ("PUT", "/q/messages/7/4f9e", True),
        ("PUT", "/q/messages", False),
        ("DELETE", "/q/messages", False),
        ("DELETE", "/messages/7/4f9e", False),
        ("GET", "/q/messages", False),
        ("PUT", "/t/Subscriptions/s", False),
    ],
)
def test_messages_are_told_from_entities(method: str, path: str, expected: bool) -> None:
    assert is_about_messages(HttpRequest(method, path)) is expected


def test_an_entity_may_have_a_name_that_looks_like_a_message() -> None:
    assert not is_about_messages(HttpRequest("PUT", "/q/messages/7/x", ATOM))
