"""Rights and rules."""

import pytest

from peeklock.auth.rights import (
    ALL_RIGHTS,
    DEVELOPMENT_KEY,
    LISTEN,
    MANAGE,
    NO_RIGHTS,
    ROOT_RULE_NAME,
    SEND,
    AuthorizationRule,
    allows,
    development_rule,
    rights_from_names,
    rights_names,
)


def test_manage_implies_send_and_listen() -> None:
    assert rights_from_names(["Manage"]) == ALL_RIGHTS
    assert AuthorizationRule("r", "k", rights=MANAGE).rights == ALL_RIGHTS


def test_send_and_listen_imply_nothing() -> None:
    assert AuthorizationRule("r", "k", rights=SEND).rights == SEND
    assert rights_from_names(["Send", "Listen"]) == SEND | LISTEN
    assert not allows(SEND, LISTEN)
    assert not allows(SEND | LISTEN, MANAGE)
    assert not allows(SEND, SEND | LISTEN)
    assert allows(SEND | LISTEN, SEND)


def test_names_are_read_in_any_case_and_written_in_theirs() -> None:
    assert rights_from_names(["listen", "SEND"]) == LISTEN | SEND
    assert rights_names(ALL_RIGHTS) == ["Listen", "Send", "Manage"]
    assert rights_names(NO_RIGHTS) == []


def test_an_unknown_right_is_named() -> None:
    with pytest.raises(ValueError, match="'Read' is not a right"):
        rights_from_names(["Send", "Read"])


def test_a_rule_never_shows_its_keys() -> None:
    rule = AuthorizationRule("sender", "first-secret", "second-secret", SEND)
    assert repr(rule) == "AuthorizationRule('sender', rights=Send)"
    assert "secret" not in f"{rule!r} {rule!s}"


def test_an_empty_key_signs_nothing() -> None:
    assert AuthorizationRule("r", "one").signing_keys() == ["one"]
    assert AuthorizationRule("r", "one", "two").signing_keys() == ["one", "two"]
    assert AuthorizationRule("r", "").signing_keys() == []


def test_the_development_rule_is_the_emulators() -> None:
    rule = development_rule()
    assert (rule.name, rule.primary_key) == (ROOT_RULE_NAME, DEVELOPMENT_KEY)
    assert rule.rights == ALL_RIGHTS
