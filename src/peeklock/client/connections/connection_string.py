"""Connection strings: where a broker is, and what shows who its clients are.

The command line reads them too, so that this module imports next to nothing.
"""

from dataclasses import dataclass
from typing import Final, final

# What `peeklock serve` prints when nobody chose other keys.
DEVELOPMENT: Final = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
# As long as the tokens of the official clients live.
TOKEN_MS: Final = 60 * 60_000


@final
@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A connection string taken apart: a key, or a token that somebody made of one."""

    host: str
    rule_name: str
    key: str
    token: str = ""
    port: int | None = None
    # As the official clients understand it: without the emulator's flag all is encrypted.
    is_plain: bool = True
    # The entity that the string is for, where it names one.
    entity_path: str = ""

    def __repr__(self) -> str:
        # Written out so that no key reaches a log or a traceback.
        return f"ConnectionString({self.host!r}, {self.rule_name!r})"

    @property
    def address(self) -> str:
        """What is connected to."""
        return address_of(self.host)

    def authorization(self, scheme: str, path: str = "") -> str:
        """Return a token for everything below a path."""
        if self.token:
            return self.token
        from peeklock.auth.sas import generate_sas
        from peeklock.clock import SystemClock

        expires_at = SystemClock().now() + TOKEN_MS
        return generate_sas(f"{scheme}://{self.host}/{path}", self.rule_name, self.key, expires_at)


def address_of(host: str) -> str:
    """Return what to connect to for a host. A namespace may be named before `localhost`, and not
    every system knows that such names are this machine's."""
    return "localhost" if host.endswith(".localhost") else host


def parse_connection_string(text: str) -> ConnectionString:
    """Read a connection string in the form of the service's; a ValueError says what is wrong."""
    parts = connection_parts(text)
    host, port = _endpoint(parts.get("endpoint", ""))
    token = parts.get("sharedaccesssignature", "")
    rule_name, key = parts.get("sharedaccesskeyname", ""), parts.get("sharedaccesskey", "")
    if not token and not (rule_name and key):
        raise ValueError("the connection string needs SharedAccessKeyName and SharedAccessKey")
    is_plain = parts.get("usedevelopmentemulator", "").lower() == "true"
    entity_path = parts.get("entitypath", "").strip("/")
    return ConnectionString(host, rule_name, key, token, port, is_plain, entity_path)


def connection_parts(text: str) -> dict[str, str]:
    """Take a connection string apart; names are in lower case, and a ValueError names one that has
    no value."""
    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"the connection string has a part without a value: '{name}'")
        parts[name.strip().lower()] = value.strip()
    return parts


def _endpoint(text: str) -> tuple[str, int | None]:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text if "://" in text else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise ValueError("the connection string has no Endpoint such as sb://localhost")
    return host, port
