"""Which paths are about messages."""

from __future__ import annotations

import pytest

from peeklock.gateway.http.messages.places import HEAD, ONE, SENDING, MessagePath, place_of

GUID = "00000000-0000-0001-0000-0123456789aB"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/q/messages", MessagePath(SENDING, "q")),
        ("POST", "/a/b%20/MESSAGES/", MessagePath(SENDING, "a/b%20")),
        ("POST", "/messages/messages", MessagePath(SENDING, "messages")),
        ("POST", "/messages", None),
        ("POST", "//messages", MessagePath(SENDING, "")),
        ("PUT", "/q/messages", None),
        ("POST", "/q/messages/x", None),
        ("GET", "/q/messages/head", MessagePath(HEAD, "q")),
        (
            "DELETE",
            "/t/Subscriptions/s/$DeadLetterQueue/messages/Head",
            MessagePath(HEAD, "t/Subscriptions/s/$DeadLetterQueue"),
        ),
        ("POST", "/messages/head", None),
        ("PUT", f"/q/messages/a%2Fb/{GUID}", MessagePath(ONE, "q", "a/b", GUID)),
        ("PUT", "/q/messages/1/x", MessagePath(ONE, "q", "1", "x")),
        ("PUT", f"/messages/1/{GUID}", None),
        ("PUT", "/a/messages/Subscriptions/s", None),
        ("PUT", f"/a/messages/subscriptions/{GUID}", MessagePath(ONE, "a", "subscriptions", GUID)),
        (
            "POST",
            "/a/messages/subscriptions/s/messages/head",
            MessagePath(HEAD, "a/messages/subscriptions/s"),
        ),
        ("GET", "/", None),
        ("GET", "", None),
    ],
)
def test_a_path_is_taken_apart_from_its_end(
    method: str, path: str, expected: MessagePath | None
) -> None:
    assert place_of(method, path) == expected
