"""Where a client goes, by what it was told."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential

from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection_string import DEVELOPMENT, parse_connection_string
from peeklock.client.credentials import Credential, SasKey, SasToken, Token
from tests.wire import sas

KEY = "SharedAccessKeyName=root;SharedAccessKey=secret="
FLAG = ";UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    ("text", "options", "where"),
    [
        (f"Endpoint=sb://a.example;{KEY}", {}, ("a.example", 5671, True)),
        (f"Endpoint=sb://a.example:99/;{KEY}", {}, ("a.example", 99, True)),
        (f"Endpoint=sb://a.example;{KEY}", {"is_websocket": True}, ("a.example", 443, True)),
        (f"Endpoint=sb://localhost;{KEY}{FLAG}", {}, ("localhost", 5672, False)),
        (f"Endpoint=sb://localhost:99;{KEY}{FLAG}", {}, ("localhost", 99, False)),
        (f"Endpoint=sb://depot.localhost;{KEY}{FLAG}", {}, ("localhost", 5672, False)),
        (
            f"Endpoint=sb://localhost;{KEY}{FLAG}",
            {"is_websocket": True},
            ("localhost", 5300, False),
        ),
        (
            f"Endpoint=sb://localhost;{KEY}{FLAG}",
            {"ssl_context": ssl.create_default_context()},
            ("localhost", 5672, True),
        ),
        (
            f"Endpoint=sb://a.example;{KEY}",
            {"custom_endpoint": "gate.example:8443"},
            ("gate.example", 8443, True),
        ),
        (
            f"Endpoint=sb://a.example;{KEY}",
            {"custom_endpoint": "https://gate.example:8443/way", "is_websocket": True},
            ("gate.example", 8443, True),
        ),
    ],
)
def test_where_a_connection_string_leads(
    text: str, options: dict[str, Any], where: tuple[str, int, bool]
) -> None:
    found = ClientConfig.from_connection_string(text, **options)
    assert (found.address, found.port, found.ssl_context is not None) == where


def test_the_namespace_keeps_its_name_behind_another_address() -> None:
    found = ClientConfig.from_connection_string(
        f"Endpoint=sb://a.example;{KEY}",
        custom_endpoint="https://gate.example/way/",
        is_websocket=True,
    )
    assert (found.host, found.address, found.port) == ("a.example", "gate.example", 443)
    assert found.websocket_path == "/way"


def test_who_a_client_is() -> None:
    key = ClientConfig.from_connection_string(DEVELOPMENT).credential
    assert isinstance(key, SasKey)
    assert key.rule_name == "RootManageSharedAccessKey"
    token = sas.token("sb://localhost/q")
    text = f"Endpoint=sb://localhost;SharedAccessSignature={token};EntityPath=q{FLAG}"
    found = ClientConfig.from_connection_string(text)
    assert isinstance(found.credential, SasToken)
    assert found.entity_path == "q"
    assert "secret" not in repr(parse_connection_string(f"Endpoint=sb://a;{KEY}"))
    assert "secret" not in repr(SasKey("name", "secret"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Endpoint"),
        (f"Endpoint=localhost;{KEY}", "Endpoint"),
        (f"Endpoint=sb://localhost:many;{KEY}", "Endpoint"),
        ("Endpoint=sb://localhost", "SharedAccessKeyName"),
        ("Endpoint=sb://localhost;SharedAccessKey", "without a value"),
        ("Endpoint=sb://localhost;SharedAccessSignature=nothing", "signature"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ClientConfig.from_connection_string(text)


def test_an_authority_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "missing.pem"):
        with pytest.raises(ValueError, match="authority"):
            ClientConfig.from_connection_string(DEVELOPMENT, ca_file=path)


def test_credentials_of_other_libraries_are_known_by_their_shape() -> None:
    first, second = sas.token("sb://localhost/q"), sas.token("sb://localhost/r")
    key, signature = AzureNamedKeyCredential("n", "k"), AzureSasCredential(first)
    made = [ClientConfig.for_namespace("localhost", given).credential for given in (key, signature)]

    def texts() -> list[str]:
        return [asyncio.run(each.token("sb://localhost/q", 0)).text for each in made]

    assert "skn=n" in texts()[0]
    assert texts()[1] == first
    # They can be changed while a client has them.
    key.update("other", "k")
    signature.update(second)
    assert "skn=other" in texts()[0]
    assert texts()[1] == second
    # So that a connection asks again before the one it has is over.
    assert asyncio.run(made[1].token("sb://localhost/q", 0)).is_renewable
    with pytest.raises(ValueError, match="signature"):
        ClientConfig.for_namespace("localhost", AzureSasCredential("nothing"))


@pytest.mark.parametrize("is_async", [False, True])
def test_identities_are_asked_in_both_manners(is_async: bool) -> None:
    found = AccessToken("a.b.c", 1_700_000_000)

    class Waits:
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            return found

    class Awaits:
        async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            return found

    given = Awaits() if is_async else Waits()
    credential = ClientConfig.for_namespace("localhost", given).credential
    token = asyncio.run(_token(credential))
    assert (token.text, token.type, token.expires_at) == ("a.b.c", "jwt", 1_700_000_000_000)


async def _token(credential: Credential) -> Token:
    return await credential.token("sb://localhost/q", 0)


def test_a_namespace_can_be_named_without_a_connection_string() -> None:
    found = ClientConfig.for_namespace("a.servicebus.windows.net", SasKey("n", "k"))
    assert (found.host, found.port) == ("a.servicebus.windows.net", 5671)
    plain = ClientConfig.for_namespace("localhost:99", SasKey("n", "k"), is_plain=True)
    assert (plain.host, plain.port, plain.ssl_context) == ("localhost", 99, None)
    with pytest.raises(ValueError, match="no host"):
        ClientConfig.for_namespace("", SasKey("n", "k"))
