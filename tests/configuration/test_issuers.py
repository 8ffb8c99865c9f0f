"""TokenIssuers in the configuration file."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.auth.issuer import AUDIENCES, ROLES, TokenIssuer
from peeklock.auth.rights import ALL_RIGHTS, LISTEN, SEND
from peeklock.configuration.file import parse_configuration
from tests.configuration.written import config, problems


def read(*issuers: dict[str, Any]) -> tuple[TokenIssuer, ...]:
    text = config(TokenIssuers=list(issuers))
    return parse_configuration(text, "Config.json").namespaces[0].issuers


def test_what_is_not_said_is_as_in_the_service() -> None:
    assert parse_configuration(config(), "x").namespaces[0].issuers == ()
    (found,) = read({"Issuer": "i", "KeysFile": "keys.json"})
    assert found == TokenIssuer("i", keys_file="keys.json")
    assert (found.audiences, found.roles) == (AUDIENCES, ROLES)
    assert found.rights_of(["Azure Service Bus Data Owner"]) == ALL_RIGHTS


def test_everything_can_be_chosen() -> None:
    (found,) = read(
        {
            "Issuer": "i",
            "Audiences": ["a", "b"],
            "KeysUrl": "https://i/keys",
            "KeysRefresh": "PT1M",
            "ClockSkew": "PT0S",
            "AllowPlain": True,
            "Roles": [
                {"Name": "in", "Rights": ["Send"]},
                {"Name": "out", "Rights": ["Listen"]},
            ],
        }
    )
    roles = {"in": SEND, "out": LISTEN}
    expected = TokenIssuer(
        "i",
        ("a", "b"),
        keys_url="https://i/keys",
        roles=roles,
        skew_ms=0,
        refresh_ms=60_000,
        allows_plain=True,
    )
    assert found == expected
    assert found.rights_of(["in", "out", "other"]) == SEND | LISTEN


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"KeysFile": "k"}, "Issuer: is missing"),
        ({"Issuer": "i"}, "KeysFile: must be given, or KeysUrl"),
        ({"Issuer": "i", "KeysFile": "k", "KeysUrl": "https://k"}, "KeysFile: must be given"),
        ({"Issuer": "i", "KeysUrl": "file:///etc/passwd"}, "KeysUrl: 'file:///etc/passwd' is no"),
        ({"Issuer": "i", "KeysUrl": "http://idp.local/k"}, "KeysUrl: 'http://idp.local/k' is no"),
        ({"Issuer": "i", "KeysUrl": "http://[::1"}, "KeysUrl: 'http://[::1' is no"),
        ({"Issuer": "i", "KeysFile": "k", "Audiences": []}, "Audiences: must have"),
        ({"Issuer": "i", "KeysFile": "k", "ClockSkew": "PT1H"}, "ClockSkew: must be between"),
        ({"Issuer": "i", "KeysFile": "k", "KeysRefresh": "PT1S"}, "KeysRefresh: must be"),
        ({"Issuer": "i", "KeysFile": "k", "Key": "x"}, "Key: is not a known key"),
        (
            {"Issuer": "i", "KeysFile": "k", "Roles": [{"Name": "r", "Rights": ["Fly"]}]},
            "Roles[0].Rights: 'Fly' is not a right",
        ),
    ],
)
def test_what_is_wrong_is_named(entry: dict[str, Any], words: str) -> None:
    (problem,) = problems(config(TokenIssuers=[entry]))
    assert f"TokenIssuers[0].{words}" in problem


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/k", "http://localhost/k", "http://[::1]:80/k", "https://idp.local"]
)
def test_keys_come_by_https_or_from_this_machine(url: str) -> None:
    (found,) = read({"Issuer": "i", "KeysUrl": url})
    assert found.keys_url == url


def test_an_issuer_is_named_once() -> None:
    entry = {"Issuer": "i", "KeysFile": "k"}
    (problem,) = problems(config(TokenIssuers=[entry, entry]))
    assert "'i' is given twice" in problem
