"""Which ports are asked, and whether it is encrypted, as the official clients decide it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.client.connections.connection_string import DEVELOPMENT

KEY = "SharedAccessKeyName=n;SharedAccessKey=k"
PLAIN = f"{KEY};UseDevelopmentEmulator=true"


def reached(*arguments: str, **environment: str) -> tuple[str, int, int, bool]:
    found: list[BrokerAccess] = []
    app = typer.Typer()

    @app.command()
    @asks_broker
    def ask(broker: BrokerAccess) -> None:
        found.append(broker)

    done = CliRunner().invoke(app, list(arguments), env=environment)
    assert done.exit_code == 0, done.output
    (broker,) = found
    return broker.connection.host, broker.amqp_port, broker.http_port, broker.context is not None


@pytest.mark.parametrize(
    ("connection", "arguments", "expected"),
    [
        (DEVELOPMENT, [], ("localhost", 5672, 5300, False)),
        (f"Endpoint=sb://h;{PLAIN}", [], ("h", 5672, 5300, False)),
        (f"Endpoint=sb://h:7777;{PLAIN}", [], ("h", 7777, 5300, False)),
        (f"Endpoint=sb://h:7777;{PLAIN}", ["--amqp-port", "8"], ("h", 8, 5300, False)),
        (f"Endpoint=sb://h;{PLAIN}", ["--tls"], ("h", 5672, 5300, True)),
        (f"Endpoint=sb://h;{KEY}", [], ("h", 5671, 443, True)),
        (f"Endpoint=sb://h:7777;{KEY}", [], ("h", 7777, 7777, True)),
        (f"Endpoint=sb://h;{KEY}", ["--no-tls"], ("h", 5672, 5300, False)),
        (f"Endpoint=sb://h;{KEY}", ["--http-port", "9"], ("h", 5671, 9, True)),
    ],
)
def test_ports_and_encryption(
    connection: str, arguments: list[str], expected: tuple[str, int, int, bool]
) -> None:
    assert reached("--connection-string", connection, *arguments) == expected
    assert reached(*arguments, PEEKLOCK_CONNECTION_STRING=connection) == expected


def test_a_signature_that_cannot_be_read_is_said() -> None:
    given = "Endpoint=sb://h;SharedAccessSignature=nothing;UseDevelopmentEmulator=true"
    app = typer.Typer()

    @app.command()
    @asks_broker
    def ask(broker: BrokerAccess) -> None:
        broker.client_config()

    done = CliRunner().invoke(app, ["--connection-string", given])
    assert done.exit_code == 1
    assert "signature cannot be read" in done.output
