"""The official Go client: what its users do, with messages and with entities."""

import os
import subprocess

import pytest

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import Queues
from tests.wire.go import go_client

TOURED_WITHIN_S = 80


class Tour:
    """Runs scenarios of the Go program, and gives the lines that they print."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def __call__(self, scenario: str, *entities: str, signature: str | None = None) -> list[str]:
        text = sas.connection_string(self._broker.http_port, signature=signature)
        return self.run(text, scenario, *entities)

    def with_token(self, token: str, scenario: str, *entities: str) -> list[str]:
        """The same with what an issuer has signed, inside TLS."""
        host = f"localhost:{self._broker.http_port}"
        return self.run(host, scenario, *entities, PEEKLOCK_TOKEN=token)

    def run(self, connection: str, *arguments: str, **environment: str) -> list[str]:
        done = subprocess.run(
            [go_client("./tour"), connection, *arguments],
            env=os.environ | {"SSL_CERT_FILE": str(self._broker.authority)} | environment,
            capture_output=True,
            text=True,
            timeout=TOURED_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def tour(broker: BrokerProcess) -> Tour:
    return Tour(broker)


def test_messages_are_settled_in_every_way(tour: Tour, queue: str) -> None:
    """R-F1: a batch, all outcomes, locks that are renewed, peeking, both ways to receive.

    This client counts the delivery at hand too.
    """
    assert tour("settling", queue) == [
        "received complete 1",
        "received abandon 1",
        "received defer 1",
        "received dead-letter 1",
        "received renew 1",
        "renewed true",
        "again abandon 2 busy",
        "peeked 1 defer true",
        "deferred defer",
        "dead dead-letter bad / very bad",
        "left 0",
    ]


def test_messages_are_scheduled_and_cancelled(tour: Tour, queue: str) -> None:
    """R-F1: what is due is delivered, what is cancelled is gone."""
    assert tour("scheduling", queue) == ["scheduled 2", "waits b true true", "came soon true true"]


def test_sessions_are_accepted_by_id_and_next(tour: Tour, queues: Queues) -> None:
    """R-F1: with state, locks, and the list of them."""
    assert tour("sessions", queues.take("session")) == [
        "listed blue,red",
        "held true",
        "renewed true",
        "state half way",
        "cleared true",
        "locked true",
        "deferred blue1 true true",
        "got blue2 blue",
        "next red",
        "got red1 red",
        "got red2 red",
    ]


def test_subscriptions_get_copies(tour: Tour, queues: Queues) -> None:
    """R-F1: properties of each type arrive as they were sent."""
    assert tour("topics", queues.take("topic"), "a", "b") == [
        "a news weather text/plain m-1",
        "7 t true 0.5",
        "numbers true true",
        "b news weather text/plain m-1",
        "7 t true 0.5",
        "numbers true true",
    ]


def test_refusals_have_the_codes_that_users_compare(tour: Tour, queue: str) -> None:
    """R-F7: the client's own names for what went wrong."""
    assert tour("refusals", queue) == [
        "nowhere notfound",
        "stranger unauthorized",
        "twice locklost",
        "large the message is too large",
    ]


def test_administration_over_https(tour: Tour) -> None:
    """R-F1: with nothing but the trusted authority; the port is that of the connection string."""
    assert tour("administration", "go-made", "go-topic") == [
        "namespace sbemulatorns Standard",
        "made PT45S 7 true by <Go> & friends",
        "rules reader [Listen]",
        "twice 409",
        "changed 3 ReceiveDisabled PT45S",
        "counts 1 1 true false",
        "listed 1",
        "forwards true go-made",
        "into sessions true",
        "size 400 true",
        "gone true",
        "twice 404",
        "topic P1D Active",
        "subscription s PT10S",
        "accessed true",
        "missing true true",
        "date true",
        "n > @least 5 SET seen = TRUE",
        "weather true t",
        "rules correlation,sql",
        "taken 1",
        "subscriptions 1",
        "gone true",
    ]


def test_a_signature_for_the_host_alone(tour: Tour, queue: str) -> None:
    """As its helper makes connection strings that last for a while; by AMQP and by HTTPS."""
    signature = sas.token("localhost")
    seen = tour("scheduling", queue, signature=signature)
    assert seen == ["scheduled 2", "waits b true true", "came soon true true"]
    assert (
        tour("administration", "go-host", "go-host-topic", signature=signature)[-1] == "gone true"
    )
