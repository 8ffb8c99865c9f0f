"""Issuers of JSON web tokens, such as Entra ID: whom a namespace believes, and for what."""

import ipaddress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol, final
from urllib.parse import urlsplit

from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import LISTEN, MANAGE, NO_RIGHTS, SEND, Rights, complete
from peeklock.clock import Instant

# What tokens for the service are made for, whichever namespace they are shown to.
AUDIENCES: Final = ("https://servicebus.azure.net", "https://servicebus.azure.net/")
# The roles that the service has by itself.
ROLES: Final = {
    "Azure Service Bus Data Owner": MANAGE,
    "Azure Service Bus Data Sender": SEND,
    "Azure Service Bus Data Receiver": LISTEN,
}
SKEW_MS: Final = 60_000
REFRESH_MS: Final = 600_000
_LOOPBACK: Final = "localhost"


@final
@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """Whose tokens are believed, by which keys they are checked, and what roles are worth."""

    issuer: str
    audiences: tuple[str, ...] = AUDIENCES
    _: KW_ONLY
    # A file with a JSON web key set, or where to fetch one: one of them is given.
    keys_file: str = ""
    keys_url: str = ""
    roles: dict[str, Rights] = field(default_factory=lambda: dict(ROLES))
    skew_ms: int = SKEW_MS
    refresh_ms: int = REFRESH_MS
    # Whether its tokens may come without TLS from other machines.
    allows_plain: bool = False

    def rights_of(self, roles: list[str]) -> Rights:
        """Add up what roles are worth; those that nobody named are worth nothing."""
        rights = NO_RIGHTS
        for role in roles:
            rights |= self.roles.get(role, NO_RIGHTS)
        return complete(rights)


@final
@dataclass(frozen=True, slots=True)
class WebProof:
    """What a JSON web token rests on: it gives nothing any more once that is gone.

    The token itself is not kept, because each grant has one of these.
    """

    issuer: str
    # The identity of the key that has signed it.
    key: bytes
    # Those of its audiences and roles that the configuration names.
    audiences: tuple[str, ...]
    roles: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class WebToken:
    """What a JSON web token that was found good says: who shows it, with which rights, how long."""

    subject: str
    rights: Rights
    expires_at: Instant
    proof: WebProof
    _: KW_ONLY
    # Whether it may come without TLS from other machines.
    allows_plain: bool = False


class WebTokens(Protocol):
    """Who checks JSON web tokens."""

    def read(self, token: str, now: Instant | None) -> WebToken | AuthRefusal:
        """Check a token; without an instant its time is no matter."""
        ...

    def current_rights(self, proof: WebProof) -> Rights:
        """Return what a token gives by the keys and roles of now."""
        ...


def is_safe_address(url: str) -> bool:
    """Return whether nobody on the way can answer in the place of an address: it is one of https,
    or of http on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine's own."""
    if host.rstrip(".") == _LOOPBACK:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
