"""Requests over HTTP, and the connections that are kept."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from peeklock.client.administration.blocking import ServiceBusAdministrationClient
from peeklock.client.administration.errors import ServiceResponseError
from peeklock.client.administration.http_client import HttpClient, http_endpoint
from peeklock.client.credentials import SasKey

HANDLED_WITHIN_S = 10.0


class Server(ThreadingHTTPServer):
    """Answers everything, and counts the connections that are open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.opened = 0
        self.open = 0
        self.changed = threading.Condition()

    @property
    def connection_string(self) -> str:
        return (
            f"Endpoint=sb://localhost:{self.server_address[1]};SharedAccessKeyName=k;"
            "SharedAccessKey=v;UseDevelopmentEmulator=true"
        )

    def until_open(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.open == count, HANDLED_WITHIN_S)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        with self.server.changed:
            self.server.opened += 1
            self.server.open += 1

    def finish(self) -> None:
        super().finish()
        with self.server.changed:
            self.server.open -= 1
            self.server.changed.notify_all()

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_PUT = do_DELETE = _answer  # noqa: N815  called so by the library

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_changes_something_leaves_few_connections(method: str) -> None:
    with serving() as server:
        client = HttpClient(http_endpoint(server.connection_string))
        for _ in range(20):
            assert client.request(method, "/a", body=b"x").content == b"ok"
        assert server.until_open(4)
        # Those that only read use them.
        for _ in range(5):
            client.request("GET", "/a")
        assert server.opened == 20
        client.close()
        assert server.until_open(0)


def test_requests_are_logged_for_those_who_want_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "peeklock.client.administration")
    with serving() as server:
        for is_wanted in (False, True):
            text = server.connection_string
            with ServiceBusAdministrationClient.from_connection_string(
                text, logging_enable=is_wanted
            ) as admin:
                with pytest.raises(ServiceResponseError):
                    admin.get_queue("a")
                assert bool(caplog.messages) is is_wanted
    assert caplog.messages == ["GET /a?api-version=2024-05: 200"]


def test_an_authority_has_two_names() -> None:
    text = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v"
    made = ServiceBusAdministrationClient.from_connection_string
    for wrong, said in (
        ({"connection_verify": "a.pem", "ca_file": "b.pem"}, "one of them"),
        ({"connection_verify": False}, "the file of the authority"),
        ({"connection_verify": "no-such.pem"}, "no-such.pem cannot be read"),
    ):
        options: dict[str, Any] = wrong
        with pytest.raises(ValueError, match=said):
            made(text, **options)
        with pytest.raises(ValueError, match=said):
            ServiceBusAdministrationClient("localhost", SasKey("k", "v"), **options)
