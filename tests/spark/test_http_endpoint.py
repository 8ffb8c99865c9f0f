"""The HTTP endpoint is found by the same rules for everybody who asks."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peeklock.client.administration.http_client import http_endpoint
from peeklock.spark.jobs.frame import Bus as JobBus
from peeklock.spark.jobs.namespace import NamespaceListing
from peeklock.spark.journal.client import JournalDescription, JournalUnavailable
from peeklock.spark.journal.stream import client_of
from peeklock.spark.options import Access, source_options
from peeklock.spark.sink.description import Unknown, describe
from tests.spark.spark_broker import Bus

KEY = "SharedAccessKeyName=Root;SharedAccessKey=key"
HANDSHAKE = 0x16


@pytest.fixture(scope="module")
def authority(bus: Bus) -> str:
    return str(bus.process.authority)


@pytest.mark.parametrize(
    ("text", "http_port", "expected"),
    [
        (f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true", 0, ("http", 5300)),
        (f"Endpoint=sb://localhost:9;{KEY};UseDevelopmentEmulator=true", 0, ("http", 9)),
        (f"Endpoint=sb://localhost:9;{KEY};UseDevelopmentEmulator=true", 8, ("http", 8)),
        (f"Endpoint=sb://localhost;{KEY}", 0, ("https", 443)),
        (f"Endpoint=sb://localhost:5671;{KEY}", 0, ("https", 5671)),
        (f"Endpoint=sb://localhost;{KEY}", 5671, ("https", 5671)),
    ],
)
def test_the_port_is_the_nearest_that_was_said(
    text: str, http_port: int, expected: tuple[str, int]
) -> None:
    found = http_endpoint(text, http_port)
    assert (found.scheme, found.port) == expected


def test_an_authority_means_tls(authority: str) -> None:
    found = http_endpoint(
        f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true", ca_file=authority
    )
    assert (found.scheme, found.port) == ("https", 5300)


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the authority in .*none\.pem cannot be read"):
        http_endpoint(f"Endpoint=sb://localhost;{KEY}", ca_file=str(tmp_path / "none.pem"))


def test_everybody_comes_in_with_tls(bus: Bus, authority: str) -> None:
    queue = bus.queue()
    access = accessing(bus.connection_string, bus.process.http_port, authority)
    assert journal(access, queue).entity == queue
    assert not describe(access, queue).is_partitioned


def test_everybody_comes_in_by_the_port_of_the_connection_string(bus: Bus) -> None:
    queue = bus.queue()
    access = accessing(bus.connection_string)
    assert journal(access, queue).entity == queue
    assert not describe(access, queue).is_partitioned
    names = [
        entity.name for entity in NamespaceListing(JobBus(bus.connection_string, None)).entities()
    ]
    assert queue in names


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A place where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


def test_nobody_sends_a_token_in_clear_past_an_authority(
    silent: socket.socket, authority: str
) -> None:
    text = f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true"
    access = accessing(text, silent.getsockname()[1], authority)
    with ThreadPoolExecutor(1) as pool:
        for ask in (journal, describe):
            asking = pool.submit(ask, access, "q")
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(10)
                assert connection.recv(1)[0] == HANDSHAKE
            assert isinstance(asking.exception(10), JournalUnavailable | Unknown)


def test_an_answer_of_the_journal_is_waited_for_as_long_as_was_said(silent: socket.socket) -> None:
    text = f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true"
    started_at = time.monotonic()
    with pytest.raises(JournalUnavailable, match="timed out"):
        journal(accessing(text, silent.getsockname()[1]), "q")
    assert time.monotonic() - started_at < 10


def journal(access: Access, queue: str) -> JournalDescription:
    with client_of(access) as client:
        return client.describe(queue)


def accessing(text: str, http_port: int = 0, ca_file: str = "") -> Access:
    given = {
        "connectionString": text,
        "queue": "q",
        "httpPort": str(http_port),
        "caFile": ca_file,
        "receiverTimeout": "1s",
        "retryDeadline": "1ms",
    }
    return source_options(given, streaming=False).access
