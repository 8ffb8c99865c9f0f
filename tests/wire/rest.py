"""A REST client as somebody would write one who has no library but Python's own."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.wire import sas


class Answer:
    """An answer that was read to its end."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def properties(self) -> dict[str, Any]:
        """What the broker says of the message."""
        found: dict[str, Any] = json.loads(self.headers["BrokerProperties"])
        return found

    @property
    def place(self) -> str:
        """The path that a locked message is settled at."""
        return urlsplit(self.headers["Location"]).path


class RestClient:
    """One connection that is kept."""

    def __init__(self, port: int, **signer: Any) -> None:
        self.port = port
        self._signer = signer
        self._connection = http.client.HTTPConnection("localhost", port, timeout=90)

    def authorization(self) -> str:
        return sas.token(f"http://localhost:{self.port}/", **self._signer)

    def ask(
        self, method: str, path: str, body: Any = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        signed = {"Authorization": self.authorization()} | (headers or {})
        self._connection.request(method, path, body, signed)
        return Answer(self._connection.getresponse())

    def begin(self, method: str, path: str) -> None:
        """Ask and wait for nothing."""
        self._connection.request(method, path, headers={"Authorization": self.authorization()})

    def send(self, path: str, body: bytes, **headers: str) -> None:
        """Send what must be accepted."""
        assert self.ask("POST", f"/{path}/messages", body, headers).status == 201

    def lock(self, path: str, timeout: int = 20) -> Answer:
        """Lock a message that must come."""
        answer = self.ask("POST", f"/{path}/messages/head?timeout={timeout}")
        assert answer.status == 201, answer.body
        return answer

    def take(self, path: str, timeout: int = 20) -> Answer:
        """Receive and delete a message that must come."""
        answer = self.ask("DELETE", f"/{path}/messages/head?timeout={timeout}")
        assert answer.status == 200, answer.body
        return answer

    def is_empty(self, path: str) -> bool:
        return self.ask("DELETE", f"/{path}/messages/head?timeout=0").status == 204

    def close(self) -> None:
        self._connection.close()
