"""The server's own words; that it serves at all is shown by the wire tests."""

import pytest

from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.server import connection_string
from peeklock.settings import Settings


@pytest.mark.parametrize(
    ("host", "port", "place"),
    [
        ("127.0.0.1", 5672, "sb://localhost;"),
        ("127.0.0.1", 7777, "sb://localhost:7777;"),
        ("10.1.2.3", 5672, "sb://10.1.2.3;"),
    ],
)
def test_the_connection_string_fits_the_listener(host: str, port: int, place: str) -> None:
    said = connection_string(Settings(host=host), (development_rule(),), port)
    assert said == (
        f"Endpoint={place}SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


def test_a_key_that_is_a_secret_is_not_said() -> None:
    said = connection_string(Settings(), (AuthorizationRule("mine", "secret"),), 5672)
    assert "secret" not in said
    assert "SharedAccessKeyName=mine;" in said


def test_a_namespace_without_rules_still_says_where_it_listens() -> None:
    assert connection_string(Settings(), (), 5672).startswith("Endpoint=sb://localhost;")
