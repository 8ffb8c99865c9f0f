"""The namespaces of a server: which one a host name, a token or a key stands for."""

import pytest

from peeklock.auth.keyring import TokenGrant
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.refusal import INVALID_SIGNATURE, AuthRefusal
from peeklock.auth.rights import LISTEN, AuthorizationRule
from peeklock.auth.sas import generate_sas

NOW = 1_700_000_000_000
LATER = NOW + 3_600_000


def three() -> Namespaces:
    return Namespaces(
        [
            Namespace("First", [AuthorizationRule("root", "key-1"), AuthorizationRule("own", "a")]),
            Namespace("second", [AuthorizationRule("root", "key-2")]),
            Namespace("second.eu", [AuthorizationRule("root", "key-2")]),
        ]
    )


def token(rule: str, key: str, resource: str = "sb://localhost/q") -> str:
    return generate_sas(resource, rule, key, LATER)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("first", "First"),
        ("FIRST.localhost", "First"),
        ("second.servicebus.windows.net", "second"),
        ("second.localhost:5672", "second"),
        ("second.localhost/$servicebus/websocket", "second"),
        ("second.localhost.", "second"),
        ("second.eu", "second.eu"),
        ("second.eu.localhost", "second.eu"),
        ("localhost", None),
        ("localhost.second", None),
        ("secondary.localhost", None),
        ("127.0.0.1:5672", None),
        ("[::1]:5672", None),
        ("", None),
        (".", None),
        ("second." + "x." * 40_000, None),
    ],
)
def test_a_host_name_begins_with_the_name_of_its_namespace(host: str, expected: str | None) -> None:
    """R-F7."""
    found = three().at(host)
    assert (None if found is None else found.name) == expected


def test_an_address_is_no_name() -> None:
    both = Namespaces([Namespace("a"), Namespace("127")])
    assert both.at("127.0.0.1") is None
    assert both.at("127.localhost") is both.get("127")


def test_where_there_is_one_it_is_meant_whatever_the_host() -> None:
    only = Namespaces([Namespace("only")])
    assert only.at("anything.example") is only.first


def test_a_token_is_for_the_namespace_whose_key_has_signed_it() -> None:
    """R-F7."""
    namespaces = three()
    assert namespaces.of_token(token("root", "key-1")).name == "First"
    assert namespaces.of_token(token("root", "key-2")).name == "second"
    assert namespaces.of_token(token("own", "a")).name == "First"


def test_a_token_that_nobody_has_signed_is_refused_by_the_first() -> None:
    """Who knows the rule is nothing that others should learn."""
    namespaces = Namespaces([Namespace("a"), Namespace("b", [AuthorizationRule("root", "key")])])
    for given in (token("root", "wrong"), token("nobody", "key")):
        refused = namespaces.of_token(given).keys.verify(given, "q", NOW)
        assert isinstance(refused, AuthRefusal)
        assert refused.reason == INVALID_SIGNATURE
    assert namespaces.of_token(token("root", "wrong")).name == "a"
    assert namespaces.of_token("no token at all").name == "a"


def test_an_expired_token_still_tells_its_namespace() -> None:
    expired = generate_sas("sb://localhost/q", "root", "key-2", NOW - 1)
    assert three().of_token(expired).name == "second"


def test_a_key_that_is_shown_is_for_the_namespace_that_has_it() -> None:
    """R-F7."""
    namespaces = three()
    assert namespaces.of_key("root", "key-2").name == "second"
    assert namespaces.of_key("root", "key-1").name == "First"
    assert namespaces.of_key("root", "wrong").name == "First"
    assert namespaces.of_key("nobody", "key-2").name == "First"


def test_the_keys_of_one_namespace_do_not_open_another() -> None:
    """R-F7."""
    namespaces = three()
    second = namespaces.get("SECOND").keys
    assert isinstance(second.verify(token("root", "key-1"), "q", NOW), AuthRefusal)
    assert isinstance(second.verify(token("root", "key-2"), "q", NOW), TokenGrant)
    assert isinstance(second.verify_plain("own", "a"), AuthRefusal)


def test_a_namespace_that_nobody_configured_opens_to_the_keys_of_its_entities() -> None:
    namespaces = three()
    kept = namespaces.get("kept")
    assert namespaces.get("KEPT") is kept
    assert not kept.is_configured
    assert [each.name for each in namespaces.all()] == ["First", "second", "second.eu", "kept"]
    assert isinstance(kept.keys.verify(token("root", "key-1"), "q", NOW), AuthRefusal)
    kept.keys.set_entity_rules("q", [AuthorizationRule("reader", "key", rights=LISTEN)])
    assert namespaces.of_token(token("reader", "key")) is kept
    assert namespaces.at("kept.localhost") is kept


def test_names_differ_by_more_than_case() -> None:
    with pytest.raises(ValueError, match="each name once"):
        Namespaces([Namespace("a"), Namespace("A")])
    with pytest.raises(ValueError, match="at least one"):
        Namespaces([])


def test_one_is_made_and_dropped_while_others_are_served() -> None:
    """R-F7: its key selects it from then on, and nothing once it is gone."""
    namespaces = three()
    made = namespaces.add("made", [AuthorizationRule("root", "key-3")])
    assert namespaces.of_token(token("root", "key-3")) is made is namespaces.at("made.localhost")
    with pytest.raises(ValueError, match="'MADE' already"):
        namespaces.add("MADE", [])
    namespaces.drop("Made")
    assert namespaces.at("made.localhost") is None
    assert namespaces.of_token(token("root", "key-3")) is namespaces.first
    with pytest.raises(ValueError, match="the first"):
        namespaces.drop("first")
