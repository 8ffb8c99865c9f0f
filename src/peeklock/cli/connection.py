"""Where commands find a running broker, and how they show who they are."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, final

import typer

from peeklock.settings import HTTP_PORT

# What `peeklock serve` prints when nobody chose other keys.
DEVELOPMENT: Final = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)

ConnectionOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--connection-string",
        envvar="PEEKLOCK_CONNECTION_STRING",
        help="How to reach the broker and with which key; the key must give the right Manage.",
        show_default="the development key on localhost",
    ),
]
HttpPortOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--http-port",
        envvar="PEEKLOCK_HTTP_PORT",
        min=1,
        max=65535,
        help="The broker's port for HTTP.",
    ),
]
HTTP_PORT_DEFAULT: Final = HTTP_PORT

# Taking a store away waits for what is under way in it.
_TIMEOUT_S: Final = 120.0
_TOKEN_MS: Final = 5 * 60_000
_ANSWER_BYTES_MAX: Final = 16 << 20


class ConnectionProblem(Exception):
    """The broker cannot be asked, or declined; the text is for the user."""


@final
@dataclass(slots=True, init=False)
class Connection:
    """A connection string taken apart: a key, or a token that somebody made of one."""

    host: Final[str]
    rule_name: Final[str]
    key: Final[str]
    token: Final[str]

    def __init__(self, host: str, rule_name: str, key: str, token: str = "") -> None:
        self.host = host
        self.rule_name = rule_name
        self.key = key
        self.token = token

    def __repr__(self) -> str:
        # Written out so that no key reaches a log or a traceback.
        return f"Connection({self.host!r}, {self.rule_name!r})"

    def ask(self, http_port: int, method: str, path: str) -> dict[str, Any]:
        """Send one request to the broker and give the document that it answers."""
        import http.client
        import json

        broker = http.client.HTTPConnection(self.host, http_port, timeout=_TIMEOUT_S)
        try:
            broker.request(method, path, headers={"Authorization": self._authorization()})
            answer = broker.getresponse()
            text = answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionProblem(
                f"cannot reach a broker at {self.host}:{http_port}: {str(error) or repr(error)}"
            ) from error
        finally:
            broker.close()
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ConnectionProblem(
                f"what answers at {self.host}:{http_port} is no Peeklock: status {answer.status}"
            )
        if answer.status != http.client.OK:
            problem = document.get("error", f"the broker answered with status {answer.status}")
            raise ConnectionProblem(str(problem))
        return document

    def _authorization(self) -> str:
        if self.token:
            return self.token
        from peeklock.auth.sas import generate_sas
        from peeklock.clock import SystemClock

        expires_at = SystemClock().now() + _TOKEN_MS
        return generate_sas(f"http://{self.host}/", self.rule_name, self.key, expires_at)


def parse_connection(text: str) -> Connection:
    """Read a connection string in the form of the service's."""
    from urllib.parse import urlsplit

    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConnectionProblem(f"the connection string has a part without a value: '{name}'")
        parts[name.strip().lower()] = value.strip()
    endpoint = parts.get("endpoint", "")
    try:
        host = urlsplit(endpoint).hostname if "://" in endpoint else None
    except ValueError:
        host = None
    if not host:
        raise ConnectionProblem("the connection string has no Endpoint such as sb://localhost")
    token = parts.get("sharedaccesssignature", "")
    rule_name, key = parts.get("sharedaccesskeyname", ""), parts.get("sharedaccesskey", "")
    if not token and not (rule_name and key):
        raise ConnectionProblem(
            "the connection string needs SharedAccessKeyName and SharedAccessKey"
        )
    return Connection(host, rule_name, key, token)
