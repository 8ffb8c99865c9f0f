"""Connection strings: where commands go."""

import pytest

from peeklock.cli.connection import parse_connection

KEY = "SharedAccessKeyName=root;SharedAccessKey=key;"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost", "localhost"),
        ("depot.localhost", "localhost"),
        ("depot.example", "depot.example"),
        ("notlocalhost", "notlocalhost"),
    ],
)
def test_a_name_before_localhost_is_this_machine(host: str, address: str) -> None:
    """R-F7: the name stays, because it tells the namespace."""
    found = parse_connection(f"Endpoint=sb://{host}:5673;{KEY}")
    assert (found.host, found.address, found.port) == (host, address, 5673)
